from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from legation import Platform
from legation.config import Agent, Database, Model, Team
from legation.effects import Now, Outcome, RandomBytes, Sleep, Spawn, ThisNode
from legation.runs.start import NewRun, start
from legation.shares.limits import LimitOverrides, PlatformLimits
from legation.store.failures import Busy, CommitLost, Conflict
from legation.store.run_reads import FetchRun
from legation.store.run_rows import RunRow
from legation.store.runs import AppendEvents, FinishRun, Started, StartRun
from legation_testing import Client, play

from ...callers import Issuer

PLATFORM = Platform(agents=(Agent(id="a"),))
MEMBER = PLATFORM.context.cluster.member("main")
MEMBER.beaten_us, MEMBER.late_us = 1, 2
NEW = NewRun("o", "s", "r", "hello", pieces=False)
ROW = RunRow(
    *("o", "s", 1, "r", None, "agent", "a", "RUNNING", "{}", None, None, 0, 0, None, 0),
    *("n", 9, 1),
)


@pytest.mark.parametrize("outcome", [None, Outcome[str]()], ids=["left", "joined"])
def test_a_run_that_is_there_is_somebody_elses_to_execute(outcome: Outcome[str] | None) -> None:
    started = play(
        start(PLATFORM.context, PLATFORM.registry.agents["a"], NEW, outcome=outcome),
        [(ThisNode(), "n"), (Now(), 1), (StartRun, Conflict("there")), (FetchRun, ROW)],
    )

    assert started == Started(1, None)
    assert outcome is None or (outcome.over, outcome.result) == (True, None)


def test_a_database_that_stays_busy_is_not_asked_for_ever() -> None:
    tries = [
        step
        for pause in (0.05, 0.1, 0.2)
        for step in (
            (StartRun, Busy("x")),
            (FetchRun, None),
            (RandomBytes(2), b"\xff\xff"),
            (Sleep(pause), None),
        )
    ]
    script = [(ThisNode(), "n"), (Now(), 1), *tries]
    agent = PLATFORM.registry.agents["a"]

    with pytest.raises(Busy):
        play(start(PLATFORM.context, agent, NEW), [*script, (StartRun, Busy("x"))])
    waits = Started(2, None)
    assert play(start(PLATFORM.context, agent, NEW), [*script, (StartRun, waits)]) == waits


def test_the_calls_of_models_of_a_run_are_limited_by_the_scope_it_was_asked_with() -> None:
    issuer = Issuer()
    platform = Platform(
        databases=(Database("main", "sqlite://"),),
        models=(Model("slow", "echo", delay_seconds=10.0),),
        agents=(Agent(id="slow", model="slow"),),
        authorization=True,
        authorization_config=issuer.authorization(),
        limits=PlatformLimits(scopes={"batch:run": LimitOverrides(model_calls=1)}),
    )
    scopes = ("agents:run", "agents:read", "sessions:read")
    with Client(platform, token=issuer.token(*scopes, "batch:run", sub="ada")) as client:
        path = "/agents/slow/runs"
        for session in ("s", "t"):
            form = {"message": "x", "background": True, "session_id": session}
            client.post(path, form=form).expect_success()
        other = issuer.token(*scopes, sub="bob")
        for session in ("u", "v"):
            form = {"message": "x", "background": True, "session_id": session}
            client.post(path, form=form, token=other).expect_success()

        client.advance(11)
        assert statuses(client) == ["COMPLETED", "RUNNING"]
        assert statuses(client, other, "uv") == ["COMPLETED", "COMPLETED"]
        client.advance(12)
        assert statuses(client) == ["COMPLETED", "COMPLETED"]


def statuses(client: Client, token: str | None = None, sessions: str = "st") -> list[str]:
    paths = [f"/sessions/{one}/runs" for one in sessions]
    found = [client.get(path, token=token) if token else client.get(path) for path in paths]
    return [answer.json()[0]["status"] for answer in found]


# --- The first event ---------------------------------------------------------------------------


@pytest.fixture
def client(tmp_path: Path) -> Generator[Client]:
    def platform() -> Platform:
        return Platform(
            databases=(Database("main", f"sqlite:///{tmp_path}/main.db"),),
            models=(Model("slow", "echo", delay_seconds=5.0),),
            agents=(Agent(id="quick"), Agent(id="sloth", model="slow")),
            teams=(Team(id="desk", members=("quick",)),),
        )

    with Client(platform, folder=tmp_path) as client:
        yield client


def ask(folder: Path, text: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "main.db")) as database:
        return database.execute(text).fetchall()


def names(answer: Any) -> list[str]:
    return [event.name for event in answer.events()]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/agents/quick/runs", "RunStarted"),
        ("/agents/sloth/runs", "RunStarted"),
        ("/teams/desk/runs", "TeamRunStarted"),
    ],
)
def test_the_first_event_of_a_stream_is_stored_with_the_run_and_shown_before_anything_else_is(
    client: Client, tmp_path: Path, path: str, name: str
) -> None:
    faults = [client.fail_at(unit, Busy("x"), times=None) for unit in (AppendEvents, FinishRun)]
    exchange = client.begin("POST", path, form={"message": "one two"})
    client.settle()

    assert names(exchange) == [name]
    assert ask(tmp_path, "select seq, name from events") == [(1, name)]
    assert ask(tmp_path, "select status, events from runs") == [("RUNNING", 1)]
    for fault in faults:
        fault.disarm()
    client.advance(20)
    seen = exchange.events()
    assert [str(event.id).rpartition(":")[2] for event in seen] == [
        *map(str, range(1, len(seen) + 1))
    ]
    assert names(exchange).count(name) == 1
    assert seen[-1].name.endswith("RunCompleted")


@pytest.mark.parametrize("how", [{"background": True}, {"stream": False}, {"waits": True}])
def test_the_first_event_of_a_run_for_which_nobody_waits_is_stored_with_what_follows(
    client: Client, tmp_path: Path, how: dict[str, Any]
) -> None:
    if how.pop("waits", False):
        client.begin("POST", "/agents/sloth/runs", form={"message": "x", "session_id": "s"})
        client.settle()
    client.fail_at(AppendEvents, Busy("x"), times=None)
    form = {"message": "x", "session_id": "s", **how}
    client.begin("POST", "/agents/sloth/runs", form=form)
    client.settle()

    assert ask(tmp_path, "select events from runs order by run_no desc limit 1") == [(0,)]


def test_a_run_whose_node_dies_behind_its_first_event_goes_on(
    client: Client, tmp_path: Path
) -> None:
    fault = client.fail_at(AppendEvents, Busy("x"), times=None)
    form = {"message": "one two", "session_id": "s"}
    exchange = client.begin("POST", "/agents/sloth/runs", form=form)
    client.settle()
    run_id = str(exchange.events()[0].id).rpartition(":")[0]
    fault.disarm()
    client.restart()
    client.advance(60)
    found = client.get(f"/agents/sloth/runs/{run_id}/events")

    assert names(found)[:3] == ["RunStarted", "RunContinued", "ModelRequestStarted"]
    assert client.get(f"/agents/sloth/runs/{run_id}").json()["content"] == "one two"
    assert_bytes_are_counted_once(tmp_path)


@pytest.mark.parametrize("path", ["/agents/quick/runs", "/agents/sloth/runs"])
@pytest.mark.parametrize("unit", [None, StartRun, AppendEvents, FinishRun])
def test_a_commit_without_an_answer_begins_no_run_twice(
    client: Client, tmp_path: Path, path: str, unit: type[Any] | None
) -> None:
    if unit is not None:
        client.fail_at(unit, CommitLost("for a moment"), after=True)
    answer = client.post(path, form={"message": "one two", "session_id": "s"})
    client.advance(20)

    assert names(answer).count("RunStarted") == 1
    assert "RunContinued" not in names(answer)
    assert "run_resumed" not in [line.event for line in client.logs]
    assert ask(tmp_path, "select name from events order by seq") == [
        (name,) for name in names(answer)
    ]
    assert_bytes_are_counted_once(tmp_path)


def assert_bytes_are_counted_once(folder: Path) -> None:
    """Hold what is counted of the only session to be what is stored of it."""
    sizes = "select sum(length(cast({} as blob))) from {}".format
    texts = (("input", "runs"), ("output", "runs"), ("data", "events"), ("outcome", "steps"))
    stored = sum(ask(folder, sizes(*one))[0][0] or 0 for one in texts)

    assert ask(folder, "select sum(bytes) from usage") == [(stored,)]
    assert ask(folder, "select bytes from sessions") == [(stored,)]


@pytest.mark.parametrize(
    ("row", "ours"),
    [
        (evolve(ROW, events=1), True),
        (evolve(ROW, events=2), False),
        (evolve(ROW, events=1, status="COMPLETED"), False),
        (evolve(ROW, events=1, lease_by="other"), False),
    ],
    ids=["as it was stored", "begun", "over", "of another node"],
)
def test_a_run_that_is_found_after_a_lost_commit_begins_behind_its_first_event(
    row: RunRow, ours: bool
) -> None:
    program = start(PLATFORM.context, PLATFORM.registry.agents["a"], evolve(NEW, streamed=True))
    script: list[Any] = [(ThisNode(), "n"), (Now(), 1), (StartRun, CommitLost("x"))]
    script.append((FetchRun, row))
    if ours:
        script.append((Spawn, None))
    started = play(program, script)

    assert (started.claim is not None, started.first is not None) == (ours, ours)
    if started.claim is not None and started.first is not None:
        assert started.claim.events == 0
        assert (started.first.seq, started.first.name) == (1, "RunStarted")
