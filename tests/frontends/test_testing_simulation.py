"""Programs on a simulation: each effect, time, order, faults and crashes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast, get_args, get_origin

import pytest
from attrs import frozen

from legation.effects import (
    Asks,
    AwaitNudge,
    AwaitOutcome,
    CloseStream,
    Concurrently,
    Effect,
    Emit,
    Fetch,
    FetchReply,
    Inspect,
    Interrupted,
    Interruptible,
    Log,
    NextEvents,
    Now,
    Nudge,
    Outcome,
    Program,
    Publish,
    RandomBytes,
    ReadBody,
    Record,
    Sleep,
    Spawn,
    ThisNode,
    Transact,
    Unreachable,
)
from legation.store.audit import AuditEntry
from legation.store.failures import Busy, CommitLost, Conflict, WrongSchema
from legation.store.run_rows import StoredEvent
from legation_testing import (
    NEW_YEAR_2026,
    Crashed,
    Deadlock,
    Delayed,
    Endless,
    Misuse,
    NoResult,
    Simulation,
    YieldedWhileUnwinding,
)
from legation_testing.matching import matches
from legation_testing.performing import PERFORMERS

from .parcels import (
    Accept,
    Claim,
    CreateTables,
    Deliveries,
    accept,
    create_tables,
    deliver,
    log_while_unwinding,
)

ENTRY = AuditEntry(1, "q", "ada", None, "run", "agents/x", "allow", "agents:run", 200, "::1")
DONE = FetchReply(204, {}, b"")


class Foreign(Asks[None]):
    """An effect that no host has."""


def ask(effect: Effect) -> Program[Any]:
    """Ask one thing and return the answer."""
    return cast("Any", (yield from effect))


def sequence(*effects: Any) -> Program[list[Any]]:
    """Ask one thing after another and return the answers."""
    answers: list[Any] = []
    for effect in effects:
        answers.append((yield from effect))
    return answers


def fail() -> Program[None]:
    """Ask one thing and raise."""
    yield from Now()
    raise KeyError("planted")


@frozen
class Job:
    """A job that sleeps and logs."""

    seconds: float

    def program(self) -> Program[None]:
        yield from Sleep(self.seconds)
        yield from Log("info", "job done")


@frozen
class Failing:
    """A job that fails."""

    def program(self) -> Program[None]:
        return fail()


# Each effect


def test_every_effect_is_performed() -> None:
    assert set(PERFORMERS) == {get_origin(effect) or effect for effect in get_args(Effect)}


SAMPLES: list[Effect] = [
    *(Now(), RandomBytes(1), ThisNode(), Spawn(Job(0.0)), Publish("r", ()), Nudge("x")),
    *(Emit(b"x"), Record(ENTRY), Log("info", "")),
    *(ReadBody(1), Inspect("main"), Sleep(0.0), AwaitNudge("x", 0.0), NextEvents("r", 0, 0.0)),
    *(Fetch("GET", "https://x"), CloseStream(1), Concurrently(())),
]


@pytest.mark.parametrize("effect", SAMPLES, ids=lambda effect: type(effect).__name__)
def test_another_program_has_its_turn_at_what_is_not_immediate(effect: Effect) -> None:
    said = {"before": Log("info", "before"), "after": Log("info", "after")}
    with Simulation() as simulation:
        simulation.start(sequence(said["before"], effect, said["after"]))
        simulation.start(sequence(Log("info", "other")))
        simulation.join()
    order = [line.event for line in simulation.logs if line.event in {*said, "other"}]

    assert order.index("other") == (2 if effect.immediate else 1)


def test_each_immediate_effect_is_among_the_samples() -> None:
    immediate = {kind for kind in PERFORMERS if kind.immediate}

    assert immediate <= {type(effect) for effect in SAMPLES}


def test_the_clock_stands_still_and_sleep_moves_it() -> None:
    with Simulation() as simulation:
        answers = simulation.run(sequence(Now(), Now(), Sleep(3600.0), Now()))

    assert answers == [NEW_YEAR_2026, NEW_YEAR_2026, None, NEW_YEAR_2026 + 3_600_000_000]
    assert simulation.clock.elapsed == 3600.0


def test_random_bytes_come_from_the_seed() -> None:
    drawn = [Simulation(seed=s).run(sequence(RandomBytes(16), RandomBytes(3))) for s in (1, 1, 2)]

    assert drawn[0] == drawn[1] != drawn[2]
    assert [len(part) for part in drawn[0]] == [16, 3]


def test_a_body_is_read_up_to_the_limit() -> None:
    with Simulation() as simulation:
        assert simulation.run(ask(ReadBody(3)), body=b"abc") == b"abc"
        assert simulation.run(ask(ReadBody(2)), body=b"abc") is None


def test_a_body_is_read_once() -> None:
    with pytest.raises(Misuse, match="asks for the body a second time"), Simulation() as simulation:
        simulation.run(sequence(ReadBody(9), ReadBody(9)))


@pytest.mark.parametrize("effect", [ReadBody(1), Emit(b"x")], ids=repr)
def test_a_job_has_no_request(effect: Effect) -> None:
    with pytest.raises(Misuse, match="answers no request"), Simulation() as simulation:
        simulation.run(ask(effect), body=None)


def test_units_run_on_a_real_database() -> None:
    with Simulation() as simulation:
        simulation.run(create_tables())
        simulation.run(accept("p"))

        assert simulation.run(ask(Transact("main", Deliveries()))) == {"p": 0}


def test_a_failure_of_the_database_is_thrown_into_the_program_and_logged() -> None:
    def program() -> Program[str]:
        try:
            yield from Transact("main", Accept("p"))
        except WrongSchema as failure:
            return str(failure)
        return ""

    with Simulation() as simulation:
        assert simulation.run(program()) == "incident 00000001"

    assert [(line.level, line.event) for line in simulation.logs] == [("error", "store_failed")]
    assert ("incident", "00000001") in simulation.logs[0].fields


def test_a_taken_key_is_a_conflict() -> None:
    with Simulation() as simulation:
        simulation.run(create_tables())
        simulation.run(accept("p"))
        with pytest.raises(Conflict):
            simulation.run(accept("p"))


def test_an_unknown_database_is_named() -> None:
    with (
        pytest.raises(Misuse, match="asks for database 'other'; there is main"),
        Simulation() as simulation,
    ):
        simulation.run(ask(Transact("other", CreateTables())))


@pytest.mark.parametrize("nested", [False, True], ids=["alone", "awaited"])
@pytest.mark.parametrize(
    ("yielded", "name"),
    [(3, "int"), (None, "NoneType"), (Foreign(), r"\S+test_testing_simulation\.Foreign")],
    ids=["a number", "nothing", "an effect of one's own"],
)
def test_what_is_no_effect_is_named_and_closes_the_program(
    yielded: Any, name: str, nested: bool
) -> None:
    left: list[str] = []

    def faulty() -> Program[None]:
        try:
            yield yielded
        except Exception:  # noqa: BLE001 (must not come here)
            left.append("caught")
        finally:
            left.append("closed")

    program = ask(Interruptible(faulty(), "stop", 9.0)) if nested else faulty()
    with (
        pytest.raises(Misuse, match=rf"yields {name}, which is not an effect of legation.effects"),
        Simulation() as simulation,
    ):
        simulation.run(program)

    assert left == ["closed"]
    assert simulation.find_running() == ()


@pytest.mark.parametrize(
    ("given", "answer", "elapsed"),
    [
        (DONE, DONE, 0.0),
        (Delayed(2.0, DONE), DONE, 2.0),
        (Delayed(30.0, DONE), Unreachable("timeout"), 5.0),
    ],
    ids=["at once", "in time", "too late"],
)
def test_the_network_answers_as_the_test_says(given: Any, answer: Any, elapsed: float) -> None:
    with Simulation(fetch=lambda _: given) as simulation:
        assert simulation.run(ask(Fetch("GET", "https://x", timeout_seconds=5.0))) == answer

    assert simulation.clock.elapsed == elapsed


def test_nothing_listens_on_the_network_unless_told() -> None:
    with Simulation() as simulation:
        assert simulation.run(ask(Fetch("GET", "https://x"))) == Unreachable("connect")


def test_an_error_of_the_test_s_own_network_comes_out() -> None:
    def handler(effect: Fetch) -> FetchReply:
        raise AssertionError(effect.url)

    with pytest.raises(AssertionError, match="https://x"), Simulation(fetch=handler) as simulation:
        simulation.run(ask(Fetch("GET", "https://x")))


def test_a_job_outlives_the_program_that_spawned_it() -> None:
    with Simulation() as simulation:
        simulation.run(ask(Spawn(Job(60.0))))
        assert simulation.logs == []
        simulation.join()

    assert simulation.logs == [Log("info", "job done")]
    assert [done.program for done in simulation.effects] == ["ask", "Job", "Job"]


def test_the_end_of_a_job_is_told_to_who_waits_also_where_it_is_closed() -> None:
    outcomes = [Outcome[None]() for _ in range(3)]
    with Simulation() as simulation:
        waiting = [simulation.start(ask(AwaitOutcome(outcome))) for outcome in outcomes]
        for outcome in outcomes:
            simulation.run(ask(Spawn(Job(60.0), outcome)))
        simulation.settle()
        first, *_ = [task for task in simulation.find_running() if task.label.startswith("Job")]
        simulation.cancel(first)
        simulation.cancel(waiting[1])
        simulation.settle()
        assert [task.done for task in waiting] == [True, True, False]
        assert waiting[0].result() is None
        simulation.join()
        assert waiting[2].result() is None

    assert all(outcome.over for outcome in outcomes)
    assert [line.event for line in simulation.logs] == ["job done"] * 2


def test_a_node_that_is_killed_tells_nobody() -> None:
    outcome = Outcome[None]()
    with Simulation() as simulation:
        waiting = simulation.start(ask(AwaitOutcome(outcome)))
        simulation.run(ask(Spawn(Job(60.0), outcome)))
        simulation.settle()
        simulation.crash()
        simulation.restart()
        simulation.settle()

    with pytest.raises(NoResult):
        waiting.result()


def test_records_logs_and_emitted_bytes_are_kept() -> None:
    with Simulation() as simulation:
        task = simulation.start(
            sequence(Emit(b"a"), Record(ENTRY), Log("info", "x"), Emit(b"b"), ThisNode())
        )
        assert simulation.finish(task)[-1] == "node-1"

    assert bytes(task.received) == b"ab"
    assert simulation.audit == [ENTRY]
    assert simulation.logs == [Log("info", "x")]


def test_records_are_stored_by_the_program_given_for_it() -> None:
    def write_audit(entries: tuple[AuditEntry, ...]) -> Program[None]:
        yield from Log("info", "stored", (("count", len(entries)),))

    with Simulation(write_audit=write_audit) as simulation:
        simulation.run(ask(Record(ENTRY)))
        simulation.settle()

    assert simulation.logs == [Log("info", "stored", (("count", 1),))]


def test_records_that_cannot_be_stored_are_logged_in_the_end() -> None:
    def write_audit(entries: tuple[AuditEntry, ...]) -> Program[None]:
        yield from Transact("main", CreateTables())

    with Simulation(write_audit=write_audit) as simulation:
        simulation.fail_at(Transact, Busy(), times=2)
        simulation.run(ask(Record(ENTRY)))
        simulation.join()
        assert simulation.logs == []

        simulation.fail_at(Transact, Busy(), times=3)
        simulation.run(ask(Record(ENTRY)))
        simulation.join()
        assert [line.event for line in simulation.logs] == ["audit"]
        assert dict(simulation.logs[0].fields)["request_id"] == "q"


# Waits


def test_a_nudge_ends_the_wait_of_everybody_under_its_topic() -> None:
    with Simulation() as simulation:
        waiting = [simulation.start(ask(AwaitNudge("a", 60.0))) for _ in range(2)]
        other = simulation.start(ask(AwaitNudge("b", 60.0)))
        simulation.settle()
        simulation.run(ask(Nudge("a")))
        simulation.settle()

        assert [task.done for task in (*waiting, other)] == [True, True, False]
        assert simulation.clock.elapsed == 0.0


def test_a_nudge_between_two_waits_is_not_lost() -> None:
    with Simulation() as simulation:
        waits = (AwaitNudge("a", math.inf), Sleep(1.0), AwaitNudge("a", math.inf))
        task = simulation.start(sequence(*waits))
        simulation.settle()
        simulation.run(ask(Nudge("a")))
        simulation.settle()
        simulation.run(ask(Nudge("a")))
        simulation.finish(task)


def test_a_nudge_before_the_first_wait_is_not_lost_and_an_earlier_one_is_not_seen() -> None:
    with Simulation() as simulation:
        simulation.run(ask(Nudge("a")))
        late = simulation.start(ask(AwaitNudge("a", 9.0)), "late")
        simulation.settle()
        assert not late.done
        simulation.run(sequence(Nudge("b"), AwaitNudge("b", math.inf)))


def test_one_nudge_ends_one_wait() -> None:
    with Simulation() as simulation:
        simulation.run(sequence(Nudge("a"), AwaitNudge("a", 5.0), AwaitNudge("a", 5.0)))

    assert simulation.clock.elapsed == 5.0


def test_a_wait_that_was_nudged_does_not_time_out_later() -> None:
    with Simulation() as simulation:
        task = simulation.start(sequence(AwaitNudge("a", 1.0), Sleep(10.0)))
        simulation.settle()
        simulation.run(ask(Nudge("a")))
        simulation.advance(5.0)

        assert task.waits_for == Sleep(10.0)


def test_events_reach_who_waits_for_them() -> None:
    events = (StoredEvent(1, "A", "{}"), StoredEvent(2, "B", "{}"))
    with Simulation() as simulation:
        following = simulation.start(ask(NextEvents("r", 0, 60.0)))
        other = simulation.start(ask(NextEvents("s", 0, 60.0)))
        behind = simulation.start(ask(NextEvents("r", 5, 60.0)))
        simulation.settle()
        simulation.run(ask(Publish("r", events)))

        assert simulation.finish(following) == events
        assert simulation.run(ask(NextEvents("r", 1, 60.0))) == events[1:]
        assert simulation.clock.elapsed == 0.0
        assert simulation.finish(behind) == ()
        assert simulation.finish(other) is None
        assert simulation.clock.elapsed == 60.0


def test_waits_end_in_the_order_of_their_time() -> None:
    def program(seconds: float) -> Program[None]:
        yield from Sleep(seconds)
        yield from Log("info", str(seconds))

    with Simulation() as simulation:
        for seconds in (3.0, 1.0, 2.0, 1.0):
            simulation.start(program(seconds))
        simulation.join()

    assert [line.event for line in simulation.logs] == ["1.0", "1.0", "2.0", "3.0"]


def test_settle_lets_no_time_pass_and_advance_lets_pass_what_it_says() -> None:
    with Simulation() as simulation:
        simulation.run(ask(Spawn(Job(10.0))))
        simulation.settle()
        assert simulation.clock.elapsed == 0.0
        simulation.advance(9.0)
        assert simulation.logs == []
        simulation.advance(1.0)
        assert simulation.logs == [Log("info", "job done")]
        assert simulation.clock.elapsed == 10.0


def test_a_wait_that_was_nudged_is_not_ended_by_another_of_the_same_length() -> None:
    with Simulation() as simulation:
        simulation.start(ask(Sleep(1.0)))
        task = simulation.start(sequence(AwaitNudge("a", 1.0), Sleep(10.0)))
        simulation.settle()
        simulation.run(ask(Nudge("a")))
        simulation.advance(5.0)

        assert task.waits_for == Sleep(10.0)


def test_a_nudge_at_the_moment_of_a_time_out_is_not_lost() -> None:
    with Simulation() as simulation:
        simulation.start(sequence(Sleep(1.0), Nudge("a")))
        task = simulation.start(sequence(AwaitNudge("a", 1.0), AwaitNudge("a", math.inf)))
        simulation.advance(1.0)

        assert task.done


def test_a_job_can_be_started_by_hand_and_what_runs_is_listed() -> None:
    with Simulation() as simulation:
        simulation.start_job(Job(5.0))
        simulation.settle()

        assert [task.state() for task in simulation.find_running()] == [
            "Job on node-1: waits for Sleep(seconds=5.0)"
        ]


def test_setting_the_wall_clock_ends_no_wait() -> None:
    with Simulation() as simulation:
        task = simulation.start(sequence(Sleep(10.0), Now()))
        simulation.settle()
        simulation.clock.set_forward(3600.0)
        simulation.settle()
        assert not task.done
        assert simulation.finish(task)[1] == NEW_YEAR_2026 + 3_610_000_000


def test_a_deadlock_says_who_waits_for_what() -> None:
    with pytest.raises(Deadlock) as failure, Simulation() as simulation:
        simulation.start(ask(NextEvents("r", 0, math.inf)), "reader")
        simulation.run(ask(AwaitNudge("a", math.inf)), "worker")

    assert str(failure.value) == (
        "nothing is due, and every program waits:\n"
        "  reader on node-1: waits for "
        "NextEvents(run_id='r', after=0, timeout_seconds=inf, database=None, holder=None)\n"
        "  worker on node-1: waits for AwaitNudge(topic='a', timeout_seconds=inf)"
    )


def test_a_program_without_end_is_stopped() -> None:
    def spin() -> Program[None]:
        while True:
            yield from Sleep(1.0)

    with (
        pytest.raises(Endless, match=r"more than 50 effects; spin asks for Sleep"),
        Simulation(limit=50) as simulation,
    ):
        simulation.run(spin())


# Order


def interleaving(order: int | None) -> str:
    """Return in which order two programs of three steps each had their turns."""

    def program(name: str) -> Program[None]:
        for _ in range(3):
            yield from Inspect("main")
            yield from Log("info", name)

    simulation = Simulation(order=order)
    for name in "ab":
        simulation.start(program(name))
    simulation.join()
    return "".join(line.event for line in simulation.logs)


def test_turns_are_first_in_first_out_unless_told() -> None:
    assert interleaving(None) == "ababab"


def test_an_order_is_one_interleaving_and_many_orders_are_all() -> None:
    assert [interleaving(7) for _ in range(3)] == [interleaving(7)] * 3
    assert len({interleaving(order) for order in range(300)}) == 20  # 6! / (3! * 3!)


def test_the_same_seeds_give_the_same_effects() -> None:
    def trace(seed: int) -> list[Any]:
        with Simulation(seed=seed, order=seed, fetch=lambda _: Delayed(1.0, DONE)) as simulation:
            simulation.run(create_tables())
            for name in "abc":
                simulation.start(sequence(RandomBytes(4), Sleep(0.5), *accept_effects(name)))
            simulation.run(deliver(3))
            return simulation.effects

    assert trace(1) == trace(1)
    assert trace(1) != trace(2)


def accept_effects(name: str) -> tuple[Effect, ...]:
    """Return what `accept` asks for."""
    return Transact("main", Accept(name)), Nudge("parcels")


# Failures of programs


def test_what_a_program_raises_comes_out_of_run() -> None:
    with Simulation() as simulation, pytest.raises(KeyError, match="planted"):
        simulation.run(fail())


def test_what_a_job_raises_comes_out_at_the_end() -> None:
    with pytest.raises(KeyError, match="planted"), Simulation() as simulation:
        simulation.run(ask(Spawn(Failing())))
        simulation.join()


def test_failures_that_are_expected_are_taken() -> None:
    with Simulation() as simulation:
        simulation.run(ask(Spawn(Failing())))
        simulation.join()
        assert [type(error) for error in simulation.take_failures()] == [KeyError]
        assert simulation.take_failures() == ()


def test_several_failures_come_out_together() -> None:
    with pytest.raises(ExceptionGroup) as failure, Simulation() as simulation:
        simulation.run(sequence(Spawn(Failing()), Spawn(Failing())))
        simulation.join()

    assert len(failure.value.exceptions) == 2


def test_a_result_is_asked_of_a_program_that_has_one() -> None:
    with Simulation() as simulation:
        task = simulation.start(ask(Sleep(1.0)), "sleeper")
        with pytest.raises(NoResult, match="sleeper on node-1: ready"):
            task.result()
        simulation.settle()
        with pytest.raises(NoResult, match="sleeper on node-1: waits for Sleep"):
            task.result()
        simulation.cancel(task)
        with pytest.raises(NoResult, match="sleeper on node-1: ended"):
            task.result()


def test_programs_of_one_name_are_numbered() -> None:
    with Simulation() as simulation:
        tasks = [simulation.start(ask(Now())) for _ in range(3)]

    assert [task.label for task in tasks] == ["ask", "ask #2", "ask #3"]


def test_a_cancelled_program_that_yields_while_it_unwinds_is_found() -> None:
    def program() -> Program[None]:
        try:
            yield from Sleep(60.0)
        finally:
            yield from Log("info", "left")

    with Simulation() as simulation:
        task = simulation.start(program(), "leaky")
        simulation.settle()
        simulation.cancel(task)
        with pytest.raises(
            YieldedWhileUnwinding,
            match=r"closed while leaky on node-1: waits for Sleep\(seconds=60.0\), the program "
            r"asked for Log",
        ):
            simulation.check()


def test_closing_closes_every_program() -> None:
    with pytest.raises(YieldedWhileUnwinding), Simulation() as simulation:
        simulation.start(sequence(Sleep(1.0), Sleep(1.0)))
        leaky = simulation.start(log_while_unwinding())
        simulation.settle()
        assert leaky.done
        simulation.fail_at(Now, KeyError())  # as good as cancelled
        simulation.start(hold(log_while_unwinding()))
        simulation.settle()


def hold(program: Program[None]) -> Program[None]:
    """Take one step of `program` and sleep before the next."""
    next(program)
    try:
        yield from Sleep(1.0)
    finally:
        yield from program


# Faults


def is_nudge(effect: Any) -> bool:
    """Tell whether `effect` is the nudge below."""
    return bool(effect == Nudge("x"))


@pytest.mark.parametrize(
    "which",
    [Transact, Accept, Accept("q"), Transact("main", Accept("q")), is_nudge],
    ids=["type", "type of unit", "unit", "value", "predicate"],
)
def test_an_effect_that_is_meant_fails_without_being_performed(which: Any) -> None:
    with Simulation() as simulation:
        simulation.run(create_tables())
        simulation.fail_at(which, Busy("planted"))
        with pytest.raises(Busy, match="planted"):
            simulation.run(sequence(Transact("main", Accept("q")), Nudge("x")))
        if which is not Transact and not callable(which):
            assert simulation.run(ask(Transact("main", Deliveries()))) == {}


def test_the_nth_effect_fails() -> None:
    with Simulation() as simulation:
        simulation.run(ask(Now()))
        simulation.fail_at(2, KeyError("n"))
        with pytest.raises(KeyError):
            simulation.run(sequence(Now(), Now(), Now()))

    assert len(simulation.effects) == 3


def test_a_commit_can_lose_its_answer_alone() -> None:
    with Simulation() as simulation:
        simulation.run(create_tables())
        fault = simulation.fail_at(Accept, CommitLost(), after=True)
        with pytest.raises(CommitLost):
            simulation.run(accept("p"))

        assert fault.struck == Transact("main", Accept("p"))
        assert simulation.run(ask(Transact("main", Deliveries()))) == {"p": 0}


def test_a_fetch_can_lose_its_answer_alone() -> None:
    fetched: list[str] = []

    def handler(effect: Fetch) -> Delayed:
        fetched.append(effect.url)
        return Delayed(5.0, DONE)

    with Simulation(fetch=handler) as simulation:
        simulation.fail_at(Fetch, Unreachable("timeout"), after=True)
        answers = simulation.run(sequence(Fetch("GET", "https://x"), Sleep(60.0)))

    assert answers[0] == Unreachable("timeout")
    assert fetched == ["https://x"]
    assert simulation.clock.elapsed == 60.0


def test_faults_skip_and_repeat_as_told() -> None:
    with Simulation() as simulation:
        simulation.fail_at(Now, -1, skip=1, times=2)
        simulation.fail_at(RandomBytes, b"", times=None)
        answers = simulation.run(
            sequence(Now(), Now(), Now(), Now(), RandomBytes(1), RandomBytes(1))
        )

    assert answers == [NEW_YEAR_2026, -1, -1, NEW_YEAR_2026, b"", b""]


# Crashes


def test_a_crash_loses_memory_and_keeps_files(tmp_path: Path) -> None:
    with Simulation({"main": str(tmp_path / "main.db")}) as simulation:
        simulation.run(create_tables())
        survivor = simulation.start(ask(AwaitNudge("parcels", math.inf)), "survivor")
        simulation.crash_at(2)
        with pytest.raises(Crashed, match=r"killed at effect 3: Transact.* of accept") as crash:
            simulation.run(accept("lost"), "accept")
        assert crash.value.number == 3
        assert survivor.done
        with pytest.raises(Misuse, match="every node was killed"):
            simulation.run(ask(Now()))
        assert simulation.restart().name == "node-2"
        assert simulation.run(ask(ThisNode())) == "node-2"
        assert simulation.run(ask(Transact("main", Deliveries()))) == {}


def test_a_crash_keeps_what_was_stored_in_memory_databases_too() -> None:
    with Simulation() as simulation:
        simulation.run(create_tables())
        simulation.run(accept("kept"))
        simulation.crash()
        simulation.restart()

        assert simulation.run(ask(Transact("main", Deliveries()))) == {"kept": 0}


def test_a_crash_kills_one_node_and_the_others_go_on() -> None:
    with Simulation(fetch=lambda _: DONE) as simulation:
        second = simulation.add_node()
        simulation.run(create_tables())
        rescuer = simulation.start(deliver(patience=1.0), "rescuer", node=second)
        simulation.settle()
        simulation.run(accept("p"))
        simulation.fail_at(Fetch, Unreachable("timeout"))
        victim = simulation.start(deliver(), "victim", node=simulation.nodes[0])
        simulation.crash(simulation.nodes[0])

        assert victim.done
        assert simulation.finish(rescuer) == ["p"]


def test_nudges_and_events_stay_on_their_node() -> None:
    with Simulation() as simulation:
        elsewhere = simulation.start(
            ask(AwaitNudge("a", 9.0)), "elsewhere", node=simulation.add_node()
        )
        simulation.settle()
        simulation.run(ask(Nudge("a")))
        simulation.settle()

        assert not elsewhere.done


# What the tools find


def delivered(*, order: int, nudge_first: bool) -> bool:
    """Tell whether one parcel arrives under one interleaving, without any time-out to help."""
    with Simulation(order=order, fetch=lambda _: DONE) as simulation:
        simulation.run(create_tables())
        simulation.start(deliver(), "worker")
        simulation.start(accept("p", nudge_first=nudge_first), "accept")
        try:
            simulation.join()
        except Deadlock:
            return False
        counts: dict[str, int] = simulation.run(ask(Transact("main", Deliveries())))
        return counts == {"p": 1}


def test_a_lost_wake_up_is_found_by_some_interleaving() -> None:
    assert all(delivered(order=order, nudge_first=False) for order in range(50))
    assert not all(delivered(order=order, nudge_first=True) for order in range(50))


@pytest.mark.parametrize(("fenced", "deliveries"), [(True, 1), (False, 2)])
def test_a_double_execution_without_a_fence_is_found(fenced: bool, deliveries: int) -> None:
    slow_once = iter([Delayed(12.0, DONE), Delayed(4.0, DONE)])
    with Simulation(fetch=lambda _: next(slow_once)) as simulation:
        simulation.run(create_tables())
        simulation.run(accept("p"))
        for node in (simulation.nodes[0], simulation.add_node()):
            simulation.start(deliver(fenced=fenced, patience=11.0), "worker", node=node)
        simulation.join()

        assert simulation.run(ask(Transact("main", Deliveries()))) == {"p": deliveries}
        claims = [claim(done.effect) for done in simulation.effects if matches(Claim, done.effect)]
        assert [at - NEW_YEAR_2026 for at in claims] == [0, 0, 11_000_000]


def claim(effect: Any) -> int:
    """Return when a parcel was claimed."""
    at: int = effect.unit.now_us
    return at


def resting(seconds: float, left: list[float]) -> Program[str]:
    try:
        yield from Sleep(seconds)
    except GeneratorExit:
        left.append(seconds)
        raise
    return "rested"


def stopping(seconds: float) -> Program[None]:
    yield from Sleep(seconds)
    yield from Nudge("stop")


@pytest.mark.parametrize(
    ("seconds", "patience", "answer", "closed"),
    [
        (1.0, 20.0, "rested", []),
        (20.0, 2.0, Interrupted("timeout"), [20.0]),
        (20.0, 20.0, Interrupted("nudge"), [20.0]),
    ],
    ids=["its end", "the time", "a nudge"],
)
def test_an_interruptible_program_ends_by_itself_by_time_or_by_a_nudge(
    seconds: float, patience: float, answer: object, closed: list[float]
) -> None:
    left: list[float] = []
    with Simulation() as simulation:
        simulation.start(stopping(5.0))

        assert (
            simulation.run(ask(Interruptible(resting(seconds, left), "stop", patience))) == answer
        )
        assert left == closed


def test_a_nudge_since_the_program_began_interrupts_at_once() -> None:
    with Simulation() as simulation:
        inner = resting(9.0, [])
        nudged = sequence(Nudge("stop"), Interruptible(inner, "stop", 9.0))
        assert simulation.run(nudged) == [None, Interrupted("nudge")]
        assert simulation.clock.elapsed == 0.0


def test_what_the_inner_program_raises_is_thrown_into_the_outer() -> None:
    def failing() -> Program[None]:
        yield from Now()
        raise Busy("locked")

    with Simulation() as simulation, pytest.raises(Busy, match="locked"):
        simulation.run(ask(Interruptible(failing(), "stop", 1.0)))


def test_whoever_closes_the_outer_program_closes_the_inner_one() -> None:
    left: list[float] = []
    with Simulation() as simulation:
        task = simulation.start(ask(Interruptible(resting(9.0, left), "stop", 9.0)))
        simulation.settle()
        simulation.cancel(task)

        assert left == [9.0]
        assert simulation.find_running() == ()
