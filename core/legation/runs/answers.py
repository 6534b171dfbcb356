"""What people answer to a run that waits for them, held against what it waits for.

What is executed is what was shown: an answer agrees or refuses, or brings a result.  It changes no
argument, and nothing of it is taken unless all of it is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from attrs import evolve

from ..bodies.json_text import JsonValue
from ..refusals import Fault
from ..tools import render
from ..tools.accepted import is_array, is_object
from ..values import frozen
from .shapes import waiting
from .turn_state import CallState, Standing, TurnState

__all__ = ["Reply", "answered", "calls_answered", "read_replies"]

_REJECTED: Final = "Function call was rejected by the user"
_SHOWN: Final = 80


@frozen
class Reply:
    """What was answered to one call, as the client sent it."""

    call_id: str
    name: str | None
    arguments: Mapping[str, Any] | None
    confirmed: bool | None
    note: str | None
    result: Any


def read_replies(items: Sequence[JsonValue]) -> tuple[Reply, ...] | str:
    """Return the answers, or what is wrong with their structure, in words.

    Members that a call has beside what can be answered are what the client was shown.
    """
    replies: list[Reply] = []
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            return f"item {number} is no object"
        for name, (kind, what) in _MEMBERS.items():
            if item.get(name) is not None and not isinstance(item[name], kind):
                return f"{name} of item {number} is not {what}"
        if not item.get("tool_call_id"):
            return f"item {number} has no tool_call_id"
        members = cast("Mapping[str, Any]", item)
        replies.append(
            Reply(
                call_id=members["tool_call_id"],
                name=members.get("tool_name"),
                arguments=members.get("tool_args"),
                confirmed=members.get("confirmed"),
                note=members.get("confirmation_note"),
                result=members.get("result"),
            )
        )
    return tuple(replies)


# Where the answer to a requirement stands, and where that to its call.
_OF_REQUIREMENTS: Final = {
    "confirmation": "confirmed",
    "confirmation_note": "confirmation_note",
    "external_execution_result": "result",
    "id": "requirement_id",
    "member_agent_id": "member_agent_id",
    "member_run_id": "member_run_id",
}


def calls_answered(requirements: Sequence[JsonValue]) -> list[JsonValue]:
    """Return the calls of `requirements` with the answers, in the form that `read_replies` takes.

    What stands in a requirement itself counts before what stands in its call.
    """
    return [_call_answered(item) for item in requirements]


def _call_answered(item: JsonValue) -> JsonValue:
    call = item.get("tool_execution") if isinstance(item, dict) else None
    if not isinstance(item, dict) or not isinstance(call, dict):
        return item
    answer = {to: item.get(name) for name, to in _OF_REQUIREMENTS.items()}
    return {**call, **{name: value for name, value in answer.items() if value is not None}}


_MEMBERS: Final[Mapping[str, tuple[type[Any], str]]] = {
    "tool_call_id": (str, "a string"),
    "tool_name": (str, "a string"),
    "tool_args": (dict, "an object"),
    "confirmed": (bool, "true or false"),
    "confirmation_note": (str, "a string"),
}


def answered(state: TurnState, replies: Sequence[Reply]) -> TurnState | tuple[Fault, ...]:
    """Return the turn, ready to go on, or everything that keeps it from that.

    No answer at all rejects what was to be confirmed, as in AgentOS.  An answer to a
    call that is over is what the client was shown of it.
    """
    open_calls = [call for call, _ in waiting(state)]
    known = {call.call.id for call in _every(state)}
    given: dict[int, int] = {}
    faults: list[Fault] = []
    for number, reply in enumerate(replies):
        place = _place(reply, open_calls, given)
        if place is not None:
            given[place] = number
        elif reply.call_id not in known or reply.call_id in {c.call.id for c in open_calls}:
            what = "answers no call that waits, or one a second time"
            faults.append(Fault(f"body.tools[{number}].tool_call_id", what))
    done: list[CallState] = []
    for place, call in enumerate(open_calls):
        if place in given:
            at = f"body.tools[{given[place]}]"
            faults += _differences(call, replies[given[place]], at)
            done.append(_settled(call, replies[given[place]]))
        elif replies or call.standing is Standing.EXTERNAL:
            told = f"must answer the call {call.call.id[:_SHOWN]} of {call.call.name[:_SHOWN]}"
            faults.append(Fault("body.tools", told))
        else:
            done.append(_rejected(call, None))
    return tuple(faults) if faults else _applied(state, iter(done))


def _every(state: TurnState) -> Iterator[CallState]:
    for call in state.calls:
        yield call
        if call.member is not None:
            yield from _every(call.member.state)


def _place(reply: Reply, calls: Sequence[CallState], given: Mapping[int, int]) -> int | None:
    """Return which call is answered; of several with this id, one that looks like the answer.

    Ids are unlike within a turn; two members of a team may have the same.
    """
    same = [n for n, c in enumerate(calls) if c.call.id == reply.call_id and n not in given]
    alike = (n for n in same if not list(_changed(calls[n], reply)))
    return next(alike, same[0] if same else None)


def _changed(call: CallState, reply: Reply) -> Iterator[str]:
    if reply.name is not None and reply.name != call.call.name:
        yield "tool_name"
    if reply.arguments is not None and not _same(reply.arguments, call.arguments):
        yield "tool_args"


def _differences(call: CallState, reply: Reply, at: str) -> Iterator[Fault]:
    """Yield what is wrong with the answer to this call."""
    for name in _changed(call, reply):
        yield Fault(f"{at}.{name}", "must be what was shown: a call cannot be changed")
    if call.standing is Standing.CONFIRM:
        if reply.confirmed is None:
            yield Fault(f"{at}.confirmed", "must be true or false")
        if reply.result is not None:
            yield Fault(f"{at}.result", "must not be given: the tool is executed here")
    elif reply.result is None:
        yield Fault(f"{at}.result", "is required: the tool is executed by the client")


def _settled(call: CallState, reply: Reply) -> CallState:
    """Return the call with its answer, which is right or will not be used."""
    if call.standing is Standing.EXTERNAL:
        return evolve(call, confirmed=reply.confirmed, note=reply.note).done(
            render(reply.result) or ""
        )
    if not reply.confirmed:
        return _rejected(call, reply.note)
    return evolve(call, standing=Standing.DUE, confirmed=True, note=reply.note)


def _rejected(call: CallState, note: str | None) -> CallState:
    told = f"{_REJECTED}: {note}" if note else _REJECTED
    return evolve(call, confirmed=False, note=note).done(told, failed=True)


def _applied(state: TurnState, done: Iterator[CallState]) -> TurnState:
    """Return the turn with what became of its waiting calls, which are `done` in their order."""
    calls: list[CallState] = []
    for call in state.calls:
        if call.member is not None:
            inner = _applied(call.member.state, done)
            member = evolve(call.member, state=inner)
            calls.append(evolve(call, standing=Standing.DUE, member=member))
        else:
            calls.append(next(done) if call.waits else call)
    return evolve(state, calls=tuple(calls))


def _same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal: `1` is `1.0`, and neither is `true`."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if is_object(one) and is_object(other):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if is_array(one) and is_array(other):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)
