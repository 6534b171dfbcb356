"""The register of what a node works on."""

from __future__ import annotations

from legation.effects import Now, Program
from legation.runs.register import InFlight, SharedWork
from legation_testing import play


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


# --- the work of a process and of its rounds -----------------------------------------------------


def claim(answer: str) -> Program[str]:
    yield Now()
    return answer


def test_work_is_known_whoever_of_the_process_does_it() -> None:
    shared, here, there = SharedWork[int](), InFlight[int](), InFlight[int]()
    shared.registers.add(here)
    shared.registers.add(there)
    there.enter(("inbox", "c", "m"), 2)

    assert shared.holds(("inbox", "c", "m"), 2)
    assert not shared.holds(("inbox", "c", "m"), 1)
    assert not shared.holds(("outbox", "c", "m"), 2)
    del there
    assert not shared.holds(("inbox", "c", "m"), 2)


def test_what_is_idle_at_two_looks_a_pause_apart_is_an_orphan_once() -> None:
    shared = SharedWork[str]()

    assert shared.find_orphans(("a", "b"), 100, 10) == ()
    assert shared.find_orphans(("c", "b", "a"), 109, 10) == ()
    assert shared.find_orphans(("c", "b", "a"), 110, 10) == ("b", "a")
    assert shared.find_orphans(("c", "b"), 119, 10) == ("c",)
    assert shared.find_orphans(("b",), 120, 10) == ()


def test_what_was_under_work_between_two_looks_is_looked_at_anew() -> None:
    shared = SharedWork[str]()

    assert [shared.find_orphans(idle, now, 10) for now, idle in ((0, "a"), (5, ""), (12, "a"))] == [
        (),
        (),
        (),
    ]
    assert shared.find_orphans("a", 22, 10) == ("a",)


def test_a_clock_that_is_set_back_ends_the_pause() -> None:
    shared = SharedWork[str]()

    assert shared.find_orphans("a", 100, 10) == ()
    assert shared.find_orphans("a", 50, 10) == ("a",)


def test_nothing_is_an_orphan_while_a_claim_is_on_its_way_that_was_so_at_the_first_look() -> None:
    shared = SharedWork[str]()
    slow, quick = shared.claim(claim("a")), shared.claim(claim("b"))
    next(slow)
    assert shared.find_orphans("a", 0, 10) == ()
    next(quick)

    assert shared.find_orphans("a", 1000, 10) == ()
    slow.close()
    assert shared.find_orphans("a", 2000, 10) == ("a",)
    quick.close()
    assert play(shared.claim(claim("c")), [(Now(), 0)]) == "c"
    assert shared.claims == set()
