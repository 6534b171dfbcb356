"""`legation check --runs`: on both engines, beside a second database, without a trace."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from legation.models.conversation import Message, ToolCall, Usage
from legation.runs.step_outcomes import encode_model, encode_outcome
from legation.runs.turn_state import CallState, ModelTurn, Standing, TurnState, dump
from legation.store.run_keeping import ReleaseRun
from legation.store.run_rows import RunLease, StoredEvent
from legation.store.runs import AppendEvents, FinishRun, StartRun
from legation.store.steps import Records, Step, StepKind

from ..drivers import Driver, PostgresDriver, SqliteDriver
from .operators import Operator

LEASE = RunLease("n", 1)
TOOLS = """
from legation import tool

@tool
def book(room: int): ...

@tool(requires_confirmation=True)
def delete(room: int): ...

@tool(name="delete", requires_confirmation=True)
def delete_by_name(room: str): ...
"""
DELETE = CallState(
    call=ToolCall("c2", "delete", '{"room": 7}'),
    created_us=1,
    arguments={"room": 7},
    standing=Standing.CONFIRM,
)
BOOK = CallState(call=ToolCall("c1", "book", '{"room": 7}'), created_us=1, arguments={"room": 7})


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEGATION_DATA", str(tmp_path / "data"))
    Path("runs_tools.py").write_text(TOOLS)
    return Operator(tmp_path, {})


def configure(operator: Operator, second: str, agent: str = "desk", *tools: str) -> None:
    listed = ", ".join(f"'runs_tools:{name}'" for name in tools or ("book", "delete"))
    if not Path("keys").exists():
        operator.keys()
    written = Path("platform.toml").read_text().partition("[databases.second]")[0]
    Path("platform.toml").write_text(written)
    with Path("platform.toml").open("a") as file:
        file.write(f"[databases.second]\nurl = '{second}'\n")
        file.write(f"[[agents]]\nid = '{agent}'\ntools = [{listed}]\n")


def start(driver: Driver, run_id: str, component: str = "desk") -> None:
    asked = '{"message":"go","stream":false}'
    driver.run(StartRun("o", run_id, run_id, "agent", component, asked, "", "n", 1))


def put_runs(driver: Driver) -> None:
    """Store a run that waits for an approval, one whose call is in doubt, and one that is over."""
    event = StoredEvent(1, "e", "{}")
    start(driver, "approval")
    said = (ModelTurn(Message("user", "go"), 0),)
    turn = dump(TurnState(said=said, calls=(DELETE,), rounds=1))
    kept = json.dumps({"message": "go", "stream": False, "turn": turn})
    who = ("o", "approval", "approval", LEASE, "n", 3)
    driver.run(FinishRun(*who, "PAUSED", "{}", None, None, (event,), (), input=kept))
    start(driver, "doubt")
    members = encode_model(Message("assistant", ""), Usage(), None, (BOOK,))
    model = Step("1", StepKind.MODEL, "m", 1, 2, encode_outcome("1", "m", members))
    steps = Records((model, Step("1.1", StepKind.CALL, "book", 3)))
    driver.run(AppendEvents("o", "doubt", LEASE, 2, (event,), 1, steps))
    assert driver.run(ReleaseRun("o", "doubt", LEASE))
    start(driver, "over")
    driver.run(
        FinishRun("o", "over", "over", LEASE, "n", 3, "ERROR", "{}", None, None, (event,), ())
    )


@pytest.fixture(params=["sqlite", "postgresql"])
def second(request: pytest.FixtureRequest, operator: Operator) -> tuple[str, Callable[[], Driver]]:
    """Return the URL of the second database, and what opens it."""
    if request.param == "sqlite":
        file = operator.folder / "second.db"
        return f"sqlite:///{file}", lambda: SqliteDriver(file)
    url: str = request.getfixturevalue("postgres")
    return url, lambda: PostgresDriver(url)


@pytest.fixture
def office(operator: Operator, second: tuple[str, Callable[[], Driver]]) -> Operator:
    """Return the operator of a platform whose second database has open runs."""
    url, open_driver = second
    configure(operator, url)
    for database in ("main", "second"):
        assert operator.run("migrate", database).exit_code == 0
    with closing(open_driver()) as driver:
        put_runs(driver)
    return operator


def summarize(operator: Operator) -> tuple[int, list[dict[str, Any]]]:
    checked = operator.run("check", "--runs", "--json")
    runs: list[dict[str, Any]] = json.loads(checked.stdout)["runs"]
    return checked.exit_code, runs


def lines_of_runs(checked: Result) -> list[str]:
    """Return what was printed of runs: it stands between the tools and the findings."""
    lines = checked.output.splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("runs  "))
    return list(takewhile(lambda line: line.startswith(("runs  ", "   ")), lines[first:]))


def test_what_goes_on_is_counted_and_a_doubt_is_named(office: Operator) -> None:
    code, (main, second) = summarize(office)

    assert code == 0
    assert (main["database"], main["open"], main["findings"]) == ("main", 0, [])
    assert (second["database"], second["open"], second["unserved"]) == ("second", 2, None)
    assert second["outcomes"] == {"goes_on": 2, "loses_call": 0, "waits": 0, "ends": 0}
    assert [(one["code"], one["runs"], one["examples"]) for one in second["findings"]] == [
        (
            "in_doubt",
            1,
            [{"run_id": "doubt", "session_id": "doubt", "status": "PENDING", "place": "1.1"}],
        )
    ]
    head = "runs    second: 1 run of agent:desk goes on"
    assert lines_of_runs(office.run("check", "--runs")) == [
        "runs    main: 0 open runs",
        f"{head}: whether book was carried out is not known: a person is asked",
        "        doubt at 1.1",
        "runs    second: 2 open runs: 2 go on",
    ]


def test_an_approval_that_would_fit_no_longer_ends_with_exit_code_1(
    office: Operator, second: tuple[str, Any]
) -> None:
    configure(office, second[0], "desk", "book", "delete_by_name")
    code, (_, told) = summarize(office)

    assert code == 1
    assert told["outcomes"] == {"goes_on": 1, "loses_call": 1, "waits": 0, "ends": 0}
    assert told["findings"][0]["code"] == "arguments"
    assert "room must be a string" in told["findings"][0]["detail"]


def test_runs_of_an_agent_that_is_gone_wait(office: Operator, second: tuple[str, Any]) -> None:
    configure(office, second[0], "other")
    checked = office.run("check", "--runs")

    assert checked.exit_code == 1
    head, why = "runs    second: 2 runs of agent:desk wait", "agent:desk is not hosted"
    assert lines_of_runs(checked)[-3:] == [
        f"{head}: {why}: it waits until a node hosts that, or it is cancelled",
        "        doubt, approval",
        "runs    second: 2 open runs: 2 wait",
    ]


def test_reading_changes_nothing(office: Operator) -> None:
    def everything() -> dict[str, bytes]:
        files = (path for path in office.folder.rglob("*") if path.is_file())
        return {str(path): path.read_bytes() for path in files if path.suffix != ".pyc"}

    office.run("check", "--runs")
    before = everything()
    assert office.run("check", "--runs").exit_code == 0

    assert everything() == before


def test_a_database_at_an_older_schema_is_not_read(office: Operator) -> None:
    back = office.run("migrate", "second", "--to", "2.10.0", "--allow-data-loss")
    assert back.exit_code == 0, back.output
    code, (_, told) = summarize(office)

    assert code == 1
    assert told["open"] == 0
    assert told["unserved"].startswith("The schema is at 2.10.0; migrate it to ")
    lines = lines_of_runs(office.run("check", "--runs"))
    (line,) = (one for one in lines if "second: " in one)
    assert line.startswith("runs    second: not read, for it would not be served: The schema")


def test_without_a_file_there_are_no_runs_and_none_is_made(operator: Operator) -> None:
    configure(operator, f"sqlite:///{operator.folder}/second.db")
    checked = operator.run("check", "--runs")

    assert checked.exit_code == 0
    assert lines_of_runs(checked)[-1] == "runs    second: 0 open runs"
    assert not list(operator.folder.glob("*.db*"))


def test_runs_are_not_read_unless_asked_for(office: Operator) -> None:
    assert "\nruns  " not in office.run("check").output
    assert "runs" not in json.loads(office.run("check", "--json").stdout)


def test_a_file_that_is_no_database_is_one_sentence(operator: Operator) -> None:
    configure(operator, f"sqlite:///{operator.folder}/second.db")
    Path("second.db").write_bytes(b"none " * 4_000)
    refused = operator.run("check", "--runs")

    assert refused.exit_code == 2
    assert refused.stderr.startswith("Error: the open runs of 'second' cannot be read: ")


def test_more_findings_than_are_shown_are_counted(
    office: Operator, second: tuple[str, Callable[[], Driver]]
) -> None:
    with closing(second[1]()) as driver:
        columns = "owner, session_id, run_no, run_id, kind, component_id, status, input, created_us"
        for number in range(203):
            driver.ask(
                f"insert into runs ({columns}) values ('p', 's', {number}, 'p{number}', 'agent',"
                f" 'gone{number}', 'PENDING', '{{}}', 1)"
            )
    code, (_, told) = summarize(office)

    assert (code, told["open"], len(told["findings"]), told["more"]) == (1, 205, 200, 4)
    assert "runs    second: and 4 more" in office.run("check", "--runs").output.splitlines()
