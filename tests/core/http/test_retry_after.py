"""How long a server asks its client to wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.http.retry_after import LONGEST_SECONDS, parse_retry_after

NOW = 1_700_000_000_000_000  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        (" 7 ", 7),
        ("999999999", LONGEST_SECONDS),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30),
        ("Tue, 14 Nov 2023 22:13:00 GMT", 0),
        ("Tue, 14 Nov 2033 22:13:00 GMT", LONGEST_SECONDS),
        ("Tue, 31 Feb 2023 22:13:00 GMT", None),
        ("Tue, 14 Xyz 2023 22:13:00 GMT", None),
        ("1.5", None),
        ("-1", None),
        ("٣", None),
        ("soon", None),
        ("", None),
    ],
)
def test_it_is_seconds_or_a_date(value: str, seconds: int | None) -> None:
    assert parse_retry_after({"retry-after": value}, NOW) == seconds


def test_without_the_header_nothing_is_asked_for() -> None:
    assert parse_retry_after({}, NOW) is None


def test_a_part_of_a_second_counts_as_one() -> None:
    headers = {"retry-after": "Tue, 14 Nov 2023 22:13:21 GMT"}

    assert parse_retry_after(headers, NOW + 1) == 1


@given(st.text(max_size=40))
def test_any_value_is_read_or_ignored(value: str) -> None:
    seconds = parse_retry_after({"retry-after": value}, NOW)

    assert seconds is None or 0 <= seconds <= LONGEST_SECONDS
