"""A crash, or a failure, at each effect of a scenario."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from legation import Agent, Platform
from legation.effects import Fetch, FetchReply, Program, Transact, Unreachable
from legation.store.failures import Busy, CommitLost, Conflict
from legation_testing import (
    Client,
    Expected,
    Misuse,
    Simulation,
    Trials,
    YieldedWhileUnwinding,
    crash_everywhere,
    fail_everywhere,
)

from .parcels import (
    Claim,
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


def test_every_third_effect_is_one_of_three() -> None:
    assert crash_everywhere(make, scenario, check, every=3).points == 3  # the 1st, 4th and 7th


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

    assert crash_everywhere(make, nothing, check, may_be_none=True) == Trials(0, {})


def test_scenario_without_an_effect_is_red() -> None:
    with pytest.raises(Misuse, match="nothing in the scenario asks for any effect"):
        crash_everywhere(make, lambda _: None, check)


def never(_: object) -> bool:
    return False


@pytest.mark.parametrize(
    ("which", "name"),
    [(Fetch, "any Fetch"), (Claim, "any Claim"), (never, "an effect for which never")],
    ids=["effect", "unit", "predicate"],
)
def test_failure_that_never_strikes_is_red(which: Expected, name: str) -> None:
    def try_it(*, may_be_none: bool) -> Trials:
        return fail_everywhere(
            make,
            lambda s: s.run(create_tables()),
            lambda _: None,
            which=which,
            outcome=Busy(),
            may_be_none=may_be_none,
        )

    with pytest.raises(Misuse, match=name) as failure:
        try_it(may_be_none=False)
    assert "may_be_none=True" in str(failure.value)
    assert try_it(may_be_none=True) == Trials(0, {})


def test_failure_that_is_not_reached_by_the_scenario_does_not_strike_in_the_check() -> None:
    with pytest.raises(Misuse, match="any Transact"):
        fail_everywhere(make, lambda _: None, check, which=Transact, outcome=Busy())


# --- what comes again, with its memory -----------------------------------------------------------


def agent() -> Platform:
    """Return a platform with one agent."""
    return Platform(agents=[Agent(id="a")])


def ask(client: Client) -> None:
    """Run the agent."""
    client.post("/agents/a/runs", form={"message": "hello", "stream": False})


def ready(client: Client) -> None:
    """The process serves."""
    assert client.get("/ready").status == 200


def crash_it(make: Callable[[], Any]) -> Trials:
    """Try crashes."""
    return crash_everywhere(make, ask, ready)


def fail_it(make: Callable[[], Any]) -> Trials:
    """Try failures."""
    return fail_everywhere(make, ask, lambda _: None, which=Transact, outcome=Busy())


BOTH: Final = pytest.mark.parametrize("trial", [crash_it, fail_it], ids=["crash", "fail"])


def test_platform_that_would_keep_its_memory_over_a_crash_is_refused() -> None:
    with pytest.raises(Misuse, match=r"Client\(lambda: Platform\(…\)\)"):
        crash_it(lambda: Client(agent()))

    assert fail_it(lambda: Client(agent())).points > 1  # it is never restarted


def test_platform_that_a_restart_brings_back_is_refused() -> None:
    def make() -> Client:
        platform = agent()
        return Client(lambda: platform)

    with pytest.raises(Misuse, match="returned the killed one again"):
        crash_it(make)


@BOTH
def test_client_that_comes_again_is_refused(trial: Callable[[Callable[[], Any]], Trials]) -> None:
    client = Client(agent)

    with pytest.raises(Misuse, match="the Client of the run before again"):
        trial(lambda: client)


def test_simulation_that_comes_again_is_refused() -> None:
    simulation = make()

    with pytest.raises(Misuse, match="the Simulation of the run before again"):
        crash_everywhere(lambda: simulation, scenario, check)


@BOTH
def test_world_that_comes_again_is_refused(trial: Callable[[Callable[[], Any]], Trials]) -> None:
    refused = pytest.raises(Misuse, match="the simulation of the run before again")

    with Simulation() as world, refused:
        trial(lambda: Client(agent, simulation=world))


def test_platform_that_comes_again_is_refused() -> None:
    platform = agent()

    with pytest.raises(Misuse, match="the platform of the run before again"):
        fail_it(lambda: Client(platform))


@BOTH
def test_subject_that_is_none_is_named(trial: Callable[[Callable[[], Any]], Trials]) -> None:
    with pytest.raises(Misuse, match=r"make\(\) returned Platform\(id="):
        trial(agent)
    with pytest.raises(Misuse, match="takes a function that makes the subject"):
        trial(Client(agent))  # type: ignore[arg-type]


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
