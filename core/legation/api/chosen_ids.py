"""Ids that a caller chooses: what they may be, in a request and in the document."""

from __future__ import annotations

from typing import Final

from ..http.bodies.reader import Reader
from ..http.routing import is_segment
from .json_schema import Schema

__all__ = ["CHOSEN_ID", "CHOSEN_SESSION", "PRINTED", "read_chosen_id", "read_chosen_session"]

_LONGEST: Final = 255
PRINTED: Final = r"^[^\x00-\x1f\x7f]*$"
"""Text without control characters."""
# What a path can name: neither `.` nor `..`, and without `;` and a backslash.  Written without
# lookahead, which not every reader of schemas has.
_SAFE: Final = r"[^\x00-\x1f\x7f-\x9f;\\]"
_FIRST: Final = r"[^\x00-\x1f\x7f-\x9f;\\.]"
_SEGMENT: Final = rf"^({_FIRST}{_SAFE}*|\.{_FIRST}{_SAFE}*|\.\.{_SAFE}+)?$"
CHOSEN_ID: Final[Schema] = {"type": "string", "maxLength": _LONGEST, "pattern": PRINTED}
CHOSEN_SESSION: Final[Schema] = {"type": "string", "maxLength": _LONGEST, "pattern": _SEGMENT}

_NO_SEGMENT: Final = "must be what a path can name: neither . nor .., and without ; and \\"


def read_chosen_id(read: Reader, name: str) -> str | None:
    """Return an id of the caller's choice; one that is empty was not sent."""
    return read.line(name, max_length=_LONGEST) or None


def read_chosen_session(read: Reader, name: str) -> str | None:
    """Return the id that a new session is to have: text that `/sessions/{session_id}` leads to."""
    text = read_chosen_id(read, name)
    if text is not None and not is_segment(text):
        read.fault(name, _NO_SEGMENT)
    return text
