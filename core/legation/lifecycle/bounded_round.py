"""A bounded round: all that waits and is due now, done once, for a process without jobs.

A function that is frozen between its requests, and a command that cron starts, have no jobs: what
these would do is done here, by the same rounds (`runs.rounds`), as often as there is work, and
then the program returns.  What it begins it ends: whatever is still under work when its time is
over is released, as at the end of a process (`shutdown`).

A round has a context of its own, so that its limit and its end concern nothing that requests of
the same process began.  The runs of these are looked after: the round beats for their node, and
waits for them as long as it has time.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from attrs import evolve, field

from ..effects import (
    AwaitNudge,
    Concurrently,
    Interruptible,
    Job,
    Log,
    Now,
    Nudge,
    Program,
    Spawn,
    Transact,
)
from ..messaging.identities import PATIENCE_SECONDS, Identities
from ..messaging.jobs import ForgetDone, KeepLeases, answer_inbox, send_outbox
from ..messaging.leases import WorkerLeases, leases_of
from ..migrations.schema_guard import SchemaGuard, WatchSchemas
from ..observability.spans import Recorder
from ..observability.trace_context import TraceContext, with_trace
from ..programs import Handlers, intercept
from ..runs.executor import ExecutorContext
from ..runs.keep_alive import KeepAlive
from ..runs.reaper import KeepRuns
from ..runs.rounds import Attempt, Rounds, attempt, pause_us
from ..store.failures import StoreFailure
from ..store.inbox import INBOX
from ..store.leased_queue import LeasedQueue, NextDue
from ..store.outbox import OUTBOX
from ..store.run_keeping import NextNeglected
from ..store.units import Unit
from ..values import define, frozen
from .audit_heads import SendHeads
from .audit_rows import MoveAuditRows
from .incidents import WriteIncidents
from .refusals import WriteRefusals
from .retention import SweepDatabase
from .shutdown import Shutdown

__all__ = ["BoundedRound", "RoundReport"]

R = TypeVar("R")

_TOPIC: Final = "rounds"
# A run that a request began nudges nobody when it ends.
_STEP_SECONDS: Final = 0.05
_LOOK_SECONDS: Final = 1.0
_STEPS: Final = round(_LOOK_SECONDS / _STEP_SECONDS)


@frozen
class RoundReport:
    """The report of a round.

    Attributes:
        messages: How many messages were taken up.
        replies: How many replies were taken up to be sent.
        runs: How many runs that waited were taken up, or ended because their node is gone.
        released: How many messages, replies and runs of these were still under work when the time
            was over, and were released or broken off.
        failed: The databases with which something went wrong; the log says what.
        next_us: When the next thing is due, in microseconds since the epoch; the past where the
            limit left something.  None where nothing waits, as far as the databases answered.
    """

    messages: int
    replies: int
    runs: int
    released: int
    failed: tuple[str, ...]
    next_us: int | None


@define(eq=False)
class BoundedRound:
    """One round of a process, of at most `limit` pieces of work within `seconds`.

    Attributes:
        process: The context of the requests of the process.
        retention: The leases of the jobs of the process, which know when it last forgot.
        refusals: Writes what the process has counted.
        incidents: Write what went wrong in the process, each to its database.
        sweeps: Delete what is kept for long enough, each in its database.
        movers: Move old rows of the audit trail, each in its database.
        identities: Those of the channels of the process.
        heads: Send the heads of the audit trail out of the process.
        context: The context of what is executed in the round.
        leases: Those of the messages and replies of the round, by the id of their database.
        goes_on: Whether it has not come to its end.
        begun: How many jobs the round has begun; `ended` of these have come to their end.
    """

    guard: SchemaGuard
    process: ExecutorContext
    retention: tuple[WorkerLeases, ...]
    refusals: WriteRefusals
    incidents: tuple[WriteIncidents, ...]
    sweeps: tuple[SweepDatabase, ...]
    movers: tuple[MoveAuditRows, ...]
    identities: Identities
    recorder: Recorder | None
    limit: int
    seconds: float
    heads: tuple[SendHeads, ...]
    context: ExecutorContext = field(init=False)
    leases: dict[str, WorkerLeases] = field(init=False)
    goes_on: bool = field(default=True, init=False)
    begun: int = field(default=0, init=False)
    ended: int = field(default=0, init=False)
    _compared_us: dict[str, int] = field(factory=dict[str, int], init=False)
    _troubles: dict[Rounds, str] = field(factory=dict[Rounds, str], init=False)
    _failed: set[str] = field(factory=set[str], init=False)
    _handlers: Handlers = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        process = self.process
        self.context = ExecutorContext(
            process.registry, draining=process.draining, ended=process.ended, left=self.limit
        )
        self.context.share(process.cluster)
        self.leases = {worker.database: worker for worker in leases_of(self.context)}
        self._handlers = {
            Spawn: self._spawn,
            Interruptible: self._interruptible,
            Concurrently: self._concurrently,
        }

    @property
    def shutdown(self) -> Shutdown:
        """The end of what the round has under work."""
        return Shutdown(self.context, tuple(self.leases.values()))

    def program(self) -> Program[RoundReport]:
        """Do what is due, and report it."""
        yield from WatchSchemas(self.guard).round()
        work = with_trace(self._work(), TraceContext(None, self.recorder))
        return (yield from self.guard.guard(self.count(work)))

    def count(self, program: Program[R]) -> Program[R]:
        """Run `program`, and count the jobs that it begins."""
        return intercept(program, self._handlers)

    def _work(self) -> Program[RoundReport]:
        started_us = yield from Now()
        released = 0
        while True:
            seconds = yield from self._time_left(started_us)
            if seconds <= 0:
                released = yield from self._break_off()
                break
            begun, idle = self.begun, not self._under_way
            for name in self._databases:
                yield from self._pass(name)
            if self._under_way:
                yield from self._wait(min(seconds, _LOOK_SECONDS))
            elif idle and self.begun == begun:
                break
        for name in self._databases:
            if worker := self.leases.get(name):
                # The first look at what a failure left behind: the next round releases it.
                yield from self._attempt(KeepLeases(worker))
        yield from self._identify(started_us)
        yield from self._forget(started_us)
        yield from self._sweep(started_us)
        if self.refusals.database in self._databases:
            yield from self._attempt(self.refusals)
        for incidents in self.incidents:
            if incidents.database in self._databases:
                yield from self._attempt(incidents)
        yield from self._move(started_us)
        yield from self._send_heads()
        next_us = yield from self._find_next()
        return RoundReport(
            messages=self._count_taken(INBOX),
            replies=self._count_taken(OUTBOX),
            runs=self.context.taken,
            released=released,
            failed=tuple(sorted(self._failed)),
            next_us=next_us,
        )

    def _count_taken(self, queue: LeasedQueue[Any, Any]) -> int:
        return sum(worker.taken[queue.table] for worker in self.leases.values())

    @property
    def _under_way(self) -> bool:
        """Whether a job of the round is under way, or a run that a request began."""
        return self.begun > self.ended or bool(self.process.executing)

    def _time_left(self, started_us: int) -> Program[float]:
        """Return the seconds that are left; nothing new is begun in the second half of all.

        A clock that was set back leaves none.
        """
        elapsed = ((yield from Now()) - started_us) / 1_000_000
        if not 0 <= elapsed < self.seconds / 2:
            self.context.left = 0
        return self.seconds - elapsed if elapsed >= 0 else 0.0

    @property
    def _databases(self) -> tuple[str, ...]:
        """The databases that are served and well; what does not answer is not waited for."""
        ailing = self.guard.reasons.keys() | self.guard.conditions.keys()
        databases = self.process.registry.databases
        self._failed.update(name for name in databases if name in ailing)
        return tuple(name for name in databases if name not in ailing)

    def _pass(self, name: str) -> Program[None]:
        """Do once what is due in one database.

        A message is claimed only where no reply is due, so that the replies behind the limit are
        those to the messages within it.
        """
        yield from self._attempt(KeepAlive(self.process, name))
        yield from self._attempt(KeepRuns(self.process, name, takes_up=False))
        yield from self._attempt(KeepRuns(self.context, name))
        worker = self.leases.get(name)
        if worker is None:
            return
        keep, now_us = KeepLeases(worker), (yield from Now())
        if _is_due(keep, now_us, self._compared_us.get(name, 0)):
            self._compared_us[name] = now_us
            yield from self._attempt(keep)
        sent = yield from self._attempt(send_outbox(worker))
        if not (sent.trouble or worker.list_leases(OUTBOX)):
            yield from self._attempt(answer_inbox(worker))

    def _attempt(self, rounds: Rounds) -> Program[Attempt]:
        done = yield from attempt(rounds, self._troubles.get(rounds, ""))
        self._troubles[rounds] = done.trouble
        if done.trouble:
            self._failed.add(rounds.database)
        return done

    def _wait(self, seconds: float) -> Program[None]:
        """Wait until something under way has come to its end, for `seconds` at most."""
        before = self._ends
        steps = _STEPS if self.process.executing else 1
        for _ in range(steps):
            yield from AwaitNudge(_TOPIC, seconds / steps)
            if self._ends != before:
                return

    @property
    def _ends(self) -> tuple[object, ...]:
        return (self.ended, *self.process.executing)

    def _break_off(self) -> Program[int]:
        """Release what is under work; return how much that was."""
        end = self.shutdown
        left = sum(number for _, number in end.count_left())
        yield from end.program(0.0, 0.0, lambda: False)
        return left

    def _identify(self, started_us: int) -> Program[None]:
        """Ask the providers that have not said for a day who we are; the next round asks again."""
        for question in self.identities.questions.values():
            channel, now_us = question.hosted.id, (yield from Now())
            if not self.identities.is_due(channel, now_us):
                continue
            if (yield from self._time_left(started_us)) <= PATIENCE_SECONDS:
                return
            trouble = yield from self.identities.ask(question)
            if trouble is not None:
                fields = (("channel", channel), ("reason", trouble.reason))
                yield from Log("warning", "channel_unidentified", fields)

    def _forget(self, started_us: int) -> Program[None]:
        """Delete what is to be forgotten, where this process has not done so for an hour."""
        for worker in self.retention:
            rounds, trouble = ForgetDone(worker), worker.database not in self._databases
            while not trouble and (yield from self._time_left(started_us)) > 0:
                now_us = yield from Now()
                if not _is_due(rounds, now_us, worker.forgot_us):
                    break
                trouble = bool((yield from self._attempt(rounds)).trouble)

    def _sweep(self, started_us: int) -> Program[None]:
        """Delete what is kept for long enough, where that is due; the next round goes on."""
        for sweep in self.sweeps:
            more = sweep.database in self._databases
            while more and (yield from self._time_left(started_us)) > 0:
                more = (yield from self._attempt(sweep)).more

    def _move(self, started_us: int) -> Program[None]:
        """Move old rows of the audit trail, as long as there is time."""
        for mover in self.movers:
            more = mover.database in self._databases
            while more and (yield from self._time_left(started_us)) > self.seconds / 2:
                more = (yield from self._attempt(mover)).more

    def _send_heads(self) -> Program[None]:
        """Send the new heads of the trail, where this process has not looked for a while."""
        for heads in self.heads:
            now_us = yield from Now()
            if heads.database in self._databases and _is_due(heads, now_us, heads.sent.looked_us):
                yield from self._attempt(heads)

    def _find_next(self) -> Program[int | None]:
        found: list[int | None] = []
        for name in self._databases:
            found.append((yield from self._ask(name, NextNeglected(self.process.hosted))))
            if worker := self.leases.get(name):
                for queue in (INBOX, OUTBOX):
                    due = NextDue(queue, worker.channels)
                    found.append((yield from self._ask(name, due)))
        return min((due_us for due_us in found if due_us is not None), default=None)

    def _ask(self, name: str, unit: Unit[int | None]) -> Program[int | None]:
        try:
            return (yield from Transact(name, unit))
        except StoreFailure:
            self._failed.add(name)
            return None

    def _spawn(self, effect: Spawn) -> Program[None]:
        self.begun += 1
        yield Spawn(_JobOfRound(self, effect.job), effect.outcome)

    def _interruptible(self, effect: Interruptible[Any]) -> Program[Any]:
        return (yield evolve(effect, program=self.count(effect.program)))

    def _concurrently(self, effect: Concurrently[Any]) -> Program[Any]:
        return (yield Concurrently(tuple(map(self.count, effect.programs))))


def _is_due(rounds: Rounds, now_us: int, last_us: int) -> bool:
    """Return whether the pause since `last_us` is over; a clock that was set back ends it."""
    return not 0 <= now_us - last_us < pause_us(rounds)


@frozen
class _JobOfRound(Job):
    """A job that a round began, as is whatever it spawns; its end is told to the round."""

    round: BoundedRound
    job: Job

    def program(self) -> Program[object]:
        """Run the job."""
        try:
            result = yield from self.round.count(self.job.program())
        finally:
            self.round.ended += 1
        yield from Nudge(_TOPIC)
        return result
