"""The tools of a turn with guards: what an answer that waits is among them."""

from __future__ import annotations

from legation.models.conversation import ToolCall
from legation.runs.guarded_tools import GuardedToolSet
from legation.runs.tool_calls import Toolbox
from legation.runs.turn_state import Standing
from legation.store.steps import StepKind
from legation.tools import as_tool


def look(what: str) -> str:
    """Look."""
    return what


TOOLS = GuardedToolSet(Toolbox((as_tool(look),)))
ANSWER = ToolCall("c1", "approve_answer", '{"answer":"yes"}')


def test_without_guards_it_is_the_tools_alone() -> None:
    call = TOOLS.admit(ToolCall("c", "look", '{"what":"it"}'), 1)

    assert call.standing is Standing.DUE
    assert [spec.name for spec in TOOLS.specs] == ["look"]
    assert TOOLS.find_obstacle(call) is None
    assert TOOLS.again(call) == "never"
    assert TOOLS.step(call) == (StepKind.CALL, "look")


def test_no_model_may_approve_an_answer() -> None:
    assert TOOLS.admit(ANSWER, 1).failed


def test_an_answer_that_waits_can_be_sent_at_any_time() -> None:
    call = TOOLS.admit(ANSWER, 1)

    assert TOOLS.find_obstacle(call) is None
    assert TOOLS.again(call) == "safe"
    assert TOOLS.step(call) == (StepKind.CALL, "approve_answer")
