"""A node of the release before claims beside one of this one what it hosts, and nothing else.

Both look in turn, so each takes half of what both host, and all of what it hosts alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from legation.store.run_keeping import ClaimWaiting
from legation.store.run_rows import ClaimedRun
from legation.store.runs import StartRun

from ..one_database import Database
from .release_before import Claim260

OLD, NEW = ("agent:both", "agent:old"), ("agent:both", "agent:new")


def test_nodes_of_two_releases_take_what_they_host(figures: Callable[[str], None]) -> None:
    database = Database()
    for number in range(600):
        agent = ("both", "new", "old")[number % 3]
        session = f"s{number}"
        database.run(
            StartRun(
                f"o{number % 20}", session, f"r{number}", "agent", agent, "{}", "", "n", number
            )
        )
    database.connection.execute(
        "update runs set status = 'PENDING', lease_by = null, lease_us = null"
    )
    taken: Counter[tuple[str, str]] = Counter()
    while True:
        mine = database.run(ClaimWaiting("new", 900, NEW))
        theirs = database.run(Claim260("old", 900, OLD))
        taken.update(("new", run.component_id) for run in (mine,) if isinstance(run, ClaimedRun))
        taken.update(("old", run.component_id) for run in (theirs,) if run is not None)
        if mine is None and theirs is None:
            break

    figures(f"claims beside a node of the release before: {sorted(taken.items())}")
    assert sum(taken.values()) == 600
    assert taken["old", "new"] == taken["new", "old"] == 0
    assert min(taken["old", "both"], taken["new", "both"]) > 0
    recorded = "select lease_by, count(*) from runs where recorded = attempt group by 1"
    assert database.ask(recorded) == [("new", taken["new", "new"] + taken["new", "both"])]
