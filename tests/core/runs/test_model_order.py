"""The next model of an order is asked where one gives no answer."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from attrs import define

from legation import Agent, Platform, Team, tool
from legation.effects import Log, Now, Program, Publish, Sleep, Transact
from legation.models.conversation import (
    Listener,
    Message,
    ModelFailed,
    ModelProtocol,
    Prompt,
    Reply,
    Usage,
)
from legation.runs.agent_turn import Turn
from legation.runs.event_writer import EventWriter, Journal
from legation.runs.events import EventOrigin, ModelRequestStarted
from legation.runs.model_order import ask_in_order
from legation.runs.step_outcomes import decode_model, decode_outcome
from legation.runs.tool_calls import Toolbox
from legation.runs.turn_state import ModelTurn, TurnState
from legation.shares.budgets import Budgets
from legation.store.runs import AppendEvents, FinishRun
from legation.store.steps import StepKind
from legation_testing import (
    Client,
    Says,
    ScriptedModel,
    call,
    close_at_every_effect,
    crash_everywhere,
    play,
)

from .test_event_writer import RUN

LIMITED: Final = ModelFailed("rate_limited", "Too many requests")
DOWN: Final = ModelFailed("unreachable", "Nobody is there")
REASONS: Final = ("unreachable", "timeout", "rejected", "rate_limited", "refused", "broken")
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
}


@tool(again="safe")
def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


def model(name: str, *steps: Any, **more: Any) -> ScriptedModel:
    return ScriptedModel(steps, id=name, **more)


def agent(first: ModelProtocol, *fallback: ModelProtocol, **more: Any) -> Platform:
    return Platform(agents=[Agent(id="a", model=first, fallback=fallback, **more)])


def replaced(client: Client) -> list[dict[str, Any]]:
    return [dict(log.fields) for log in client.logs if log.event == "model_replaced"]


def asked(client: Client, **form: Any) -> list[tuple[str, str, bool]]:
    """Return the requests to models and their ends, as a client reads them."""
    events = [event.json() for event in client.stream("a", "go", **form)]
    return [
        (event["event"].removeprefix("ModelRequest"), event["model"], event.get("again", False))
        for event in events
        if event["event"].startswith("ModelRequest")
    ]


@pytest.mark.parametrize("reason", REASONS)
def test_next_model_answers_where_the_first_fails(reason: str) -> None:
    second = model("two", "Good morning")
    with Client(agent(model("one", ModelFailed(reason, "No")), second)) as client:
        run = client.run("a", "Hello", session_id="s")
        assert replaced(client) == [
            {"run_id": run["run_id"], "model": "one", "reason": reason, "next": "two"}
        ]

    assert (run.status, run.content) == ("COMPLETED", "Good morning")
    assert [prompt.messages[-1].content for prompt in second.prompts] == ["Hello"]


def test_events_name_the_model_that_is_asked() -> None:
    with Client(agent(model("one", LIMITED), model("two", DOWN), model("three", "Hi"))) as client:
        assert asked(client) == [
            ("Started", "one", False),
            ("Started", "two", True),
            ("Started", "three", True),
            ("Completed", "three", False),
        ]


def test_run_fails_as_the_last_model_does() -> None:
    with Client(agent(model("one", LIMITED), model("two", DOWN)), raise_errors=False) as client:
        run = client.run("a", "Hello")

    assert (run.status, run.error_type) == ("ERROR", "model_unreachable")


@pytest.mark.parametrize("reason", ["truncated", "too_large", "exhausted"])
def test_answer_that_was_made_is_not_asked_for_again(reason: str) -> None:
    second = model("two", "Never")
    with Client(agent(model("one", ModelFailed(reason, "No")), second)) as client:
        assert client.run("a", "Hello").error_type == f"model_{reason}"

    assert second.prompts == []


@pytest.mark.parametrize("said", [Says("Good ", fails=DOWN), Says(reasoning="Hm", fails=DOWN)])
def test_no_other_model_is_asked_once_a_piece_was_heard(said: Says) -> None:
    second = model("two", "Never")
    with Client(agent(model("one", said), second)) as client:
        last = list(client.stream("a", "Hello"))[-1]

    assert last.json()["error_type"] == "model_unreachable"
    assert second.prompts == []


def test_what_nobody_follows_was_heard_by_nobody() -> None:
    first = model("one", Says(["Good "], fails=DOWN))
    with Client(agent(first, model("two", "Fine"))) as client:
        run = client.run("a", "Hello")

    assert run.content == "Fine"


def test_each_request_begins_with_the_first_model() -> None:
    first = model("one", LIMITED, "It rains")
    second = model("two", call("look", what="out"))
    with Client(agent(first, second, tools=[look])) as client:
        run = client.run("a", "Weather?")

    assert run.content == "It rains"
    assert [len(one.prompts) for one in (first, second)] == [2, 1]


@define(eq=False)
class Counted:
    """A model that fails or answers, and says at what cost."""

    id: str
    usage: Usage
    fails: bool = False
    name: str = "Counted"
    provider: str = "Tests"

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        yield from Sleep(1)
        yield from listener.settle()
        if self.fails:
            raise ModelFailed("broken", "It broke off", self.usage)
        listener.listen()
        listener.hear(f"{self.id} answers")
        return Reply(f"{self.id} answers", self.usage)


def test_cost_of_a_failed_model_is_counted_once() -> None:
    first, second = Counted("one", Usage(5, 2), fails=True), Counted("two", Usage(3, 1))
    with Client(agent(first, second)) as client:
        run = client.run("a", "Hello")
        summary = client.get("/runs/summary").json()

    assert (run["metrics"]["input_tokens"], run["metrics"]["output_tokens"]) == (8, 3)
    (row,) = summary["data"]
    assert (row["input_tokens"], row["output_tokens"]) == (8, 3)


def order(*models: ModelProtocol, streamed: bool = False) -> tuple[Journal, Program[Any]]:
    journal = Journal("main", RUN, "n", 0)
    writer = EventWriter(journal, EventOrigin(RUN, "A"), streamed=streamed)
    request = ModelRequestStarted(models[0].id, models[0].provider, "r.1")
    return journal, ask_in_order(models, request, lambda _: Prompt(()), writer, lambda _: None)


def replaced_by(first: str, other: str, reason: str = "broken") -> Log:
    fields = (("run_id", "r"), ("model", first), ("reason", reason), ("next", other))
    return Log("warning", "model_replaced", fields)


def test_cost_is_counted_where_all_fail() -> None:
    first, second = Counted("one", Usage(5, 2), fails=True), model("two", LIMITED, LIMITED)
    with Client(agent(first, second)) as client:
        for _ in range(2):  # the script raises the same error again
            assert client.run("a", "Hello").error_type == "model_rate_limited"
        ends: list[Any] = [
            one.effect.unit for one in client.effects if isinstance(one.effect, Transact)
        ]

    assert [unit.tokens for unit in ends if isinstance(unit, FinishRun)] == [7, 7]


def test_cost_of_a_failure_is_of_the_budget_of_the_day() -> None:
    journal, _ = order(model("one"))
    journal.spending = Budgets().enter("main", "o", 100, 0, 0)
    writer = EventWriter(journal, EventOrigin(RUN, "A"), streamed=False)
    asked = TurnState(said=(ModelTurn(Message("user", "go"), 0),))
    failing = Counted("one", Usage(5, 2), fails=True)
    turn = Turn(writer, failing, Toolbox(()), asked)

    with pytest.raises(ModelFailed):
        script = [(Sleep(1), None), (Now, 5), (Transact, False), (Publish, None), (Now, 6)]
        play(turn.take(), script)

    assert (journal.tokens, journal.spending.count_left(0)) == (7, 93)
    assert turn.state.usage == Usage(5, 2)


def test_order_can_be_cancelled_anywhere() -> None:
    def make() -> Program[Any]:
        return order(ScriptedModel([LIMITED], id="one"), Counted("two", Usage()))[1]

    script = [
        (Now(), 4),
        (replaced_by("one", "two", "rate_limited"), None),
        (Sleep(1), None),
        (Now(), 5),
        (Transact, False),
        (Publish, None),
        (Now(), 6),
    ]
    assert close_at_every_effect(make, script) == 7


def test_answer_of_the_fallback_is_a_step_that_says_so() -> None:
    first = model("one", LIMITED, LIMITED)
    second = model("two", call("look", what="out"), "Done")
    platform = agent(first, second, tools=[look])
    with Client(platform) as client:
        client.run("a", "go", session_id="s")
        (answer,) = list_model_steps(client)

    assert answer.asked == "two"
    outcome = decode_model(decode_outcome(answer.outcome or ""), 0)
    assert outcome.model == ("two", "Legation")


def test_answer_of_the_first_model_says_nothing_more() -> None:
    first = model("one", call("look", what="out"), "Done")
    with Client(agent(first, model("two"), tools=[look])) as client:
        client.run("a", "go", session_id="s")
        (answer,) = list_model_steps(client)

    assert "model" not in decode_outcome(answer.outcome or "")


def test_answer_that_is_corrected_says_who_gave_it() -> None:
    first, second = model("one", LIMITED, LIMITED), model("two", "none", '{"n": 1}')
    with Client(agent(first, second, output_schema=SCHEMA)) as client:
        run = client.run("a", "go", session_id="s")
        (answer,) = list_model_steps(client)

    assert run.content == {"n": 1}
    assert (answer.asked, decode_outcome(answer.outcome or "")["model"]) == (
        "two",
        ["two", "Legation"],
    )


def list_model_steps(client: Client) -> list[Any]:
    """Return the answers of models that were stored."""
    units: list[Any] = [
        performed.effect.unit
        for performed in client.effects
        if isinstance(performed.effect, Transact)
    ]
    found = {
        step.place: step
        for unit in units
        if isinstance(unit, AppendEvents | FinishRun)
        for step in unit.records.steps
        if step.kind == StepKind.MODEL
    }
    return list(found.values())


# --- Abilities ---------------------------------------------------------------------------------


class Plain(ScriptedModel):
    """A model that calls no tools and answers in no shape."""

    takes_tools = False
    takes_schema = False


def test_model_that_cannot_do_what_the_request_needs_is_passed_over() -> None:
    first = Plain(["Never"], id="one")
    with Client(agent(first, model("two", '{"n": 1}'))) as client:
        form = {"message": "go", "stream": False, "output_schema": json.dumps(SCHEMA)}
        run = client.post("/agents/a/runs", form=form).json()
        assert [line["reason"] for line in replaced(client)] == ["unable"]

    assert run["content"] == {"n": 1}
    assert first.prompts == []


def test_last_model_is_asked_whatever_it_can() -> None:
    last = Plain(['{"n": 2}'], id="two")
    with Client(agent(model("one", LIMITED), last)) as client:
        form = {"message": "go", "stream": False, "output_schema": json.dumps(SCHEMA)}
        assert client.post("/agents/a/runs", form=form).json()["content"] == {"n": 2}


def test_each_model_reads_the_files_that_it_takes() -> None:
    first, second = model("one", LIMITED), model("two", "A cat", accepts=())
    image = json.dumps([{"content": "aGk=", "mime_type": "image/png"}])
    with Client(agent(first, second)) as client:
        form = {"message": "What is it?", "stream": False, "images": image}
        assert client.post("/agents/a/runs", form=form).json()["content"] == "A cat"

    (seen,), (read,) = first.prompts, second.prompts
    assert (len(seen.messages[-1].images), len(read.messages[-1].images)) == (1, 0)
    assert "image/png" in read.messages[-1].content


# --- Teams -------------------------------------------------------------------------------------


def test_leaders_and_members_have_their_own_order() -> None:
    delegate = call("delegate_task_to_member", member_id="a", task="Look")
    member = Agent(id="a", model=model("a1", DOWN), fallback=[model("a2", "I saw it")])
    leader = Team(
        id="t",
        members=["a"],
        model=model("t1", LIMITED, LIMITED),
        fallback=[model("t2", delegate, "It is there")],
    )
    with Client(Platform(agents=[member], teams=[leader])) as client:
        run = client.post("/teams/t/runs", form={"message": "go", "stream": False}).json()
        names = [(line["model"], line["next"]) for line in replaced(client)]

    assert run["content"] == "It is there"
    assert run["member_responses"][0]["content"] == "I saw it"
    assert names == [("t1", "t2"), ("a1", "a2"), ("t1", "t2")]


# --- Crashes -----------------------------------------------------------------------------------


def test_recorded_answer_of_the_fallback_is_not_asked_for_again() -> None:
    asks: list[int] = []
    ended: list[int] = []

    def answer(prompt: Prompt) -> Any:
        asks.append(len(prompt.messages))
        return call("look", what="out") if len(prompt.messages) == 1 else "It rains"

    def fail(_: Prompt) -> Any:
        return LIMITED

    def make_platform() -> Platform:
        first, second = model("one", fail, by_prompt=True), model("two", answer, by_prompt=True)
        return agent(first, second, tools=[look])

    def act(client: Client) -> None:
        asks.clear()
        client.post("/agents/a/runs", form={"message": "go", "stream": False, "session_id": "s"})

    def check(client: Client) -> None:
        client.advance(120)
        if not asks:
            return
        (run,) = client.get("/sessions/s/runs").json()
        ended.append(len(asks))
        assert (run["status"], run["content"]) == ("COMPLETED", "It rains")
        # Each answer is asked for once, and once more where it was not stored at the crash.
        assert asks == sorted(asks)

    crash_everywhere(lambda: Client(make_platform), act, check, every=3)

    assert set(ended) == {2, 3}
