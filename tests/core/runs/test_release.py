"""Giving a run back: other nodes are told, where there is something to tell."""

from __future__ import annotations

from typing import Any

from legation.effects import Now, Nudge, Publish, RandomBytes, Sleep, ThisNode, Transact
from legation.runs.membership import Membership, NodeTerms
from legation.runs.release import release_run
from legation.runs.retry import FEW, never
from legation.store.failures import Unavailable
from legation.store.nodes import OtherNode
from legation.store.run_keeping import ReleaseRun
from legation.store.run_rows import ClaimedRun, RunLease
from legation_testing import play

RUN = ClaimedRun("o", "s", "r", "agent", "clerk", "{}", 0, 1)
RELEASE = Transact("main", ReleaseRun("o", "r", RunLease("n", 1), tried=False))
# Other nodes may take it up, and whoever follows it here may have to leave it.
TOLD = [(Nudge("runs:main", "main"), None), (Publish("r", (), "main"), None)]


def member(*others: OtherNode) -> Membership:
    return Membership("main", NodeTerms(30_000_000, (), "2.6.0"), others=others)


def test_other_nodes_are_told_of_a_run_that_waits_again() -> None:
    script = [(ThisNode(), "n"), (RELEASE, True), *TOLD]

    assert play(release_run(member(), RUN), script)


def test_another_node_that_is_known_is_told_alone() -> None:
    other = OtherNode("b", "p", (), 0, 90, "1", "2.11.0")
    told = [(Nudge("runs:main", "main", "b"), None), *TOLD[1:]]
    script = [(ThisNode(), "n"), (RELEASE, True), *told]

    assert play(release_run(member(other), RUN), script)


def test_nobody_is_told_of_a_run_that_does_not() -> None:
    assert not play(release_run(member(), RUN), [(ThisNode(), "n"), (RELEASE, False)])


def test_a_database_that_does_not_answer_keeps_the_lease() -> None:
    script: list[tuple[Any, Any]] = [(ThisNode(), "n"), (RELEASE, Unavailable())]
    for pause in (0.025, 0.05, 0.1):
        script += [(RandomBytes(2), b"\0\0"), (Sleep(pause), None), (RELEASE, Unavailable())]

    assert not play(release_run(member(), RUN), script)


def test_a_run_that_was_executed_is_released_for_as_long_as_its_database_is_away() -> None:
    tried = Transact("main", ReleaseRun("o", "r", RunLease("n", 1), tried=True))
    script: list[tuple[Any, Any]] = [(ThisNode(), "n")]
    for _ in range(FEW + 2):
        script += [(tried, Unavailable()), (Now, 1), (RandomBytes(2), b"\0\0"), (Sleep, None)]
    script += [(tried, True), *TOLD]

    assert play(release_run(member(), RUN, never, tried=True), script)
