from __future__ import annotations

import json
from typing import Any

import pytest

from legation.effects import (
    CallFunction,
    CloseStream,
    Log,
    Raised,
    RandomBytes,
    Returned,
    TimedOut,
    Yielding,
)
from legation.models.conversation import ToolCall
from legation.runs.event_writer import EventWriter, Journal
from legation.runs.events import EventOrigin
from legation.runs.tool_calls import Toolbox
from legation.runs.turn_state import CallState, Standing
from legation.store.run_rows import ClaimedRun
from legation.tools import ToolError, tool
from legation_testing import play


@tool(timeout_seconds=3)
def add(one: int, other: int = 2) -> int:
    """Add two numbers."""
    raise AssertionError


@tool(requires_confirmation=True)
def delete(path: str) -> str:
    """Delete a file."""
    raise AssertionError


@tool(external_execution=True)
def shell(command: str) -> str:
    """Run a command."""
    raise AssertionError


BOX = Toolbox((add, delete, shell), 60.0)
VOICE = EventWriter(
    Journal("main", ClaimedRun("o", "s", "r", "agent", "a", "{}", 0, 1), "n", 0),
    EventOrigin(ClaimedRun("o", "s", "r", "agent", "a", "{}", 0, 1), "A"),
    streamed=False,
)


def wanted(name: str, arguments: object) -> ToolCall:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall("1", name, text)


@pytest.mark.parametrize(
    ("call", "standing"),
    [
        (wanted("add", {"one": 1}), Standing.DUE),
        (wanted("delete", {"path": "/"}), Standing.CONFIRM),
        (wanted("shell", {"command": "ls"}), Standing.EXTERNAL),
    ],
)
def test_a_call_is_due_or_waits_for_who_has_to_be_asked(call: ToolCall, standing: Standing) -> None:
    state = BOX.admit(call, 5)

    assert (state.standing, state.created_us) == (standing, 5)
    assert state.arguments == json.loads(call.arguments)


@pytest.mark.parametrize(
    "call",
    [
        wanted("nothing", {}),
        wanted("add", {"one": "x"}),
        wanted("add", "{"),
        wanted("add", "[]"),
        wanted("delete", {}),
        wanted("shell", {"command": 1}),
    ],
)
def test_nobody_is_asked_about_a_call_that_cannot_be_made(call: ToolCall) -> None:
    state = BOX.admit(call, 5)

    assert (state.standing, state.failed) == (Standing.DONE, True)
    assert state.result


def test_an_agent_without_tools_says_so() -> None:
    assert Toolbox().admit(wanted("x", {}), 0).result == "There are no tools"
    assert Toolbox().specs == ()


CALL = BOX.admit(wanted("add", {"one": 1}), 0)


@pytest.mark.parametrize(
    ("answer", "result", "failed"),
    [
        (Returned(3), "3", False),
        (Returned("three"), "three", False),
        (Returned(None), "null", False),
        (Returned(object()), "The tool failed (its result has no JSON)", True),
        (Raised(ToolError("no such number")), "no such number", True),
    ],
)
def test_a_result_is_told_as_text(answer: Any, result: str, failed: bool) -> None:
    done = play(
        BOX.carry_out(CALL, VOICE, "3.2"), [(CallFunction(add.function, {"one": 1}, 3.0), answer)]
    )

    assert (done.standing, done.result, done.failed) == (Standing.DONE, result, failed)


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (Raised(ValueError("a secret")), "The tool failed (ValueError)"),
        (TimedOut(), "The tool took longer than 3 seconds"),
    ],
)
def test_what_an_operator_has_to_see_is_logged_and_not_told(answer: Any, result: str) -> None:
    logged: list[Any] = [(CallFunction, answer), (RandomBytes(8), bytes(8)), (Log, None)]
    done = play(BOX.carry_out(CALL, VOICE, "3.2"), logged)

    assert (done.result, done.failed) == (result, True)


def test_exception_goes_with_the_line_and_its_text_is_not_in_it() -> None:
    error = ValueError("a secret")
    lines: list[Log] = []

    def is_line(effect: Any) -> bool:
        lines.append(effect)
        return isinstance(effect, Log)

    script: list[Any] = [(CallFunction, Raised(error)), (RandomBytes(8), bytes(8)), (is_line, None)]
    play(BOX.carry_out(CALL, VOICE, "3.2"), script)
    line = lines[-1]

    assert line.error is error
    assert line == Log("error", "tool_failed", line.fields)
    assert dict(line.fields)["trace"] == "ValueError"
    assert "secret" not in repr(line)


def test_tool_that_calls_asyncio_where_it_has_no_loop_has_a_hint_in_the_log() -> None:
    hints: list[bool] = []

    def is_line(effect: Any) -> bool:
        hints.append(isinstance(effect, Log) and "hint" in dict(effect.fields))
        return isinstance(effect, Log)

    error = RuntimeError("no running event loop")
    play(
        BOX.carry_out(CALL, VOICE, "3.2"),
        [(CallFunction, Raised(error)), (RandomBytes(8), bytes(8)), (is_line, None)],
    )

    assert hints[-1]


def test_refusal_whose_text_cannot_be_had_is_a_failure_like_any_other() -> None:
    class Broken(ToolError):
        def __str__(self) -> str:
            raise ZeroDivisionError

    done = play(BOX.carry_out(CALL, VOICE, "3.2"), [(CallFunction, Raised(Broken()))])

    assert (done.result, done.failed) == ("The tool failed (ZeroDivisionError)", True)


def test_a_stream_of_results_is_none() -> None:
    done = play(
        BOX.carry_out(CALL, VOICE, "3.2"), [(CallFunction, Yielding(7)), (CloseStream(7), None)]
    )

    assert (done.result, done.failed) == ("The tool failed (it gave a stream of results)", True)


def test_a_tool_without_a_limit_of_its_own_has_the_agents() -> None:
    call = CallState(call=wanted("delete", {"path": "/"}), created_us=0)

    assert (
        play(
            BOX.carry_out(call, VOICE, "3.2"),
            [(CallFunction(delete.function, {"path": "/"}, 60.0), Returned("gone"))],
        ).result
        == "gone"
    )


def test_a_tool_that_changed_while_the_run_waited_is_not_called() -> None:
    gone = CallState(call=wanted("was", {}), created_us=0)
    other = CallState(call=wanted("delete", {"name": "/"}), created_us=0)

    assert play(BOX.carry_out(gone, VOICE, "3.2"), []).failed
    assert play(BOX.carry_out(other, VOICE, "3.2"), []).failed


# --- A second time -------------------------------------------------------------------------------


@tool(again="key")
def pay(cents: int, idempotency_key: str) -> str:
    """Take money."""
    raise AssertionError


@tool(again="safe")
def look(room: int) -> str:
    """Look a room up."""
    raise AssertionError


@pytest.mark.parametrize("place", ["3.2", "3.2/1.1"])
def test_key_is_made_of_the_run_at_the_top_and_the_place(place: str) -> None:
    of_member = ClaimedRun("o", "s", "m", "agent", "b", "{}", 0, 1)
    member = EventWriter(VOICE.journal, EventOrigin(of_member, "B", "r"), streamed=False)
    box = Toolbox((pay,))
    call = box.admit(wanted("pay", {"cents": 5}), 0)
    keyed = {"cents": 5, "idempotency_key": f"r:{place}"}
    for _ in range(2):  # the second time as after a crash
        done = play(
            box.carry_out(call, member, place),
            [(CallFunction(pay.function, keyed, 60.0), Returned("paid"))],
        )
        assert call.arguments == {"cents": 5}
        assert done.arguments == {"cents": 5}


@pytest.mark.parametrize("key", ["r:3.2", "k" * (1 << 20)])
def test_key_of_the_models_is_refused_before_and_after_a_pause(key: str) -> None:
    box = Toolbox((pay,))
    call = wanted("pay", {"cents": 5, "idempotency_key": key})
    at_first = box.admit(call, 0)
    after = play(box.carry_out(CallState(call=call, created_us=0), VOICE, "3.2"), [])

    assert at_first.failed
    assert after.failed
    assert at_first.result == after.result
    assert len(at_first.result or "") < 100


def test_call_may_be_made_again_as_its_tool_says() -> None:
    box = Toolbox((add, look, pay))
    names = ["add", "look", "pay", "taken_away"]
    calls = [CallState(call=wanted(name, {}), created_us=0) for name in names]

    assert [box.again(call) for call in calls] == ["never", "safe", "key", "never"]
