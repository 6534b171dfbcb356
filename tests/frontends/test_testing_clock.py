"""Virtual time."""

from __future__ import annotations

import math

import pytest

from legation_testing import NEW_YEAR_2026, Clock
from legation_testing.clock import microseconds


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(1.5, 1_500_000), (0.000_000_1, 1), (0.0, 0), (-3.0, 0), (math.inf, math.inf)],
)
def test_seconds_become_microseconds_rounded_up(seconds: float, expected: float) -> None:
    assert microseconds(seconds) == expected


def test_time_stands_still_until_it_is_let_pass() -> None:
    clock = Clock()

    assert (clock.now_us, clock.elapsed) == (NEW_YEAR_2026, 0.0)


def test_time_never_goes_back() -> None:
    clock = Clock(start_us=5)
    clock.pass_to(10)
    clock.pass_to(3)

    assert (clock.now_us, clock.elapsed_us) == (15, 10)


def test_the_wall_clock_can_be_set_back_without_time_passing() -> None:
    clock = Clock()
    clock.pass_to(10)
    clock.set_forward(-3600)

    assert clock.now_us == NEW_YEAR_2026 + 10 - 3_600_000_000
    assert clock.elapsed_us == 10


def test_whole_seconds_are_those_of_tokens() -> None:
    assert Clock(start_us=1_999_999).now_s == 1
