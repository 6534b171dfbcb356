"""Entries of the audit trail, and the lines in which they are stored.

A line is a compact JSON array in ASCII, and there is one line for each entry: what decodes to an
entry and is not the line of it was written by other hands.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, TypeAlias

from attrs import fields

from ..json_encoding import make_encode, quote_ascii
from ..values import define, frozen

__all__ = [
    "PRUNED",
    "Anchor",
    "AuditEntry",
    "Line",
    "OldRow",
    "decode_lines",
    "encode_json",
    "encode_line",
    "entry_of",
    "hash_row",
]


# Made for every request, and never changed: `frozen` would triple what making it costs.
@define(unsafe_hash=True)
class AuditEntry:
    """One decision or change.  It never holds a token, a secret or the text of a message.

    `at_us` is in microseconds since the epoch; `decision` is allow, deny or open (authorization
    off); `scope` is the scope that allowed or the one that was missing.  `resource` holds the ids
    of the path, joined by `/`; within an id `/` is written `%2F`, and `%` is `%25`.
    """

    at_us: int
    request_id: str
    subject: str | None
    key_id: str | None
    operation: str
    resource: str
    decision: str
    scope: str
    status: int
    client: str


@frozen
class OldRow:
    """An entry as code for versions up to 2.11.0 stored it: a row with a place in a chain of rows.

    Attributes:
        previous: The hash of the row before it, empty for the first one.
    """

    writer: str
    seq: int
    previous: str
    hash: str
    entry: AuditEntry

    @property
    def at_us(self) -> int:
        """The time of its entry."""
        return self.entry.at_us

    @property
    def subject(self) -> str | None:
        """The subject of its entry."""
        return self.entry.subject


Line: TypeAlias = AuditEntry | OldRow
"""The content of a line: an entry, or a row that was moved here as it was."""

_FIELDS: Final = tuple(attribute.name for attribute in fields(AuditEntry))
_values: Final = attrgetter(*_FIELDS)
_values_behind_id: Final = attrgetter(*_FIELDS[2:])
_WIDTH: Final = len(_FIELDS)
_Types: TypeAlias = frozenset[type[object]]
_TEXT: Final[_Types] = frozenset({str})
_TEXT_OR_NONE: Final[_Types] = frozenset({str, type(None)})
_INTEGER: Final[_Types] = frozenset({int})
_KINDS: Final = {"at_us": _INTEGER, "status": _INTEGER}
_OPTIONAL: Final = frozenset({"subject", "key_id"})
_ENTRY_TYPES: Final = tuple(
    _KINDS.get(name, _TEXT_OR_NONE if name in _OPTIONAL else _TEXT) for name in _FIELDS
)
_PLACE_TYPES: Final = (_TEXT, _INTEGER, _TEXT, _TEXT)

encode_json: Final = make_encode(json.JSONEncoder(separators=(",", ":"), check_circular=False))
"""Return a value as the one text that stands for it: JSON in ASCII, without spaces."""


def encode_line(line: Line) -> str:
    """Return the line of an entry, or of a row that is moved; it has no line feed."""
    if isinstance(line, OldRow):
        place = (line.writer, line.seq, line.previous, line.hash)
        return encode_json([*_values(line.entry), *place])
    rest = _encode_rest(_values_behind_id(line))
    return f"[{line.at_us},{quote_ascii(line.request_id)},{rest}"


@lru_cache(maxsize=256)
def _encode_rest(values: tuple[str | int | None, ...]) -> str:
    """Return a line from its third value on.

    Who asks for the same again differs in the time and the request id alone, and to encode the rest
    takes three times as long as to look it up.
    """
    return encode_json(values)[1:]


def decode_lines(data: str) -> tuple[Line, ...] | None:
    """Return the content of lines that are joined by line feeds, or None where one is no line."""
    texts = data.split("\n")
    try:
        rows = json.loads(f"[{','.join(texts)}]")
    except (ValueError, RecursionError):
        return None
    if len(rows) != len(texts):
        return None
    lines: list[Line] = []
    for values, text in zip(rows, texts, strict=True):
        line = _read_values(values)
        if line is None or encode_line(line) != text:
            return None
        lines.append(line)
    return tuple(lines)


def _read_values(values: Any) -> Line | None:
    if values.__class__ is not list:
        return None
    own, place = values[:_WIDTH], values[_WIDTH:]
    if len(own) < _WIDTH or not _fit(own, _ENTRY_TYPES):
        return None
    entry = AuditEntry(*own)
    if not place:
        return entry
    fits = len(place) == len(_PLACE_TYPES) and _fit(place, _PLACE_TYPES)
    return OldRow(place[0], place[1], place[2], place[3], entry) if fits else None


def _fit(values: list[Any], types: tuple[_Types, ...]) -> bool:
    return all(type(value) in kinds for value, kinds in zip(values, types, strict=True))


def entry_of(line: Line) -> AuditEntry:
    """Return the entry in a line."""
    return line.entry if isinstance(line, OldRow) else line


def hash_row(previous: str, writer: str, seq: int, entry: AuditEntry) -> str:
    """Return the hash of a row of versions up to 2.11.0: SHA-256 over the one before and itself."""
    content = json.dumps([previous, writer, seq, *_values(entry)])
    return hashlib.sha256(content.encode()).hexdigest()


PRUNED: Final = "audit.prune"
"""The operation of the entry that says what was pruned."""


@frozen
class Anchor:
    """The cut of a chain: what it held up to number `seq` went, `count` entries at that time.

    `hash` is that of the last page, or old row, that went.  In an entry it is the resource:
    `writer/seq/hash/count`.
    """

    writer: str
    seq: int
    hash: str
    count: int

    @property
    def resource(self) -> str:
        """The anchor as an entry has it."""
        writer = self.writer.replace("%", "%25").replace("/", "%2F")
        return f"{writer}/{self.seq}/{self.hash}/{self.count}"

    @classmethod
    def of(cls, entry: AuditEntry) -> Anchor | None:
        """Return the anchor that `entry` is, or None."""
        if entry.operation != PRUNED:
            return None
        writer, *numbers = entry.resource.split("/")
        if len(numbers) != 3:
            return None
        seq, hashed, count = numbers
        if not (_is_number(seq) and _is_number(count)):
            return None
        writer = writer.replace("%2F", "/").replace("%25", "%")
        return cls(writer, int(seq), hashed, int(count))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20
