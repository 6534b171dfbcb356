"""Times in the fields of a response: a date, and `Retry-After`, for which a client is to wait.

RFC 9110 sections 5.6.7 and 10.2.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

__all__ = ["LONGEST_SECONDS", "parse_http_date", "parse_retry_after"]

LONGEST_SECONDS: Final = 24 * 3600
"""Whoever asks for more than a day is understood to ask for a day."""

_HTTP_DATE: Final = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (\d\d) (\w{3}) (\d{4}) (\d\d):(\d\d):(\d\d) GMT", re.ASCII
)
_MONTHS: Final[Mapping[str, int]] = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}


def parse_retry_after(headers: Mapping[str, str], now_us: int) -> int | None:
    """Return the seconds that `Retry-After` asks for, at most a day.

    None when there is none, or none that can be read: neither seconds nor a date in the one
    format that is sent today (RFC 9110 section 5.6.7).
    """
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", value, re.ASCII):
        return min(int(value), LONGEST_SECONDS)
    at_us = parse_http_date(value)
    if at_us is None:
        return None
    return min(max(-((now_us - at_us) // 1_000_000), 0), LONGEST_SECONDS)


def parse_http_date(value: str) -> int | None:
    """Return the microseconds since the epoch that a date says; None where it cannot be read."""
    found = _HTTP_DATE.fullmatch(value)
    if not found:
        return None
    day, name, year, hour, minute, second = found.groups()
    month = _MONTHS.get(name, 0)  # 0 is out of range, as the 31st of February is
    try:
        moment = datetime(
            int(year), month, int(day), int(hour), int(minute), int(second), tzinfo=UTC
        )
    except ValueError:
        return None
    return int(moment.timestamp()) * 1_000_000
