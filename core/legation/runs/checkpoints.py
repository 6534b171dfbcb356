"""The checkpoints of a run: where one can look back at it, and fork it, in the shapes of AgentOS.

They are derived from the messages and the steps of a run, and stored nowhere.  A checkpoint is a
number of messages: all before an answer of the model, and all that there are.  None is between a
call and what came of it.  Where the run can be forked, a checkpoint has the place for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ..store.run_states import RunState
from .forking import Place, Trail
from .output import run_output
from .payloads import messages
from .turn_state import Standing

__all__ = ["list_checkpoints", "take_snapshot"]

_SHOWN: Final = 120
"""How much of a message is shown with a checkpoint, in characters."""

_Message = Mapping[str, Any]


def list_checkpoints(trail: Trail, *, forkable: bool) -> list[dict[str, Any]]:
    """Return the checkpoints of a run, the oldest first.

    `forkable`: it can be forked at places, which that of a member, and that of a function, cannot.
    """
    said = _list_messages(trail)
    found = dict(_find_places(trail, said))
    boundaries = {**found, len(said): found.get(len(said), _find_next(trail, said))}
    entries: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    begun, rounds = 0, 0 if trail.answers[0] else 1
    for index, place in sorted(boundaries.items()):
        for message in said[begun:index]:
            if message["role"] == "assistant":
                calls = _describe_calls(message, rounds, forkable=forkable)
                rounds += 1
        begun = index
        known = place is not None and forkable and trail.check(place) is None
        entry = _describe(trail, said, index)
        entry |= {"checkpoint_id": str(len(entries) + 1), "calls": calls}
        entries.append({**entry, "place": str(place) if known else None})
        calls = []
    return entries


def take_snapshot(
    trail: Trail, index: int, entries: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Return a run as it was after its first `index` messages; None where it has not so many.

    It ends before a call whose result it would not have.
    """
    said = _list_messages(trail)
    if index > len(said):
        return None
    known = {one["message_index"]: one for one in entries}
    more: Mapping[str, Any] = known.get(index, {"calls": (), "place": None})
    entry = {**_describe(trail, said, index), **more, "reason": "snapshot"}
    kept = said[: _snap(said, index)]
    output = dict(run_output(trail.row))
    if index < len(said):
        answers = [one["content"] for one in kept if one["role"] == "assistant"]
        output |= {
            "status": entry["status"],
            "content": answers[-1] if answers else "",
            "metrics": {},
        }
        output.pop("session_state", None)
    ids = {call["id"] for one in kept for call in one.get("tool_calls", ())}
    if "tools" in output:
        output["tools"] = [one for one in output["tools"] if one["tool_call_id"] in ids]
    if "requirements" in output:
        waiting = output["requirements"]
        output["requirements"] = [
            one for one in waiting if one["tool_execution"]["tool_call_id"] in ids
        ]
    output |= {"messages": kept, "last_checkpoint_at_message_index": len(kept)}
    return {"checkpoint": entry, "snapshot": output}


def _list_messages(trail: Trail) -> list[dict[str, Any]]:
    """Return the messages of a run: as its output has them, else as its steps say."""
    shown: list[dict[str, Any]] | None = run_output(trail.row).get("messages")
    if shown is not None:
        return shown
    state = trail.state
    if all(call.standing is Standing.DONE for call in state.calls):
        state = state.with_results(state.said[-1].at_us)
    return messages(trail.row.run_id, state, trail.asked["message"])


def _find_places(trail: Trail, said: Sequence[_Message]) -> Iterator[tuple[int, Place]]:
    """Yield how many messages there are before each answer of the model, and its place."""
    answers = [n for n, message in enumerate(said) if message["role"] == "assistant"]
    asked_nobody = 1 if trail.answers[0] else 0
    for number, index in enumerate(answers[asked_nobody:], 1):
        yield index, Place(number)


def _find_next(trail: Trail, said: Sequence[_Message]) -> Place | None:
    """Return the place of the answer that is not there yet, and could be asked for."""
    last = trail.last
    ends = said[-1]["role"] == "assistant" and not said[-1].get("tool_calls")
    return None if last.call or ends else last


def _describe(trail: Trail, said: Sequence[_Message], index: int) -> dict[str, Any]:
    row, latest = trail.row, index == len(said)
    message = said[index - 1] if index else None
    return {
        "checkpoint_id": None,
        "run_id": row.run_id,
        "session_id": row.session_id,
        "message_index": index,
        "continue_from": index,
        "status": row.status if latest else RunState.RUNNING.value,
        "reason": "end" if latest else "checkpoint",
        "created_at": row.created_us // 1_000_000 if message is None else message["created_at"],
        "message_id": None if message is None else message["id"],
        "message_role": None if message is None else message["role"],
        "message_preview": None if message is None else _shorten(message["content"]),
        "is_latest": latest,
    }


def _describe_calls(message: _Message, number: int, *, forkable: bool) -> list[dict[str, Any]]:
    """Return the calls of an answer, with their places."""
    return [
        {
            "place": f"{number}.{n}" if forkable else None,
            "tool_call_id": call["id"],
            "tool_name": call["function"]["name"],
        }
        for n, call in enumerate(message.get("tool_calls", ()), 1)
    ]


def _shorten(content: str) -> str:
    line = content.replace("\n", " ").strip()
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}..."


def _snap(said: Sequence[_Message], index: int) -> int:
    """Return how many of the first `index` messages there are before a call without a result."""
    safe, waiting = 0, 0
    for number, message in enumerate(said[:index], 1):
        waiting += len(message.get("tool_calls", ())) - (message["role"] == "tool")
        safe = number if waiting == 0 else safe
    return safe
