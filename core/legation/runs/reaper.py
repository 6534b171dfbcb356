"""The reaper: it passes cancellations on, and ends or releases neglected runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve

from ..effects import (
    AwaitNudge,
    Interrupted,
    Log,
    Now,
    Nudge,
    Program,
    Publish,
    ThisNode,
    Transact,
)
from ..models.conversation import Usage
from ..store.once import message_of
from ..store.run_keeping import (
    CancelsAsked,
    FindNeglected,
    ReleaseRun,
)
from ..store.run_reads import FetchRun
from ..store.run_rows import RunRow
from ..store.runs import FinishRun
from ..store.steps import FetchSteps
from ..store.usage import MeasureLog
from ..values import frozen
from .endings import GaveUp, break_off, build_finish
from .event_writer import CancelAsked, EventWriter, Journal
from .events import EventOrigin, mark_final
from .executor import ExecutorContext, execute_next, execute_waiting
from .fold import RunRecord, find_last
from .membership import enter
from .output import RunSummary
from .retry import MOST_TRIES, PASSING
from .rounds import Pause, RoundJob
from .state_writer import StateWriter, view_of
from .step_outcomes import UnknownOutcome
from .terms import COUNTED, PAID
from .topics import cancel_topic, runs_topic

__all__ = ["KeepRuns"]

_ROUND_SECONDS: Final = 1.0


@frozen
class KeepRuns(RoundJob):
    """Look after the runs of one database, for ever.

    Every second, and sooner where another node says so: who was asked to cancel there, and what
    has no executor.  Unless it `takes_up` what has no executor, it looks after the runs of this
    node alone.
    """

    context: ExecutorContext
    database: str
    takes_up: bool = True

    @property
    def pause(self) -> Pause:
        """Wait for a run that another node lets go of."""
        return AwaitNudge(runs_topic(self.database), _ROUND_SECONDS)

    def log_trouble(self, level: str, fields: tuple[tuple[str, Any], ...]) -> Log:
        """Return the line of the log for a round that failed."""
        return Log(level, "reaper_round_failed", fields)

    def round(self) -> Program[bool]:
        """Pass cancellations on, then take up what nobody executes."""
        if held := tuple(run_id for _, run_id in self.context.executing.at(self.database)):
            for run_id in (yield from Transact(self.database, CancelsAsked(held))):
                yield from Nudge(cancel_topic(self.database, run_id))
        if self.takes_up and self.context.accepting:
            yield from self._take_up()
        return False

    def _take_up(self) -> Program[None]:
        neglected = yield from Transact(self.database, FindNeglected(self.context.hosted))
        stuck: Exception | None = None
        for row in neglected.expired:
            try:
                yield from self._recover(row)
            except PASSING:
                raise
            except Exception as error:  # noqa: BLE001 (of this run alone: the others go on)
                stuck = stuck or error
        if neglected.expired or neglected.waiting:
            yield from execute_waiting(self.context, self.database)
        if stuck is not None:
            raise stuck

    def _recover(self, row: RunRow) -> Program[None]:
        """Let the run of a dead node wait for whoever goes on with it, or end it.

        It ends, under the dead one's lease, where somebody asked to cancel it, where a release
        executed it that keeps no steps, and where it was taken up too often without coming further.
        """
        outcome: Interrupted | Exception = Interrupted("nudge")
        if row.cancel_us is None and (row.untouched or row.is_recorded):
            if row.tries < MOST_TRIES:
                release = ReleaseRun(row.owner, row.run_id, row.lease, lapsed=True)
                yield from Transact(self.database, release)
                return
            steps = yield from Transact(self.database, FetchSteps(row.owner, row.run_id))
            outcome = GaveUp(*find_last(steps))
            fields = (
                ("run_id", row.run_id),
                ("database", self.database),
                ("place", outcome.place),
                ("asked", outcome.asked),
            )
            yield from Log("error", "run_given_up", fields)
        if not self.context.take():
            return
        node, now_us = yield from enter(self.context.cluster, self.database)
        finish = yield from self._end(row, node, now_us, outcome)
        finish = evolve(finish, lapsed=True, hosted=self.context.hosted)
        ended = yield from Transact(self.database, finish)
        if ended.kept:
            yield from Publish(row.run_id, mark_final(finish.events), self.database)
        if ended.elsewhere:
            other = self.context.cluster.member(self.database).next_other(self.context.hosted)
            yield from Nudge(runs_topic(self.database), self.database, other)
        if ended.following is not None:
            yield from execute_next(self.context, self.database, node, ended.following)

    def end_blocked(self, run_id: str, node: str, attempt: int) -> Program[bool]:
        """End the run for whose sake the process of `node` was killed; return whether it did.

        It ends under the lease of that process, which need not have run out, so that nobody takes
        the run up again.  Whoever waits in its session is left to those who look for such.
        """
        row = yield from Transact(self.database, FetchRun(run_id, None, any_owner=True))
        if row is None or (row.lease.node, row.attempt) != (node, attempt):
            return False
        now_us, here = (yield from Now()), (yield from ThisNode())
        finish = yield from self._end(row, here, now_us, Interrupted("blocked"))
        ended = yield from Transact(self.database, finish)
        return ended.kept

    def _end(
        self, row: RunRow, node: str, now_us: int, outcome: Interrupted | Exception
    ) -> Program[FinishRun]:
        """Return the unit that ends the run for `outcome`, or because somebody wanted it to end."""
        outcome = outcome if row.cancel_us is None else CancelAsked()
        run, component = row.claim, self.context.component(row.claim)
        summary = RunSummary(run, self.context.name_of(run), component)
        asked = json.loads(run.input)
        state = StateWriter(view_of(asked))
        once = self.context.cluster.member(self.database).once
        message = message_of(run.input) if once else None
        journal = Journal(
            self.database,
            run,
            node,
            now_us,
            state=state,
            message=message,
            counted=asked.get(COUNTED, 0),
            paid=asked.get(PAID),
            incidents=self.context.cluster.incidents,
            notify=self.context.registry.notices.get(self.database),
            asker=self.context.asker(asked),
        )
        if row.events:
            yield from self._add_uncounted(journal, asked.get("answered", {}))
        writer = EventWriter(journal, EventOrigin(run, summary.name), streamed=False)
        end = yield from break_off(writer, summary, outcome, ending=True, seconds=0.0)
        return build_finish(journal, end, row.lease)

    def _add_uncounted(self, journal: Journal, answered: Mapping[str, Any]) -> Program[None]:
        """Add what a dead node used and stored, since the run paused and was `answered`."""
        run, attempt = journal.run, answered.get("attempt", 0)
        steps = yield from Transact(self.database, FetchSteps(run.owner, run.run_id))
        log = MeasureLog(run.owner, run.run_id, answered.get("events", 0), attempt)
        size = yield from Transact(self.database, log)
        places = {step.place: step for step in steps}
        record = RunRecord(run.run_id, run.created_us, places, attempt=attempt)
        try:
            usage = record.sum_usage()
        except UnknownOutcome:  # stored by a later release: the run ends all the same
            usage = Usage()
        journal.resume_counts(usage, size)
