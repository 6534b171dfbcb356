"""Server-sent events, read strictly.

The format (WHATWG HTML, section 9.2) allows much that our clients do not read.  A stream of ours
is narrower: lines end in LF, each event has one `event: ` and one `data: ` line and at most one
`id: ` line, and a comment holds no brace, since the web page cuts its objects out of the raw text.
"""

from __future__ import annotations

import json
from typing import Any

from attrs import frozen

__all__ = ["NotAnEventStream", "ServerSentEvent", "parse_events"]

_FIELDS = frozenset({"event", "data", "id"})


class NotAnEventStream(ValueError):
    """The bytes break the format; the message names the line."""


@frozen(eq=False)
class ServerSentEvent:
    """One event.  Only those that are stored carry an `id`.  Two are equal that were sent alike.

    Attributes:
        name: The name of the event.
        data: Its data, as text.
        id: Its id, for `Last-Event-ID`; None if it is not stored.
    """

    name: str
    data: str
    id: str | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ServerSentEvent) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, str, str | None]:
        return self.name, self.data, self.id

    def json(self) -> Any:
        """Return the data, decoded."""
        return json.loads(self.data)


def parse_events(body: bytes) -> tuple[ServerSentEvent, ...]:
    """Return the events of a whole stream, in order; comments are checked and left out.

    Raises:
        NotAnEventStream: The body is not UTF-8, or a line of it is not as described above, or
            it ends within an event.
    """
    events: list[ServerSentEvent] = []
    fields: dict[str, str] = {}
    lines = _text(body).split("\n")
    if lines.pop():
        raise NotAnEventStream("the last line has no end")
    for number, line in enumerate(lines, 1):
        if line:
            _read_line(number, line, fields)
        elif fields:
            events.append(_event(number, fields))
            fields = {}
    if fields:
        raise NotAnEventStream("the stream ends within an event")
    return tuple(events)


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise NotAnEventStream(f"not UTF-8: {error}") from None


def _read_line(number: int, line: str, fields: dict[str, str]) -> None:
    """Put the field of `line` into `fields`."""
    if "\r" in line:
        raise NotAnEventStream(f"line {number}: a carriage return")
    if line.startswith(":"):
        if "{" in line or "}" in line:
            raise NotAnEventStream(f"line {number}: a brace in a comment: {line!r}")
        return
    name, colon, value = line.partition(": ")
    if not colon or name not in _FIELDS:
        raise NotAnEventStream(f"line {number}: not `event: `, `data: ` or `id: `: {line!r}")
    if name in fields:
        raise NotAnEventStream(f"line {number}: a second `{name}: ` in one event")
    fields[name] = value


def _event(number: int, fields: dict[str, str]) -> ServerSentEvent:
    for name in ("event", "data"):
        if name not in fields:
            raise NotAnEventStream(f"line {number}: the event before has no `{name}: `")
    return ServerSentEvent(fields["event"], fields["data"], fields.get("id"))
