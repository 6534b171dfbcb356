"""When the channels try again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.channels.backoff import MAX_AGE_US, MAX_ATTEMPTS, delay_us, retry_us


@pytest.mark.parametrize(
    ("attempts", "seconds"),
    [(0, 0.5), (1, 0.5), (2, 1), (3, 2), (9, 128), (10, 256), (11, 300), (10**9, 300)],
)
def test_the_pause_doubles_from_half_a_second_to_five_minutes(
    attempts: int, seconds: float
) -> None:
    assert delay_us(attempts, 1.0) == seconds * 1_000_000
    assert delay_us(attempts, 0.0) == seconds * 500_000


@given(st.integers(1, 99), st.floats(0, 1))
def test_jitter_takes_at_most_half(attempts: int, fraction: float) -> None:
    assert delay_us(attempts, 0.0) <= delay_us(attempts, fraction) <= delay_us(attempts, 1.0)


def test_the_other_side_may_ask_for_more() -> None:
    assert retry_us(1, 0, 0, 1.0, asked_seconds=60) == 60_000_000
    assert retry_us(1, 0, 0, 1.0, asked_seconds=0) == 500_000


def test_twenty_attempts_are_enough() -> None:
    assert retry_us(MAX_ATTEMPTS - 1, 0, 0, 0.5) is not None
    assert retry_us(MAX_ATTEMPTS, 0, 0, 0.5) is None


def test_a_day_is_enough() -> None:
    assert retry_us(1, 0, MAX_AGE_US - 500_000, 1.0) == MAX_AGE_US
    assert retry_us(1, 0, MAX_AGE_US - 499_999, 1.0) is None
    assert retry_us(1, 0, 0, 1.0, asked_seconds=2 * 24 * 3600) is None
