"""A sweep goes on where it stood, one node at a time, and says what went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from legation.store.periods import FOR_EVER, Kind, Periods
from legation.store.retention import (
    HELD_US,
    AdvanceTrail,
    EndSweep,
    FetchSweep,
    Sweep,
    TakeBite,
)
from legation.store.run_rows import DAY_US

from ...old_data import NODE, NOW_US, OLD_US, store_run, sweep
from ...one_database import Database

ALL: Final = Periods(**dict.fromkeys((kind.value for kind in Kind), 30))
SESSIONS: Final = Periods(sessions=30)


@pytest.fixture
def database() -> Database:
    made = Database()
    made.clock_us = NOW_US
    made.enter(NODE)
    for number in range(25):
        store_run(made.run, f"r{number}", OLD_US, session_id=f"s{number}")
    return made


def take(
    database: Database, node: str = NODE, now_us: int = NOW_US, *, forced: bool = False
) -> Sweep | None:
    return database.run(TakeBite(node, now_us, SESSIONS, forced))


def test_before_the_first_one_there_is_no_sweep(database: Database) -> None:
    assert database.run(FetchSweep()) == Sweep()


def test_each_bite_leaves_where_the_next_one_begins(database: Database) -> None:
    first = take(database)
    assert first is not None
    assert (first.counts, first.active, first.stage) == ({"sessions": 20}, True, Kind.SESSIONS)
    assert database.run(FetchSweep()) == first

    second = take(database)
    assert second is not None
    assert (second.counts, second.stage, second.place) == ({"sessions": 25}, None, ())
    assert database.ask("select state, done from background") == [("running", 25)]


def test_an_end_is_kept_with_what_went_in_all(database: Database) -> None:
    assert sweep(database.run, SESSIONS) == {"sessions": 25}
    later = NOW_US + DAY_US
    store_run(database.run, "r", OLD_US)
    assert sweep(database.run, SESSIONS, later) == {"sessions": 1}

    kept = database.run(FetchSweep())
    assert (kept.active, kept.swept_us, kept.pruned) == (False, later, 1)
    assert kept.totals == {"sessions": 26}
    row = database.ask("select name, done, state, lease_by, lease_us from background")
    assert row == [("retention", 26, "ready", None, None)]


def test_all_stages_have_their_turn(database: Database) -> None:
    seen: list[Kind | None] = []
    counts: Mapping[str, int] = {}
    while not seen or seen[-1] is not None:
        found = database.run(TakeBite(NODE, NOW_US, ALL))
        assert found is not None
        if found.stage is Kind.TRAIL:
            seen.append(Kind.TRAIL)
            found = database.run(AdvanceTrail(NODE, NOW_US, found.begun_us, 3))
            assert found is not None
        seen.append(found.stage)
        counts = found.counts

    assert list(dict.fromkeys(seen)) == [*Kind, None]
    assert counts == {"sessions": 25, "trail": 3}


def test_the_next_one_is_due_a_day_later(database: Database) -> None:
    sweep(database.run, SESSIONS)

    for passed in (0, 1, DAY_US - 1, -5):
        assert take(database, now_us=NOW_US + passed) is None
    assert database.ask("select lease_by from background") == [(None,)]
    for passed in (DAY_US, -DAY_US):
        fresh = Database()
        sweep(fresh.run, SESSIONS)
        assert take(fresh, now_us=NOW_US + passed) is not None


def test_a_forced_one_begins_at_once(database: Database) -> None:
    sweep(database.run, SESSIONS)

    found = take(database, now_us=NOW_US + 1, forced=True)
    assert found is not None
    assert found.begun_us == NOW_US + 1


def test_while_a_node_is_at_it_others_leave_it(database: Database) -> None:
    first = take(database, "a")

    assert take(database, "b", NOW_US + HELD_US - 1) is None
    assert database.run(FetchSweep()) == first


@pytest.mark.parametrize("passed", [HELD_US, -1])
def test_a_node_that_has_gone_leaves_it_to_the_next(database: Database, passed: int) -> None:
    """By the clock of the other, which may stand behind."""
    take(database, "a")

    found = take(database, "b", NOW_US + passed)
    assert found is not None
    assert (found.counts, found.begun_us) == ({"sessions": 25}, NOW_US)


def test_whoever_is_told_to_joins_in(database: Database) -> None:
    take(database, "a")
    found = take(database, "b", forced=True)

    assert found is not None
    assert (found.counts, found.begun_us) == ({"sessions": 25}, NOW_US)


def test_a_period_that_is_gone_is_skipped(database: Database) -> None:
    take(database)
    found = database.run(TakeBite(NODE, NOW_US, Periods(counters=30)))

    assert found is not None
    assert (found.stage, found.counts) == (Kind.COUNTERS, {"sessions": 20})
    last = database.run(TakeBite(NODE, NOW_US, FOR_EVER))
    assert last is not None
    assert last.stage is None


def test_a_stage_of_a_later_version_is_over(database: Database) -> None:
    take(database)
    database.ask("update background set cursor = replace(cursor, '\"sessions\",', '\"dreams\",')")

    found = take(database)
    assert found is not None
    assert (found.stage, found.place) == (None, ())


def test_of_two_who_end_it_one_does(database: Database) -> None:
    begun_us = _go_on(database, SESSIONS)

    assert database.run(EndSweep(begun_us, NOW_US)) is not None
    assert database.run(EndSweep(begun_us, NOW_US)) is None


def _go_on(database: Database, periods: Periods) -> int:
    """Take bites until there is nothing more, or the trail comes; return when it began."""
    while True:
        found = database.run(TakeBite(NODE, NOW_US, periods))
        assert found is not None
        if found.stage in (None, Kind.TRAIL):
            return found.begun_us


def test_nobody_ends_what_is_not_at_its_end(database: Database) -> None:
    first = take(database)
    assert first is not None

    assert database.run(EndSweep(first.begun_us, NOW_US)) is None
    assert database.run(AdvanceTrail(NODE, NOW_US, first.begun_us, 1)) is None
    assert database.run(FetchSweep()) == first


def test_of_two_who_prune_the_trail_one_goes_on(database: Database) -> None:
    begun_us = _go_on(database, Periods(trail=30))

    assert database.run(AdvanceTrail(NODE, NOW_US, begun_us - 1, 7)) is None
    assert database.run(AdvanceTrail("b", NOW_US, begun_us, 7)) is not None
    assert database.run(AdvanceTrail("a", NOW_US, begun_us, 7)) is None
    assert database.run(FetchSweep()).counts == {"trail": 7}
