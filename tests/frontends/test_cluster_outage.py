"""PostgreSQL is killed and away for longer than a lease: no run of two nodes notices.

It is run on the newest Python alone: what the oldest driver does in an outage is tried in
`test_database_away` and `test_database_watch`.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Final

import pytest

from ..engines import NoPostgres, cluster, restarting
from .cluster_kit import NIGHTLY, begin_talks, finish_talks, node, report_talks

pytestmark = pytest.mark.newest

RUNS: Final = 12
LONG: Final = [(lease, away) for lease in (10.0, 30.0) for away in (8.0, 16.0, 35.0, 60.0)]
CASES: Final = LONG if NIGHTLY else [(5.0, 6.5)]
"""Leases, and how long the database is away, in seconds."""


@pytest.mark.parametrize(("lease", "away"), CASES)
def test_an_outage_is_nobody_s_death(
    lease: float, away: float, figures: Callable[[str], None]
) -> None:
    try:
        with (
            cluster() as found,
            restarting(found, signal.SIGKILL) as restart,
            node(found.url(), lease=lease) as one,
            node(found.url(), lease=lease) as two,
        ):
            talks = begin_talks([one.port(), two.port()], RUNS, 1.5 * away)
            time.sleep(1.0)
            restart(away)
            finish_talks(talks, 1.5 * away + 30.0)
            buried = [*one.named("node_lost"), *two.named("node_lost")]
    except NoPostgres as reason:
        pytest.skip(str(reason))

    figures(f"postgresql away for {away:g} s, leases of {lease:g} s: {report_talks(talks)}")
    assert buried == []
