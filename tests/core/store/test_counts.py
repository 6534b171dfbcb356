from __future__ import annotations

import pytest

from legation.store.counts import ANY_COUNT_RUNS, CountRuns
from legation.store.units import Dialect


@pytest.mark.parametrize("dialect", Dialect)
def test_runs_are_counted_by_one_statement_that_reads(dialect: Dialect) -> None:
    work = CountRuns().statements(dialect)

    assert next(work) == ANY_COUNT_RUNS()
    with pytest.raises(StopIteration) as stop:
        work.send([("PENDING", 2), ("RUNNING", 1)])
    assert stop.value.value == (("PENDING", 2), ("RUNNING", 1))
    assert not CountRuns.writes
