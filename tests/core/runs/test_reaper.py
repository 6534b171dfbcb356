"""Keeping runs: what is done about runs that nobody works on, and that nothing ends it."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest

from legation import Agent, Database, Platform
from legation.effects import (
    Asks,
    AwaitNudge,
    Interrupted,
    Interruptible,
    Log,
    Now,
    Nudge,
    Program,
    Publish,
    RandomBytes,
    Transact,
)
from legation.runs.executor import ExecuteRun
from legation.runs.reaper import KeepRuns
from legation.runs.retry import MANY, MOST_TRIES
from legation.runs.topics import cancel_topic
from legation.store.failures import Busy, StatementFailed
from legation.store.run_keeping import (
    CancelsAsked,
    FindNeglected,
    Neglected,
    ReleaseRun,
)
from legation.store.run_reads import FetchRun
from legation.store.run_rows import ClaimedRun
from legation.store.runs import AppendEvents, Ended, FinishRun
from legation.tools import tool
from legation_testing import Client, Says, ScriptedModel, call, play

PATH = "/agents/clerk/runs"
MINUTES = 10 * 60.0


@tool(requires_confirmation=True)
def book(room: int) -> str:
    """Book a room."""
    return f"room {room} is booked"


def hosting(model: ScriptedModel) -> Platform:
    return Platform(agents=(Agent(id="clerk", model=model, tools=[book]),))


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel(["Hello."] * 20)


@pytest.fixture
def client(model: ScriptedModel) -> Generator[Client]:
    with Client(lambda: hosting(model)) as client:
        yield client


def begin(client: Client, session_id: str) -> Any:
    form = {"message": "x", "stream": False, "session_id": session_id}
    exchange = client.begin("POST", PATH, form=form)
    client.settle()
    return exchange


def own_end(effect: Asks[Any]) -> bool:
    """Whether a node is about to store the end of a run that it executes itself."""
    unit = effect.unit if isinstance(effect, Transact) else None
    return isinstance(unit, FinishRun) and not unit.lapsed


def logged(client: Client, event: str) -> list[dict[str, Any]]:
    return [dict(log.fields) for log in client.logs if log.event == event]


def neglected(client: Client, session_id: str) -> Any:
    """Begin a run that its node forgets, with nothing stored of it."""
    client.fail_at(own_end, StatementFailed("no"), times=MANY + 1)
    exchange = begin(client, session_id)
    client.advance(25)
    return exchange


# --- a run that leaves no trace ------------------------------------------------------------------


def test_a_run_whose_end_can_never_be_stored_is_taken_up_three_times_and_fails(
    client: Client, model: ScriptedModel
) -> None:
    client.fail_at(own_end, StatementFailed("no"), times=None)
    exchange = begin(client, "s")
    client.advance(MINUTES)
    run = exchange.response().json()
    (fields,) = logged(client, "run_given_up")

    assert (run["status"], len(model.prompts)) == ("ERROR", MOST_TRIES)
    assert run["content"] == (
        "The run was given up: the nodes that executed it went away at step 1 (the model), one"
        " after the other"
    )
    assert fields == {
        "run_id": run["run_id"],
        "database": "main",
        "place": "1",
        "asked": "the model",
    }
    (event,) = client.get(f"{PATH}/{run['run_id']}/events").events()
    assert json.loads(event.data)["error_type"] == "gave_up"


def test_a_run_that_kills_its_node_kills_three_and_not_all(client: Client) -> None:
    client.fail_at(own_end, Busy("dead before that"), times=None)
    begin(client, "s")
    seen: list[Any] = []
    for _ in range(MOST_TRIES):
        client.restart()
        client.advance(32)
        seen += client.get("/sessions/s/runs").json()

    assert [run["status"] for run in seen] == [*["RUNNING"] * (MOST_TRIES - 1), "ERROR"]
    assert "given up" in seen[-1]["content"]


def test_the_next_run_of_the_session_goes_on_after_one_that_failed_so(client: Client) -> None:
    begin(client, "s")
    client.fail_at(own_end, StatementFailed("no"), times=(MANY + 1) * MOST_TRIES)
    begin(client, "s")
    client.post(PATH, form={"message": "next", "background": True, "session_id": "s"})
    client.advance(MINUTES)

    runs = client.get("/sessions/s/runs").json()
    assert [run["status"] for run in runs] == ["COMPLETED", "ERROR", "COMPLETED"]


@pytest.mark.parametrize("tries", [MOST_TRIES - 1, MOST_TRIES])
def test_pauses_are_not_counted_as_tries(tries: int) -> None:
    steps = [call("book", room=number) for number in range(6)]
    model = ScriptedModel([*steps, "Done."])
    with Client(hosting(model)) as client:
        run = client.run("clerk", "x", session_id="s")
        for _ in range(5):
            run = client.go_on(run, confirmed=True)
        assert run["status"] == "PAUSED"
        tools = [{**one["tool_execution"], "confirmed": True} for one in run["requirements"]]
        client.fail_at(AppendEvents, None, times=tries)
        path = f"{PATH}/{run['run_id']}/continue"
        form = {"tools": json.dumps(tools), "stream": False}
        exchange = client.begin("POST", path, form=form)
        client.advance(MINUTES)
        run = exchange.response().json()

    assert run["status"] == ("ERROR" if tries == MOST_TRIES else "COMPLETED")


# --- trouble -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "level"), [(Busy("locked"), "warning"), (KeyError("a bug"), "error")]
)
def test_trouble_is_told_once_and_ends_nothing(
    client: Client, trouble: Exception, level: str
) -> None:
    exchange = neglected(client, "s")
    client.fail_at(FindNeglected, trouble, times=60)
    client.advance(60)
    written = [log.level for log in client.logs if log.event == "reaper_round_failed"]
    assert written == [level]

    client.advance(31)
    assert exchange.response().status == 503, "nobody has held the run for a while"
    assert client.get("/sessions/s/runs").json()[0]["status"] == "COMPLETED"


def test_a_run_that_cannot_be_given_back_keeps_no_other(client: Client) -> None:
    stuck = neglected(client, "stuck")
    run_id = client.get("/sessions/stuck/runs").json()[0]["run_id"]

    def meant(effect: Asks[Any]) -> bool:
        unit = effect.unit if isinstance(effect, Transact) else None
        return isinstance(unit, ReleaseRun) and unit.run_id == run_id

    client.fail_at(meant, StatementFailed("no"), times=None)
    other = neglected(client, "other")
    client.advance(40)

    assert stuck.response().status == 503
    assert other.response().json()["status"] == "COMPLETED"
    assert len(logged(client, "reaper_round_failed")) == 1


def test_a_lock_that_is_not_had_ends_the_round(client: Client) -> None:
    exchange = neglected(client, "s")
    client.fail_at(ReleaseRun, Busy("locked"))
    client.advance(40)

    assert exchange.response().json()["status"] == "COMPLETED"


# --- whom to cancel ------------------------------------------------------------------------------


def test_a_database_is_asked_about_its_own_runs_alone() -> None:
    context = hosting(ScriptedModel([])).context
    for database in ("main", "other"):
        context.executing.enter((database, f"of {database}"), 1)
    program, asked = KeepRuns(context, "main").program(), list[tuple[str, tuple[str, ...]]]()
    effect = next(program)
    while not isinstance(effect, AwaitNudge):
        answer: Any = 1_000_000_000
        if isinstance(effect, Transact):
            answer = ("of main",) if isinstance(effect.unit, CancelsAsked) else Neglected((), False)
            if isinstance(effect.unit, CancelsAsked):
                asked.append((effect.database, effect.unit.runs))
        if isinstance(effect, Nudge):
            assert effect.topic == cancel_topic("main", "of main")
        effect = program.send(answer)
    program.close()

    assert asked == [("main", ("of main",))]


def two_databases() -> Platform:
    """Two agents with one model that takes longer than a round, each in a database of its own."""
    return Platform(
        databases=[Database("main", "sqlite://"), Database("other", "sqlite://")],
        agents=[
            Agent(id="clerk", model=ScriptedModel([Says("late", after_seconds=5.0)] * 3)),
            Agent(id="else", model=ScriptedModel(["Hello."]), database="other"),
        ],
    )


def test_a_run_beside_a_second_database_is_completed() -> None:
    with Client(two_databases()) as client:
        assert client.run("clerk", "x")["status"] == "COMPLETED"
        assert client.run("else", "x")["status"] == "COMPLETED"


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "waited for"])
def test_a_run_that_is_interrupted_and_nobody_asked_for_it_is_an_incident(stream: bool) -> None:
    with Client(two_databases) as client:
        form = {"message": "x", "stream": stream, "session_id": "s"}
        exchange = client.begin("POST", PATH, form=form)
        client.advance(2)
        (run,) = client.get("/sessions/s/runs?type=agent&db_id=main").json()
        client.simulation.run(interrupt("main", run["run_id"]))
        exchange.response()
        run = client.get(f"{PATH}/{run['run_id']}").json()
        (fields,) = logged(client, "run_failed")

        assert run["status"] == "ERROR"
        assert fields["incident"] in run["content"]
        assert (fields["run_id"], fields["error"]) == (run["run_id"], "CancelledUnasked")
        names = [event.name for event in client.get(f"{PATH}/{run['run_id']}/events").events()]
        assert names[-1] == "RunError"
        assert "RunCancelled" not in names


def test_a_run_that_is_deleted_while_it_is_executed_is_no_incident() -> None:
    with Client(two_databases) as client:
        client.post(PATH, form={"message": "x", "background": True, "session_id": "s"})
        client.advance(2)
        client.delete("/sessions/s?type=agent&db_id=main").expect_success()
        client.settle()

        assert isinstance(client.platform, Platform)
        assert not client.platform.context.executing
        assert not [log for log in client.logs if log.level == "error"]


def interrupt(database: str, run_id: str) -> Program[None]:
    yield from Nudge(cancel_topic(database, run_id))


# --- what somebody deletes -----------------------------------------------------------------------


def test_a_run_is_broken_off_where_its_session_is_deleted_at_another_node() -> None:
    long = [Says("late", after_seconds=600.0)]
    with Client(lambda: hosting(ScriptedModel(long))) as client, client.peer() as peer:
        begin(client, "s")
        client.advance(5)
        assert isinstance(client.platform, Platform)
        context = client.platform.context
        assert len(context.executing) == 1
        peer.delete("/sessions/s").expect_success()
        client.advance(2)

        assert not context.executing


# --- a step that does not come back --------------------------------------------------------------


def label(client: Client, run_id: str, *, attempt: int = 0) -> str:
    """Return what a node says of a run that it executes; or of another `attempt` at it."""
    fetch = Transact("main", FetchRun(run_id, None, any_owner=True))
    row = client.simulation.run(iter(fetch))
    assert row is not None
    said = {"run_id": run_id, "node": row.lease.node, "attempt": attempt or row.attempt}
    return json.dumps(said | {"database": "main"})


def end_blocked(client: Client, said: str) -> bool:
    assert isinstance(client.platform, Platform)
    return client.simulation.run(client.platform.end_blocked(said))


def running(client: Client) -> str:
    form = {"message": "x", "background": True, "session_id": "s"}
    run_id = client.post(PATH, form=form).json()["run_id"]
    client.advance(0.1)
    return str(run_id)


def test_a_run_that_blocked_its_process_ends_and_is_not_taken_up_again() -> None:
    with Client(two_databases) as client:
        client.simulation.nodes[0].place = ""  # its watcher holds its name until the run has ended
        client.advance(6)
        run_id = running(client)
        waiting = running(client)
        said = label(client, run_id)
        client.restart()

        assert end_blocked(client, said)
        assert not end_blocked(client, said)
        run = client.get(f"{PATH}/{run_id}").json()
        assert (run["status"], "a single step" in run["content"]) == ("ERROR", True)
        (*_, last) = client.get(f"{PATH}/{run_id}/events").events()
        assert json.loads(last.data)["error_type"] == "blocked"
        client.advance(MINUTES)
        assert client.get(f"{PATH}/{run_id}").json()["status"] == "ERROR"
        assert client.get(f"{PATH}/{waiting}").json()["status"] == "COMPLETED"


def test_a_run_that_another_node_has_by_now_is_left_to_it() -> None:
    with Client(two_databases) as client:
        run_id = running(client)

        assert not end_blocked(client, label(client, run_id, attempt=7))
        assert not end_blocked(client, label(client, run_id).replace(run_id, "unknown"))
        client.advance(MINUTES)
        assert client.get(f"{PATH}/{run_id}").json()["status"] == "COMPLETED"


CLAIMED = ClaimedRun("o", "s", "r", "agent", "clerk", '{"stream":false,"message":"x"}', 0, 1)


def test_a_run_that_is_closed_as_blocked_fails_with_the_reason() -> None:
    context = Platform(agents=(Agent(id="clerk"),)).context
    executed = ExecuteRun(context, "main", "n1", CLAIMED)

    def closed(effect: Asks[Any]) -> bool:
        return isinstance(effect, Interruptible) and json.loads(effect.label)["run_id"] == "r"

    def finishes(effect: Asks[Any]) -> bool:
        unit = effect.unit if isinstance(effect, Transact) else None
        return isinstance(unit, FinishRun) and (unit.status, unit.reason) == ("ERROR", "blocked")

    script = [
        (Now, 1),
        (closed, Interrupted("blocked")),
        (Now, 2),
        (RandomBytes(8), bytes(8)),
        (Log, None),
        (finishes, Ended(kept=False)),
        (Publish("r", ()), None),
    ]
    play(executed.program(), script)
