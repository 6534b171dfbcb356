"""Faults in jobs, events, nudges, and in programs within others."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import Any, Final, TypeVar, cast

from attrs import evolve, frozen

from legation.effects import (
    AwaitNudge,
    AwaitOutcome,
    Concurrently,
    Interrupted,
    Interruptible,
    Job,
    NextEvents,
    Now,
    Nudge,
    OpenStream,
    Outcome,
    Program,
    Publish,
    Sleep,
    Spawn,
)
from legation.programs import Handlers, intercept
from legation_testing import HostUnderTest

from .network import connect_as_well
from .planting import Emitter, Fault, ask, effects_of, jobs_of, leave_open

__all__ = ["FAULTS"]

R = TypeVar("R")


WAITS: Final = (
    *("Sleep", "AwaitNudge", "NextEvents", "Fetch", "OpenStream", "NextChunk", "CallFunction"),
    *("NextPiece", "Concurrently", "Interruptible"),
)


@frozen(eq=False)
class _GoingOn(Job):
    left: Program[Any]

    def program(self) -> Program[None]:
        yield from self.left


@effects_of("Spawn.beside")
def jobs_inline() -> Handlers:
    return {Spawn: lambda effect: effect.job.program()}


@frozen
class _UntilNudged(Job):
    job: Job

    def program(self) -> Program[None]:
        yield Interruptible(self.job.program(), "end of the program", 60.0)


def _run_and_nudge(host: HostUnderTest, program: Program[R], body: bytes, emit: Emitter) -> R:
    def run_and_nudge() -> Program[R]:
        failure: Exception | None = None
        result: Any = None
        try:
            result = yield from program
        except Exception as error:  # noqa: BLE001  raised below
            failure = error
        yield Nudge("end of the program")
        yield Sleep(0.0)
        if failure is not None:
            raise failure
        return cast(R, result)

    return host.run(run_and_nudge(), body=body, emit=emit)


jobs_end_with_their_program = Fault(
    "jobs_end_with_their_program",
    ("Spawn.outlives", "Spawn.outlives_failing"),
    handlers=lambda: {Spawn: lambda effect: ask(Spawn(_UntilNudged(effect.job)))},
    run=_run_and_nudge,
)


@effects_of("Spawn.failing")
def failing_job_ends_the_others() -> Handlers:
    failed: list[Exception] = []

    @frozen
    class Together(Job):
        job: Job

        def program(self) -> Program[None]:
            inner, answer = self.job.program(), None
            with closing(inner):
                while not failed:
                    try:
                        answer = yield inner.send(answer)
                    except StopIteration:
                        return
                    except Exception as error:  # noqa: BLE001  the fault
                        failed.append(error)

    return {Spawn: lambda effect: ask(Spawn(Together(effect.job)))}


@jobs_of("Spawn.from_everywhere")
def jobs_spawn_nothing(program: Program[object]) -> Program[object]:
    return intercept(program, {Spawn: lambda _: ask(Now())})


@effects_of("Spawn.many")
def few_jobs_at_one_time() -> Handlers:
    started: list[Spawn] = []

    def spawn(effect: Spawn) -> Program[None]:
        started.append(effect)
        if len(started) <= 100:
            yield effect

    return {Spawn: spawn}


@effects_of("Spawn.anew")
def job_started_once() -> Handlers:
    started: set[Job] = set()

    def spawn(effect: Spawn) -> Program[None]:
        if effect.job not in started:
            started.add(effect.job)
            yield effect

    return {Spawn: spawn}


@effects_of("AwaitOutcome.result", "AwaitOutcome.many")
def results_of_jobs_lost() -> Handlers:
    def spawn(effect: Spawn) -> Program[None]:
        yield Spawn(_GivingNothing(effect.job), effect.outcome)

    return {Spawn: spawn}


@frozen
class _GivingNothing(Job):
    job: Job

    def program(self) -> Program[None]:
        yield from self.job.program()


@effects_of("AwaitOutcome.ended")
def outcome_told_to_who_waits_alone() -> Handlers:
    def wait(effect: AwaitOutcome[Any]) -> Program[Any]:
        if effect.outcome.over:
            yield Sleep(5.0)
        return (yield effect)

    return {AwaitOutcome: wait}


@effects_of("AwaitOutcome.failing")
def end_of_failing_job_not_told() -> Handlers:
    def wait(effect: AwaitOutcome[Any]) -> Program[Any]:
        answer = yield effect
        if answer is None:
            yield Sleep(5.0)
        return answer

    return {AwaitOutcome: wait}


@effects_of("AwaitOutcome.left")
def job_ends_with_who_waits() -> Handlers:
    jobs: dict[int, Job] = {}

    def spawn(effect: Spawn) -> Program[None]:
        jobs[id(effect.outcome)] = effect.job
        yield from ()

    def wait(effect: AwaitOutcome[Any]) -> Program[Any]:
        job = jobs.pop(id(effect.outcome), None)
        return None if job is None else (yield from job.program())

    return {Spawn: spawn, AwaitOutcome: wait}


@effects_of("AwaitOutcome.own")
def one_outcome_for_all_jobs() -> Handlers:
    first: list[Outcome[Any]] = []

    def wait(effect: AwaitOutcome[Any]) -> Program[Any]:
        first.append(effect.outcome)
        while not first[0].over:
            yield Sleep(0.01)
        return first[0].result

    return {AwaitOutcome: wait}


@effects_of("Publish.before")
def events_only_for_who_waits() -> Handlers:
    last: dict[str, int] = {}

    def publish(effect: Publish) -> Program[None]:
        last[effect.run_id] = max([0, *(event.seq for event in effect.events)])
        yield effect

    def next_events(effect: NextEvents) -> Program[Any]:
        after = max(effect.after, last.get(effect.run_id, 0))
        return (yield evolve(effect, after=after))

    return {Publish: publish, NextEvents: next_events}


@effects_of("Publish.wakes_followers")
def publish_wakes_nobody() -> Handlers:
    def next_events(effect: NextEvents) -> Program[Any]:
        yield Sleep(effect.timeout_seconds)
        return (yield evolve(effect, timeout_seconds=0.0))

    return {NextEvents: next_events}


@effects_of("NextEvents.behind")
def events_from_the_beginning() -> Handlers:
    return {NextEvents: lambda effect: ask(evolve(effect, after=0))}


@effects_of("NextEvents.gap")
def events_over_a_gap() -> Handlers:
    last: dict[str, tuple[Any, ...]] = {}

    def publish(effect: Publish) -> Program[None]:
        last[effect.run_id] = effect.events
        yield effect

    def next_events(effect: NextEvents) -> Program[Any]:
        return (yield effect) or last.get(effect.run_id, ())

    return {Publish: publish, NextEvents: next_events}


@effects_of("NextEvents.none")
def events_of_all_runs() -> Handlers:
    return {
        Publish: lambda effect: ask(evolve(effect, run_id="all")),
        NextEvents: lambda effect: ask(evolve(effect, run_id="all")),
    }


@effects_of("NextEvents.in_order")
def last_event_only() -> Handlers:
    return {Publish: lambda effect: ask(evolve(effect, events=effect.events[-1:]))}


@effects_of("Nudge.wakes")
def nudges_lost() -> Handlers:
    return {Nudge: lambda _: ask(Now())}


@effects_of("Nudge.wakes")
def nudges_of_a_database_lost() -> Handlers:
    def nudge(effect: Nudge) -> Program[None]:
        if effect.database is None:
            yield effect

    return {Nudge: nudge}


@effects_of("Nudge.wakes")
def one_nudge_wakes_one() -> Handlers:
    waiting: set[str] = set()

    def await_nudge(effect: AwaitNudge) -> Program[None]:
        topic = f"{effect.topic} again" if effect.topic in waiting else effect.topic
        waiting.add(effect.topic)
        yield evolve(effect, topic=topic)

    return {AwaitNudge: await_nudge}


@effects_of("Nudge.other_topic")
def nudge_wakes_everybody() -> Handlers:
    return {
        Nudge: lambda effect: ask(evolve(effect, topic="all")),
        AwaitNudge: lambda effect: ask(evolve(effect, topic="all")),
    }


@jobs_of("Nudge.of_a_job")
def nudges_of_jobs_lost(program: Program[object]) -> Program[object]:
    return intercept(program, {Nudge: lambda _: ask(Now())})


@effects_of("AwaitNudge.between")
def nudges_before_the_wait_lost() -> Handlers:
    def await_nudge(effect: AwaitNudge) -> Program[None]:
        yield evolve(effect, timeout_seconds=0.0)
        yield effect

    return {AwaitNudge: await_nudge}


@effects_of("AwaitNudge.none_lost")
def nudges_between_programs_lost() -> Handlers:
    seen: list[Any] = []

    def nudge(effect: Nudge) -> Program[None]:
        seen.append(effect)
        if len(seen) % 50:
            yield effect

    return {Nudge: nudge}


@effects_of("AwaitNudge.once")
def nudge_ends_every_wait() -> Handlers:
    nudged: set[str] = set()

    def nudge(effect: Nudge) -> Program[None]:
        nudged.add(effect.topic)
        yield effect

    def await_nudge(effect: AwaitNudge) -> Program[None]:
        if effect.topic not in nudged:
            yield effect

    return {Nudge: nudge, AwaitNudge: await_nudge}


@effects_of("AwaitNudge.of_each")
def nudges_seen_by_one_for_all() -> Handlers:
    nudged: set[str] = set()

    def nudge(effect: Nudge) -> Program[None]:
        nudged.add(effect.topic)
        yield from ()

    def await_nudge(effect: AwaitNudge) -> Program[None]:
        if effect.topic in nudged:
            nudged.discard(effect.topic)
        else:
            yield evolve(effect, topic="nobody's")

    return {Nudge: nudge, AwaitNudge: await_nudge}


@effects_of("AwaitNudge.in_vain")
def waits_for_a_nudge_have_no_time_out() -> Handlers:
    return {AwaitNudge: lambda effect: ask(evolve(effect, timeout_seconds=30.0))}


@effects_of("Interruptible.Sleep_by_nudge")
def never_interrupted() -> Handlers:
    return {Interruptible: lambda effect: effect.program}


@effects_of(*(f"Interruptible.{kind}_by_time" for kind in WAITS))
def no_time_out_interrupts() -> Handlers:
    return {Interruptible: lambda effect: ask(evolve(effect, timeout_seconds=600.0))}


@effects_of(*(f"Interruptible.{kind}_by_nudge" for kind in WAITS))
def interrupted_after_the_wait() -> Handlers:
    """The inner program is looked at between its effects, and never within one."""

    def interruptible(effect: Interruptible[Any]) -> Program[Any]:
        yield from ()
        answer: Any = None
        while True:
            try:
                asked = effect.program.send(answer)
            except StopIteration as stop:
                return stop.value
            answer = yield asked

    return {Interruptible: interruptible}


@effects_of("Interruptible.of_a_job")
def always_for_the_time() -> Handlers:
    def interruptible(effect: Interruptible[Any]) -> Program[Any]:
        answer = yield effect
        return Interrupted("timeout") if isinstance(answer, Interrupted) else answer

    return {Interruptible: interruptible}


@effects_of("Interruptible.other_topic")
def interrupted_by_other_topics() -> Handlers:
    return {
        Nudge: lambda effect: ask(evolve(effect, topic="all")),
        Interruptible: lambda effect: ask(evolve(effect, topic="all")),
    }


@effects_of("Interruptible.before")
def earlier_nudges_do_not_interrupt() -> Handlers:
    within: set[str] = set()

    def nudge(effect: Nudge) -> Program[None]:
        if effect.topic in within:
            yield effect
        else:
            yield Now()

    def interruptible(effect: Interruptible[Any]) -> Program[Any]:
        within.add(effect.topic)
        answer = yield effect
        within.discard(effect.topic)
        return answer

    return {Nudge: nudge, Interruptible: interruptible}


@effects_of("Interruptible.NextEvents_by_time")
def inner_program_left_open() -> Handlers:
    def interruptible(effect: Interruptible[Any]) -> Program[Any]:
        return (yield evolve(effect, program=leave_open(effect.program)))

    return {Interruptible: interruptible}


@effects_of("Interruptible.goes_no_further")
def inner_program_goes_on() -> Handlers:
    """What was to be closed goes on as a job."""

    def interruptible(effect: Interruptible[Any]) -> Program[Any]:
        yield Spawn(_GoingOn(effect.program))
        yield Sleep(effect.timeout_seconds)
        return Interrupted("timeout")

    return {Interruptible: interruptible}


@effects_of("Interruptible.closes_not_throws")
def throws_instead_of_closing() -> Handlers:
    def throw(program: Program[Any]) -> Program[Any]:
        answer: Any = None
        while True:
            try:
                asked = program.send(answer)
            except StopIteration as stop:
                return stop.value
            try:
                answer = yield asked
            except GeneratorExit:
                with suppress(TimeoutError, StopIteration):
                    program.throw(TimeoutError())
                raise

    def interruptible(effect: Interruptible[Any]) -> Program[Any]:
        return (yield evolve(effect, program=throw(effect.program)))

    return {Interruptible: interruptible}


@effects_of("Interruptible.thrown")
def inner_failure_lost() -> Handlers:
    def interruptible(effect: Interruptible[Any]) -> Program[Any]:
        with suppress(Exception):
            return (yield effect)
        return None

    return {Interruptible: interruptible}


@effects_of("Interruptible.result")
def inner_result_lost() -> Handlers:
    def interruptible(effect: Interruptible[Any]) -> Program[Any]:
        return (yield effect) or None

    return {Interruptible: interruptible}


@effects_of("Interruptible.thread_by_time", host="trio")
def interrupted_without_a_reason() -> Handlers:
    def interruptible(effect: Interruptible[Any]) -> Program[Any]:
        answer = yield effect
        return Interrupted("") if isinstance(answer, Interrupted) else answer

    return {Interruptible: interruptible}


@effects_of("Interruptible.closes_streams")
def streams_of_the_interrupted_left_open() -> Handlers:
    return {OpenStream: connect_as_well}


@effects_of("Interruptible.deep")
def few_programs_within_each_other() -> Handlers:
    depth: list[int] = []

    def interruptible(effect: Interruptible[Any]) -> Program[Any]:
        if len(depth) > 10:
            raise RecursionError
        depth.append(1)
        answer = yield effect
        depth.pop()
        return answer

    return {Interruptible: interruptible}


@effects_of("Interruptible.within_each_other")
def inner_nudge_closes_the_outer() -> Handlers:
    topics: list[str] = []

    def interruptible(effect: Interruptible[Any]) -> Program[Any]:
        topics.append(effect.topic)
        return (yield evolve(effect, topic=topics[0]))

    def nudge(effect: Nudge) -> Program[None]:
        yield evolve(effect, topic=topics[0] if topics else effect.topic)

    return {Interruptible: interruptible, Nudge: nudge}


@effects_of("Concurrently.order")
def results_as_they_come() -> Handlers:
    def concurrently(effect: Concurrently[Any]) -> Program[Any]:
        results: list[Any] = []

        def note(program: Program[Any]) -> Program[None]:
            results.append((yield from program))

        yield Concurrently(tuple(map(note, effect.programs)))
        return tuple(results)

    return {Concurrently: concurrently}


@effects_of("Concurrently.side_by_side")
def one_after_another() -> Handlers:
    def concurrently(effect: Concurrently[Any]) -> Program[Any]:
        results: list[Any] = []
        for program in effect.programs:
            results.append((yield from program))
        return tuple(results)

    return {Concurrently: concurrently}


@effects_of("Concurrently.nothing")
def nothing_is_a_fault() -> Handlers:
    def concurrently(effect: Concurrently[Any]) -> Program[Any]:
        answers: tuple[Any, ...] = yield effect
        return answers or None

    return {Concurrently: concurrently}


@effects_of("Concurrently.many")
def some_programs_lost() -> Handlers:
    return {Concurrently: lambda effect: ask(Concurrently(effect.programs[:256]))}


@effects_of("Concurrently.failure")
def others_left_open() -> Handlers:
    def concurrently(effect: Concurrently[Any]) -> Program[Any]:
        return (yield Concurrently(tuple(map(leave_open, effect.programs))))

    return {Concurrently: concurrently}


@effects_of("Concurrently.failure_at_once")
def failure_of_one_is_none() -> Handlers:
    def run_safely(program: Program[Any]) -> Program[Any]:
        with suppress(Exception):
            return (yield from program)
        return None

    def concurrently(effect: Concurrently[Any]) -> Program[Any]:
        return (yield Concurrently(tuple(map(run_safely, effect.programs))))

    return {Concurrently: concurrently}


@effects_of("Concurrently.nested")
def side_by_side_once_only() -> Handlers:
    under_way: list[Any] = []

    def concurrently(effect: Concurrently[Any]) -> Program[Any]:
        under_way.append(effect)
        if len(under_way) > 5:
            raise RuntimeError("no place for more programs")
        answers = yield effect
        under_way.pop()
        return answers

    return {Concurrently: concurrently}


@effects_of("Concurrently.failure")
def failures_of_several_in_a_group() -> Handlers:
    def concurrently(effect: Concurrently[Any]) -> Program[Any]:
        try:
            return (yield effect)
        except Exception as error:
            raise ExceptionGroup("of a task group", [error]) from error

    return {Concurrently: concurrently}


@effects_of("Concurrently.no_request")
def anybody_may_emit() -> Handlers:
    def concurrently(effect: Concurrently[Any]) -> Program[Any]:
        results: list[Any] = []
        for program in effect.programs:
            results.append((yield from program))
        return tuple(results)

    return {Concurrently: concurrently}


FAULTS: Final = tuple(value for value in tuple(globals().values()) if isinstance(value, Fault))
