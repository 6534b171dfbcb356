from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from attrs import evolve

from legation import Agent, Platform
from legation.effects import (
    CallFunction,
    Effect,
    NextPiece,
    Now,
    Piece,
    Publish,
    Raised,
    Returned,
    TimedOut,
    Transact,
    Yielding,
)
from legation.models.conversation import Message, ModelFailed, ToolCall
from legation.runs.agent_turn import Answered, Stopped
from legation.runs.event_writer import CancelAsked, EventWriter, Journal, LeaseLost
from legation.runs.events import EventOrigin, RunStarted
from legation.runs.function_turn import MAX_ANSWER, FunctionTurn
from legation.runs.given import Given
from legation.runs.turn_state import CallState, ModelTurn, TurnState
from legation.store.failures import Unavailable
from legation.store.run_rows import ClaimedRun
from legation.store.session_state import FetchState
from legation.tools import Hosted, ToolError
from legation_testing import Client, effects_of, play

RUN = ClaimedRun("ada", "s", "r", "agent", "a", "{}", 0, 1, state='{"a":1}')
ASKED = {"message": "hello", "dependencies": {"d": 2}, "metadata": {"m": 3}}
BEFORE = (
    Message("system", "Be brief."),
    Message("user", "What is it?"),
    Message("assistant", "", calls=(ToolCall("c", "look", "{}"),)),
    Message("tool", "a cat", call_id="c"),
    Message("assistant", "A cat."),
)


def nothing(**_: Any) -> None:
    """Stand for the function, which nobody calls here."""


def called(takes: tuple[str, ...] = (), schema: dict[str, Any] | None = None) -> FunctionTurn:
    journal = Journal("main", RUN, "n", 0, given=Given(ASKED))
    writer = EventWriter(journal, EventOrigin(RUN, "A"), streamed=True)
    writer.note(RunStarted())
    said = (ModelTurn(Message("user", "hello"), 0),)
    state = TurnState(before=BEFORE, said=said)
    return FunctionTurn(writer, Hosted(nothing, takes), state, 9.0, schema)


def world(call: Any, *pieces: Any, cancelled_at: int = 99) -> Callable[[Effect], Any]:
    """Answer every effect; the clock goes on by a second at each look."""
    clock, left, stored = iter(range(0, 10**9, 10**6)), iter(pieces), iter(range(1, 99))

    def answer(effect: Effect) -> Any:
        match effect:
            case Now():
                return next(clock)
            case Transact(_, FetchState()):
                return RUN.state
            case Transact():
                return next(stored) >= cancelled_at
            case CallFunction():
                return call
            case NextPiece():
                return next(left)
            case _:
                assert isinstance(effect, Publish)
                return None

    return answer


def taken(turn: FunctionTurn, *outcomes: Any) -> tuple[list[Effect], Any]:
    effects, outcome = effects_of(turn.take(), world(*outcomes))
    return list(effects), outcome


def pieces(*values: Any) -> Iterator[Any]:
    yield Yielding(7)
    yield from map(Piece, values)
    yield None


def test_function_is_told_as_much_as_it_names() -> None:
    turn = called(
        (
            "message",
            "session_id",
            "user_id",
            "run_id",
            "session_state",
            "history",
            "dependencies",
            "metadata",
        )
    )

    effects, _ = taken(turn, Returned("hi"))

    (call,) = [effect for effect in effects if isinstance(effect, CallFunction)]
    assert (call.function, call.timeout_seconds) == (nothing, 9.0)
    assert call.arguments == {
        "message": "hello",
        "session_id": "s",
        "user_id": "ada",
        "run_id": "r",
        "session_state": {"a": 1},
        "history": [
            {"role": "user", "content": "What is it?"},
            {"role": "assistant", "content": "A cat."},
        ],
        "dependencies": {"d": 2},
        "metadata": {"m": 3},
    }


def test_what_was_not_sent_is_empty() -> None:
    turn = called(("dependencies", "metadata"))
    turn.writer.journal.given = Given({"message": "hello"})

    effects, _ = taken(turn, Returned("hi"))

    (call,) = [effect for effect in effects if isinstance(effect, CallFunction)]
    assert call.arguments == {"dependencies": {}, "metadata": {}}


def test_that_it_is_called_is_stored_before_it_is_called() -> None:
    effects, _ = taken(called(), Returned("hi"))

    kinds = [type(effect) for effect in effects]
    assert kinds == [Now, Transact, Publish, CallFunction, Now]


def test_text_is_heard_and_is_the_answer() -> None:
    turn = called()

    _, outcome = taken(turn, Returned("hi"))

    assert outcome == Answered("hi")
    assert turn.writer.heard == ["hi"]
    assert turn.state.said[-1] == ModelTurn(Message("assistant", "hi"), 1_000_000)
    assert turn.state.rounds == 0


def test_pieces_are_shown_one_by_one_and_are_the_answer_together() -> None:
    turn = called()

    effects, outcome = taken(turn, *pieces("It ", None, "rains."))

    assert outcome == Answered("It rains.")
    kinds = [type(effect) for effect in effects]
    first = [NextPiece, Now, Transact, Publish]
    assert kinds[3:] == [CallFunction, *first, NextPiece, Now, *first, NextPiece, Now]
    shown = [e.events for e in effects if isinstance(e, Publish)][1:]
    assert [json.loads(event.data)["content"] for (event,) in shown] == ["It ", "rains."]
    assert turn.state.first_seconds == 1.0


@pytest.mark.parametrize("value", [{"a": [1, 2]}, [1], 3, False, 1.5])
def test_value_that_is_no_text_is_the_content(value: Any) -> None:
    turn = called()

    assert taken(turn, Returned(value))[1] == Answered(value)
    assert turn.writer.heard == []
    assert json.loads(turn.state.said[-1].message.content) == value


def test_value_after_pieces_of_text_is_the_content() -> None:
    turn = called()

    assert taken(turn, *pieces("Thinking…", {"n": 1}, {"n": 2}))[1] == Answered({"n": 2})
    assert turn.writer.heard == ["Thinking…"]


def test_function_that_says_nothing_answers_with_nothing() -> None:
    assert taken(called(), Returned(None))[1] == Answered("")


def test_what_cannot_be_stored_is_replaced() -> None:
    assert taken(called(), Returned("a\0b\ud800"))[1] == Answered("a\ufffdb\ufffd")


@pytest.mark.parametrize(
    ("value", "what"), [(object(), "object"), ([len], "list"), (float("nan"), "float")]
)
def test_value_that_json_does_not_have_ends_the_run(value: Any, what: str) -> None:
    sentence = f"The agent gave a value that JSON does not have ({what})"

    assert taken(called(), Returned(value))[1] == Stopped("run_failed", sentence)


def test_value_that_is_nested_too_deeply_ends_the_run() -> None:
    value: list[Any] = []
    for _ in range(400):
        value = [value]

    outcome = taken(called(), Returned(value))[1]

    assert outcome.reason == "run_failed"
    assert "nested" in outcome.sentence


def test_answer_without_an_end_is_cut_off() -> None:
    half = "x" * (MAX_ANSWER // 2)

    outcome = taken(called(), Yielding(7), Piece(half), Piece(half), Piece("x"))[1]

    assert outcome.reason == "too_large"


def test_function_may_end_the_run_with_a_sentence() -> None:
    outcome = taken(called(), Raised(ToolError("No rooms are left")))[1]

    assert outcome == Stopped("run_failed", "No rooms are left")


@pytest.mark.parametrize("given", [(Raised(KeyError("x")),), (Yielding(7), Raised(KeyError("x")))])
def test_error_of_the_function_is_raised(given: tuple[Any, ...]) -> None:
    with pytest.raises(KeyError):
        taken(called(), *given)


@pytest.mark.parametrize(
    "error", [Unavailable("gone"), ModelFailed("refused", "No"), CancelAsked("r"), LeaseLost("r")]
)
def test_error_of_the_function_is_never_taken_for_one_of_ours(error: Exception) -> None:
    with pytest.raises(RuntimeError) as caught:
        taken(called(), Raised(error))

    assert str(caught.value) == type(error).__name__


@pytest.mark.parametrize("given", [(TimedOut(),), (Yielding(7), TimedOut())])
def test_function_that_is_silent_for_too_long_ends_the_run(given: tuple[Any, ...]) -> None:
    outcome = taken(called(), *given)[1]

    assert outcome == Stopped("timeout", "The agent took longer than 9 seconds")


def test_wish_to_cancel_is_heard_between_two_pieces() -> None:
    turn = called()

    with pytest.raises(CancelAsked):
        effects_of(turn.take(), world(*pieces("a", "b"), cancelled_at=2))

    assert turn.writer.heard == ["a"]


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize("value", [{"n": 1}, '{"n": 1}'])
def test_answer_has_the_shape_that_was_asked_for(value: Any) -> None:
    assert taken(called(schema=SCHEMA), Returned(value))[1] == Answered({"n": 1})


@pytest.mark.parametrize("value", [{"n": "one"}, "one", 3])
def test_answer_of_another_shape_ends_the_run(value: Any) -> None:
    assert taken(called(schema=SCHEMA), Returned(value))[1].reason == "output_invalid"


def test_answer_of_an_earlier_attempt_is_not_taken_for_this_one() -> None:
    turn = called()
    turn.writer.heard.append("before ")
    turn.writer = evolve(turn.writer, streamed=False)

    assert taken(turn, Returned("hi"))[1] == Answered("hi")


def test_function_is_no_model_of_the_platform() -> None:
    platform = Platform(agents=[Agent(id="a", run=nothing), Agent(id="b")])
    with Client(platform) as client:
        client.run("a", "hello", session_id="s")
        assert client.get("/models").json() == [{"id": "echo", "provider": "Legation"}]
        session = client.get("/sessions/s").json()

    model = session["agent_data"]["model"]
    assert model == {"name": "Function", "provider": "Function", "id": "nothing"}
    assert session["total_tokens"] == 0


def test_what_a_person_said_of_a_doubt_is_told_once_whatever_crashes() -> None:
    again = called()
    again.writer.resumed = True
    call = CallState(call=ToolCall("call_1", "f", "{}"), created_us=0)
    told = call.with_result("no", failed=True)
    again.state = evolve(again.state, calls=(told,))
    before = len(again.writer.journal.pending)

    assert play(again.take(), []) == Stopped("interrupted", "no")
    assert len(again.writer.journal.pending) == before
