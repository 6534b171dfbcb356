"""The beats of a node in one database, and the burial of those that are known to be dead."""

from __future__ import annotations

from typing import Any, Final

from ..effects import FindDead, Job, Log, Now, Nudge, Program, Sleep, ThisNode, Transact
from ..store.nodes import Bury
from ..store.run_keeping import ExpireRuns, LeasedRuns
from ..values import frozen
from .cancellation import runs_topic
from .executor import ExecutorContext
from .membership import Membership
from .rounds import Pause, repeat

__all__ = ["KeepAlive"]

_ROUND_SECONDS: Final = 1.0
_LOOKS: Final = 2
"""How often within a lease the leases of this node are compared with what it executes."""


@frozen
class KeepAlive(Job):
    """Beat in time, take for dead whose name nobody holds, and let go of what nobody executes.

    A beat that failed is tried again in the next second.
    """

    context: ExecutorContext
    database: str

    @property
    def pause(self) -> Pause:
        """Wait for a second: so soon a process that was killed beside this one is noticed."""
        return Sleep(_ROUND_SECONDS)

    @property
    def after_trouble(self) -> Pause:
        """Wait no longer than otherwise: the lease of this node runs out meanwhile."""
        return self.pause

    def log_trouble(self, level: str, fields: tuple[tuple[str, Any], ...]) -> Log:
        """Return the line of the log for a round that failed."""
        return Log(level, "beat_failed", fields)

    def program(self) -> Program[None]:
        """Go round, whatever goes wrong."""
        return repeat(self)

    def round(self) -> Program[bool]:
        """Do what is due."""
        member = self.context.cluster.member(self.database)
        node = yield from ThisNode()
        now_us = yield from Now()
        if member.is_due(now_us) and not self.context.cluster.left:
            beaten = yield from member.beat(node)
            if beaten.buried:
                yield from Nudge(runs_topic(self.database))
        yield from self._bury(member)
        yield from self._reconcile(member, node, now_us)
        return False

    def _bury(self, member: Membership) -> Program[None]:
        """Take for dead who was killed beside this process."""
        beside = tuple(other.name for other in member.others if other.place == member.place != "")
        dead = (yield from FindDead(self.database, beside)) if beside else ()
        if not dead:
            return
        buried = yield from Transact(self.database, Bury(dead))
        member.others = tuple(other for other in member.others if other.name not in dead)
        for name in buried:
            yield from Log("warning", "node_buried", (("database", self.database), ("node", name)))
        yield from Nudge(runs_topic(self.database))

    def _reconcile(self, member: Membership, node: str, now_us: int) -> Program[None]:
        """Let the leases lapse that no program of this process stands for."""
        cluster, pause_us = self.context.cluster, self.context.lease_us // _LOOKS
        if 0 <= now_us - member.reconciled_us < pause_us:
            return
        member.reconciled_us = now_us
        leased = yield from Transact(self.database, LeasedRuns(node))
        left = frozenset(run for run in leased if not cluster.executes(self.database, *run))
        if orphans := member.find_orphans(left):
            yield from Transact(self.database, ExpireRuns(node, orphans))
            yield from Log(
                "warning", "runs_expired", (("database", self.database), ("runs", len(orphans)))
            )
        elif not left:
            member.restored = False
