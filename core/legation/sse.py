"""Server-sent events: how one is written, and where a client says it stopped reading.

The wire format is WHATWG HTML section 9.2.  Two clients of the interface narrow it.  One reads
only lines that begin with `data: `, one space, and takes each for a whole JSON text; the other
looks for balanced braces anywhere in the bytes.  So an event has exactly one data line, and a
comment has no brace.
"""

from __future__ import annotations

import re
from typing import Final

from attrs import frozen

__all__ = ["BadEventId", "EventId", "encode", "heartbeat", "parse_last_event_id"]

_LINE_BREAK: Final = re.compile(r"[\r\n]")
# An id of ours; 18 digits keep `seq` within a signed 64 bit column.
_EVENT_ID: Final = re.compile(rb"([A-Za-z0-9._~-]{1,128}):(0|[1-9][0-9]{0,17})")


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


def heartbeat() -> bytes:
    """Return a comment, which clients skip and which keeps proxies from closing the stream."""
    return b": heartbeat\n\n"


def parse_last_event_id(value: bytes | None) -> EventId | BadEventId | None:
    """Return where the client stopped; None when it begins, with the header empty or absent."""
    if not value:
        return None
    matched = _EVENT_ID.fullmatch(value)
    if matched is None:
        return BadEventId()
    return EventId(matched[1].decode("ascii"), int(matched[2]))
