"""The answers of people to a run that waits for them, compared with the calls that wait.

What is executed is what was shown: an answer agrees or refuses, or brings a result.  It changes no
argument, and nothing of it is taken unless all of it is right.

A call in doubt had begun when its node went away: whether it was carried out is not known.  Whoever
answers has it called again, leaves it, or says what came of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from attrs import evolve

from ..http.bodies.json_text import JsonValue
from ..http.refusals import Fault
from ..tools import render
from ..tools.accepted import is_array, is_object
from ..values import frozen
from .payloads import NOT_KNOWN, find_waiting
from .turn_state import CallState, MemberState, Standing, TurnState

__all__ = [
    "Reply",
    "agree",
    "answer_calls",
    "apply_replies",
    "approve_waiting",
    "read_replies",
    "reject_waiting",
]

_REJECTED: Final = "Function call was rejected by the user"
_SHOWN: Final = 80


@frozen
class Reply:
    """The answer to one call, as the client sent it."""

    call_id: str
    name: str | None
    arguments: Mapping[str, Any] | None
    confirmed: bool | None
    note: str | None
    result: Any
    requirement_id: str | None = None
    member_run_id: str | None = None
    in_doubt: bool | None = None

    @property
    def answer(self) -> tuple[bool | None, str | None, str | None]:
        """The content of the reply, which may be the same of two."""
        return self.confirmed, self.note, render(self.result)


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
                requirement_id=members.get("requirement_id"),
                member_run_id=members.get("member_run_id"),
                in_doubt=members.get("in_doubt"),
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


def answer_calls(requirements: Sequence[JsonValue]) -> list[JsonValue]:
    """Return the calls of `requirements` with the answers, in the form that `read_replies` takes.

    What stands in a requirement itself counts before what stands in its call.
    """
    return [_answer_call(item) for item in requirements]


def _answer_call(item: JsonValue) -> JsonValue:
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
    "requirement_id": (str, "a string"),
    "member_run_id": (str, "a string"),
    "in_doubt": (bool, "true or false"),
}


def apply_replies(
    state: TurnState, replies: Sequence[Reply], run_id: str = ""
) -> TurnState | tuple[Fault, ...]:
    """Return the turn of the run `run_id`, ready to go on, or everything that keeps it from that.

    No answer at all rejects what was to be confirmed, as in AgentOS.  An answer to a
    call that is over is what the client was shown of it.
    """
    matching = _Matching(state, run_id)
    given, faults = matching.places(replies)
    done: list[CallState] = []
    for place, call in enumerate(matching.calls):
        if place in given:
            at = f"body.tools[{given[place]}]"
            faults += _differences(call, replies[given[place]], at)
            done.append(_settle(call, replies[given[place]]))
        elif replies or call.standing is Standing.EXTERNAL:
            sentence = f"must answer the call {call.call.id[:_SHOWN]} of {call.call.name[:_SHOWN]}"
            faults.append(Fault("body.tools", sentence))
        else:
            done.append(_reject(call, None))
    return tuple(faults) if faults else _replace_waiting(state, iter(done))


def agree(
    call: CallState, member: MemberState | None, run_id: str, note: str | None, result: Any
) -> Reply:
    """Return the answer yes to a call of the run `run_id` that waits, as it was shown.

    A call of the client's has its `result` instead.
    """
    return Reply(
        call_id=call.call.id,
        name=None,
        arguments=None,
        confirmed=None if call.standing is Standing.EXTERNAL else True,
        note=note,
        result=result,
        requirement_id=f"{run_id if member is None else member.run_id}.{call.call.id}",
        in_doubt=call.in_doubt or None,
    )


def approve_waiting(state: TurnState, run_id: str) -> TurnState | tuple[Fault, ...]:
    """Return the turn with yes to every call that waits; faults where a result is wanted."""
    waiting = find_waiting(state)
    replies = [agree(call, member, run_id, None, None) for call, member in waiting]
    return apply_replies(state, replies, run_id)


def reject_waiting(state: TurnState, note: str | None) -> TurnState:
    """Return the turn with no to every call that waits, those of the client's among them."""
    return _replace_waiting(state, iter([_reject(call, note) for call, _ in find_waiting(state)]))


_UNKNOWN: Final = "answers no call that waits, or one a second time"
_UNSURE: Final = (
    "answers one of several calls that look alike: name its member_run_id, as `requirements` do"
)
_MANY: Final = 64  # of more calls that look alike, each has to be named


class _Matching:
    """Finds the call that each reply answers, whatever their order.

    Ids are unlike within a turn; two members of a team may have the same.  A reply that names its
    requirement, or the run of its member, is for that call alone.  Any other is for the one call
    left that looks like it; of several, all have to say the same.
    """

    def __init__(self, state: TurnState, run_id: str) -> None:
        self.calls: list[CallState] = []
        self._exact: dict[tuple[str, str], int] = {}
        self._same: dict[str, list[int]] = {}
        self._over = set(_over(state, run_id))
        for place, (call, member) in enumerate(find_waiting(state)):
            of = run_id if member is None else member.run_id
            self.calls.append(call)
            self._exact[of, call.call.id] = place
            self._same.setdefault(call.call.id, []).append(place)

    def places(self, replies: Sequence[Reply]) -> tuple[dict[int, int], list[Fault]]:
        """Return the number of the reply to each call that has one, and what is wrong."""
        given: dict[int, int] = {}
        unknown: list[int] = []
        unnamed: dict[str, list[int]] = {}
        for number, reply in enumerate(replies):
            named = self._key_of(reply)
            if named is None:
                unnamed.setdefault(reply.call_id, []).append(number)
                continue
            place = self._exact.get(named)
            if place is not None and place not in given:
                given[place] = number
            elif named not in self._over:
                unknown.append(number)
        unsure: list[int] = []
        for call_id, numbers in unnamed.items():
            left = [place for place in self._same.get(call_id, ()) if place not in given]
            if not left and self._is_over(call_id):
                continue
            unknown += numbers[len(left) :]
            unsure += self._divide({n: replies[n] for n in numbers[: len(left)]}, left, given)
        faults = {**dict.fromkeys(unknown, _UNKNOWN), **dict.fromkeys(unsure, _UNSURE)}
        return given, [
            Fault(f"body.tools[{number}].tool_call_id", faults[number]) for number in sorted(faults)
        ]

    def _key_of(self, reply: Reply) -> tuple[str, str] | None:
        """Return the run and the id of the call that a reply names; None if it names no run."""
        of, _, call_id = (reply.requirement_id or "").partition(".")
        if call_id == reply.call_id and reply.member_run_id in (None, of):
            return of, call_id
        return None if reply.member_run_id is None else (reply.member_run_id, reply.call_id)

    def _is_over(self, call_id: str) -> bool:
        waits = call_id in self._same
        return not waits and any(call_id == over for _, over in self._over)

    def _divide(
        self, replies: dict[int, Reply], left: list[int], given: dict[int, int]
    ) -> list[int]:
        """Give `replies`, of one id, to the calls `left`; return those that may be for several."""
        if len(left) > _MANY:
            return list(replies)
        looks = {place: _look(self.calls[place].arguments) for place in left}
        alike = {number: self._alike(reply, looks) for number, reply in replies.items()}
        while alike:
            free = {n: tuple(p for p in places if p not in given) for n, places in alike.items()}
            number = min(free, key=lambda n: (len(free[n]), n))
            if not _is_sure(free, number, replies):
                return list(alike)
            place = next(iter(free[number]), None)
            given[next(p for p in left if p not in given) if place is None else place] = number
            del alike[number]
        return []

    def _alike(self, reply: Reply, looks: Mapping[int, Any]) -> tuple[int, ...]:
        """Return the calls that look like what `reply` was shown."""
        look = None if reply.arguments is None else _look(reply.arguments)
        return tuple(
            place
            for place in looks
            if reply.name in (None, self.calls[place].call.name)
            and look in (None, looks[place])
            and reply.in_doubt in (None, self.calls[place].in_doubt)
        )


def _is_sure(
    free: Mapping[int, tuple[int, ...]], number: int, replies: Mapping[int, Reply]
) -> bool:
    """Return whether it makes no difference to which of its free calls a reply goes."""
    group = [n for n, places in free.items() if places == free[number]]
    return (
        len(free[number]) <= 1
        or len({replies[n].answer for n in free}) == 1
        or (len(group) == len(free[number]) and len({replies[n].answer for n in group}) == 1)
    )


def _look(value: Any) -> Any:
    """Return what is equal for equal JSON values: `1` is `1.0`, and neither is `true`."""
    if isinstance(value, bool):
        return ("bool", value)
    if is_object(value):
        return ("object", tuple(sorted((name, _look(value[name])) for name in value)))
    if is_array(value):
        return ("array", tuple(_look(one) for one in value))
    return value


def _over(state: TurnState, run_id: str) -> Iterator[tuple[str, str]]:
    """Yield the run and the id of each call that no longer waits."""
    for call in state.calls:
        if call.member is not None:
            yield from _over(call.member.state, call.member.run_id)
        if call.member is not None or not call.waits:
            yield run_id, call.call.id


def _find_changes(call: CallState, reply: Reply) -> Iterator[str]:
    if reply.name is not None and reply.name != call.call.name:
        yield "tool_name"
    if reply.arguments is not None and _look(reply.arguments) != _look(call.arguments):
        yield "tool_args"


def _differences(call: CallState, reply: Reply, at: str) -> Iterator[Fault]:
    """Yield what is wrong with the answer to this call."""
    for name in _find_changes(call, reply):
        yield Fault(f"{at}.{name}", "must be what was shown: a call cannot be changed")
    if call.in_doubt:
        yield from _find_doubts(call, reply, at)
    elif call.standing is Standing.CONFIRM:
        if reply.confirmed is None:
            yield Fault(f"{at}.confirmed", "must be true or false")
        if reply.result is not None:
            yield Fault(f"{at}.result", "must not be given: the tool is executed here")
    elif reply.result is None:
        yield Fault(f"{at}.result", "is required: the tool is executed by the client")


def _find_doubts(call: CallState, reply: Reply, at: str) -> Iterator[Fault]:
    """Yield what is wrong with the answer to a call in doubt.

    One that was confirmed before may be confirmed by an answer that is sent once more, by somebody
    who has not seen the doubt: such an answer has to say that it is about that.
    """
    if reply.result is not None:
        return
    if reply.confirmed is None:
        yield Fault(f"{at}.confirmed", "must be true or false, or `result` say what came of it")
    if reply.confirmed and call.confirmed and not reply.in_doubt:
        sentence = "must be true: the call was confirmed before, and may have been carried out"
        yield Fault(f"{at}.in_doubt", sentence)


def _settle(call: CallState, reply: Reply) -> CallState:
    """Return the call with its answer, which is right or will not be used."""
    answered = evolve(call, confirmed=reply.confirmed, note=reply.note, in_doubt=False)
    if call.standing is Standing.EXTERNAL or (call.in_doubt and reply.result is not None):
        return answered.with_result(render(reply.result) or "")
    return evolve(answered, standing=Standing.DUE) if reply.confirmed else _reject(call, reply.note)


def _reject(call: CallState, note: str | None) -> CallState:
    sentence = NOT_KNOWN if call.in_doubt else _REJECTED
    rejected = evolve(call, confirmed=False, note=note, in_doubt=False)
    return rejected.with_result(f"{sentence}: {note}" if note else sentence, failed=True)


def _replace_waiting(state: TurnState, done: Iterator[CallState]) -> TurnState:
    """Return the turn with what became of its waiting calls, which are `done` in their order."""
    calls: list[CallState] = []
    for call in state.calls:
        if call.member is not None:
            inner = _replace_waiting(call.member.state, done)
            member = evolve(call.member, state=inner)
            calls.append(evolve(call, standing=Standing.DUE, member=member))
        else:
            calls.append(next(done) if call.waits else call)
    return evolve(state, calls=tuple(calls))
