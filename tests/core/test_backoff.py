"""The pauses of the back-off."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.backoff import Backoff
from legation.effects import RandomBytes, Sleep
from legation_testing import play

BACKOFF = Backoff(0.5, 300.0)


@pytest.mark.parametrize(
    ("attempt", "seconds"),
    [(0, 0.5), (1, 0.5), (2, 1), (3, 2), (9, 128), (10, 256), (11, 300), (10**9, 300)],
)
def test_the_pause_doubles_from_the_first_to_the_longest(attempt: int, seconds: float) -> None:
    assert BACKOFF.seconds(attempt, 1.0) == seconds
    assert BACKOFF.seconds(attempt, 0.0) == seconds / 2


@given(st.integers(1, 99), st.floats(0, 1))
def test_jitter_takes_at_most_half(attempt: int, fraction: float) -> None:
    assert (
        BACKOFF.seconds(attempt, 0.0)
        <= BACKOFF.seconds(attempt, fraction)
        <= BACKOFF.seconds(attempt, 1.0)
    )


@pytest.mark.parametrize(
    ("drawn", "seconds"), [(b"\0\0", 0.5), (b"\x33\x33", 0.6), (b"\xff\xff", 1.0)]
)
def test_what_began_together_comes_back_apart(drawn: bytes, seconds: float) -> None:
    assert play(BACKOFF.draw(2), [(RandomBytes(2), drawn)]) == seconds
    play(BACKOFF.wait(2), [(RandomBytes(2), drawn), (Sleep(seconds), None)])
