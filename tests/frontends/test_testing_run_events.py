"""The typed events of a run: a class for each that the core has, with the same members."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from attrs import fields

from legation import Agent, Platform, Team, tool
from legation.runs import events as core
from legation_testing import (
    BadResponse,
    Client,
    RunCompleted,
    RunContent,
    RunEvent,
    RunPaused,
    RunStarted,
    ScriptedModel,
    ServerSentEvent,
    ToolCallCompleted,
    call,
)
from legation_testing.run_events import EVENTS, read_event


@tool
def look(place: str) -> str:
    """Look."""
    return f"a vase in {place}"


@tool(requires_confirmation=True)
def pay(sum: int) -> str:  # noqa: A002
    """Pay."""
    return f"paid {sum}"


def platform(*says: Any) -> Platform:
    agent = Agent("a", model=ScriptedModel(says), tools=[look, pay])
    leader = ScriptedModel([call("delegate_task_to_member", member_id="a", task="go"), "Done."])
    return Platform(agents=[agent], teams=[Team("t", model=leader, members=["a"])])


@pytest.mark.parametrize("cls", get_args(core.Event), ids=lambda cls: cls.name)
def test_class_has_the_members_that_the_platform_sends(cls: type[core.Event]) -> None:
    own = {a.name for a in fields(EVENTS[cls.name])} - {a.name for a in fields(RunEvent)}

    assert own == {*core.members_of(cls)}


def test_every_class_is_an_event_of_the_platform() -> None:
    assert EVENTS.keys() == {cls.name for cls in get_args(core.Event)}


def test_events_of_a_run_are_typed() -> None:
    with Client(platform([call("look", place="Rome")], "I see a vase.")) as client:
        events = client.stream("a", "look", session_id="s")

    assert [type(event).__name__ for event in events] == [event.name for event in events]
    assert {event.agent_id for event in events} == {"a"}
    assert {event.session_id for event in events} == {"s"}
    assert "".join(e.content for e in events if isinstance(e, RunContent)) == "I see a vase."
    (looked,) = (event for event in events if isinstance(event, ToolCallCompleted))
    assert (looked.tool.tool_args, looked.tool.result) == ({"place": "Rome"}, "a vase in Rome")
    match events[0], events[-1]:
        case RunStarted(model_provider=provider), RunCompleted(content=content, metrics=metrics):
            assert (provider, content) == ("Legation", "I see a vase.")
            assert metrics.duration is not None
        case _:
            raise AssertionError(events)


def test_events_of_a_team_have_the_same_classes() -> None:
    with Client(platform([call("look", place="Rome")], "I see a vase.")) as client:
        events = client.stream_team("t", "look")

    own = [event for event in events if event.team_id == "t"]
    inner = [event for event in events if event.agent_id == "a"]
    assert own[0].name == "TeamRunStarted"
    assert isinstance(own[0], RunStarted)
    assert isinstance(inner[0], RunStarted)
    assert inner[0].parent_run_id == own[0].run_id
    (done,) = (event for event in own if isinstance(event, RunCompleted))
    assert [member.content for member in done.member_responses] == ["I see a vase."]


def test_pause_has_what_it_waits_for() -> None:
    with Client(platform([call("pay", sum=3)], "Paid.")) as client:
        last = client.stream("a", "pay")[-1]

    assert isinstance(last, RunPaused)
    assert [needed.tool_execution.tool_name for needed in last.requirements] == ["pay"]
    assert [one.tool_args for one in last.tools] == [{"sum": 3}]


def test_event_is_equal_to_what_was_sent() -> None:
    with Client(platform("Hello.")) as client:
        typed = client.stream("a", "hi")
    sent = tuple(ServerSentEvent(event.name, event.data, event.id) for event in typed)

    assert typed == sent
    assert {*typed} == {*sent}
    assert typed[0] != typed[1]
    assert typed[0] != "RunStarted"
    assert typed[0].json()["event"] == "RunStarted"


COMMON = '"run_id":"r","session_id":"s","created_at":1'


def test_event_that_is_not_known_here_is_one_all_the_same() -> None:
    event = read_event(ServerSentEvent("RunSlept", f'{{{COMMON},"hours":8}}'))

    assert type(event) is RunEvent
    assert (event.name, event.run_id, event.json()["hours"]) == ("RunSlept", "r", 8)


def test_event_that_lacks_a_member_is_refused_by_name() -> None:
    with pytest.raises(BadResponse, match=r"^the event TeamRunError has no error_type$"):
        read_event(ServerSentEvent("TeamRunError", f'{{{COMMON},"content":"no"}}'))
