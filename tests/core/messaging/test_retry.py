"""When messages and replies are tried again."""

from __future__ import annotations

from legation.effects import RandomBytes
from legation.messaging.retry import MAX_AGE_US, MAX_ATTEMPTS, draw_wait_us
from legation_testing import play


def wait_us(attempts: int, now_us: int, asked_seconds: int | None = None) -> int | None:
    """Return how long what came at 0 waits, with the longest pause that may be drawn."""
    program = draw_wait_us(attempts, 0, now_us, asked_seconds)
    return play(program, [(RandomBytes(2), b"\xff\xff")])


def test_the_pause_grows_to_five_minutes() -> None:
    assert [wait_us(attempts, 0) for attempts in (1, 2, 19)] == [500_000, 1_000_000, 300_000_000]


def test_the_other_side_may_ask_for_more() -> None:
    assert wait_us(1, 0, asked_seconds=60) == 60_000_000
    assert wait_us(1, 0, asked_seconds=0) == 500_000


def test_twenty_attempts_are_enough() -> None:
    assert wait_us(MAX_ATTEMPTS - 1, 0) is not None
    assert wait_us(MAX_ATTEMPTS, 0) is None


def test_a_day_is_enough() -> None:
    assert wait_us(1, MAX_AGE_US - 500_000) == 500_000
    assert wait_us(1, MAX_AGE_US - 499_999) is None
    assert wait_us(1, 0, asked_seconds=2 * 24 * 3600) is None
