"""Guards, summaries, steps of functions and prices of one run, where they meet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from legation import (
    Agent,
    Guard,
    Guarded,
    Judge,
    Length,
    Model,
    ModelPrice,
    ModelStep,
    Platform,
    Prices,
    Run,
    Summaries,
    Team,
    ToolAccess,
    tool,
)
from legation.models.conversation import NO_USAGE, ModelProtocol, Reply, Usage
from legation.runs.event_writer import EventWriter, Journal
from legation.runs.events import EventOrigin
from legation.runs.session_history import _count_own
from legation.store.failures import StatementFailed
from legation.store.session_state import FetchState
from legation.store.summaries import Summary
from legation_testing import Client, ScriptedModel, call

from ...callers import Issuer
from .summary_kit import RULE, Scribe, ask
from .test_event_writer import RUN

CENT: Final = ModelPrice(input="10000", output="10000")
"""A cent for a token."""

YES: Final = Reply('{"allowed": true, "reason": ""}', Usage(1, 1))


def cost(run: Any) -> Any:
    return run["metrics"].get("cost")


# --- Prices ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("prices", "shown"), [(Prices(models={"j": CENT}), 0.02), (None, None)])
def test_a_judge_has_its_price(prices: Prices | None, shown: float | None) -> None:
    judge = Judge(model=ScriptedModel([YES], id="j"), instructions="No rudeness.", of="input")
    model = ScriptedModel([Reply("Fine.", Usage(1, 1))], id="m")
    platform = Platform(agents=[Agent("a", model=model, guards=[judge])], prices=prices)
    with Client(platform) as client:
        assert cost(client.run("a", "Hello")) == shown


@pytest.mark.parametrize(("prices", "shown"), [(Prices(models={"j": CENT}), 0.05), (None, None)])
def test_the_answer_of_a_model_that_a_function_asks_has_its_price(
    prices: Prices | None, shown: float | None
) -> None:
    async def answer(message: str) -> AsyncIterator[object]:
        step = ModelStep("j", "elsewhere")
        yield step
        yield step.answered("Fine.", Usage(2, 3))
        yield message

    with Client(Platform(agents=[Agent("a", run=answer, again="safe")], prices=prices)) as client:
        assert cost(client.run("a", "Hello")) == shown


@pytest.mark.parametrize(("prices", "shown"), [(Prices(models={"j": CENT}), 0.2), (None, None)])
def test_a_summary_has_its_price_in_the_run_that_makes_it(
    prices: Prices | None, shown: float | None
) -> None:
    agent = Agent("a", model=Scribe(id="j"), history_runs=2, summaries=RULE)
    with Client(Platform(agents=[agent], prices=prices)) as client:
        assert cost(ask(client, 1, 6)) == shown
        assert cost(ask(client, 7, 7)) == (None if shown is None else 0.11)


def test_models_without_a_price_are_named_where_they_are_asked() -> None:
    def other(name: str) -> ModelProtocol:
        return ScriptedModel([], id=name)

    agent = Agent(
        "a",
        model=other("m"),
        fallback=[other("f")],
        guards=[Length(9), Judge(model=other("j"), instructions="x", of="input")],
        summaries=Summaries(model="brief"),
    )
    own = Agent("b", model=other("m"), summaries=Summaries())
    brief = Model("brief", "openai", id="s", base_url="http://127.0.0.1:9/v1")
    prices = Prices(models={"m": CENT})
    platform = Platform(agents=[agent, own], models=[brief], prices=prices)

    assert [fault.path for fault in platform.find_unpriced()] == [
        "agents[0].fallback[0]",
        "agents[0].summaries.model",
        "agents[0].guards",
    ]


# --- Overrides ---------------------------------------------------------------------------------


def test_a_test_that_overrides_the_model_overrides_all_that_the_run_asks() -> None:
    away = ScriptedModel([], id="away")
    agent = Agent(
        "a",
        model=away,
        history_runs=1,
        summaries=Summaries(after_runs=2),
        guards=[Length(99), Judge(model=away, instructions="x", of="input")],
    )
    said: list[Any] = [*([YES, "Yes."] * 3), "In short.", YES, "Yes."]
    told = ScriptedModel(said)
    with Client(Platform(agents=[agent])) as client, client.override(model=told):
        runs = [client.run("a", "Well?", session_id="s") for _ in range(4)]

    assert [run.status for run in runs] == ["COMPLETED"] * 4


# --- Counted once ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made_by", "usage", "counted"),
    [("r", '{"input_tokens":3,"cost_nano":7}', 3), ("r", None, 0), ("q", '{"input_tokens":3}', 0)],
)
def test_a_summary_that_an_attempt_before_stored_is_counted_by_the_run_that_made_it(
    made_by: str, usage: str | None, counted: int
) -> None:
    journal = Journal("main", RUN, "n", 0)
    writer = EventWriter(journal, EventOrigin(RUN, "A"), streamed=False)
    used = _count_own(writer, Summary(1, "S", made_by, "m", usage, 5))

    assert (used.input_tokens, journal.tokens) == (counted, counted)
    assert journal.cost == (7 if counted else None)
    assert _count_own(writer, None) is NO_USAGE


# --- Guards of callers, and of members ---------------------------------------------------------


@tool
def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


def test_tools_are_for_callers_with_their_scope() -> None:
    issuer = Issuer()
    model = ScriptedModel([call("look", what="a"), "Done."] * 2)
    access = ToolAccess(allow={"desk:look": ["look"]})
    agent = Agent("a", model=model, tools=[look], guards=[access])
    platform = Platform(
        agents=[agent], authorization=True, authorization_config=issuer.authorization()
    )
    with Client(platform) as client:
        results = [
            client.post(
                "/agents/a/runs",
                form={"message": "go", "stream": "false"},
                token=issuer.token("agents:run", *more, sub="ada"),
            ).json()["tools"][0]
            for more in ((), ("desk:look",))
        ]

    assert [tool["tool_call_error"] for tool in results] == [True, False]
    assert results[1]["result"] == "saw a"


def test_database_that_fails_under_the_guard_of_a_member_ends_the_team() -> None:
    def check(guarded: Guarded, run: Run) -> None:
        assert run.user_id is None, guarded

    ann = Agent("ann", model=ScriptedModel(["Hi."]), guards=[Guard(before_run=check)])
    leader = ScriptedModel([call("delegate_task_to_member", member_id="ann", task="go"), "Done."])
    team = Team("desk", members=["ann"], model=leader)
    with Client(Platform(agents=[ann], teams=[team]), raise_errors=False) as client:
        client.fail_at(FetchState, StatementFailed("no"))
        run = client.post("/teams/desk/runs", form={"message": "go", "stream": "false"}).json()

    assert (run["status"], run["error_type"]) == ("ERROR", "run_failed")
