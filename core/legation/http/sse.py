"""Server-sent events: how one is written, where a client says it stopped, how others' are read.

The wire format is WHATWG HTML section 9.2.  Two clients of the interface narrow it.  One reads
only lines that begin with `data: `, one space, and takes each for a whole JSON text; the other
looks for balanced braces anywhere in the bytes.  So an event has exactly one data line, and a
comment has no brace.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from attrs import field

from ..values import define, frozen

__all__ = [
    "BadEventId",
    "Decoder",
    "EventId",
    "ForeignEvent",
    "encode",
    "encode_departure",
    "encode_stored",
    "encode_token_end",
    "heartbeat",
    "parse_last_event_id",
]

_LINE_BREAK: Final = re.compile(r"[\r\n]")
# An id of ours; 18 digits keep `seq` within a signed 64 bit column.
_EVENT_ID: Final = re.compile(rb"([A-Za-z0-9._~-]{1,128}):(0|[1-9][0-9]{0,17})")


_LINES: Final = 4
"""How many lines a stored event has: its id, its name, its data, and the empty one."""

_EXPIRED: Final = "token_expired"


@frozen
class EventId:
    """The place of a stored event: number `seq`, from 1, of the run `run_id`."""

    run_id: str
    seq: int

    def __str__(self) -> str:
        return f"{self.run_id}:{self.seq}"


@frozen
class BadEventId:
    """A `Last-Event-ID` that this server never sent."""

    reason: str = "Last-Event-ID is <run_id>:<number>, as it stood in the stream"


def encode(name: str, data: str, event_id: EventId | None = None) -> bytes:
    """Return one event.  Only a stored event has an id: it is what a client comes back with.

    Args:
        name: What the client dispatches on.
        data: Compact JSON.
        event_id: Where the event is stored, if it is.

    Raises:
        ValueError: `name` or `data` has a line break; compact JSON never has.
    """
    if _LINE_BREAK.search(name) or _LINE_BREAK.search(data):
        raise ValueError(f"more than one line in an event: {name!r}")
    head = "" if event_id is None else f"id: {event_id}\n"
    return f"{head}event: {name}\ndata: {data}\n\n".encode()


def encode_stored(run_id: str, events: Sequence[tuple[int, str, str]]) -> bytes:
    """Return stored events of the run `run_id`, each of which is its number, name and data.

    They are as `encode` returns them; what is sent together is looked through and encoded once.

    Raises:
        ValueError: One has a line break in its name or data.
    """
    text = "".join(
        [f"id: {run_id}:{seq}\nevent: {name}\ndata: {data}\n\n" for seq, name, data in events]
    )
    if text.count("\n") != _LINES * len(events) or "\r" in text:
        raise ValueError(f"more than one line in an event of the run {run_id!r}")
    return text.encode()


def heartbeat() -> bytes:
    """Return a comment, which clients skip and which keeps proxies from closing the stream."""
    return b": heartbeat\n\n"


def encode_departure(path: str, event_id: EventId) -> bytes:
    """Return the last words of a stream that is cut: a comment with where the rest can be read.

    Every client skips a comment; an event of a new name, or another field, some would stumble over.
    An `EventSource` comes back by itself, with the id of the last event it saw.

    Args:
        path: Of the run's events; ids need no encoding.
        event_id: The last event that was sent; its number is 0 where there was none.
    """
    return f": this server ends; go on with GET {path} and Last-Event-ID {event_id}\n\n".encode()


def encode_token_end(
    detail: str, error_code: str, path: str, event_id: EventId | None = None
) -> bytes:
    """Return the last event of a stream whose token is not accepted any more.

    It has no id of its own, so that a client comes back behind the last event of the run.

    Args:
        detail: As a request with the token is answered.
        error_code: As `detail`.
        path: Where a client goes on with another token.
        event_id: The last event that was sent, of a stream that can be gone on with.
    """
    data = {"event": _EXPIRED, "detail": detail, "error_code": error_code, "path": path}
    last = {} if event_id is None else {"last_event_id": str(event_id)}
    # As `messages.compact_json` does, which would load more than this part needs.
    text = json.dumps({**data, **last}, ensure_ascii=False, separators=(",", ":"))
    return encode(_EXPIRED, text)


def parse_last_event_id(value: bytes | None) -> EventId | BadEventId | None:
    """Return where the client stopped; None when it begins, with the header empty or absent."""
    if not value:
        return None
    matched = _EVENT_ID.fullmatch(value)
    if matched is None:
        return BadEventId()
    return EventId(matched[1].decode("ascii"), int(matched[2]))


@frozen
class ForeignEvent:
    """An event that somebody else sent; `name` and `id` are empty where it had none."""

    name: str
    data: str
    id: str = ""


_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_DATA: Final = b"data: "


@define
class Decoder:
    """Reads a stream of events, however it was cut (WHATWG HTML section 9.2.6).

    An event is complete with the empty line behind it: what a stream ends with otherwise is none.
    An event has the id that it was sent with, not that of an earlier one.  Times to reconnect are
    not kept.
    """

    _line: bytearray = field(factory=bytearray, init=False)
    _after_return: bool = field(default=False, init=False)
    _begun: bool = field(default=False, init=False)
    _name: str = field(default="", init=False)
    _id: str = field(default="", init=False)
    _data: list[str] = field(factory=list[str], init=False)

    def feed(self, data: bytes) -> list[ForeignEvent]:
        """Take the next bytes of the stream; return the events that they complete."""
        if not data:
            return []
        if self._after_return:  # the second half of a line end
            data = data.removeprefix(b"\n")
        self._after_return = data.endswith(b"\r")
        *lines, rest = _LINE_END.split(data) if b"\r" in data else data.split(b"\n")
        events: list[ForeignEvent] = []
        if lines:
            lines[0] = self._whole(lines[0])
        for line in lines:
            if line.startswith(_DATA):  # nearly every line that says something is one
                self._data.append(line[len(_DATA) :].decode("utf-8", "replace"))
            elif line:
                self._take(line)
            else:
                self._end(events)
        self._line += rest
        return events

    def _whole(self, line: bytes) -> bytes:
        """Return `line` behind what came of it before."""
        if self._line:
            line = bytes(self._line) + line
            self._line.clear()
        if not self._begun:
            self._begun = True
            line = line.removeprefix(_BYTE_ORDER_MARK)
        return line

    def _take(self, line: bytes) -> None:
        """Take a line that is not empty."""
        name, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        if name == b"data":
            self._data.append(text)
        elif name == b"event":
            self._name = text
        elif name == b"id":
            self._id = text

    def _end(self, events: list[ForeignEvent]) -> None:
        """Take an empty line: add the event in front of it to `events`, if there is one."""
        if self._data:
            events.append(ForeignEvent(self._name, "\n".join(self._data), self._id))
            self._data.clear()
        self._name = self._id = ""
