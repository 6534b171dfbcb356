"""The rule of each table, and the periods of each kind of data."""

from __future__ import annotations

import re
from typing import Final

import pytest
from attrs import fields

from legation.config import Retention
from legation.migrations.catalogue import CATALOGUE
from legation.store.periods import FOR_EVER, TABLES, Kind, Periods
from legation.store.run_rows import DAY_US
from legation.store.units import Dialect

TABLE: Final = re.compile(r"\s*create table (\w+)")


@pytest.mark.parametrize("dialect", Dialect)
def test_each_table_of_the_catalogue_has_a_rule(dialect: Dialect) -> None:
    made: set[str] = set()
    for migration in CATALOGUE.migrations:
        for step in migration.up:
            statement = step.statement(dialect)
            text = "" if statement is None else statement.text(dialect)
            made.update(TABLE.findall(text))
            made.difference_update(re.findall(r"\s*drop table (\w+)", text))

    assert set(TABLES) == made


def test_each_table_is_pruned_by_a_period_or_bounded_by_something() -> None:
    without = {name for name, rule in TABLES.items() if not (rule.pruned_by or rule.bounded_by)}

    assert without == set()
    assert {kind for rule in TABLES.values() for kind in rule.pruned_by} == set(Kind)


def test_each_kind_has_a_setting() -> None:
    assert {f"{kind.value}_days" for kind in Kind} == {a.name for a in fields(Retention)}


def test_without_a_period_nothing_is_old() -> None:
    assert [FOR_EVER.before_us(kind, 10**18) for kind in Kind] == [0] * len(Kind)
    assert FOR_EVER.kinds == ()


def test_what_is_from_before_the_period_is_old() -> None:
    periods = Periods(runs=3, trail=10**6)

    assert periods.kinds == (Kind.RUNS, Kind.TRAIL)
    assert periods.before_us(Kind.RUNS, 5 * DAY_US) == 2 * DAY_US
    assert periods.before_us(Kind.TRAIL, 5 * DAY_US) == 0


def test_the_own_periods_count_in_place_of_the_usual_ones() -> None:
    own, usual = Periods(runs=3), Periods(runs=9, steps=2)

    assert own.over(usual) == Periods(runs=3, steps=2)
    assert FOR_EVER.over(usual) == usual
