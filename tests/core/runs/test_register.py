"""The register of what a node works on."""

from __future__ import annotations

from legation.runs.register import InFlight


def test_a_run_is_known_by_its_database_and_its_id() -> None:
    runs = InFlight[int]()
    runs.enter(("main", "r"), 1)
    runs.enter(("other", "r"), 1)
    runs.enter(("main", "a"), 1)
    runs.leave(("other", "r"), 1)

    assert ("main", "r") in runs
    assert ("other", "r") not in runs
    assert list(runs) == [("main", "a"), ("main", "r")]
    assert list(runs.at("main")) == [("main", "a"), ("main", "r")]
    assert (runs.at("other"), len(runs)) == ({}, 2)


def test_only_the_try_that_entered_a_run_takes_it_out() -> None:
    runs = InFlight[int]()
    runs.enter(("main", "r"), 1)
    runs.enter(("main", "r"), 2)

    runs.leave(("main", "r"), 1)
    assert ("main", "r") in runs
    runs.leave(("main", "r"), 2)
    assert ("main", "r") not in runs
    runs.leave(("main", "r"), 2)
