"""The periods of each database, every fault at once with its path, and what grows."""

from __future__ import annotations

from typing import Any

import pytest

from legation import Agent, ConfigurationError, Database, Platform, Retention
from legation.config import structure
from legation.hosted.retention import MOST_DAYS, find_growth
from legation.store.periods import FOR_EVER, Kind, Periods

LEAST = {Kind.MESSAGES: 7, Kind.DEAD_LETTERS: 7, Kind.TRAIL: 30}


def made(usual: Retention, **own: Retention | None) -> Platform:
    databases = [Database(name, "sqlite://", retention=said) for name, said in own.items()]
    return Platform(agents=[Agent(id="a")], retention=usual, databases=databases)


def faults(usual: Retention, **own: Retention | None) -> list[str]:
    with pytest.raises(ConfigurationError) as wrong:
        made(usual, **own)
    return [f"{fault.path}: {fault.message}" for fault in wrong.value.faults]


def test_without_settings_nothing_has_a_period() -> None:
    platform = Platform(agents=[Agent(id="a")])

    assert platform.registry.periods == {"main": FOR_EVER}


def test_each_key_of_a_database_counts_in_place_of_the_usual_one() -> None:
    usual = Retention(runs_days=30, trail_days=365)
    platform = made(usual, one=Retention(runs_days=5, events_days=2), two=None)

    assert platform.registry.periods == {
        "one": Periods(runs=5, events=2, trail=365),
        "two": Periods(runs=30, trail=365),
    }


def test_a_file_has_a_table_for_all_and_one_for_each_database() -> None:
    config = structure(
        {
            "retention": {"sessions_days": 90},
            "databases": {"main": {"url": "sqlite://", "retention": {"sessions_days": 30}}},
        }
    )

    assert config.retention == Retention(sessions_days=90)
    assert config.databases[0].retention == Retention(sessions_days=30)


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("days", [0, -1, 10**9, -(10**9), MOST_DAYS + 1])
def test_a_period_that_is_none_stops_the_start(kind: Kind, days: int) -> None:
    said: dict[str, Any] = {f"{kind.value}_days": days}
    least = LEAST.get(kind, 1)
    sentence = f"_days: must be a number from {least} to {MOST_DAYS}"

    assert faults(Retention(**said), main=Retention(**said)) == [
        f"retention.{kind.value}{sentence}",
        f"databases.main.retention.{kind.value}{sentence}",
    ]


@pytest.mark.parametrize("kind", Kind)
def test_the_least_and_the_most_are_taken(kind: Kind) -> None:
    for days in (LEAST.get(kind, 1), MOST_DAYS):
        said: dict[str, Any] = {f"{kind.value}_days": days}
        assert made(Retention(**said)).registry.periods["main"].days(kind) == days


def test_a_trail_of_less_than_thirty_days_stops_the_start() -> None:
    assert faults(Retention(trail_days=29)) == [
        "retention.trail_days: must be a number from 30 to 36500"
    ]


@pytest.mark.parametrize("days", [1.5, "3", True])
def test_a_period_of_another_type_stops_the_start(days: Any) -> None:
    (fault,) = faults(Retention(runs_days=days))

    assert fault == f"retention.runs_days: expected an integer, not {type(days).__name__}"


def test_a_file_with_anything_else_says_so_of_each_place() -> None:
    with pytest.raises(ConfigurationError) as wrong:
        structure(
            {
                "retention": {"runs_days": "3", "run_days": 3},
                "databases": {"main": {"url": "sqlite://", "retention": 3}},
            }
        )

    assert [f"{fault.path}: {fault.message}" for fault in wrong.value.faults] == [
        "retention.runs_days: expected an integer",
        "retention: unknown: run_days",
        "databases.main.retention: expected a table",
    ]


def test_parts_that_are_kept_for_longer_than_their_runs_are_pointless() -> None:
    usual = Retention(runs_days=30, events_days=31, steps_days=30)

    assert faults(usual, main=None) == [
        "retention.events_days: is more than runs_days (30): the events of a run go with it"
    ]


def test_the_place_of_a_contradiction_is_where_it_was_made() -> None:
    usual = Retention(runs_days=30, events_days=20, steps_days=20)

    assert faults(usual, one=Retention(runs_days=10), two=Retention(steps_days=40)) == [
        (
            "databases.one.retention.runs_days: is less than events_days (20):"
            " the events of a run go with it"
        ),
        (
            "databases.one.retention.runs_days: is less than steps_days (20):"
            " the steps of a run go with it"
        ),
        (
            "databases.two.retention.steps_days: is more than runs_days (30):"
            " the steps of a run go with it"
        ),
    ]


def test_a_contradiction_of_all_databases_is_said_once() -> None:
    usual = Retention(runs_days=30, steps_days=31)

    assert len(faults(usual, one=None, two=Retention(sessions_days=3))) == 1
    assert len(faults(usual, one=Retention(steps_days=40))) == 2


# --- what grows


def test_what_grows_is_one_sentence_for_each_database() -> None:
    periods = {"one": FOR_EVER, "two": Periods(sessions=3), "three": Periods(sessions=3, trail=30)}
    found = find_growth(periods, ["one", "three"])

    assert [(fault.path, fault.message) for fault in found] == [
        (
            "databases.one",
            (
                "sessions with their runs, events and steps, dead letters and the audit trail grow"
                " without a bound; sessions_days, dead_letters_days and trail_days in [retention]"
                " would bound them"
            ),
        ),
        (
            "databases.two",
            "the audit trail grows without a bound; trail_days in [retention] would bound it",
        ),
        (
            "databases.three",
            "dead letters grow without a bound; dead_letters_days in [retention] would bound them",
        ),
    ]


def test_where_everything_has_a_period_nothing_grows() -> None:
    periods = {"main": Periods(sessions=1, dead_letters=7, trail=30)}

    assert find_growth(periods, ["main"]) == ()


def test_a_platform_says_what_grows_in_each_of_its_databases() -> None:
    platform = made(Retention(sessions_days=3), main=None, other=Retention(trail_days=30))

    assert [fault.path for fault in platform.find_growth()] == ["databases.main"]
