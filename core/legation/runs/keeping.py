"""Keeping runs: leases are extended, wishes to cancel passed on, and what nobody works on ended."""

from __future__ import annotations

from typing import Final

from ..effects import AwaitNudge, Job, Log, Now, Nudge, Program, Publish, Spawn, ThisNode, Transact
from ..messages import compact_json
from ..store.failures import StoreFailure
from ..store.run_keeping import CancelsAsked, ClaimWaiting, ExtendLeases, FindNeglected, ReleaseRun
from ..store.run_rows import RunRow
from ..store.runs import FinishRun
from ..values import frozen
from .cancelling import REASON, cancel_topic, keeping_topic
from .ending import broken_off, cut_short
from .execute import INTERRUPTED, ExecuteRun, Workshop
from .journal import Journal, Speaker, Voice, shown
from .output import Told

__all__ = ["KeepRuns"]

_ROUND_SECONDS: Final = 1.0
_BEATS: Final = 3


@frozen
class KeepRuns(Job):
    """Look after the runs of one database, for ever.

    Every second, and sooner where another node says so: who was asked to cancel there, and what
    has no executor.  Three times within a lease: the leases of this node.
    """

    workshop: Workshop
    database: str

    def program(self) -> Program[None]:
        """Go round."""
        node = yield from ThisNode()
        between = int(self.workshop.lease_us / _BEATS / _ROUND_SECONDS) // 1_000_000
        number = 0
        while True:
            trouble = ""
            try:
                yield from self._round(node, beats=number % between == 0)
            except StoreFailure as failure:
                trouble = type(failure).__name__
            if trouble:
                fields = (("database", self.database), ("error", trouble))
                yield from Log("warning", "leases not kept", fields)
                number = 0  # as soon as it can be again
            else:
                number += 1
            yield from AwaitNudge(keeping_topic(self.database), _ROUND_SECONDS)

    def _round(self, node: str, *, beats: bool) -> Program[None]:
        now_us = yield from Now()
        if held := tuple(sorted(self.workshop.executing)):
            yield from self._kept(node, held, now_us, beats=beats)
        if self.workshop.draining:
            return
        neglected = yield from Transact(self.database, FindNeglected(now_us))
        for row in neglected.expired:
            yield from self._recover(row, node, now_us)
        if neglected.expired or neglected.waiting:
            yield from self._claim(node, now_us)

    def _kept(self, node: str, held: tuple[str, ...], now_us: int, *, beats: bool) -> Program[None]:
        if beats:
            yield from Transact(
                self.database, ExtendLeases(node, held, now_us + self.workshop.lease_us)
            )
        for run_id in (yield from Transact(self.database, CancelsAsked(held))):
            yield from Nudge(cancel_topic(run_id))

    def _claim(self, node: str, now_us: int) -> Program[None]:
        """Execute what waits in sessions where nothing is executed."""
        while True:
            unit = ClaimWaiting(node, now_us, now_us + self.workshop.lease_us)
            waiting = yield from Transact(self.database, unit)
            if waiting is None:
                return
            yield from Spawn(ExecuteRun(self.workshop, self.database, waiting))

    def _recover(self, row: RunRow, node: str, now_us: int) -> Program[None]:
        """End the run of a dead node, under the dead one's lease.

        A run in which nothing had happened yet, or nothing since it was continued, was asked
        nothing of the world: it waits again.
        One that somebody wanted to end is cancelled.
        """
        if row.untouched and row.cancel_us is None:
            release = ReleaseRun(row.owner, row.run_id, row.lease, now_us)
            yield from Transact(self.database, release)
            return
        finish = self._end(row, node, now_us)
        ended = yield from Transact(self.database, finish)
        if ended.kept:
            yield from Publish(row.run_id, shown(finish.events, final=True), self.database)
        if ended.following is not None:
            yield from Spawn(ExecuteRun(self.workshop, self.database, ended.following))

    def _end(self, row: RunRow, node: str, now_us: int) -> FinishRun:
        run, component = row.claim, self.workshop.component(row.claim)
        told = Told(run, self.workshop.name_of(run), component)
        journal = Journal(self.database, run, node, now_us, lease_us=self.workshop.lease_us)
        voice = Voice(journal, Speaker(run, told.name), streamed=False)
        if row.cancel_us is not None:
            end = cut_short(voice, told, REASON.format(run.run_id))
        else:
            end = broken_off(voice, told, INTERRUPTED, "interrupted")
        return FinishRun(
            owner=row.owner,
            session_id=row.session_id,
            run_id=row.run_id,
            lease=row.lease,
            node=node,
            now_us=now_us,
            until_us=now_us + self.workshop.lease_us,
            status=end.state.value,
            output=compact_json(end.output),
            reason=end.reason,
            usage=end.usage,
            events=tuple(journal.pending),
            expired_us=now_us,
            input=end.input,
            members=row.kind == "team",
        )
