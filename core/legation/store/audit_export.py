"""The export of an audit trail: lines of JSON, by which it is verified without its database.

    {"kind":"trail","format":1,"platform":…,"database":…,"at":…,"since":…,"until":…}
    {"kind":"row","writer":…,"seq":…,"previous":…,"hash":…,"at_us":…,…}
    {"kind":"page","writer":…,"last":…,"count":…,"from":…,"to":…,"key":…,"root":…,"previous":…,
     "hash":…,"rows":[{"at_us":…,…}]}
    {"kind":"heads","heads":[…],"rows":…,"pages":…,"key":…,"hash":…}

Rows that were not moved into pages come first, as the verifier wants them.  The last line names
the end of every chain, and its hash, with the key, covers these, the counts and the first line: a
chain or a line that is missing shows, and so does a last line that is missing.

Each line is ASCII, and the one text that stands for what it says: a member more, in another order
or twice, and a space, are faults.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from json.encoder import encode_basestring_ascii as _quote
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeGuard, cast

from attrs import field, fields

from ..values import define, frozen
from .audit_entries import AuditEntry, OldRow, encode_json
from .audit_pages import NO_KEYS, Head, KeyRing, Page, SigningKey
from .audit_verify import Broken, Verdict, Verifier

__all__ = [
    "FORMAT",
    "MAX_LINE",
    "BadLine",
    "ExportVerdict",
    "ExportVerifier",
    "ExportWriter",
    "Exported",
]

FORMAT: Final = 1
"""The number of this form of an export."""

MAX_LINE: Final = 16 << 20
"""The most bytes of a line: that of a page whose entries have the longest ids."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_NAMES: Final = tuple(attribute.name for attribute in fields(AuditEntry))
_PLACE: Final = ("writer", "seq", "previous", "hash")
_WIDTH: Final = len(_NAMES)
_MOVED_NAMES: Final = (*_NAMES, *_PLACE)
_of: Final = attrgetter(*_NAMES)
_NUMBER: Final = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_PAGE: Final[Mapping[str, type]] = {
    "writer": str,
    "last": int,
    "count": int,
    "from": str,
    "to": str,
    "key": str,
    "root": str,
    "previous": str,
    "hash": str,
}
"""The members of a page, in their order, without its rows."""


def _time(at_us: int) -> str:
    """Return a time as RFC 3339 writes it, always with six digits behind the point.

    What no calendar has, as somebody has written it into the database, is its number.
    """
    try:
        at = _EPOCH + at_us * _MICROSECOND
    except OverflowError:
        return str(at_us)
    return f"{at.replace(tzinfo=None).isoformat('T', 'microseconds')}Z"


def _row_form(names: tuple[str, ...]) -> str:
    return "{{{}}}".format(",".join(f'"{name}":%s' for name in names))


_FORMS: Final = {len(names): _row_form(names) for names in (_NAMES, _MOVED_NAMES)}
"""By the number of its values: how a row is written."""
_OLD: Final = '{"kind":"row",' + _row_form((*_PLACE, *_NAMES))[1:]


@frozen
class Exported:
    """The counts of an export, for whoever made it."""

    entries: int
    pages: int
    chains: int


# --- Writing ------------------------------------------------------------------------------------


@define
class ExportWriter:
    """Writes the lines of one export.

    Attributes:
        key: Signs the last line; None where the trail is only chained.
    """

    key: SigningKey | None = None
    _head: str = field(default="", init=False)
    _rows: int = field(default=0, init=False)
    _pages: int = field(default=0, init=False)
    _ends: dict[str, Head] = field(factory=dict[str, Head], init=False)

    def begin(
        self,
        platform: str,
        database: str,
        at_us: int,
        since_us: int | None = None,
        until_us: int | None = None,
    ) -> bytes:
        """Return the first line; with one of the last two it is of a part of the trail."""
        first = encode_json(
            {
                "kind": "trail",
                "format": FORMAT,
                "platform": platform,
                "database": database,
                "at": _time(at_us),
                "since": None if since_us is None else _time(since_us),
                "until": None if until_us is None else _time(until_us),
            }
        )
        self._head = _digest(first)
        return first.encode() + b"\n"

    def write_row(self, row: OldRow) -> bytes:
        """Return the line of a row that was not moved into a page."""
        self._rows += 1
        self._ends[row.writer] = Head(row.writer, row.seq, row.hash)
        return _old_text(row).encode() + b"\n"

    def write_page(self, page: Page) -> bytes:
        """Return the line of a page."""
        self._pages += 1
        self._rows += _count(page)
        self._ends[page.writer] = page.head
        return _page_text(page, _row_texts(page.data)).encode() + b"\n"

    def end(self) -> bytes:
        """Return the last line."""
        heads = [str(head) for head in self._ends.values()]
        key_id = "" if self.key is None else self.key.id
        hashed = _hash_heads(self._head, heads, self._rows, self._pages, self.key)
        return _heads_text(heads, self._rows, self._pages, key_id, hashed).encode() + b"\n"

    @property
    def exported(self) -> Exported:
        """The counts so far."""
        return Exported(self._rows, self._pages, len(self._ends))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _hash_heads(first: str, heads: list[str], rows: int, pages: int, key: SigningKey | None) -> str:
    key_id = "" if key is None else key.id
    content = encode_json(["heads", first, heads, rows, pages, key_id]).encode()
    if key is None:
        return hashlib.sha256(content).hexdigest()
    return hmac.digest(key.secret, content, "sha256").hex()


def _heads_text(heads: list[str], rows: int, pages: int, key_id: str, hashed: str) -> str:
    return encode_json(
        {
            "kind": "heads",
            "heads": heads,
            "rows": rows,
            "pages": pages,
            "key": key_id,
            "hash": hashed,
        }
    )


def _old_text(row: OldRow) -> str:
    return _OLD % tuple(
        map(_scalar, (row.writer, row.seq, row.previous, row.hash, *_of(row.entry)))
    )


def _count(page: Page) -> int:
    """Return how many entries there are: a stub has lost its own."""
    return 0 if page.is_stub else page.count


def _page_text(page: Page, rows: Iterable[str]) -> str:
    place = encode_json(
        {
            "kind": "page",
            "writer": page.writer,
            "last": page.last,
            "count": page.count,
            "from": _time(page.from_us),
            "to": _time(page.to_us),
            "key": page.key_id,
            "root": page.root,
            "previous": page.previous,
            "hash": page.hash,
        }
    )
    return f'{place[:-1]},"rows":[{",".join(rows)}]}}'


def _row_texts(data: str) -> Iterator[str]:
    """Yield the object of each line; a line that is none of ours is exported as its text.

    So whoever verifies the export finds it, as he would in the database.
    """
    for line in data.split("\n") if data else ():
        try:
            text = _row_text(json.loads(line))
        except (ValueError, TypeError, KeyError, RecursionError):
            text = _quote(line)
        yield text


def _row_text(values: Any) -> str:
    """Return the object that has the values of a line.

    Raises:
        TypeError: They are none of a line.
        KeyError: They are too many or too few.
    """
    if not _is_list(values):
        raise TypeError
    return _FORMS[len(values)] % tuple(map(_scalar, values))


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _scalar(value: object) -> str:
    """Return the JSON text of a string, an integer or null; this is quicker than an encoder.

    Raises:
        TypeError: It is none of these.
    """
    if type(value) is str:
        return _quote(value)
    if type(value) is int:
        return str(value)
    if value is None:
        return "null"
    raise TypeError


# --- Verifying ----------------------------------------------------------------------------------


@frozen
class BadLine:
    """The first line that is not as it was exported, by its number from 1."""

    number: int
    reason: str


ExportVerdict: TypeAlias = Verdict | BadLine

_NO_LINE: Final = "it is no line of an export"
_EDITED: Final = "it is not as it was exported"
_NO_FIRST: Final = "an export begins with another line"
_NO_FORMAT: Final = "it has a newer form, which this version does not know"
_BEHIND: Final = "nothing comes behind the line of heads"
_NO_END: Final = "the line of heads is missing: the export is cut off"
_UNSIGNED: Final = "the line of heads is not signed"
_UNKNOWN: Final = "the line of heads is signed with a key that was not given"
_MORE: Final = "a chain or a part of one is missing, or there is one too many"


@define
class ExportVerifier:
    """Takes the lines of an export, one after the other.

    Attributes:
        heads: Exported before; see `Verifier`.
        keys: Those that signed.
        acknowledged: The heads of findings that a person has judged.
    """

    heads: Iterable[Head] = ()
    keys: KeyRing = NO_KEYS
    acknowledged: Iterable[Head] = ()
    lines: int = field(default=0, init=False)
    _verifier: Verifier = field(init=False)
    _first: str = field(default="", init=False)
    _rows: int = field(default=0, init=False)
    _pages: int = field(default=0, init=False)
    _ends: dict[str, Head] = field(factory=dict[str, Head], init=False)
    _ended: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._verifier = Verifier(self.heads, self.keys, self.acknowledged)

    def take(self, line: bytes) -> Broken | BadLine | None:
        """Check a line, with its line feed or without; return what is wrong with it."""
        self.lines += 1
        if self._ended:
            return self._bad(_BEHIND)
        text = _decode(line)
        read = None if text is None else _parse(text)
        if text is None or read is None:
            return self._bad(_NO_FIRST if self.lines == 1 else _NO_LINE)
        kind = read.get("kind")
        if self.lines == 1:
            return self._begin(text, read)
        match kind:
            case "row":
                return self._take_row(text, read)
            case "page":
                return self._take_page(text, read)
            case "heads":
                return self._take_heads(text, read)
            case _:
                return self._bad(_NO_LINE)

    def end(self) -> ExportVerdict:
        """Return the verdict, after the last line."""
        if not self._ended:
            return BadLine(self.lines + 1, _NO_END)
        return self._verifier.end()

    def _bad(self, reason: str) -> BadLine:
        return BadLine(self.lines, reason)

    def _begin(self, text: str, read: Mapping[str, Any]) -> BadLine | None:
        if read.get("kind") != "trail":
            return self._bad(_NO_FIRST)
        if read.get("format") != FORMAT:
            return self._bad(_NO_FORMAT)
        self._first = _digest(text)
        self._verifier.partial = read.get("since") is not None or read.get("until") is not None
        return None

    def _take_row(self, text: str, read: Mapping[str, Any]) -> Broken | BadLine | None:
        row = _read_row(read)
        if row is None or self._pages or _old_text(row) != text:
            return self._bad(_EDITED)
        self._rows += 1
        self._ends[row.writer] = Head(row.writer, row.seq, row.hash)
        return self._verifier.take_rows((row,))

    def _take_page(self, text: str, read: Mapping[str, Any]) -> Broken | BadLine | None:
        found = _read_page(read)
        if found is None or _page_text(*found) != text:
            return self._bad(_EDITED)
        page, _ = found
        self._pages += 1
        self._rows += _count(page)
        self._ends[page.writer] = page.head
        return self._verifier.take((page,))

    def _take_heads(self, text: str, read: Mapping[str, Any]) -> BadLine | None:
        key_id, hashed = read.get("key"), read.get("hash")
        if not (isinstance(key_id, str) and isinstance(hashed, str)):
            return self._bad(_EDITED)
        key = self.keys.find(key_id) if key_id else None
        if self.keys.keys and key is None:
            return self._bad(_UNKNOWN if key_id else _UNSIGNED)
        heads = [str(head) for head in self._ends.values()]
        if _heads_text(heads, self._rows, self._pages, key_id, hashed) != text:
            return self._bad(_MORE)
        known = key is not None or not key_id
        if known and _hash_heads(self._first, heads, self._rows, self._pages, key) != hashed:
            return self._bad(_EDITED)
        self._ended = True
        return None


def _decode(line: bytes) -> str | None:
    try:
        return line.removesuffix(b"\n").decode("ascii")
    except UnicodeDecodeError:
        return None


def _parse(text: str) -> Mapping[str, Any] | None:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", read) if isinstance(read, dict) else None


def _read_row(read: Mapping[str, Any]) -> OldRow | None:
    try:
        writer, seq, previous, hashed = (read[name] for name in _PLACE)
        entry = AuditEntry(*(read[name] for name in _NAMES))
        _old_text(row := OldRow(writer, seq, previous, hashed, entry))
    except (KeyError, TypeError):
        return None
    return row


def _read_page(read: Mapping[str, Any]) -> tuple[Page, list[str]] | None:
    """Return a page and the texts of its rows, as far as it has the form of one."""
    values = [read.get(name) for name in _PAGE]
    rows = read.get("rows")
    if not _is_list(rows) or not all(
        type(value) is kind for value, kind in zip(values, _PAGE.values(), strict=True)
    ):
        return None
    writer, last, count, begin, end, key_id, root, previous, hashed = cast("Any", values)
    from_us, to_us = _parse_time(begin), _parse_time(end)
    if from_us is None or to_us is None:
        return None
    lines: list[str] = []
    texts: list[str] = []
    try:
        for row in rows:
            line, text = _read_line(row)
            lines.append(line)
            texts.append(text)
    except (KeyError, TypeError):
        return None
    data = "\n".join(lines)
    page = Page(writer, last, count, from_us, to_us, key_id, root, previous, hashed, data)
    return page, texts


def _read_line(row: Any) -> tuple[str, str]:
    """Return the line of a row as the database has it, and its text in the export.

    Raises:
        KeyError: A member is missing, or there is one more.
        TypeError: It has another form.
    """
    if type(row) is str:
        return row, _quote(row)
    width = len(row)
    names = _NAMES if width == _WIDTH else _MOVED_NAMES
    texts = tuple([_scalar(row[name]) for name in names])
    return f"[{','.join(texts)}]", _FORMS[width] % texts


def _parse_time(text: str) -> int | None:
    """Return the microseconds of a time that `_time` has written; None where it is none."""
    if _NUMBER.fullmatch(text):
        return int(text)
    try:
        return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND
    except (ValueError, TypeError):  # TypeError: it has no offset
        return None
