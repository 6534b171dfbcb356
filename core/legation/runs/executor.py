"""The run executor: it takes a run from its claim to its end, as one program.

Whoever asked is not here: the program goes on when a client leaves, and tells its events to whom
it may concern.  The state of the run is in the database alone; when this program dies with its
node, the lease passes, and a node that hosts the run goes on with it from its steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve, field

from ..effects import (
    NOW,
    Interrupted,
    Interruptible,
    Job,
    Log,
    Nudge,
    Program,
    Publish,
    Spawn,
    Transact,
)
from ..hosted.registry import Component, Registry
from ..incidents import where
from ..json_encoding import decode, quote
from ..shares.shares import Shares
from ..store.failures import StoreFailure
from ..store.once import LEAST, message_of
from ..store.run_keeping import ClaimWaiting
from ..store.run_rows import ClaimedRun, StoredEvent
from ..store.run_states import RunState
from ..store.runs import Ended
from ..store.session_state import MAX_STATE, NO_CHANGE, apply
from ..store.usage import MeasureLog
from ..values import define, frozen
from .channel_replies import REPLY_TO, ChannelReplies, read_reply_to
from .endings import End, break_off, conclude, correct_end, fail, store_end
from .event_writer import CancelAsked, EventWriter, Journal, LeaseLost
from .events import EventOrigin
from .fold import RunRecord
from .given import Given
from .membership import Cluster, Membership, NodeTerms, enter
from .meter import Meter
from .output import RunSummary
from .register import InFlight
from .release import release_run
from .retry import MOST_TRIES, PASSING, persist
from .run_record import fetch_record
from .state_writer import StateWriter, view_of
from .team_turn import Taking
from .terms import (
    COST_PER_DAY,
    COUNTED,
    FORKED_FROM,
    MODEL_CALLS,
    PAID,
    STATE_BYTES,
    TOKENS_PER_DAY,
)
from .topics import cancel_topic, runs_topic
from .turn import turn_of

__all__ = ["ExecuteRun", "ExecuteWaiting", "ExecutorContext", "execute_next", "execute_waiting"]

_LEAST_SECONDS: Final = 0.001
_ANY_NUMBER: Final = 1 << 62
_UNHOSTED: Final = "The run failed: this platform no longer hosts what it was for"


@define(eq=False)
class ExecutorContext:
    """The context of the executor: the components that are hosted, and the runs under execution.

    The leases of the runs in `executing`, and of no others, are kept: a run whose program has gone
    is not kept by its node's life.  There each has the number of its attempt.

    Attributes:
        draining: The process is about to end: nothing that waits is claimed any more.
        leaving: Who follows a run that is not executed here is to follow it elsewhere.
        ending: It ends now: what is executed is broken off.
        followers: How many streams follow a run.
        ended: How many runs ended here, by kind, component and state.
        meter: Counts what models and tools are asked here, the time that runs wait, and the leases
            that are lost.
        turned_away: How many messages of channels were not answered here, by channel and reason.
        left: How many messages, replies and runs that wait may still be taken up: a round has a
            limit.
        taken: How many runs were taken up that waited, or were ended for a node that is gone.
        cluster: The memberships of this process, which a round shares.
        shares: What subjects hold of this process, which a round shares too.
        hosted: What the node hosts: of that it claims the runs that wait.
    """

    registry: Registry
    executing: InFlight[int] = field(factory=InFlight[int])
    draining: bool = False
    leaving: bool = False
    ending: bool = False
    followers: int = 0
    ended: dict[tuple[str, str, str], int] = field(factory=dict[tuple[str, str, str], int])
    meter: Meter = field(factory=Meter)
    turned_away: dict[tuple[str, str], int] = field(factory=dict[tuple[str, str], int])
    left: float = math.inf
    taken: int = 0
    cluster: Cluster = field(init=False)
    shares: Shares = field(init=False)
    hosted: tuple[str, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        registry = self.registry
        self.hosted = registry.hosted
        terms = NodeTerms(self.lease_us, self.hosted, str(registry.catalogue.latest))
        self.share(Cluster(terms, shares=Shares(registry.limits)))

    def share(self, cluster: Cluster) -> None:
        """Be part of what `cluster` stands for."""
        self.cluster, self.shares = cluster, cluster.shares
        cluster.executing.add(self.executing)

    def begin(self) -> None:
        """Take up work, also after an end; what was asked for before counts no more."""
        self.shares.rates.forget()
        self.draining = self.leaving = self.ending = self.cluster.left = False

    def count_turned_away(self, channel: str, reason: str) -> None:
        """Count a message that is not answered for what its sender is, or did."""
        key = (channel, reason)
        self.turned_away[key] = self.turned_away.get(key, 0) + 1

    def is_over(self) -> bool:
        """Return whether the process ends, and what is executed is to be broken off."""
        return self.ending

    @property
    def accepting(self) -> bool:
        """Whether one more run that waits may be taken up."""
        return not self.draining and self.left >= 1

    def take(self) -> bool:
        """Count one more run as taken up, if one may be; return whether it may."""
        accepting = self.accepting
        if accepting:
            self.left -= 1
            self.taken += 1
        return accepting

    def count(self, run: ClaimedRun, state: RunState) -> None:
        """Count a run that ended here, or paused."""
        key = (run.kind, run.component_id, str(state))
        self.ended[key] = self.ended.get(key, 0) + 1

    @property
    def lease_us(self) -> int:
        """The microseconds that a node may be silent before it is taken for dead."""
        return round(self.registry.config.lease_seconds * 1_000_000)

    def weigh(self, subject: str) -> float:
        """Return the weight of `subject` among others."""
        return self.shares.table.limits_of(subject).weight

    def name_of(self, run: ClaimedRun) -> str:
        """Return the name of the agent or team of `run`, its id when it is hosted no more."""
        component = self.component(run)
        return component.name if component else run.component_id

    def asker(self, asked: Mapping[str, Any]) -> ChannelReplies | None:
        """Return what writes to whoever asked for the run of the input `asked` in a channel.

        There is none before it was continued: until then its message waits for it.
        """
        to = read_reply_to(asked)
        if to is None or not to.continued:
            return None
        return ChannelReplies(to, self.registry.channels.get(to.channel))

    def component(self, run: ClaimedRun) -> Component | None:
        """Return the agent or team of `run`, or None when it is hosted no more."""
        return self.registry.components(run.kind).get(run.component_id)


@define(eq=False)
class _Work:
    """A run under execution: its event writer, its input, and its turn as soon as there is one.

    `component` is what it is a run of, None where that is hosted no more.
    """

    writer: EventWriter
    component: Component | None
    asked: Mapping[str, Any]
    started_us: int
    turn: Taking | None = None
    ended_at: int = 0

    def summarize(self) -> RunSummary:
        """Return the summary of the run by now."""
        journal, origin = self.writer.journal, self.writer.origin
        worked_us, state = journal.now_us - self.started_us, None
        if self.turn is not None:
            state = self.turn.state
            worked_us += state.worked_us
        cost = None if journal.cost is journal.paid is None else journal.whole_cost
        of = (origin.run, origin.name, self.component)
        return RunSummary(*of, state, worked_us, cost=cost, asked=self.asked)


@frozen
class ExecuteRun(Job):
    """Take the turn of a claimed run, store its end, and have what waits executed.

    `node` is the name of this node, which has the lease.  `place` is the subject of whose places in
    it the run has one; it gives that back at its end, whatever that is.  `first` is the event that
    is stored with the run, which begins here.
    """

    context: ExecutorContext
    database: str
    node: str
    run: ClaimedRun
    place: str | None = None
    first: StoredEvent | None = None

    @property
    def _member(self) -> Membership:
        """This node among those of the database."""
        return self.context.cluster.member(self.database)

    def program(self) -> Program[str | None]:
        """Execute the run under its lease; return its output as it is shown, in JSON.

        None where it was not brought to its end, or to a pause, here and now.  A database that was
        restored from a backup may give out once more what is executed here under the very same
        lease: that goes on.
        """
        executing, key = self.context.executing, (self.database, self.run.run_id)
        try:
            if self.context.cluster.executes(*key, self.run.attempt):
                return None
            if self.context.ending and (yield from release_run(self._member, self.run)):
                return None
            executing.enter(key, self.run.attempt)
            try:
                work = self._begin((yield NOW))
                conclude_work = self._conclude
                if TOKENS_PER_DAY in work.asked or COST_PER_DAY in work.asked:
                    conclude_work = self._conclude_within_budgets
                ended, output = yield from conclude_work(work)
            finally:
                executing.leave(key, self.run.attempt)
        finally:
            if self.place is not None:
                self.context.shares.runs.release(self.place)
        if not ended.kept:
            yield from Publish(self.run.run_id, ())  # who follows it here follows it elsewhere now
        if ended.following is not None:
            yield from execute_next(self.context, self.database, self.node, ended.following)
        if ended.contended:  # by another job, for somebody may wait for the end of this one
            yield from Spawn(ExecuteWaiting(self.context, self.database))
        return output

    def _begin(self, started_us: int) -> _Work:
        """Return the run as it is under execution from now on."""
        context, asked = self.context, decode(self.run.input)
        run, view = self.run, NO_CHANGE
        if not run.events:  # else it goes on: after a pause, or after a crash
            context.meter.count_begun(self.database, started_us - run.created_us)
        if "state_claims" in asked:
            view = view_of(asked)
            run = evolve(run, state=apply(run.state, view))
        component = context.component(run)
        origin = EventOrigin(run, run.component_id if component is None else component.name)
        member = context.cluster.member(self.database)
        message = "" if member.once else None
        if member.once and len(run.input) > LEAST:
            message = message_of(run.input)
        journal = Journal(
            self.database,
            run,
            self.node,
            started_us,
            hosted=context.hosted,
            is_over=context.is_over,
            member=member,
            in_doubt=asked.get("in_doubt", "ask"),
            state=StateWriter(view, asked.get(STATE_BYTES, MAX_STATE)),
            given=Given(asked),
            message=message,
            counted=asked.get(COUNTED, 0),
            model_calls=asked.get(MODEL_CALLS),
            prices=context.registry.prices,
            meter=context.meter,
            paid=asked.get(PAID),
            incidents=context.cluster.incidents,
            notify=context.registry.notices.get(self.database),
            asker=context.asker(asked) if REPLY_TO in asked else None,
        )
        if self.first is not None:
            journal.begin_behind(self.first)
        writer = EventWriter(journal, origin, asked["stream"])
        return _Work(writer, component, asked, started_us)

    def _conclude_within_budgets(self, work: _Work) -> Program[tuple[Ended, str | None]]:
        """Take the turn as long as something is left of the budgets of the day."""
        journal, asked, run, shares = work.writer.journal, work.asked, self.run, self.context.shares
        whose, now_us = (self.database, run.counted_for), work.started_us
        limit = asked.get(TOKENS_PER_DAY, _ANY_NUMBER)
        journal.spending = shares.budgets.enter(*whose, limit, now_us, run.used)
        try:
            if COST_PER_DAY in asked:
                limit = asked[COST_PER_DAY]
                journal.expense = shares.expenses.enter(*whose, limit, now_us, run.used_nano)
            return (yield from self._conclude(work))
        finally:
            shares.budgets.leave(journal.spending)
            if journal.expense is not None:
                shares.expenses.leave(journal.expense)

    def _conclude(self, work: _Work) -> Program[tuple[Ended, str | None]]:
        """Take the turn, and store what came of it."""
        journal = work.writer.journal
        outcome = yield from self._work(work)
        if isinstance(outcome, LeaseLost):
            self.context.meter.count_lost(self.database)
        if not isinstance(outcome, End) and self._is_releasable(outcome):
            outcome = yield from self._release(journal, outcome)
        if isinstance(outcome, LeaseLost):
            return Ended(kept=False), None
        if not isinstance(outcome, End):
            journal.now_us = yield NOW
            outcome = yield from self._break_off(work, outcome)
        ended, output = yield from store_end(journal, outcome)
        if ended.cancel_asked or ended.cancel_unasked:
            journal.forget(work.ended_at)
            outcome = yield from correct_end(work.writer, work.summarize(), ended)
            ended, output = yield from store_end(journal, outcome)
        if ended.kept:
            self.context.count(self.run, outcome.state)
        else:
            self.context.meter.count_lost(self.database)
        if ended.elsewhere:
            other = self._member.next_other(self.context.hosted)
            yield from Nudge(runs_topic(self.database), self.database, other)
        return ended, output

    def _label(self) -> str:
        """Return what says which run, and whose try of it, a step belongs to."""
        run = self.run
        return (
            f'{{"run_id":{quote(run.run_id)},"{run.kind}_id":{quote(run.component_id)},'
            f'"database":{quote(self.database)},"node":{quote(self.node)},"attempt":{run.attempt}}}'
        )

    def _work(self, work: _Work) -> Program[End | Interrupted | Exception]:
        """Take the turn, within what is left of the time that it may take."""
        run = work.writer.origin.run
        record: RunRecord | None = None
        try:
            if run.events or _has_steps(work.asked):
                record = yield from fetch_record(
                    self.database, run, work.asked, self.context.is_over
                )
            resumes = record is not None and run.events > 0
            if record is not None and resumes:
                yield from self._add_uncounted(work, record)
        except Exception as error:  # noqa: BLE001 (what cannot be read must not leave the run RUNNING)
            return error
        seconds = self.context.registry.config.run_timeout_seconds
        if record is not None and resumes:
            fields = (
                ("run_id", run.run_id),
                ("database", self.database),
                ("attempt", run.attempt),
                ("steps", len(record.steps)),
            )
            yield from Log("info", "run_resumed", fields)
            seconds = max(seconds - record.sum_work_us() / 1_000_000, _LEAST_SECONDS)
        outcome: End | Interrupted | Exception = yield Interruptible(
            self._attempt(work, record),
            cancel_topic(self.database, self.run.run_id),
            seconds,
            self._label(),
        )
        return outcome

    def _add_uncounted(self, work: _Work, record: RunRecord) -> Program[None]:
        """Add what the attempts used and stored that ended without being counted."""
        run, before = self.run, work.asked.get("answered", {}).get("events", 0)
        log = MeasureLog(run.owner, run.run_id, before, record.attempt)
        size = yield from persist(self.database, log, self.context.is_over)
        work.writer.journal.resume_counts(record.sum_usage(), size)

    def _is_releasable(self, outcome: Interrupted | Exception) -> bool:
        """Return whether the process ends, or the database was away for too long."""
        drained = self.context.ending and outcome == Interrupted("nudge")
        return drained or isinstance(outcome, PASSING)

    def _release(
        self, journal: Journal, outcome: Interrupted | Exception
    ) -> Program[Interrupted | Exception]:
        """Store what is known, and let the run wait for whoever goes on with it.

        The result is `LeaseLost` where there is nothing more to be done here, else why it ends.
        That is so as well where the database is away: then the lease passes.
        """
        drained, lost = isinstance(outcome, Interrupted), LeaseLost(self.run.run_id)
        if isinstance(outcome, Exception):
            fields = (
                ("run_id", self.run.run_id),
                ("database", self.database),
                ("error", where(outcome)),
            )
            yield from Log("warning", "run_released", fields)
            if self.run.tries >= MOST_TRIES:
                return lost
        is_over = self.context.is_over
        try:
            yield from journal.settle()
            if (yield from release_run(self._member, self.run, is_over, tried=not drained)):
                return lost
            yield from journal.confirm_lease()  # somebody may have asked to cancel it meanwhile
        except CancelAsked as error:
            return error
        except LeaseLost:
            self.context.meter.count_lost(self.database)
            return lost
        except StoreFailure:
            return lost
        return outcome if drained else lost

    def _attempt(self, work: _Work, record: RunRecord | None) -> Program[End | Exception]:
        """Take the turn; what goes wrong in it is its result."""
        writer, component = work.writer, work.component
        try:
            if component is None:
                return (yield from fail(writer, work.summarize(), _UNHOSTED, "not_hosted"))
            run, asked = writer.origin.run, work.asked
            work.turn = yield from turn_of(component, self.database, run, asked, writer, record)
            outcome = yield from work.turn.take()
            work.ended_at = writer.journal.seq
            return (yield from conclude(writer, work.summarize(), outcome))
        except Exception as error:  # noqa: BLE001 (a bug in a model or tool must not leave the run RUNNING)
            return error

    def _break_off(self, work: _Work, outcome: Interrupted | Exception) -> Program[End]:
        """Return the end of a run that did not come to its own."""
        work.ended_at = work.writer.journal.seq
        return break_off(
            work.writer,
            work.summarize(),
            outcome,
            ending=self.context.ending,
            seconds=self.context.registry.config.run_timeout_seconds,
        )


def _has_steps(asked: Mapping[str, Any]) -> bool:
    """Return whether a run has steps before it begins: those of the run that it is a fork of."""
    return FORKED_FROM in asked and asked[FORKED_FROM]["at"] is not None


def execute_next(
    context: ExecutorContext, database: str, node: str, run: ClaimedRun
) -> Program[None]:
    """Execute a run that waited and was claimed here, or let it wait for another node."""
    if context.take() or not (yield from release_run(context.cluster.member(database), run)):
        place, given = run.subject or run.owner, False
        context.shares.runs.take(place)
        try:
            yield from Spawn(ExecuteRun(context, database, node, run, place))
            given = True  # from now on the program there has the place
        finally:
            if not given:
                context.shares.runs.release(place)


@frozen
class ExecuteWaiting(Job):
    """Execute whose turn it is; where the database is away, a later round does."""

    context: ExecutorContext
    database: str

    def program(self) -> Program[None]:
        """Claim what waits, as far as there is room for it."""
        try:
            yield from execute_waiting(self.context, self.database)
        except StoreFailure:
            return


def execute_waiting(context: ExecutorContext, database: str) -> Program[None]:
    """Execute what waits, in the order of the turns, as far as there is room for it.

    One program of a process does so at a time; who comes meanwhile lets that one look once more.
    """
    shares = context.shares
    claims, slots = shares.claims, shares.runs
    if database in claims:
        claims[database] = True
        return
    claims[database] = True
    try:
        while claims[database] and context.accepting and slots.total < slots.capacity:
            claims[database] = False
            node, now_us = yield from enter(context.cluster, database)
            unit = ClaimWaiting(node, now_us, context.hosted, slots.find_full(context.weigh))
            claimed = yield from Transact(database, unit)
            if claimed is not None:
                claims[database] = True
            if isinstance(claimed, ClaimedRun):
                yield from execute_next(context, database, node, claimed)
    finally:
        del claims[database]
