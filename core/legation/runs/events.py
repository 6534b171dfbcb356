"""The events of a run: a closed union of values that know their name and their form.

The fields of a class are the members of the event's data, in the order in which clients see them.
A new event is a class here and its name in the union.  Events of agents and of teams are the same
but for the prefix of the name, which stands nowhere else.

This process works on the values that it noted.  `run_id_of` and `class_of` read what comes from a
database, written by whatever process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import Enum
from operator import attrgetter
from typing import Any, ClassVar, Final, TypeAlias, get_args

from attrs import field, fields

from ..http.messages import compact_json
from ..json_encoding import quote
from ..store.run_rows import ClaimedRun, StoredEvent
from ..values import frozen

__all__ = [
    "ABSENT",
    "ENDS",
    "Event",
    "EventOrigin",
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
    "RunPaused",
    "RunStarted",
    "ToolCallCompleted",
    "ToolCallError",
    "ToolCallStarted",
    "class_of",
    "mark_final",
    "members_of",
    "run_id_of",
]


class _Absent(Enum):
    ABSENT = "absent"


ABSENT: Final = _Absent.ABSENT
"""The value of a member that the data of an event has not; None is `null`."""


class _Named:
    """Base of the events: each is called as its class is."""

    __slots__ = ()

    name: ClassVar[str]


@frozen
class RunStarted(_Named):
    """A run begins; with the model that answers, where one does.

    That of a member has the call of the leader's that asked for it.
    """

    model: Any = ABSENT
    model_provider: Any = ABSENT
    parent_tool_call_id: Any = ABSENT


@frozen
class RunContinued(_Named):
    """A run goes on after a pause, with the calls that were answered; or after a crash."""

    tools: Any = ABSENT
    resumed: Any = ABSENT


@frozen
class ModelRequestStarted(_Named):
    """The model is asked for the message of this id.

    `again`: it was asked for it before; what was heard of that answer does not count.
    """

    model: str
    model_provider: str
    message_id: str
    again: Any = ABSENT


@frozen(kw_only=True)
class ModelRequestCompleted(_Named):
    """The model has answered: its tokens, and their cost in US dollars, where that is known.

    The seconds are those until the first piece.
    """

    model: str
    model_provider: str
    input_tokens: int
    output_tokens: int
    total_tokens: int
    time_to_first_token: Any = ABSENT
    reasoning_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost: Any = ABSENT


@frozen
class ToolCallStarted(_Named):
    """A tool is about to be called, or a person is about to be asked about its call."""

    tool: Mapping[str, Any]


@frozen
class ToolCallCompleted(_Named):
    """A call of a tool is over, well or not."""

    content: str
    tool: Mapping[str, Any]


@frozen
class ToolCallError(_Named):
    """A call of a tool failed, or cannot be made."""

    tool: Mapping[str, Any]
    error: str | None


@frozen
class PreHookStarted(_Named):
    """A guard is about to look at the message of the run."""

    pre_hook_name: str


@frozen
class PreHookCompleted(_Named):
    """A guard has looked at the message of the run."""

    pre_hook_name: str


@frozen
class PostHookStarted(_Named):
    """A guard is about to look at the answer."""

    post_hook_name: str


@frozen
class PostHookCompleted(_Named):
    """A guard has looked at the answer."""

    post_hook_name: str


@frozen
class RunContent(_Named):
    """A piece of the answer; without `content`, one of what the model thinks."""

    content: Any = ABSENT
    content_type: str = "str"
    reasoning_content: str = ""


@frozen
class RunContentCompleted(_Named):
    """The answer is whole."""


@frozen
class RunCompleted(_Named):
    """A run has come to its own end.

    The state of the session is kept apart; who reads the event has it put in its place, which is
    behind all else (`fill_state`).  Members of teams have none of their own.
    """

    content: Any
    content_type: str
    reasoning_content: Any = ABSENT
    metadata: Any = ABSENT
    metrics: Any = ABSENT
    member_responses: Any = ABSENT
    session_state: Any = ABSENT


@frozen
class RunPaused(_Named):
    """A run waits for a person."""

    content: str
    tools: Any
    requirements: Any


@frozen
class RunError(_Named):
    """A run failed; `content` is for the caller, `error_type` for programs.

    `incident` stands in the operator's log as well.
    """

    content: str
    error_type: str
    incident: Any = ABSENT


@frozen
class RunCancelled(_Named):
    """A run was cancelled, or deleted with its session."""

    reason: str
    content: str


Event: TypeAlias = (
    RunStarted
    | RunContinued
    | ModelRequestStarted
    | ModelRequestCompleted
    | ToolCallStarted
    | ToolCallCompleted
    | ToolCallError
    | PreHookStarted
    | PreHookCompleted
    | PostHookStarted
    | PostHookCompleted
    | RunContent
    | RunContentCompleted
    | RunCompleted
    | RunPaused
    | RunError
    | RunCancelled
)

for _event in get_args(Event):
    _event.name = _event.__name__

ENDS: Final = (RunCompleted, RunError, RunCancelled)
"""The events behind which a run is over."""


def _find_members(cls: type[Event]) -> tuple[tuple[str, ...], Callable[[Event], tuple[Any, ...]]]:
    """Return the names of the members of an event, and what reads their values, and a few more."""
    names = tuple(member.name for member in fields(cls))
    unread = ("name", "name")  # `attrgetter` returns a tuple of two or more
    return names, attrgetter(*names, *unread[len(names) :])


_CLASSES: Final[Mapping[str, type[Event]]] = {cls.name: cls for cls in get_args(Event)}
_MEMBERS: Final = {cls: _find_members(cls) for cls in get_args(Event)}
_OF_A_TEAM: Final = "Team"


def members_of(cls: type[Event]) -> tuple[str, ...]:
    """Return the names of the members that the data of an event may have, in their order."""
    return _MEMBERS[cls][0]


@frozen
class EventOrigin:
    """The origin of events: the members that every event of a run has in common.

    A member of a team has a run of its own; `parent_run_id` is the run that the journal belongs to.
    """

    run: ClaimedRun
    name: str
    parent_run_id: str | None = None

    _prefix: str = field(default="", init=False, eq=False, repr=False)
    _common: str = field(default="", init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        run, kind, parent = self.run, self.run.kind, ""
        if self.parent_run_id is not None:
            parent = f'"parent_run_id":{quote(self.parent_run_id)},'
        common = (
            f'"{kind}_id":{quote(run.component_id)},"{kind}_name":{quote(self.name)},'
            f'"run_id":{quote(run.run_id)},{parent}"session_id":{quote(run.session_id)}'
        )
        object.__setattr__(self, "_prefix", _OF_A_TEAM if kind == "team" else "")
        object.__setattr__(self, "_common", common)

    def encode(self, event: Event, seq: int, now_us: int) -> StoredEvent:
        """Return `event` as it is stored under the number `seq`, and shown to clients."""
        if type(event) is RunContent and type(event.content) is str:  # each token is one
            rest = (
                f',"content":{quote(event.content)},"content_type":{quote(event.content_type)},'
                f'"reasoning_content":{quote(event.reasoning_content)}}}'
            )
        else:
            names, read = _MEMBERS[type(event)]
            pairs = zip(names, read(event), strict=False)
            own = {name: value for name, value in pairs if value is not ABSENT}
            rest = f",{compact_json(own)[1:]}" if own else "}"
        full, second = self._prefix + event.name, now_us // 1_000_000
        data = f'{{"created_at":{second},"event":"{full}",{self._common}{rest}'
        return StoredEvent(seq, full, data, at_us=now_us, noted=event, origin=self)


def class_of(name: str) -> type[Event] | None:
    """Return the class of a stored event; None of one that another version wrote."""
    return _CLASSES.get(name.removeprefix(_OF_A_TEAM))


def run_id_of(event: StoredEvent) -> str | None:
    """Return the run that a stored event is of: the one of its journal, or of a member's."""
    if isinstance(event.origin, EventOrigin):
        return event.origin.run.run_id
    run_id: str | None = json.loads(event.data).get("run_id")
    return run_id


def mark_final(events: tuple[StoredEvent, ...]) -> tuple[StoredEvent, ...]:
    """Return `events` with the last marked as the one behind which the run is over, or waits."""
    if not events:
        return ()
    *before, last = events
    final = StoredEvent(
        last.seq,
        last.name,
        last.data,
        final=True,
        at_us=last.at_us,
        noted=last.noted,
        origin=last.origin,
    )
    return (*before, final)
