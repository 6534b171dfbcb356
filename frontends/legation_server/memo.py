"""Heads that came before, and need not be parsed again.

What becomes of a head depends on its bytes and on the limits, and on nothing else: each is given
to a parser of its own.  So a head whose bytes are known is the head that was parsed then.

The value of a bearer token is left out of the bytes that are kept, and put into the head that was
found: so no token stays in memory, and all who send the same head but for the token share it.
It can be left out because it consists of characters that mean nothing to a parser (token68, RFC
9110 section 11.2) and stands where one field begins and ends.  A head with a field that is not
known to be harmless, as a cookie, is not kept.

A head is kept when it comes the second time, so that those that come once drive out nothing.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from legation.http.messages import Headers

from .head import RequestHead

__all__ = ["Memo"]

_BEARER: Final = re.compile(rb"\r\n[Aa]uthorization: Bearer ([A-Za-z0-9._~+/-]++=*+)\r\n")
_AUTHORIZATION: Final = b"authorization"
_BEFORE_TOKEN: Final = b"uthorization: Bearer "
_PLAIN: Final = bytes.maketrans(b"._~+/-=", b"0000000")
"""Makes letters and digits of all that a token consists of; a pattern would take five times as
long."""

_HARMLESS: Final = frozenset(
    {
        b"accept",
        b"accept-encoding",
        b"accept-language",
        _AUTHORIZATION,
        b"cache-control",
        b"connection",
        b"content-length",
        b"content-type",
        b"host",
        b"origin",
        b"pragma",
        b"priority",
        b"referer",
        b"sec-ch-ua",
        b"sec-ch-ua-mobile",
        b"sec-ch-ua-platform",
        b"sec-fetch-dest",
        b"sec-fetch-mode",
        b"sec-fetch-site",
        b"user-agent",
    }
)
"""The fields that a client repeats from request to request, and that are no secret."""

_Parts: TypeAlias = tuple[str, str, Headers, Headers, int | None, bool, bool]
"""A head without its token: method and target, the fields before that, those behind it, the rest.

It is an HTTP/1.1 one, as all are that are kept."""


class Memo:
    """At most `most` heads, those that were kept last; for all connections of a worker."""

    __slots__ = ("_heads", "_most", "_once")

    LONGEST: Final = 4 << 10
    """Bytes of a head that is kept, its token aside."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._heads: dict[bytes, RequestHead | _Parts] = {}
        self._once: set[int] = set()

    def __len__(self) -> int:
        """Return how many heads are kept."""
        return len(self._heads)

    def find(self, raw: bytes) -> RequestHead | None:
        """Return what `raw`, a whole head, would be parsed to; None where it is not known."""
        start = raw.find(_BEFORE_TOKEN) + len(_BEFORE_TOKEN)
        if start < len(_BEFORE_TOKEN):
            known = self._heads.get(raw)  # not what others are without their token
            return known if isinstance(known, RequestHead) else None
        end = raw.find(b"\r", start)
        known = self._heads.get(raw[:start] + raw[end:])
        token = raw[start:end]
        if not isinstance(known, tuple) or not token.translate(_PLAIN).isalnum():
            return None
        method, target, before, behind, length, keep_alive, expects = known
        headers = (*before, (_AUTHORIZATION, b"Bearer " + token), *behind)
        return RequestHead(method, target, headers, length, keep_alive, expects)

    def keep(self, raw: bytes, head: RequestHead) -> None:
        """Remember that `raw` is `head` if it came before, in the place of what is kept longest."""
        names = [name for name, _ in head.headers]
        tokens = names.count(_AUTHORIZATION)
        bearer = _BEARER.search(raw)
        key = raw if bearer is None else raw[: bearer.start(1)] + raw[bearer.end(1) :]
        if tokens != (bearer is not None) or not _HARMLESS.issuperset(names):
            return
        # A token is found by the words before it: so they stand in no other field before that.
        found = raw.find(_BEFORE_TOKEN)
        if found != (-1 if bearer is None else bearer.start(1) - len(_BEFORE_TOKEN)):
            return
        if head.old or len(key) > self.LONGEST or not self._came_before(key):
            return
        if len(self._heads) >= self._most:
            del self._heads[next(iter(self._heads))]
        if bearer is None:
            self._heads[key] = head
        else:
            at = names.index(_AUTHORIZATION)
            self._heads[key] = (
                head.method,
                head.target,
                head.headers[:at],
                head.headers[at + 1 :],
                head.length,
                head.keep_alive,
                head.expects,
            )

    def _came_before(self, key: bytes) -> bool:
        """Tell whether `key` came before, as far back as that is remembered."""
        mark = hash(key)
        if mark in self._once:
            return True
        if len(self._once) >= 8 * self._most:
            self._once.clear()
        self._once.add(mark)
        return False
