"""Moments in a query: seconds since the epoch, or a time as RFC 3339 writes it (ISO 8601).

    since: int | None = moment("Not before")

The field is an `int` of microseconds since the epoch.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ..http.bodies.reader import Reader
from .fields import declare

__all__ = ["LAST_US", "MOMENT_FAULT", "moment", "read_moment"]

_LAST_SECOND: Final = 1 << 40  # tens of thousands of years from now
_SECOND: Final = 1_000_000
LAST_US: Final = _LAST_SECOND * _SECOND
"""Later than any time."""

MOMENT_FAULT: Final = (
    "must be seconds since the epoch, or a time from 1970 on as 2026-01-31 or"
    " 2026-01-31T12:00:00Z; in a URL the + of an offset is written %2B"
)

_SECONDS: Final = re.compile(r"[0-9]{1,13}", re.ASCII)
_DATE: Final = r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_TIME: Final = (
    r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_TEXT: Final = f"{_DATE}(?:T{_TIME})?"
_ISO: Final = re.compile(_TEXT, re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": _LAST_SECOND},
        {"type": "string", "pattern": f"^{_TEXT}$", "maxLength": 32},
    ],
}


def moment(about: str) -> Any:
    """Declare a moment; a date alone is its first moment in UTC."""
    said = f"{about}: seconds since the epoch, or a time as 2026-01-31T12:00:00Z or 2026-01-31"
    return declare(_SCHEMA, _read, said, fault=MOMENT_FAULT)


def _read(read: Reader, name: str) -> int | None:
    text = read.text(name)
    found = None if text is None else read_moment(text)
    if text is not None and found is None:
        read.fault(name, MOMENT_FAULT)
    return found


def read_moment(text: str) -> int | None:
    """Return the microseconds since the epoch that `text` says; None where it says no moment.

    A fraction of a second has six digits at most.
    """
    if _SECONDS.fullmatch(text):
        seconds = int(text)
        return seconds * _SECOND if seconds <= _LAST_SECOND else None
    if not _ISO.fullmatch(text):
        return None
    try:
        read = datetime.fromisoformat(text)
    except ValueError:  # no day of that month
        return None
    if read.tzinfo is None:
        read = read.replace(tzinfo=UTC)
    found = (read - _EPOCH) // _MICROSECOND
    return found if found >= 0 else None
