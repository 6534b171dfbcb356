"""The URLs of files: `data:` URLs (RFC 2397), which are the files themselves, and public ones.

What a `data:` URL says of itself is held against what an upload may be, and its content is read as
strictly: whoever executes the run is given the same as of an upload.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeGuard

from .media_types import MEDIA_TYPES, decode_base64, encode_file

__all__ = ["MOST_BYTES", "NO_BASE64", "encode_inline", "is_data_url", "is_public_url"]

MOST_BYTES: Final = 5 << 20
"""Of one file, in bytes."""

# Scheme and type know no case; what the parameters say, a media type taken here does not need.
_HEAD: Final = re.compile(
    r"data:([a-z0-9][a-z0-9.+-]*/[a-z0-9][a-z0-9.+-]*)(?:;[a-z0-9-]+=[^;,\s]*)*;base64",
    re.ASCII | re.IGNORECASE,
)
_LONGEST_HEAD: Final = 256
_LONGEST: Final = 4 * -(-MOST_BYTES // 3)  # base64 (RFC 4648 section 4)
_NO_HEAD: Final = "must begin with data:<media type>;base64, as a data: URL with content"
_OTHER_TYPE: Final = "has an unsupported media type"
_TOO_LONG: Final = f"must have at most {MOST_BYTES} bytes"
NO_BASE64: Final = "must be base64 with its padding (RFC 4648 section 4)"
_EMPTY: Final = "must have content behind the comma"

# Whoever serves the model fetches these, perhaps from within a network that callers do not reach.
# A name of several labels, and no address in any of its forms, as 127.1 and 0x7f000001: the last
# label begins with a letter (WHATWG URL 3.6).  No user information and no backslash, which readers
# of URLs do not agree on; no name that is of a local network (RFC 6761, RFC 6762, RFC 8375).
_PUBLIC: Final = re.compile(
    r"https://(?:[a-z0-9_-]{1,63}\.)+"
    r"(?!(?:localhost|local|internal|intranet|private|corp|home|lan|arpa)\b)[a-z][a-z0-9-]{0,62}\.?"
    r"(?::[0-9]{1,5})?(?:[/?#][^\s\\]*)?",
    re.IGNORECASE | re.ASCII,
)


def is_data_url(value: object) -> TypeGuard[str]:
    """Return whether `value` means to be a `data:` URL, a sound one or not."""
    return isinstance(value, str) and value[:5].lower() == "data:"


def is_public_url(url: str) -> bool:
    """Return whether the server of a model may be told to fetch `url`."""
    return _PUBLIC.fullmatch(url) is not None


def encode_inline(url: str, kind: str) -> dict[str, Any] | str:
    """Return the file in `url` as the input of a run keeps it; or in words what `url` must be.

    `kind` is that of `MEDIA_TYPES` to which its type has to belong.  A file has no name here.
    """
    head, comma, content = url.partition(",")
    found = _HEAD.fullmatch(head) if len(head) <= _LONGEST_HEAD else None
    if found is None or not comma:
        return _NO_HEAD
    mime_type = found[1].lower()
    if MEDIA_TYPES.get(mime_type) != kind:
        return _OTHER_TYPE
    if len(content) > _LONGEST:
        return _TOO_LONG
    data = decode_base64(content)
    if data is None:
        return NO_BASE64
    if len(data) > MOST_BYTES:
        return _TOO_LONG
    kept = encode_file("", mime_type, data)
    del kept["filename"]
    # Bits behind the last byte would make two texts of one file (RFC 4648 section 3.5).
    return (kept if data else _EMPTY) if kept["content"] == content else NO_BASE64
