"""Lists as answers: bounded in rows and in bytes, with a link to what follows.

What one page of the database holds is answered at once.  A longer list is streamed, a page in
memory at a time, and the client sets the pace.  What could be refused is refused before the first
byte; where the database fails later, the client sees that the list is not whole.

Where a list goes on, the answer has `Link: <?…>; rel="next"` (RFC 8288): the query of the same
path, with a cursor instead of a page.  A cursor names the place of the last item.  It opens
nothing: whoever sends one sees what it may see.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from functools import partial
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import unquote_plus

from ..effects import Emit, Program
from ..http.bodies.json_text import parse_json
from ..http.bodies.reader import Reader
from ..http.messages import (
    Headers,
    Response,
    Streamed,
    Unfinished,
    compact_json,
    json_bytes_response,
)
from ..runs.retry import FEW, with_retry
from ..store.failures import StoreFailure
from ..store.units import ReadUnit
from .fields import declare

__all__ = ["Cursor", "ListPage", "answer_list", "cursor", "encode_cursor", "link_next"]

PIECE: Final = 64 << 10
"""Bytes that are emitted at once."""

_CURSOR: Final = re.compile(r"[A-Za-z0-9_-]{1,8192}")
_JSON: Final = (b"content-type", b"application/json")
_PAGING: Final = ("cursor", "page", "after")

Cursor: TypeAlias = tuple[Any, ...]
"""The place of the last item of a page, in the order of its list."""


class ListPage(Protocol):
    """One page of a list, its items as JSON; an empty one is none."""

    @property
    def items(self) -> tuple[bytes, ...]:
        """The items, in their order."""
        ...

    @property
    def following(self) -> ReadUnit[Any] | None:
        """The unit that reads the page behind this; None at the end."""
        ...


def answer_list(
    database: str,
    page: ListPage,
    head: bytes = b"[",
    end: bytes = b"]",
    more: Headers = (),
    status: int = 200,
) -> Response | Streamed:
    """Return a list as JSON: the items of `page`, and of those that follow it in `database`.

    Args:
        database: Where the pages are.
        page: The first.
        head: What stands before the items.
        end: What stands behind them.
        more: Headers.
        status: That of the answer.
    """
    if page.following is None:
        return json_bytes_response(status, b"".join((head, _join(page.items), end)), more)
    return Streamed(status, (_JSON, *more), _stream(database, page, head, end))


def _join(items: Iterable[bytes]) -> bytes:
    return b",".join(filter(None, items))


def _stream(database: str, page: ListPage, head: bytes, end: bytes) -> Program[Unfinished | None]:
    """Emit the list; nothing is held of a page that was read, but what is left to be sent."""
    text, following = _join(page.items), page.following
    del page
    yield Emit(head)
    begun = False
    while True:
        if text:
            if begun:
                yield Emit(b",")
            begun = True
            for start in range(0, len(text), PIECE):
                yield Emit(text[start : start + PIECE])
        del text
        if following is None:
            yield Emit(end)
            return None
        try:
            next_page: ListPage = yield from with_retry(database, following, FEW)
        except StoreFailure:
            return Unfinished()
        text, following = _join(next_page.items), next_page.following
        del next_page


# --- Going on -----------------------------------------------------------------------------------


def encode_cursor(place: Cursor) -> str:
    """Return the cursor of `place`; what is in it is nobody's business."""
    return urlsafe_b64encode(compact_json(place).encode()).decode().rstrip("=")


def _decode_cursor(text: str, kinds: tuple[type, ...]) -> Cursor | None:
    """Return the place that `text` is the cursor of: values of these `kinds`; or None."""
    if not _CURSOR.fullmatch(text) or len(text) % 4 == 1:
        return None
    place = parse_json(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    if not isinstance(place, list) or [type(value) for value in place] != list(kinds):
        return None
    return tuple(place) if all(map(_fits, place)) else None


def _fits(value: Any) -> bool:
    """Whether a database takes `value`."""
    return 0 <= value < 1 << 62 if isinstance(value, int) else "\0" not in value


def _read_cursor(read: Reader, name: str, kinds: tuple[type, ...]) -> Cursor | None:
    text = read.text(name) or None
    place = None if text is None else _decode_cursor(text, kinds)
    if text is not None and place is None:
        read.fault(name, "is none that a page has given")
    return place


def cursor(*kinds: type) -> Any:
    """Declare the cursor of a list, whose places have values of these `kinds`."""
    return declare(
        {"type": "string", "pattern": r"^[A-Za-z0-9_-]{0,8192}$"},
        partial(_read_cursor, kinds=kinds),
        "Where the page before ended, as its `Link` has it; `page` does not count then",
    )


def link_next(query: str, name: str, value: str) -> Headers:
    """Return the `Link` to what follows: the query that was sent, and `value` as its `name`.

    It is relative to the address that was asked for, which a proxy may have changed.
    """
    kept = [
        part
        for part in query.split("&")
        if part and unquote_plus(part.partition("=")[0]) not in _PAGING
    ]
    target = "&".join((*kept, f"{name}={value}")).replace(">", "%3E")
    return ((b"link", f'<?{target}>; rel="next"'.encode("ascii", "replace")),)
