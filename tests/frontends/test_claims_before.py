"""A node of the release before claims whatever waits: how much of it that is, beside one of this.

Both look in turn, so each takes half of what both may take, and the older one the rest as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from legation.store.run_keeping import ClaimWaiting
from legation.store.runs import StartRun

from ..one_database import Database
from .release_before import Claim256

OLD, NEW = ("agent:both", "agent:old"), ("agent:both", "agent:new")


def test_a_node_of_the_release_before_takes_what_only_the_new_one_hosts(
    figures: Callable[[str], None],
) -> None:
    database = Database()
    for number in range(500):
        agent = ("both", "new")[number % 2]
        session = f"s{number}"
        database.run(StartRun("o", session, f"r{number}", "agent", agent, "{}", "", "n", number))
    database.connection.execute(
        "update runs set status = 'PENDING', lease_by = null, lease_us = null"
    )
    taken: Counter[tuple[str, str]] = Counter()
    while True:
        mine = database.run(ClaimWaiting("new", 900, NEW))
        theirs = database.run(Claim256("old", 900, 1_000))
        taken.update(("new", run.component_id) for run in (mine,) if run is not None)
        taken.update(("old", run.component_id) for run in (theirs,) if run is not None)
        if mine is None and theirs is None:
            break

    lost = taken["old", "new"]
    figures(f"claims: of 500 runs a node of the release before takes {lost} that it does not host")
    assert sum(taken.values()) == 500
    assert 0 < lost <= 250
