"""The tokens of a day, through the platform: whose they are, when they end, and what is told."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any, Final

import pytest

from legation import Agent, LimitOverrides, Model, Platform, PlatformLimits, Team
from legation.effects import Program, Transact
from legation.models.conversation import Prompt, Usage
from legation.runs.fold import RunRecord
from legation.runs.retry import MOST_TRIES
from legation.store.failures import CommitLost
from legation.store.run_steering import ContinueRun
from legation.store.runs import AppendEvents, FinishRun, StartRun
from legation.store.steps import Step, StepKind
from legation.store.units import Dialect, ReadUnit, Sql, Statements, Unit
from legation.tools import tool
from legation.values import frozen
from legation_testing import NEW_YEAR_2026, Client, Says, ScriptedModel, call

from ...callers import NOW, Issuer
from ...two_databases import IN_MEMORY

ISSUER: Final = Issuer()
DAY_SECONDS: Final = 86_400
RUNS: Final = "/agents/clerk/runs"
SENTENCE: Final = (
    "The run was ended: the 30 tokens that there are for one day are used up; there are new ones at"
    " midnight, UTC"
)


def token_of(name: str) -> str:
    return ISSUER.token("agents:run", "teams:run", sub=name, exp=NOW + 3 * DAY_SECONDS)


ADA: Final = token_of("ada")
BOB: Final = token_of("bob")


@tool(again="safe")
def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


def think(prompt: Prompt) -> Any:
    """Look twice, for 10 tokens and for 20, and answer for 40."""
    match sum(message.role == "tool" for message in prompt.messages):
        case 0:
            return Says("Let me look.", [call("look", what="x")], usage=Usage(5, 5))
        case 1:
            return Says(
                "Once more.", [call("look", what="y")], usage=Usage(10, 10), after_seconds=2
            )
        case _:
            return Says("Done.", usage=Usage(20, 20))


def delegate(prompt: Prompt) -> Any:
    results = [message.content for message in prompt.messages if message.role == "tool"]
    task = call("delegate_task_to_member", member_id="clerk", task="look")
    return Says(results[-1:] or "Ask.", [] if results else [task], usage=Usage(1, 1))


def platform(**ada: Any) -> Platform:
    """Return an agent in each of two databases; ada has 30 tokens a day."""
    model = ScriptedModel([think] * 99)
    agents = (
        Agent(id="clerk", model=model, tools=[look], history_runs=0),
        Agent(id="other", model=model, tools=[look], history_runs=0, database="second"),
        Agent(id="slow", model="echo"),
    )
    made: Platform = Platform(
        databases=IN_MEMORY,
        models=(Model("echo", "echo", delay_seconds=60.0),),
        agents=agents,
        teams=(Team(id="desk", members=("clerk",), model=ScriptedModel([delegate] * 9)),),
        authorization=True,
        authorization_config=ISSUER.authorization(),
        limits=PlatformLimits(
            subjects={"ada": LimitOverrides(**(ada or {"tokens_per_day": 30}))},
        ),
    )
    return made


@pytest.fixture
def client() -> Generator[Client]:
    """A client a minute before midnight, on behalf of ada."""
    start_us = NEW_YEAR_2026 + (DAY_SECONDS - 60) * 1_000_000
    with Client(platform, token=ADA, start_us=start_us) as client:
        yield client


def tokens_of(client: Client, token: str = ADA, database: str = "main") -> tuple[int, int | None]:
    """Return how many tokens of the day are used, and what is left, as the caller is told."""
    for level in client.get("/me", token=token).json()["limits"]:
        if (level["share"], level.get("database")) == ("tokens", database):
            assert level["unit"] == "tokens"
            assert level["reset_seconds"] == DAY_SECONDS - client.clock.now_us // 1_000_000 % (
                DAY_SECONDS
            )
            return level["used"], level["remaining"]
    raise AssertionError(database)


def ask(client: Client, path: str = RUNS, **options: Any) -> Any:
    form = {"message": "x", "stream": False, "session_id": "s", **options.pop("form", {})}
    return client.post(path, form=form, **options)


def test_a_run_over_its_tokens_ends_with_its_text_and_the_next_is_refused(client: Client) -> None:
    assert tokens_of(client) == (0, 30)
    run = ask(client).json()

    assert (run["status"], run["content"]) == ("ERROR", "Once more.")
    assert (run["error_type"], run["error_message"]) == ("budget", SENTENCE)
    assert run["metrics"]["total_tokens"] == 30
    assert [one["result"] for one in run["tools"]] == ["saw x", None]
    assert client.get(f"{RUNS}/{run['run_id']}").json() == run
    last = json.loads(client.get(f"{RUNS}/{run['run_id']}/events").events()[-1].data)
    assert (last["event"], last["content"], last["error_type"]) == ("RunError", SENTENCE, "budget")
    logged = [dict(log.fields) for log in client.logs if log.event == "run_failed"]
    assert [(one["error_type"], one["incident"]) for one in logged] == [("budget", run["incident"])]

    assert tokens_of(client) == (30, 0)
    for form in ({}, {"stream": True}, {"background": True}):
        refused = ask(client, form=form)
        assert (refused.status, refused.json()["error_code"]) == (429, "TOO_MANY_REQUESTS")
        assert "30 from midnight to midnight UTC" in refused.json()["detail"]
        assert refused.header("retry-after") == "58"
        assert refused.header("ratelimit") == '"tokens";r=0;t=58'
        assert refused.header("ratelimit-policy") == '"tokens";q=30;qu="tokens";w=86400'
    made: Any = client.platform
    assert made.context.shares.refused == {"tokens": 3}
    assert len(client.get(f"{RUNS}?session_id=s").json()) == 1


def test_one_callers_tokens_are_nobody_elses_and_each_database_has_its_own(
    client: Client,
) -> None:
    assert ask(client).json()["status"] == "ERROR"
    assert ask(client, token=BOB).json()["status"] == "COMPLETED"
    assert ask(client, "/agents/other/runs").json()["error_type"] == "budget"

    assert [tokens_of(client, BOB), tokens_of(client, BOB, "second")] == [(70, None), (0, None)]
    assert [tokens_of(client), tokens_of(client, ADA, "second")] == [(30, 0)] * 2


def test_there_are_new_tokens_at_midnight(client: Client) -> None:
    assert ask(client).status == 200
    client.advance(57)
    refused = ask(client)
    assert (refused.status, refused.header("retry-after")) == (429, "1")
    client.advance(1)

    assert tokens_of(client) == (0, 30)
    assert ask(client).json()["error_type"] == "budget"
    assert tokens_of(client) == (30, 0)


def test_runs_side_by_side_share_what_is_left() -> None:
    forms = [{"message": "x", "stream": False, "session_id": name} for name in "st"]
    with Client(lambda: platform(tokens_per_day=20), token=ADA) as client:
        asked = [client.begin("POST", RUNS, form=form) for form in forms]
        runs = [one.response().json() for one in asked]

        assert [run["error_type"] for run in runs] == ["budget", "budget"]
        # One alone would be asked again with the 10 that are left.
        assert [run["metrics"]["total_tokens"] for run in runs] == [10, 10]
        assert tokens_of(client) == (20, 0)


def test_what_a_member_uses_is_its_teams(client: Client) -> None:
    run = ask(client, "/teams/desk/runs").json()

    assert (run["status"], run["error_type"], run["error_message"]) == (
        "ERROR",
        "budget",
        SENTENCE,
    )
    assert run["content"] == "Ask."
    assert tokens_of(client) == (32, 0)
    assert ask(client).status == 429


def test_no_tokens_at_all_is_a_limit_too() -> None:
    with Client(lambda: platform(tokens_per_day=0), token=ADA) as client:
        refused = ask(client)
        assert (refused.status, tokens_of(client)) == (429, (0, 0))
        assert ask(client, token=BOB).status == 200


def test_a_stream_of_a_run_over_its_tokens_ends_with_an_event(client: Client) -> None:
    events = ask(client, form={"stream": True}).events()

    assert (events[-1].name, json.loads(events[-1].data)["error_type"]) == ("RunError", "budget")
    assert "Once more." in "".join(
        json.loads(event.data).get("content") or ""
        for event in events
        if event.name == "RunContent"
    )


# --- Counted once ------------------------------------------------------------------------------


STORED: Final = Sql(
    """select
        (select sum(bytes) from sessions where owner = :owner),
        (select sum(length(cast(input as blob)) + length(cast(output as blob))) from runs
            where owner = :owner),
        (select sum(length(cast(data as blob))) from events),
        (select sum(length(cast(outcome as blob))) from steps)"""
)


@frozen
class Measure(ReadUnit[tuple[int, int]]):
    """The bytes that the sessions of an owner count, and those that its runs have."""

    owner: str

    def statements(self, dialect: Dialect) -> Statements[tuple[int, int]]:
        """Yield one read."""
        ((counted, *stored),) = yield STORED.of(self)
        return counted or 0, sum(each or 0 for each in stored)


SPOIL: Final = Sql("update steps set outcome = :outcome where kind = 'model'")


@frozen
class Spoil(Unit[None]):
    """Another outcome in the place of those of all models."""

    outcome: str

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Yield one update."""
        yield SPOIL.of(self)


def read(client: Client, unit: Unit[Any], database: str = "main") -> Any:
    def program() -> Program[Any]:
        return (yield from Transact(database, unit))

    return client.simulation.run(program())


def test_the_tokens_of_steps_are_those_of_models_since_the_last_pause() -> None:
    def model(place: str, attempt: int, *, ended: bool = True) -> Step:
        outcome = '{"f":1,"usage":[3,4,0,0,0]}' if ended else None
        return Step(place, StepKind.MODEL, "m", 1, 2, outcome, attempt=attempt)

    steps = (
        model("1", 1),
        model("2", 2),
        model("2.1/1", 3),
        model("3", 3, ended=False),
        Step("2.1", StepKind.CALL, "look", 1, 2, '{"f":1}', attempt=3),
    )
    record = RunRecord("r", 0, {step.place: step for step in steps}, attempt=1)

    assert record.sum_usage().total_tokens == 14


@tool(requires_confirmation=True)
def book(what: str) -> str:
    """Book."""
    return f"booked {what}"


def pause(prompt: Prompt) -> Any:
    """Book after a look, with a person's leave in between: 10 tokens, 20 and 40."""
    match sum(message.role == "tool" for message in prompt.messages):
        case 0:
            return Says("Let me look.", [call("look", what="x")], usage=Usage(5, 5))
        case 1:
            return Says("", [call("book", what="x")], usage=Usage(10, 10))
        case _:
            return Says("Done.", usage=Usage(20, 20), after_seconds=5.0)


def hotel() -> Platform:
    model = ScriptedModel([pause] * 9)
    return Platform(
        databases=IN_MEMORY,
        agents=(Agent(id="clerk", model=model, tools=[look, book], history_runs=0),),
        authorization=True,
        authorization_config=ISSUER.authorization(),
        limits=PlatformLimits(tokens_per_day=70),
    )


def left_in_memory(client: Client) -> int:
    """Return what a run of ada may use that begins now, where nothing was stored."""
    made: Any = client.platform
    budgets = made.context.shares.budgets
    spending = budgets.enter("main", "ada", 70, client.clock.now_us, 0)
    budgets.leave(spending)
    return int(spending.count_left(client.clock.now_us))


def test_a_run_that_pauses_and_goes_on_is_counted_in_two_parts_and_once() -> None:
    with Client(hotel, token=ADA) as client:
        run = ask(client).json()
        assert (run["status"], tokens_of(client)) == ("PAUSED", (30, 40))
        done = client.go_on(run, confirmed=True)

        assert (done["status"], done["metrics"]["total_tokens"]) == ("COMPLETED", 70)
        assert tokens_of(client) == (70, 0)
        assert left_in_memory(client) == 70


@pytest.mark.parametrize("length", [10, 5_000])
def test_of_a_run_that_paused_its_end_alone_is_counted(length: int) -> None:
    with Client(hotel, token=ADA) as client:
        run = ask(client, form={"message": "x" * length}).json()
        paused = read(client, Measure("ada"))
        client.go_on(run, confirmed=True)
        ended = read(client, Measure("ada"))

    assert ended[0] == ended[1]
    # What says how much is counted is not, until the run is over.
    assert 0 < paused[1] - paused[0] < 20


def take_up(client: Client, times: int) -> None:
    """Let time pass until a run was taken up so many times."""
    for _ in range(60):
        if sum(log.event == "run_resumed" for log in client.logs) == times:
            return
        client.advance(1)
    raise AssertionError(times)


def test_a_run_whose_node_died_twice_is_counted_once() -> None:
    with Client(hotel, token=ADA) as client:
        run = ask(client).json()
        tools = [{**one["tool_execution"], "confirmed": True} for one in run["requirements"]]
        client.begin("POST", f"{RUNS}/{run['run_id']}/continue", form={"tools": json.dumps(tools)})
        for number in (1, 2):
            client.advance(1)
            client.crash()
            client.restart()
            assert tokens_of(client) == (30, 40)
            take_up(client, number)
        client.advance(5)

        assert client.get(f"{RUNS}/{run['run_id']}").json()["status"] == "COMPLETED"
        assert tokens_of(client) == (70, 0)
        assert left_in_memory(client) == 70


def test_a_run_that_goes_on_after_a_crash_has_no_more_tokens_than_it_had() -> None:
    with Client(platform, token=ADA) as client:
        begun = ask(client, form={"background": True}).json()
        client.advance(1)
        client.crash()
        client.restart()
        assert tokens_of(client) == (0, 30)
        take_up(client, 1)
        client.advance(5)
        run = client.get(f"{RUNS}/{begun['run_id']}").json()

        assert (run["status"], run["error_type"]) == ("ERROR", "budget")
        assert (run["content"], run["metrics"]["total_tokens"]) == ("Once more.", 30)
        assert tokens_of(client) == (30, 0)


def test_a_run_that_is_cancelled_while_its_node_is_dead_is_counted() -> None:
    with Client(platform, token=ADA) as client:
        begun = ask(client, form={"background": True}).json()
        client.advance(1)
        client.crash()
        client.restart()
        client.post(f"{RUNS}/{begun['run_id']}/cancel")
        client.advance(45)

        assert client.get(f"{RUNS}/{begun['run_id']}").json()["status"] == "CANCELLED"
        assert tokens_of(client) == (10, 20)
        counted, stored = read(client, Measure("ada"))
        assert counted == stored


@pytest.mark.parametrize(("outcome", "tokens"), [(None, 10), ('{"f":99}', 0)])
def test_a_run_that_is_given_up_is_counted(outcome: str | None, tokens: int) -> None:
    """Also where a later release stored what it used, which nobody here can read."""
    with Client(platform, token=ADA) as client:
        begun = ask(client, form={"background": True}).json()
        client.advance(1)
        for number in range(1, MOST_TRIES):
            client.restart()
            take_up(client, number)
        client.restart()
        if outcome is not None:
            read(client, Spoil(outcome))
        client.advance(60)

        run = client.get(f"{RUNS}/{begun['run_id']}").json()
        assert (run["status"], run["error_type"]) == ("ERROR", "gave_up")
        assert tokens_of(client) == (tokens, 30 - tokens)
        counted, stored = read(client, Measure("ada"))
        assert counted == stored


@pytest.mark.parametrize("unit", [StartRun, AppendEvents, FinishRun, ContinueRun])
def test_a_commit_that_was_lost_counts_nothing_twice(unit: type[Any]) -> None:
    with Client(hotel, token=ADA) as client:
        client.fail_at(unit, CommitLost(), after=True, times=2)
        run = ask(client).json()
        assert (run["status"], tokens_of(client)) == ("PAUSED", (30, 40))
        done = client.go_on(run, confirmed=True)

        assert (done["status"], tokens_of(client)) == ("COMPLETED", (70, 0))
        assert left_in_memory(client) == 70


def test_a_run_is_not_continued_where_nobody_may_wait_for_a_turn() -> None:
    made = Platform(
        models=(Model("echo", "echo", delay_seconds=5.0),),
        agents=(
            Agent(id="clerk", model=ScriptedModel([pause] * 9), tools=[look, book]),
            Agent(id="sloth", model="echo"),
        ),
        limits=PlatformLimits(runs=1, waiting=0),
    )
    with Client(made) as client:
        run = ask(client).json()
        form = {"background": True, "session_id": "t"}
        assert ask(client, "/agents/sloth/runs", form=form).status == 202
        tools = [{**one["tool_execution"], "confirmed": True} for one in run["requirements"]]
        path, answer = f"{RUNS}/{run['run_id']}/continue", {"tools": json.dumps(tools)}
        refused = client.post(path, form=answer)
        assert (refused.status, refused.header("ratelimit")) == (429, '"waiting";r=0;t=1')
        assert client.get(f"{RUNS}/{run['run_id']}").json()["status"] == "PAUSED"
        client.advance(6)

        assert client.go_on(run, confirmed=True)["status"] == "COMPLETED"
