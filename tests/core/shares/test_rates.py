"""Rates: nobody asks more often than its limit allows, and nobody is refused before that."""

from __future__ import annotations

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from legation.shares.limits import Limits
from legation.shares.rates import MOST_SUBJECTS, Rates

NOW: int = 1_767_225_600_000_000
SECOND = 1_000_000
LIMITS = Limits(requests_per_second=10, request_burst=5)


def ask(rates: Rates, at_us: int, *, limits: Limits = LIMITS, nodes: int = 1) -> bool:
    return not rates.take("ada", limits, nodes, NOW + at_us)


def count(rates: Rates, at_us: int, limits: Limits = LIMITS, nodes: int = 1) -> int:
    """Return how many requests pass at once."""
    passed = 0
    while ask(rates, at_us, limits=limits, nodes=nodes):
        passed += 1
    return passed


def test_a_burst_passes_and_then_one_request_at_a_time() -> None:
    rates = Rates()

    assert count(rates, 0) == 5
    assert rates.take("ada", LIMITS, 1, NOW) == 100_000
    assert count(rates, 99_998) == 0
    assert count(rates, 100_000) == 1
    assert count(rates, 10 * SECOND) == 5


def test_subjects_have_nothing_to_do_with_each_other() -> None:
    rates = Rates()
    assert count(rates, 0) == 5

    assert rates.take("eve", LIMITS, 1, NOW) == 0


def test_no_limit_is_no_limit_and_takes_no_memory() -> None:
    rates = Rates()
    limits = Limits(requests_per_second=0)

    assert all(ask(rates, 0, limits=limits) for _ in range(10_000))
    assert len(rates) == 0


def test_each_node_has_its_part_and_at_least_one_request() -> None:
    assert count(Rates(), 0, Limits(requests_per_second=8, request_burst=8), nodes=2) == 4
    rates = Rates()
    assert count(rates, 0, nodes=9) == 1
    assert not ask(rates, 899_990, nodes=9)
    assert ask(rates, 900_000, nodes=9)


@pytest.mark.parametrize("back", [SECOND + 1, 90 * SECOND, 3600 * SECOND])
def test_a_clock_that_is_set_back_costs_nobody_anything(back: int) -> None:
    rates = Rates()
    assert count(rates, back) == 5
    rates.take("eve", LIMITS, 1, NOW + back)

    assert count(rates, 0) == 5
    assert rates.take("ada", LIMITS, 1, NOW) == 100_000
    assert rates.take("eve", LIMITS, 1, NOW) == 0
    assert count(rates, 100_000) == 1


def test_a_clock_that_is_set_back_a_little_gives_nobody_a_burst() -> None:
    rates = Rates()
    assert count(rates, SECOND) == 5

    for at_us in (999_999, 500_000, 0):
        assert rates.take("ada", LIMITS, 1, NOW + at_us) >= 100_000
    assert count(rates, 100_000) == 1


def test_two_tokens_in_turn_have_no_more_than_the_limits_of_both() -> None:
    slow = Limits(requests_per_second=0.01, request_burst=5)
    rates = Rates()

    assert sum(ask(rates, 0, limits=limits) for _ in range(100) for limits in (slow, LIMITS)) == 10


def test_other_limits_count_from_the_next_request() -> None:
    rates = Rates()
    assert count(rates, 0, Limits(requests_per_second=0.01, request_burst=5)) == 5

    assert count(rates, 0) == 5
    assert rates.take("ada", LIMITS, 1, NOW) == 100_000
    assert count(rates, 100_000) == 1


def test_a_number_that_is_too_far_ahead_is_brought_near() -> None:
    rates = Rates()
    assert count(rates, 0, nodes=9) == 1

    assert not ask(rates, 0, limits=LIMITS)
    assert rates.take("ada", LIMITS, 1, NOW) == 100_000
    assert ask(rates, 100_000)


def test_many_subjects_take_bounded_memory_and_those_who_ask_are_remembered() -> None:
    rates = Rates()
    slow = evolve(LIMITS, requests_per_second=0.001)
    assert count(rates, 0, slow) == 5

    for number in range(2 * MOST_SUBJECTS):
        rates.take(f"~address:2001:db8:{number:x}::/64", slow, 1, NOW)
        if number % 10_000 == 0:
            assert not ask(rates, 0, limits=slow) or number >= MOST_SUBJECTS // 2
        assert len(rates) <= MOST_SUBJECTS + 2


def test_whoever_has_not_asked_for_long_is_forgotten() -> None:
    rates = Rates()
    for number in range(100):
        rates.take(f"user {number}", LIMITS, 1, NOW)
    assert len(rates) == 100

    ask(rates, 61 * SECOND)
    ask(rates, 123 * SECOND)
    ask(rates, 185 * SECOND)
    assert len(rates) < 3


def test_a_number_is_kept_as_long_as_it_counts() -> None:
    limits = Limits(requests_per_second=0.01, request_burst=5)
    rates = Rates()
    assert count(rates, 0, limits) == 5

    for second in range(61, 500, 62):
        rates.take("eve", LIMITS, 1, NOW + second * SECOND)
    assert count(rates, 499 * SECOND, limits) == 4


@given(
    st.lists(st.integers(0, 400_000), max_size=60),
    st.integers(1, 6),
    st.floats(0.5, 50),
    st.integers(1, 4),
)
def test_within_any_time_no_more_pass_than_the_burst_and_the_rate_allow(
    pauses: list[int], burst: int, rate: float, nodes: int
) -> None:
    limits = Limits(requests_per_second=rate, request_burst=burst)
    rates, at_us, part = Rates(), 0, max(burst // nodes, 1)
    passed: list[int] = []
    for pause in pauses:
        at_us += pause
        left, full_in = rates.count_remaining("ada", limits, nodes, NOW + at_us)
        wait_us = rates.take("ada", limits, nodes, NOW + at_us)
        assert (wait_us == 0) == (left > 0)
        assert 0 <= left <= part
        assert (full_in <= 1e-6) == (left == part)
        if wait_us:
            later_us = NOW + at_us + round(wait_us) + 1
            assert rates.count_remaining("ada", limits, nodes, later_us)[0] > 0
        else:
            passed.append(at_us)
    for index, start in enumerate(passed):
        for length, end in enumerate(passed[index:], 1):
            assert length <= part + (end - start + length) * rate / nodes / 1e6 + 1e-6
