"""A crash, or a failure, at each effect of a scenario."""

from __future__ import annotations

from pathlib import Path

import pytest

from legation.effects import Fetch, FetchReply, Program, Transact, Unreachable
from legation.store.failures import Busy, CommitLost, Conflict
from legation_testing import (
    Simulation,
    Trials,
    YieldedWhileUnwinding,
    crash_everywhere,
    fail_everywhere,
)

from .parcels import (
    Deliveries,
    Finish,
    accept,
    create_tables,
    deliver,
    log_while_unwinding,
)

DONE = FetchReply(204, {}, b"")


def make() -> Simulation:
    """Return a world in which every door is open."""
    return Simulation(fetch=lambda _: DONE)


def counts() -> Program[dict[str, int]]:
    """Return how often each parcel was delivered."""
    return (yield from Transact("main", Deliveries()))


def scenario(simulation: Simulation) -> None:
    """Take a parcel and deliver it."""
    simulation.run(create_tables())
    simulation.run(accept("p"))
    simulation.run(deliver())


def check(simulation: Simulation) -> None:
    """The parcel arrives once, whatever happened."""
    simulation.run(create_tables())
    if "p" not in simulation.run(counts()):
        simulation.run(accept("p"))
    simulation.start(deliver(patience=5.0), "worker")
    simulation.advance(30.0)
    assert simulation.run(counts()) == {"p": 1}


def test_a_sound_program_stands_a_crash_at_each_of_its_effects() -> None:
    tried = crash_everywhere(make, scenario, check)

    assert tried == Trials(7, {"Transact": 4, "Nudge": 1, "Now": 1, "Fetch": 1})


def test_files_are_opened_again_after_each_crash(tmp_path: Path) -> None:
    numbers = iter(range(100))

    def on_disk() -> Simulation:
        path = tmp_path / f"{next(numbers)}.db"
        return Simulation({"main": str(path)}, fetch=lambda _: DONE)

    assert crash_everywhere(on_disk, scenario, check).points == 7


def careless() -> Program[None]:
    """Deliver and finish before anything says that somebody is at it."""
    parcel = "p"
    yield from Transact("main", Finish(parcel, None))
    yield from Fetch("POST", f"https://door.example/{parcel}")


def test_a_program_that_forgets_what_it_promised_is_found_with_the_effect() -> None:
    knocks: list[str] = []

    def knock(effect: Fetch) -> FetchReply:
        knocks.append(effect.url)
        return DONE

    def fresh() -> Simulation:
        knocks.clear()
        return Simulation(fetch=knock)

    def act(simulation: Simulation) -> None:
        simulation.run(create_tables())
        simulation.run(accept("p"))
        simulation.run(careless(), "careless")

    def arrived(simulation: Simulation) -> None:
        check(simulation)
        assert knocks

    with pytest.raises(AssertionError) as failure:
        crash_everywhere(fresh, act, arrived)

    assert failure.value.__notes__[-1].startswith("killed at effect 5: Fetch(")
    assert failure.value.__notes__[-1].endswith(" of careless")


def test_a_program_that_yields_while_it_unwinds_is_found_by_a_crash() -> None:
    with pytest.raises(YieldedWhileUnwinding) as failure:
        crash_everywhere(make, lambda s: s.run(log_while_unwinding()), lambda _: None)

    assert failure.value.__notes__ == ["killed at effect 1: Now() of log_while_unwinding"]


def test_a_check_that_fails_without_a_crash_says_so() -> None:
    def wrong(simulation: Simulation) -> None:
        assert simulation.nodes[0].name != simulation.nodes[-1].name

    with pytest.raises(AssertionError) as failure:
        crash_everywhere(make, lambda s: s.run(create_tables()), wrong)

    assert failure.value.__notes__ == ["nothing was killed"]


def test_a_crash_that_is_not_reached_does_not_strike_in_the_check() -> None:
    def nothing(simulation: Simulation) -> None:
        """Ask for no effect."""

    assert crash_everywhere(make, nothing, check) == Trials(0, {})


def try_to_accept(simulation: Simulation) -> None:
    """Store a parcel, again when it is not known whether it was."""
    for program in (create_tables, lambda: accept("p")):
        try:
            simulation.run(program())
        except (Busy, CommitLost):
            try:
                simulation.run(program())
            except Conflict:
                continue


def check_accepted(simulation: Simulation) -> None:
    """The parcel is stored."""
    assert simulation.run(counts()) == {"p": 0}


@pytest.mark.parametrize("outcome", [Busy(), CommitLost()], ids=["busy", "answer lost"])
def test_a_sound_program_stands_a_failure_of_each_transaction(outcome: Exception) -> None:
    tried = fail_everywhere(
        make,
        try_to_accept,
        check_accepted,
        which=Transact,
        outcome=outcome,
        after=isinstance(outcome, CommitLost),
    )

    assert tried == Trials(2, {"Transact": 2})


def test_a_failure_that_is_not_stood_is_noted_with_its_number() -> None:
    with pytest.raises(AssertionError) as failure:
        fail_everywhere(make, scenario, lambda s: None, which=Fetch, outcome=Unreachable("connect"))

    note = failure.value.__notes__[-1]
    assert note.startswith("failed on purpose: Fetch(")
    assert note.endswith(", number 1 of its kind")
