"""The typed result of a run, and the mapping that it still is."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from legation import Agent, Platform, Team, tool
from legation.models.conversation import Usage
from legation_testing import (
    Client,
    RunMetrics,
    RunRequirement,
    RunResult,
    Says,
    ScriptedModel,
    ToolExecution,
    call,
)


@attrs.frozen
class Invoice:
    """An invoice."""

    number: int
    total: float


@tool(requires_confirmation=True)
def refund(order: int) -> str:
    """Pay an order back."""
    return f"order {order} is paid back"


def shop(*says: Any, **settings: Any) -> Platform:
    agent = Agent("clerk", model=ScriptedModel(says), tools=[refund], **settings)
    leader = ScriptedModel([call("delegate_task_to_member", member_id="clerk", task="go"), "Done."])
    return Platform(agents=[agent], teams=[Team("desk", model=leader, members=["clerk"])])


def test_result_has_a_name_for_each_member_and_is_the_mapping_of_json() -> None:
    with Client(shop(Says("Hello.", usage=Usage(3, 2)))) as client:
        run = client.run("clerk", "hi", session_id="s", session_state={"a": 1}, metadata={"b": 2})
        stored = client.get(f"/agents/clerk/runs/{run.run_id}?session_id=s").json()

    assert (run.status, run.content, run.session_id) == ("COMPLETED", "Hello.", "s")
    assert (run.agent_id, run.team_id, run.user_id) == ("clerk", None, run["user_id"])
    assert (run.state, run.metadata) == ({"a": 1}, {"b": 2})
    assert (run.metrics.input_tokens, run.metrics.output_tokens) == (3, 2)
    assert (run.error_type, run.incident, run.reasoning_content) == (None, None, None)
    assert (run.tools, run.requirements, run.member_responses) == ((), (), ())
    assert run == stored
    assert json.loads(json.dumps({**run})) == stored
    assert len(run) == len([*run]) == len(stored)
    assert run["content"] == run.content
    assert repr(run) == "RunResult('clerk', status='COMPLETED', content='Hello.')"


def test_calls_that_wait_are_typed_and_answered() -> None:
    with Client(shop([call("refund", order=7)], "Paid back.")) as client:
        paused = client.run("clerk", "refund order 7")
        run = client.go_on(paused, confirmed=True, confirmation_note="by phone")

    (needed,) = paused.requirements
    assert isinstance(needed, RunRequirement)
    assert needed.tool_execution.tool_name == "refund"
    assert needed.tool_execution.tool_args == {"order": 7}
    assert needed.tool_execution.requires_confirmation is True
    assert (paused.status, needed.member_run_id) == ("PAUSED", None)
    (made,) = run.tools
    assert isinstance(made, ToolExecution)
    assert (made.result, made.tool_call_error) == ("order 7 is paid back", False)
    assert (made.confirmed, made.confirmation_note) == (True, "by phone")


def test_team_has_the_runs_of_its_members() -> None:
    with Client(shop([call("refund", order=7)], "Paid back.")) as client:
        paused = client.run_team("desk", "refund order 7")
        run = client.go_on(paused, confirmed=True)

    (needed,) = paused.requirements
    (member,) = run.member_responses
    assert (run.team_id, run.agent_id, run.status) == ("desk", None, "COMPLETED")
    assert (needed.member_agent_id, needed.member_run_id) == ("clerk", member.run_id)
    assert (member.agent_id, member.content) == ("clerk", "Paid back.")
    assert repr(run).startswith("RunResult('desk', ")


def test_answer_is_an_instance_of_the_class_of_the_agent() -> None:
    with Client(shop('{"number": 7, "total": 9.5}', output_schema=Invoice)) as client:
        run = client.run("clerk", "invoice")

    assert run.content == {"number": 7, "total": 9.5}
    assert run.answer == run.answer_as(Invoice) == Invoice(7, 9.5)
    with pytest.raises(TypeError, match=r"^the answer is a Invoice, not a int$"):
        run.answer_as(int)


def test_agent_without_a_class_has_no_instance() -> None:
    with Client(shop("Hello.")) as client:
        run = client.run("clerk", "hi")

    with pytest.raises(TypeError, match="no class as output_schema"):
        _ = run.answer


def test_failed_run_says_why_to_programs() -> None:
    members = {
        "agent_id": "a",
        "status": "ERROR",
        "content": "It failed",
        "error_type": "RunFailed",
        "incident": "4e54",
    }
    run = RunResult(members)

    assert (run.error_type, run.incident) == ("RunFailed", "4e54")
    assert repr(run) == (
        "RunResult('a', status='ERROR', content='It failed', error_type='RunFailed')"
    )


def test_member_that_a_later_version_adds_does_no_harm() -> None:
    run = RunResult({"metrics": {"input_tokens": 1, "price": 2}, "tools": None, "news": 3})

    assert run.metrics == RunMetrics(input_tokens=1)
    assert (run.tools, run["news"]) == ((), 3)
