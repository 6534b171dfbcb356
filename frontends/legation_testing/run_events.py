"""The events of a run, typed: a class for each, with the members of its data as fields.

    match event:
        case RunContent(content=piece): ...
        case ToolCallCompleted(tool=call): ...

Those of a team have the same classes, `Team…` as `name`, and `team_id` in place of `agent_id`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from attrs import NOTHING, field, fields, frozen

from .event_stream import ServerSentEvent
from .exchange import BadResponse
from .run_results import RunMetrics, RunRequirement, RunResult, ToolExecution, read_members

__all__ = [
    "EVENTS",
    "ModelRequestCompleted",
    "ModelRequestStarted",
    "PostHookCompleted",
    "PostHookStarted",
    "PreHookCompleted",
    "PreHookStarted",
    "RunCancelled",
    "RunCompleted",
    "RunContent",
    "RunContentCompleted",
    "RunContinued",
    "RunError",
    "RunEvent",
    "RunPaused",
    "RunStarted",
    "ToolCallCompleted",
    "ToolCallError",
    "ToolCallStarted",
    "read_event",
]


def _tool(members: Mapping[str, Any]) -> ToolExecution:
    return ToolExecution.of(members)


def _tools(items: Iterable[Mapping[str, Any]] | None) -> tuple[ToolExecution, ...]:
    return tuple(map(ToolExecution.of, items or ()))


def _requirements(items: Iterable[Mapping[str, Any]]) -> tuple[RunRequirement, ...]:
    return tuple(map(RunRequirement.of, items))


def _results(items: Iterable[Mapping[str, Any]]) -> tuple[RunResult, ...]:
    return tuple(map(RunResult, items))


def _metrics(members: Mapping[str, Any] | None) -> RunMetrics:
    return RunMetrics.of(members or {})


@frozen(kw_only=True, eq=False)
class RunEvent(ServerSentEvent):
    """Any event of a run: the members that all have, and of one unknown here no others.

    Two are equal that were sent alike.

    Attributes:
        run_id: The run.
        session_id: Its session.
        created_at: The time, in seconds since the epoch.
        agent_id: The agent, if it is a run of one.
        agent_name: Its name.
        team_id: The team, if it is a run of one.
        team_name: Its name.
        parent_run_id: The run of the team whose member this one is.
    """

    run_id: str
    session_id: str
    created_at: int
    agent_id: str | None = None
    agent_name: str | None = None
    team_id: str | None = None
    team_name: str | None = None
    parent_run_id: str | None = None


@frozen(kw_only=True, eq=False)
class RunStarted(RunEvent):
    """A run begins; with the model that answers, where one does.

    Attributes:
        model: The id of the model.
        model_provider: Its provider.
        parent_tool_call_id: The call of the team's leader that began this run of a member.
    """

    model: str | None = None
    model_provider: str | None = None
    parent_tool_call_id: str | None = None


@frozen(kw_only=True, eq=False)
class RunContinued(RunEvent):
    """A run goes on after a pause, with the calls that were answered; or after a crash.

    Attributes:
        tools: The calls that were answered.
        resumed: Whether it goes on after a crash.
    """

    tools: tuple[ToolExecution, ...] = field(default=(), converter=_tools)
    resumed: bool = False


@frozen(kw_only=True, eq=False)
class ModelRequestStarted(RunEvent):
    """The model is asked for the message of this id; `again` after an answer that was lost.

    Attributes:
        model: The id of the model.
        model_provider: Its provider.
        message_id: The id of the message that is to come.
        again: Whether an answer to this request was lost before.
    """

    model: str
    model_provider: str
    message_id: str
    again: bool = False


@frozen(kw_only=True, eq=False)
class ModelRequestCompleted(RunEvent):
    """The model has answered, at this cost.

    Attributes:
        model: The id of the model.
        model_provider: Its provider.
        input_tokens: Tokens of the request.
        output_tokens: Tokens of the answer.
        total_tokens: The sum of both.
        time_to_first_token: Seconds until the first piece, if it was streamed.
        reasoning_tokens: Tokens of the reasoning, among those of the answer.
        cache_read_tokens: Tokens that the provider read from its cache.
        cache_write_tokens: Tokens that it wrote to its cache.
        cost: US dollars, where the prices are known.
    """

    model: str
    model_provider: str
    input_tokens: int
    output_tokens: int
    total_tokens: int
    time_to_first_token: float | None = None
    reasoning_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: float | None = None


@frozen(kw_only=True, eq=False)
class PreHookStarted(RunEvent):
    """A guard is about to look at the message of the run.

    Attributes:
        pre_hook_name: The name of the guard.
    """

    pre_hook_name: str


@frozen(kw_only=True, eq=False)
class PreHookCompleted(RunEvent):
    """A guard has looked at the message of the run.

    Attributes:
        pre_hook_name: The name of the guard.
    """

    pre_hook_name: str


@frozen(kw_only=True, eq=False)
class PostHookStarted(RunEvent):
    """A guard is about to look at the answer.

    Attributes:
        post_hook_name: The name of the guard.
    """

    post_hook_name: str


@frozen(kw_only=True, eq=False)
class PostHookCompleted(RunEvent):
    """A guard has looked at the answer.

    Attributes:
        post_hook_name: The name of the guard.
    """

    post_hook_name: str


@frozen(kw_only=True, eq=False)
class ToolCallStarted(RunEvent):
    """A tool is about to be called, or a person is about to be asked about its call.

    Attributes:
        tool: The call.
    """

    tool: ToolExecution = field(converter=_tool)


@frozen(kw_only=True, eq=False)
class ToolCallCompleted(RunEvent):
    """A call of a tool is over, well or not.

    Attributes:
        content: A sentence on the call and its duration.
        tool: The call, with its result.
    """

    content: str
    tool: ToolExecution = field(converter=_tool)


@frozen(kw_only=True, eq=False)
class ToolCallError(RunEvent):
    """A call of a tool failed, or cannot be made.

    Attributes:
        tool: The call.
        error: The reason, for the model and for people.
    """

    tool: ToolExecution = field(converter=_tool)
    error: str | None


@frozen(kw_only=True, eq=False)
class RunContent(RunEvent):
    """A piece of the answer; without `content`, one of what the model thinks.

    Attributes:
        content: The piece: text, or a value by a schema.
        content_type: `str`, or the type of a structured answer.
        reasoning_content: A piece of the reasoning of the model.
    """

    content: Any = None
    content_type: str = "str"
    reasoning_content: str = ""


@frozen(kw_only=True, eq=False)
class RunContentCompleted(RunEvent):
    """The answer is whole."""


@frozen(kw_only=True, eq=False)
class RunCompleted(RunEvent):
    """A run has come to its own end.

    Attributes:
        content: The whole answer.
        content_type: `str`, or the type of a structured answer.
        reasoning_content: The whole reasoning of the model.
        session_state: The state of the session after the run.
        metadata: The metadata that the caller sent.
        metrics: The cost.
        member_responses: The runs of the members of a team.
    """

    content: Any
    content_type: str
    reasoning_content: str | None = None
    session_state: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None
    metrics: RunMetrics = field(default=None, converter=_metrics)
    member_responses: tuple[RunResult, ...] = field(default=(), converter=_results)


@frozen(kw_only=True, eq=False)
class RunPaused(RunEvent):
    """A run waits for a person.

    Attributes:
        content: A sentence that says so.
        tools: The calls that wait.
        requirements: The decisions that are required, one for each call.
    """

    content: str
    tools: tuple[ToolExecution, ...] = field(converter=_tools)
    requirements: tuple[RunRequirement, ...] = field(converter=_requirements)


@frozen(kw_only=True, eq=False)
class RunError(RunEvent):
    """A run failed; `content` is for people, `error_type` for programs.

    Attributes:
        content: A sentence for people.
        error_type: The type of the error, for programs.
        incident: The number under which an operator finds the cause.
    """

    content: str
    error_type: str
    incident: str | None = None


@frozen(kw_only=True, eq=False)
class RunCancelled(RunEvent):
    """A run was cancelled, or deleted with its session.

    Attributes:
        reason: The reason.
        content: The answer up to then.
    """

    reason: str
    content: str


EVENTS: Final[Mapping[str, type[RunEvent]]] = {
    cls.__name__: cls
    for cls in (
        RunStarted,
        RunContinued,
        ModelRequestStarted,
        ModelRequestCompleted,
        PreHookStarted,
        PreHookCompleted,
        PostHookStarted,
        PostHookCompleted,
        ToolCallStarted,
        ToolCallCompleted,
        ToolCallError,
        RunContent,
        RunContentCompleted,
        RunCompleted,
        RunPaused,
        RunError,
        RunCancelled,
    )
}
"""The class of each event, by its name without `Team`."""


def read_event(event: ServerSentEvent) -> RunEvent:
    """Return the event of a run's stream, typed; of a name that is not known, a `RunEvent`.

    Raises:
        BadResponse: It lacks a member that all events of its name have.
    """
    cls: Any = EVENTS.get(event.name.removeprefix("Team"), RunEvent)
    sent = {"name": event.name, "data": event.data, "id": event.id}
    members = {**read_members(cls, event.json()), **sent}
    if missing := [a.name for a in fields(cls) if a.default is NOTHING and a.name not in members]:
        raise BadResponse(f"the event {event.name} has no {', '.join(missing)}")
    made: RunEvent = cls(**members)
    return made
