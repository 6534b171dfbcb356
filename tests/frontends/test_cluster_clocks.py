"""Nodes whose clocks are wrong, by a minute and a half or a year: each works, and says so.

Time is counted by the core and by SQL, so these are run on the newest Python alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Final

import pytest

from .cluster_kit import NIGHTLY, await_true, begin_talks, finish_talks, node, report_talks

pytestmark = pytest.mark.newest

RUNS: Final = 12
YEAR: Final = 365 * 86_400.0
CASES: Final = [(5.0, (0.0, 90.0, -90.0, YEAR))] + NIGHTLY * [
    (30.0, (0.0, 90.0)),
    (30.0, (0.0, -90.0)),
    (30.0, (0.0, YEAR, -YEAR)),
]
"""Leases, and how many seconds the clock of each node is ahead."""


@pytest.mark.parametrize(("lease", "clocks"), CASES)
def test_no_lease_depends_on_the_clock_of_a_node(
    lease: float, clocks: tuple[float, ...], postgres: str, figures: Callable[[str], None]
) -> None:
    with ExitStack() as stack:
        nodes = [stack.enter_context(node(postgres, lease=lease, clock=clock)) for clock in clocks]
        talks = begin_talks([each.port() for each in nodes], RUNS, 2.0 * lease)
        finish_talks(talks, 2.0 * lease + 30.0)
        for each, clock in zip(nodes, clocks, strict=True):
            if clock:
                await_true(partial(each.named, "clock_differs"))
        said = [len(each.named("clock_differs")) for each in nodes]
        buried = [line for each in nodes for line in each.named("node_lost")]

    wrong = ", ".join(f"{clock:+g} s" for clock in clocks)
    figures(f"clocks that are wrong by {wrong}, leases of {lease:g} s: {report_talks(talks)}")
    assert said == [int(clock != 0) for clock in clocks]
    assert buried == []
