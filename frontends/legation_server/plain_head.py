"""The head of an ordinary request, read without h11: in a fifth of the time.

It is read by a part of the grammar (RFC 9112 sections 3 and 5) that cannot be understood in two
ways.  Whatever is beyond that is h11's to read or to refuse: another version, another form of the
target, a transfer coding, an expectation, a Host or a Content-Length that is not the only one.
What is read here, h11 reads to the same.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, TypeAlias

from legation.http.messages import Headers

__all__ = ["PlainHead", "read_plain_head"]

PlainHead: TypeAlias = tuple[str, str, Headers]
"""Method, target in origin-form, and fields, their names in lower case."""

_REQUEST_LINE: Final = re.compile(rb"([A-Z]{1,31}) (/[!\"$-~]*+) HTTP/1\.1")
_TOKEN: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++")
_LONGEST_NAME: Final = 64
_LONGEST_LENGTH: Final = 18  # digits
_BEYOND: Final = frozenset({b"transfer-encoding", b"expect"})


def read_plain_head(raw: bytes) -> PlainHead | None:
    """Return what `raw` says; None where h11 has to look at it.

    Args:
        raw: A head with the empty line at its end.  Each CR and each LF is a part of a CRLF, no
            line begins with a space, and there are no other control characters.
    """
    first, *lines = raw[:-4].split(b"\r\n")
    request = _REQUEST_LINE.fullmatch(first)
    if request is None:
        return None
    headers: list[tuple[bytes, bytes]] = []
    hosts = lengths = 0
    for line in lines:
        written, colon, value = line.partition(b":")
        name, value = _read_name(written), value.strip(b" ")
        if not colon or name is None or name in _BEYOND:
            return None
        if name == b"host":
            hosts += 1
        elif name == b"content-length":
            lengths += 1
            if not value.isdigit() or len(value) > _LONGEST_LENGTH:
                return None
        headers.append((name, value))
    if hosts != 1 or lengths > 1:
        return None
    method, target = request.groups()
    return method.decode("ascii"), target.decode("ascii"), tuple(headers)


@lru_cache(maxsize=512)
def _read_name(name: bytes) -> bytes | None:
    """Return the name of a field in lower case; None where it is none, or a long one."""
    if len(name) > _LONGEST_NAME or _TOKEN.fullmatch(name) is None:
        return None
    return name.lower()
