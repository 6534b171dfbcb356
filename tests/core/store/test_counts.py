from __future__ import annotations

import pytest

from legation.store.counts import (
    ANY_COUNT_PAUSED,
    ANY_COUNT_RUNS,
    ANY_OLDEST_PAUSED,
    CountPaused,
    CountRuns,
    PausedRuns,
)
from legation.store.units import Dialect


@pytest.mark.parametrize("dialect", Dialect)
def test_runs_are_counted_by_one_statement_that_reads(dialect: Dialect) -> None:
    work = CountRuns().statements(dialect)

    assert next(work) == ANY_COUNT_RUNS()
    with pytest.raises(StopIteration) as stop:
        work.send([("PENDING", 2), ("RUNNING", 1)])
    assert stop.value.value == (("PENDING", 2), ("RUNNING", 1))
    assert not CountRuns.writes


@pytest.mark.parametrize("dialect", Dialect)
def test_paused_runs_are_counted_and_then_the_oldest_is_found(dialect: Dialect) -> None:
    work = CountPaused().statements(dialect)

    assert next(work) == ANY_COUNT_PAUSED()
    assert work.send([(2,)]) == ANY_OLDEST_PAUSED()
    with pytest.raises(StopIteration) as stop:
        work.send([(5,)])
    assert stop.value.value == PausedRuns(2, 5)
    assert not CountPaused.writes


@pytest.mark.parametrize("dialect", Dialect)
def test_where_no_run_is_paused_nothing_more_is_read(dialect: Dialect) -> None:
    work = CountPaused().statements(dialect)
    next(work)

    with pytest.raises(StopIteration) as stop:
        work.send([(0,)])
    assert stop.value.value == PausedRuns()
