from __future__ import annotations

import json
from typing import Final, get_args

import pytest
from attrs import evolve

from legation.runs.events import (
    ENDS,
    Event,
    EventOrigin,
    ModelRequestCompleted,
    ModelRequestStarted,
    PostHookCompleted,
    PostHookStarted,
    PreHookCompleted,
    PreHookStarted,
    RunCancelled,
    RunCompleted,
    RunContent,
    RunContentCompleted,
    RunContinued,
    RunError,
    RunPaused,
    RunStarted,
    ToolCallCompleted,
    ToolCallError,
    ToolCallStarted,
    class_of,
    mark_final,
    run_id_of,
)
from legation.store.run_rows import ClaimedRun, StoredEvent


def origin(kind: str, name: str, run_id: str = "r", parent: str | None = None) -> EventOrigin:
    return EventOrigin(ClaimedRun("o", "s", run_id, kind, kind[0], "{}", 0, 1), name, parent)


AGENT: Final = origin("agent", "Al")
TEAM: Final = origin("team", "Té")
MEMBER: Final = origin("agent", "Al", "m", "r")
COMMON: Final = {
    AGENT: '"agent_id":"a","agent_name":"Al","run_id":"r","session_id":"s"',
    TEAM: '"team_id":"t","team_name":"Té","run_id":"r","session_id":"s"',
    MEMBER: '"agent_id":"a","agent_name":"Al","run_id":"m","parent_run_id":"r","session_id":"s"',
}
TOOL: Final = {"tool_call_id": "c1", "tool_name": "pay"}
ANSWERED: Final = ModelRequestCompleted(
    model="m",
    model_provider="p",
    input_tokens=1,
    output_tokens=2,
    total_tokens=3,
    reasoning_tokens=4,
    cache_read_tokens=5,
    cache_write_tokens=6,
)
# Clients match the names and read the members: what stands here does not change.
FORMS: Final[tuple[tuple[EventOrigin, Event, str, str], ...]] = (
    (AGENT, RunStarted("m", "p"), "RunStarted", ',"model":"m","model_provider":"p"}'),
    (AGENT, RunStarted(), "RunStarted", "}"),
    (
        MEMBER,
        RunStarted("m", "p", "c1"),
        "RunStarted",
        ',"model":"m","model_provider":"p","parent_tool_call_id":"c1"}',
    ),
    (TEAM, RunContinued(), "TeamRunContinued", "}"),
    (
        AGENT,
        RunContinued([TOOL]),
        "RunContinued",
        ',"tools":[{"tool_call_id":"c1","tool_name":"pay"}]}',
    ),
    (AGENT, RunContinued(resumed=True), "RunContinued", ',"resumed":true}'),
    (
        AGENT,
        ModelRequestStarted("m", "p", "r.2"),
        "ModelRequestStarted",
        ',"model":"m","model_provider":"p","message_id":"r.2"}',
    ),
    (
        AGENT,
        ModelRequestStarted("m", "p", "r.2", again=True),
        "ModelRequestStarted",
        ',"model":"m","model_provider":"p","message_id":"r.2","again":true}',
    ),
    (
        AGENT,
        ANSWERED,
        "ModelRequestCompleted",
        ',"model":"m","model_provider":"p","input_tokens":1,"output_tokens":2,"total_tokens":3,"reasoning_tokens":4,"cache_read_tokens":5,"cache_write_tokens":6}',
    ),
    (
        AGENT,
        evolve(ANSWERED, time_to_first_token=0.5),
        "ModelRequestCompleted",
        ',"model":"m","model_provider":"p","input_tokens":1,"output_tokens":2,"total_tokens":3,"time_to_first_token":0.5,"reasoning_tokens":4,"cache_read_tokens":5,"cache_write_tokens":6}',
    ),
    (
        AGENT,
        ToolCallStarted(TOOL),
        "ToolCallStarted",
        ',"tool":{"tool_call_id":"c1","tool_name":"pay"}}',
    ),
    (
        MEMBER,
        ToolCallCompleted("pay() completed", TOOL),
        "ToolCallCompleted",
        ',"content":"pay() completed","tool":{"tool_call_id":"c1","tool_name":"pay"}}',
    ),
    (AGENT, PreHookStarted("length"), "PreHookStarted", ',"pre_hook_name":"length"}'),
    (AGENT, PreHookCompleted("length"), "PreHookCompleted", ',"pre_hook_name":"length"}'),
    (TEAM, PostHookStarted("length"), "TeamPostHookStarted", ',"post_hook_name":"length"}'),
    (TEAM, PostHookCompleted("length"), "TeamPostHookCompleted", ',"post_hook_name":"length"}'),
    (
        TEAM,
        ToolCallError(TOOL, None),
        "TeamToolCallError",
        ',"tool":{"tool_call_id":"c1","tool_name":"pay"},"error":null}',
    ),
    (
        AGENT,
        RunContent("hé"),
        "RunContent",
        ',"content":"hé","content_type":"str","reasoning_content":""}',
    ),
    (
        AGENT,
        RunContent(reasoning_content="hm"),
        "RunContent",
        ',"content_type":"str","reasoning_content":"hm"}',
    ),
    (TEAM, RunContentCompleted(), "TeamRunContentCompleted", "}"),
    (
        AGENT,
        RunCompleted(None, "dict", metrics={}),
        "RunCompleted",
        ',"content":null,"content_type":"dict","metrics":{}}',
    ),
    (
        TEAM,
        RunCompleted("x", "str", "hm", {}, {"duration": 1.5}, [], {"a": 1}),
        "TeamRunCompleted",
        ',"content":"x","content_type":"str","reasoning_content":"hm","metadata":{},"metrics":{"duration":1.5},"member_responses":[],"session_state":{"a":1}}',
    ),
    (
        AGENT,
        RunPaused("I wait", [TOOL], []),
        "RunPaused",
        ',"content":"I wait","tools":[{"tool_call_id":"c1","tool_name":"pay"}],"requirements":[]}',
    ),
    (AGENT, RunError("no", "timeout"), "RunError", ',"content":"no","error_type":"timeout"}'),
    (MEMBER, RunCancelled("c", "c"), "RunCancelled", ',"reason":"c","content":"c"}'),
)


@pytest.mark.parametrize(("of", "event", "name", "rest"), FORMS, ids=lambda value: None)
def test_form_of_an_event_is_the_one_that_clients_know(
    of: EventOrigin, event: Event, name: str, rest: str
) -> None:
    stored = of.encode(event, 7, 1_500_000)

    assert (stored.seq, stored.name, stored.at_us) == (7, name, 1_500_000)
    assert stored.data == f'{{"created_at":1,"event":"{name}",{COMMON[of]}{rest}'
    assert json.loads(stored.data)["event"] == name
    assert (stored.origin, stored.noted) == (of, event)
    assert class_of(name) is type(event)


def test_form_of_every_event_is_known() -> None:
    assert {type(event) for _, event, _, _ in FORMS} == set(get_args(Event))


def test_names_are_those_of_the_classes() -> None:
    assert {cls.name for cls in get_args(Event)} == {cls.__name__ for cls in get_args(Event)}
    assert class_of("RunInvented") is None


@pytest.mark.parametrize("of", [AGENT, TEAM, MEMBER], ids=["agent", "team", "member"])
def test_run_of_an_event_is_the_same_whether_it_was_noted_here_or_read(of: EventOrigin) -> None:
    noted = of.encode(RunContinued(), 1, 0)
    read = StoredEvent(noted.seq, noted.name, noted.data)

    assert noted == read
    assert run_id_of(noted) == run_id_of(read) == of.run.run_id


def test_event_of_nobody_has_no_run() -> None:
    assert run_id_of(StoredEvent(1, "RunStarted", "{}")) is None


def test_last_of_some_events_is_marked_as_final() -> None:
    first, last = (AGENT.encode(event, 1, 0) for event in (RunContinued(), RunError("", "")))

    assert mark_final((first, last)) == (first, evolve(last, final=True))
    assert mark_final(()) == ()
    assert type(RunError("", "")) in ENDS
    assert {cls.name for cls in ENDS} == {"RunCompleted", "RunError", "RunCancelled"}
