"""The field `Retry-After`: the time that a server asks its client to wait (RFC 9110 10.2.3)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

__all__ = ["LONGEST_SECONDS", "parse_retry_after"]

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
    at_us = _http_date_us(value)
    if at_us is None:
        return None
    return min(max(-((now_us - at_us) // 1_000_000), 0), LONGEST_SECONDS)


def _http_date_us(value: str) -> int | None:
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
