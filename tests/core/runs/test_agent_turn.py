from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from attrs import evolve

from legation.effects import (
    CallFunction,
    Concurrently,
    Log,
    Now,
    Program,
    Publish,
    Raised,
    RandomBytes,
    Returned,
    Sleep,
)
from legation.models.conversation import Message, ModelFailed, Reply, Thought, ToolCall, Usage
from legation.runs.agent_turn import Answered, Limits, Outcome, Stopped, Turn, Waits
from legation.runs.event_writer import CancelAsked, EventWriter, Journal, LeaseLost
from legation.runs.events import EventOrigin
from legation.runs.tool_calls import Toolbox
from legation.runs.turn_state import (
    CallState,
    MemberState,
    ModelTurn,
    Standing,
    TurnState,
    dump,
    load,
)
from legation.shares.budgets import Budgets
from legation.store.failures import StatementFailed
from legation.store.run_rows import ClaimedRun
from legation.store.runs import AppendEvents
from legation.tools import Again, tool
from legation_testing import Each, Says, ScriptedModel, call, close_at_every_effect, play

RUN = ClaimedRun("o", "s", "r", "agent", "a", "{}", 0, 1)
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
}


@tool
def weather(city: str) -> str:
    """Return the weather."""
    raise AssertionError(city)  # the host calls it, and there is none here


@tool(requires_confirmation=True)
def delete(path: str) -> str:
    """Delete a file."""
    raise AssertionError(path)


@tool(external_execution=True)
def shell(command: str) -> str:
    """Run a command."""
    raise AssertionError(command)


def turn(*steps: Any, **more: Any) -> Turn:
    writer = EventWriter(Journal("main", RUN, "n", 0), EventOrigin(RUN, "A"), streamed=False)
    asked = TurnState(said=(ModelTurn(Message("user", "go"), 0),))
    hands = Toolbox((weather, delete, shell))
    return Turn(writer, ScriptedModel(steps), hands, more.pop("state", asked), **more)


def names(one: Turn) -> list[str]:
    return [event.name for event in one.writer.journal.pending]


def messages_of(one: Turn) -> list[tuple[str, str]]:
    return [(said.message.role, said.message.content) for said in one.state.said]


STORED: list[Any] = [(Now(), 1), (AppendEvents, False), (Publish, None)]
LOOKED: list[Any] = [(Now(), 2)]
"""What might be done twice is not done without a look at the clock."""
CALLED: list[Any] = [*STORED, *LOOKED, (CallFunction, Returned("rain")), (Now(), 3)]
ASKED: list[Any] = [(Now(), 2)]


def test_an_answer_without_tools_costs_no_transaction() -> None:
    one = turn("hello")

    assert play(one.take(), [(Now(), 5)]) == Answered("hello")
    assert names(one) == ["ModelRequestStarted", "ModelRequestCompleted"]
    assert json.loads(one.writer.journal.pending[1].data)["time_to_first_token"] == 5 / 1_000_000
    assert (one.state.rounds, one.state.usage) == (1, Usage(1, 1))


def test_that_a_tool_is_called_is_stored_before_and_its_result_before_the_model_hears_it() -> None:
    one = turn(call("weather", city="Oslo"), "It rains.")
    script = [*ASKED, *CALLED, *STORED, *ASKED]

    assert play(one.take(), script) == Answered("It rains.")
    assert messages_of(one) == [
        ("user", "go"),
        ("assistant", ""),
        ("tool", "rain"),
        ("assistant", "It rains."),
    ]
    assert one.state.messages[2].call_id == one.state.messages[1].calls[0].id
    assert (one.state.calls[0].started_us, one.state.calls[0].ended_us) == (2, 3)
    assert load(json.loads(json.dumps(dump(one.state)))) == one.state


def test_a_turn_unwinds_wherever_it_is_closed() -> None:
    steps = [call("weather", city="a"), call("weather", city="b")]
    beside = [*LOOKED, (CallFunction, Returned("x")), (Now(), 3)]
    script = [
        *ASKED,
        *CALLED,
        *STORED,
        *ASKED,
        *STORED,
        (Concurrently, Each([*beside, *STORED], beside)),
        *STORED,
        *ASKED,
    ]
    closed = close_at_every_effect(lambda: turn(steps[0], steps, "done").take(), script)

    assert closed > 20


def test_what_is_called_side_by_side_is_stored_as_it_happens() -> None:
    one = turn([call("weather", city="a"), call("weather", city="b")], "done")
    beside = [*LOOKED, (CallFunction, Returned("x")), (Now(), 3)]
    script = [*ASKED, *STORED, (Concurrently, Each([*beside, *STORED], beside)), *STORED, *ASKED]

    assert play(one.take(), script) == Answered("done")
    assert [content for role, content in messages_of(one) if role == "tool"] == ["x", "x"]


@pytest.mark.parametrize("error", [CancelAsked, LeaseLost])
def test_what_ends_the_run_in_one_of_several_calls_is_raised_when_the_others_are_over(
    error: type[Exception],
) -> None:
    one = turn([call("weather", city="a"), call("weather", city="b")])
    beside: list[Any] = [*LOOKED, (CallFunction, Returned("x")), (Now(), 3)]
    ends = [*beside, (Now(), 4), (AppendEvents, True if error is CancelAsked else None)]
    if error is CancelAsked:
        ends.append((Publish, None))
    with pytest.raises(error):
        play(one.take(), [*ASKED, *STORED, (Concurrently, Each(ends, beside))])

    assert one.state.calls[1].standing is Standing.DONE


def test_a_database_that_fails_fails_the_turn() -> None:
    one = turn([call("weather", city="a"), call("weather", city="b")])
    beside: list[Any] = [*LOOKED, (CallFunction, Returned("x")), (Now(), 3)]
    ends = [*beside, (Now(), 4), (AppendEvents, StatementFailed("no"))]
    with pytest.raises(StatementFailed):
        play(one.take(), [*ASKED, *STORED, (Concurrently, Each(ends, beside))])


def test_no_tool_is_called_where_somebody_asked_to_cancel() -> None:
    one = turn(call("weather", city="a"))
    with pytest.raises(CancelAsked):
        play(one.take(), [*ASKED, (Now(), 1), (AppendEvents, True), (Publish, None)])


def test_a_tool_that_fails_is_the_models_to_deal_with() -> None:
    one = turn(call("weather", city="a"), "sorry")
    failing: list[Any] = [
        *STORED,
        *LOOKED,
        (CallFunction, Raised(ValueError("secret"))),
        (RandomBytes(8), bytes(8)),
        (Log, None),
        (Now(), 3),
    ]

    assert play(one.take(), [*ASKED, *failing, *STORED, *ASKED]) == Answered("sorry")
    assert messages_of(one)[2] == ("tool", "The tool failed (ValueError)")


def test_a_call_that_cannot_be_made_is_told_to_the_model_at_once() -> None:
    one = turn([call("nothing"), ToolCall("", "weather", "{")], "sorry")

    assert play(one.take(), [*ASKED, *STORED, *ASKED]) == Answered("sorry")
    assert one.state.calls[0].result == (
        "There is no tool of the name 'nothing'. There are: weather, delete, shell"
    )
    assert "JSON" in (one.state.calls[1].result or "")


def test_what_nobody_has_to_confirm_is_called_before_the_turn_waits() -> None:
    calls = [call("weather", city="a"), call("delete", path="/"), call("shell", command="ls")]
    one = turn(calls)

    assert play(one.take(), [*ASKED, *CALLED]) == Waits()
    assert [c.standing for c in one.state.calls] == [
        Standing.DONE,
        Standing.CONFIRM,
        Standing.EXTERNAL,
    ]
    assert names(one)[-1] == "ToolCallCompleted"


def test_the_result_of_a_last_call_is_the_answer() -> None:
    call = CallState(call=ToolCall("1", "pick", "{}"), created_us=0)
    last = call.with_result("picked", last=True)
    state = TurnState(said=(ModelTurn(Message("user", "go"), 0),), calls=(last,))

    assert play(turn(state=state).take(), []) == Answered("picked")
    shaped = turn(state=state, schema=SCHEMA)
    assert isinstance(play(shaped.take(), []), Stopped)


@pytest.mark.parametrize(
    ("limits", "reason"), [(Limits(rounds=1), "max_rounds"), (Limits(tokens=1), "max_tokens")]
)
def test_a_limit_ends_the_turn_before_another_tool_is_called(limits: Limits, reason: str) -> None:
    one = turn(Says("hm", calls=[call("weather", city="a")]), limits=limits)
    outcome = play(one.take(), ASKED)

    assert isinstance(outcome, Stopped)
    assert outcome.reason == reason


def test_the_model_is_told_how_many_tokens_are_left() -> None:
    model = ScriptedModel([Says("", [call("weather", city="a")], usage=Usage(30, 9)), "ok"])
    one = turn(limits=Limits(tokens=40))
    one.model = model
    play(one.take(), [*ASKED, *CALLED, *STORED, *ASKED])

    assert [prompt.max_tokens for prompt in model.prompts] == [40, 1]


def test_what_an_answer_cost_is_told_under_the_names_that_clients_know() -> None:
    one = turn(Says("hello", usage=Usage(9, 5, 3, 4, 2)))
    play(one.take(), ASKED)
    completed = json.loads(one.writer.journal.pending[1].data)

    assert list(completed)[-8:] == [
        *("model_provider", "input_tokens", "output_tokens", "total_tokens"),
        *("time_to_first_token", "reasoning_tokens", "cache_read_tokens", "cache_write_tokens"),
    ]
    assert list(completed.values())[-7:-4] == [9, 5, 14]
    assert list(completed.values())[-3:] == [3, 4, 2]


def test_the_model_is_told_again_what_it_thought_before_its_calls() -> None:
    thoughts = (Thought("m", '{"type":"thinking"}', 2, 0), Thought("m", "\ud800"))
    model = ScriptedModel(
        [Reply("hm", calls=(call("weather", city="a"),), thoughts=thoughts), "ok"]
    )
    one = turn()
    one.model = model
    play(one.take(), [*ASKED, *CALLED, *STORED, *ASKED])

    kept = (thoughts[0], Thought("m", "\ufffd"))
    assert model.prompts[1].messages[1].thoughts == kept
    assert "thinking" not in "".join(event.data for event in one.writer.journal.pending)
    assert load(json.loads(json.dumps(dump(one.state)))) == one.state


def test_an_answer_within_the_limit_of_tokens_is_an_answer() -> None:
    assert play(turn("a b c", limits=Limits(tokens=1)).take(), ASKED) == Answered("a b c")


@pytest.mark.parametrize(
    ("steps", "outcome"),
    [
        (['{"n": 1}'], Answered({"n": 1})),
        (["one", '{"n": 1}'], Answered({"n": 1})),
        (["one", "two"], "output_invalid"),
    ],
)
def test_an_answer_of_another_shape_is_asked_for_once_more(steps: list[str], outcome: Any) -> None:
    one = turn(*steps, schema=SCHEMA)
    script = [*ASKED] if len(steps) == 1 else [*ASKED, *STORED, *ASKED]
    found: Outcome = play(one.take(), script)

    assert (found.reason if isinstance(found, Stopped) else found) == outcome


def test_an_answer_of_another_shape_is_not_asked_for_beyond_the_limit() -> None:
    outcome = play(turn("one", schema=SCHEMA, limits=Limits(rounds=1)).take(), ASKED)

    assert isinstance(outcome, Stopped)
    assert outcome.reason == "max_rounds"


def test_a_model_that_fails_ends_the_turn() -> None:
    with pytest.raises(ModelFailed):
        play(turn(ModelFailed("timeout", "Too slow")).take(), [(Now(), 9)])


def test_calls_of_one_turn_have_ids_of_their_own() -> None:
    same = [ToolCall("x", "weather", "{}"), ToolCall("x", "weather", "{}"), ToolCall("", "b", "{}")]
    one = turn(Reply("", calls=tuple(same)), "done")
    play(one.take(), [*ASKED, *STORED, *ASKED])

    assert [c.call.id for c in one.state.calls] == ["x", "x-2", "call-1"]


def test_what_a_model_says_can_be_stored_whatever_the_model() -> None:
    bad = ToolCall("\ud800", "\ud800", '{"\ud800": 1}')
    one = turn(Says("a\0\ud800", [bad], reasoning="\ud800"), "b\udfff")
    outcome = play(one.take(), [*ASKED, *STORED, *ASKED])

    assert outcome == Answered("b\ufffd")
    assert one.state.calls[0].call == ToolCall("\ufffd", "\ufffd", '{"\ufffd": 1}')
    "".join(content for _, content in messages_of(one)).encode()
    assert one.state.reasoning == "\ufffd"
    assert one.writer.heard == ["b\ufffd"]


def test_a_model_that_waits_tells_when_its_first_word_came() -> None:
    one = turn(Says(["a", "b"], after_seconds=1, between_seconds=1))
    script = [*STORED, (Sleep(1), None), (Now(), 4), (Sleep(1), None), (Now(), 9)]
    play(one.take(), script)

    assert one.state.first_seconds == 4 / 1_000_000


class Delegating(Toolbox):
    """Hands the call to a member, who has to ask a person first."""

    def admit(self, call: ToolCall, now_us: int) -> CallState:
        return CallState(call=call, created_us=now_us)

    def again(self, call: CallState) -> Again:
        return "safe"

    def carry_out(self, call: CallState, writer: EventWriter, place: str) -> Program[CallState]:
        if call.member is not None:
            return call.with_result("done by the member")
        member = MemberState(
            run_id="m", kind="agent", component_id="b", name="B", created_us=0, state=TurnState()
        )
        yield from Sleep(1)
        return evolve(call, standing=Standing.MEMBER, member=member)


def test_a_call_that_a_member_waits_for_begins_once_and_ends_after_the_pause() -> None:
    one = turn(call("delegate"), "thanks")
    one.tool_set = Delegating()
    assert play(one.take(), [*ASKED, *STORED, (Sleep(1), None), (Now(), 3)]) == Waits()
    assert names(one) == []

    waiting = one.state.calls[0]
    one.state = one.state.with_call(0, evolve(waiting, standing=Standing.DUE))
    assert play(one.take(), [(Now(), 4), (Now(), 5), *STORED, *ASKED]) == Answered("thanks")
    assert names(one) == ["ModelRequestCompleted"]
    assert one.state.calls[0].started_us == 2


def test_an_answer_without_words_has_no_first() -> None:
    one = turn(Reply(""))
    play(one.take(), ASKED)

    assert one.state.first_seconds is None


# --- Places --------------------------------------------------------------------------------------


@tool(again="key")
def pay(cents: int, idempotency_key: str) -> str:
    """Take money."""
    raise AssertionError((cents, idempotency_key))


def keyed(cents: int, key: str) -> CallFunction:
    return CallFunction(pay.function, {"cents": cents, "idempotency_key": key}, 60.0)


@pytest.mark.parametrize("prefix", ["", "3.2/", "3.2/1.1/"])
def test_key_of_a_call_is_its_place_among_the_answers_of_the_model(prefix: str) -> None:
    both = [call("pay", cents=1), call("pay", cents=2)]
    one = turn(call("weather", city="Oslo"), both, call("pay", cents=3), "paid")
    one.writer.prefix, one.tool_set = prefix, Toolbox((weather, pay))
    first = [(keyed(1, f"r:{prefix}2.1"), Returned("x")), (Now(), 3), *STORED]
    second = [(keyed(2, f"r:{prefix}2.2"), Returned("x")), (Now(), 3)]
    third = [*STORED, (keyed(3, f"r:{prefix}3.1"), Returned("x")), (Now(), 3)]
    script = [
        *ASKED,
        *CALLED,
        *STORED,
        *ASKED,
        *STORED,
        (Concurrently, Each(first, second)),
        *STORED,
        *ASKED,
        *third,
        *STORED,
        *ASKED,
    ]

    assert play(one.take(), script) == Answered("paid")


def test_call_keeps_its_place_through_a_pause() -> None:
    one = turn([call("delete", path="/"), call("pay", cents=1)], "paid")
    one.tool_set = Toolbox((delete, pay))
    paid = [*STORED, (keyed(1, "r:1.2"), Returned("x")), (Now(), 3)]
    assert play(one.take(), [*ASKED, *paid]) == Waits()

    gone_on = load(json.loads(json.dumps(dump(one.state))))
    waits = evolve(gone_on.calls[1], standing=Standing.DUE)
    one.state = gone_on.with_call(1, waits).with_call(0, gone_on.calls[0].with_result("no"))
    assert play(one.take(), [*paid, *STORED, *ASKED]) == Answered("paid")


# --- The tokens of the day ---------------------------------------------------------------------


def spending_turn(limit: int, stored: int, *steps: Any) -> Turn:
    one = turn(*steps)
    one.writer.journal.spending = Budgets().enter("main", "o", limit, 0, stored)
    return one


def test_a_final_answer_over_the_budget_ends_the_run_with_its_text() -> None:
    one = spending_turn(10, 9, "hello")

    outcome = play(one.take(), [(Now(), 5)])
    assert isinstance(outcome, Stopped)
    assert (outcome.reason, outcome.content) == ("budget", "hello")
    assert "the 10 tokens that there are for one day" in outcome.sentence
    assert one.writer.journal.tokens == 2


def test_an_answer_that_takes_the_last_of_the_budget_is_one() -> None:
    assert play(spending_turn(10, 8, "hello").take(), [(Now(), 5)]) == Answered("hello")


def test_no_tool_is_called_for_a_model_that_will_not_be_asked_again() -> None:
    asked = Reply("Let me look.", Usage(1, 1), (call("weather", city="Oslo"),))
    one = spending_turn(10, 8, asked)

    outcome = play(one.take(), [(Now(), 5)])
    assert isinstance(outcome, Stopped)
    assert (outcome.reason, outcome.content) == ("budget", "Let me look.")


def test_a_model_is_not_asked_where_others_have_used_up_the_budget() -> None:
    one = spending_turn(10, 10)

    outcome = play(one.take(), [])
    assert isinstance(outcome, Stopped)
    assert (outcome.reason, outcome.content) == ("budget", "")


def test_a_run_goes_on_within_its_budget() -> None:
    one = spending_turn(10, 0, call("weather", city="Oslo"), "It rains.")

    assert play(one.take(), [*ASKED, *CALLED, *STORED, *ASKED]) == Answered("It rains.")
    assert one.writer.journal.tokens == one.state.usage.total_tokens
