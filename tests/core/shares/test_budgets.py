from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.shares.budgets import Budgets, Spending, day_of, seconds_left

DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("at_us", "day", "seconds"),
    [(0, 0, 86_400), (DAY_US - 1, 0, 1), (DAY_US, 1, 86_400), (DAY_US + 1_000_000, 1, 86_399)],
)
def test_a_day_ends_at_midnight_utc(at_us: int, day: int, seconds: int) -> None:
    assert (day_of(at_us), seconds_left(at_us)) == (day, seconds)


def test_runs_of_one_subject_take_from_one_budget() -> None:
    budgets = Budgets()
    one = budgets.enter("main", "ada", 100, 0, 30)
    other = budgets.enter("main", "ada", 100, 0, 30)
    one.spend(20)
    other.spend(10)

    assert one.count_left(0) == other.count_left(0) == 40


@pytest.mark.parametrize("place", [("main", "eve"), ("other", "ada")])
def test_neither_another_subject_nor_another_database_takes_of_it(place: tuple[str, str]) -> None:
    budgets = Budgets()
    budgets.enter(*place, 100, 0, 90).spend(5)

    assert budgets.enter("main", "ada", 100, 0, 0).count_left(0) == 100


def test_what_is_stored_counts_once() -> None:
    budgets = Budgets()
    one, other = (budgets.enter("main", "ada", 100, 3 * DAY_US, 0) for _ in range(2))
    one.spend(20)
    one.settle(3, 25)
    budgets.leave(one)

    assert other.count_left(3 * DAY_US) == 75


def test_what_a_run_left_unstored_is_not_counted_after_it() -> None:
    budgets = Budgets()
    one, other = (budgets.enter("main", "ada", 100, 0, 0) for _ in range(2))
    one.spend(20)
    budgets.leave(one)

    assert other.count_left(0) == 100


def test_what_was_read_before_takes_nothing_back() -> None:
    budgets = Budgets()
    one = budgets.enter("main", "ada", 100, DAY_US, 60)
    budgets.enter("main", "ada", 100, DAY_US, 40)
    budgets.enter("main", "ada", 100, 0, 99)

    assert one.count_left(DAY_US) == 40


def test_a_run_that_goes_on_over_midnight_counts_for_the_new_day() -> None:
    one = Budgets().enter("main", "ada", 100, 0, 60)
    one.spend(30)

    assert (one.count_left(DAY_US - 1), one.count_left(DAY_US)) == (10, 70)


def test_less_than_nothing_is_left_of_a_budget_that_was_overspent() -> None:
    one = Budgets().enter("main", "ada", 100, 0, 100)
    one.spend(1)

    assert one.count_left(0) == -1


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("espl"), st.integers(0, 50))))
def test_all_that_is_kept_is_of_runs_under_way(moves: list[tuple[int, str, int]]) -> None:
    budgets, stored = Budgets(), 0
    runs = dict[int, Spending]()
    for number, move, tokens in moves:
        if move == "e" and number not in runs:
            runs[number] = budgets.enter("main", "ada", 1_000, 0, stored)
        elif number in runs and move == "p":
            runs[number].spend(tokens)
        elif number in runs and move == "s":
            stored += runs[number].spent
            runs[number].settle(0, stored)
        elif number in runs and move == "l":
            budgets.leave(runs.pop(number))
        if runs:
            unstored = sum(run.spent for run in runs.values())
            assert {run.count_left(0) for run in runs.values()} == {1_000 - stored - unstored}
    for run in runs.values():
        budgets.leave(run)
    assert budgets.enter("main", "ada", 7, 0, 0).count_left(0) == 7
