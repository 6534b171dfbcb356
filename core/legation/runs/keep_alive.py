"""The beats of a node in one database, and the burial of those that are known to be dead."""

from __future__ import annotations

from typing import Any, Final

from ..effects import FindDead, Log, Now, Nudge, Program, Sleep, ThisNode, Transact
from ..store.nodes import Bury
from ..values import frozen
from .executor import ExecutorContext
from .membership import Membership, compare_leases
from .rounds import Pause, RoundJob
from .topics import runs_topic

__all__ = ["KeepAlive"]

_ROUND_SECONDS: Final = 1.0


@frozen
class KeepAlive(RoundJob):
    """Beat in time, take for dead whose name nobody holds, and let go of what nobody executes.

    A beat that failed is tried again in the next second: the lease of this node runs out meanwhile.
    """

    context: ExecutorContext
    database: str

    @property
    def pause(self) -> Pause:
        """Wait for a second: so soon a process that was killed beside this one is noticed."""
        return Sleep(_ROUND_SECONDS)

    def log_trouble(self, level: str, fields: tuple[tuple[str, Any], ...]) -> Log:
        """Return the line of the log for a round that failed."""
        return Log(level, "beat_failed", fields)

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
        yield from compare_leases(self.context.cluster, member, node, now_us)
        return False

    def _bury(self, member: Membership) -> Program[None]:
        """Take for dead who was killed beside this process."""
        beside = tuple(other.name for other in member.others if other.place == member.place != "")
        dead = (yield from FindDead(self.database, beside)) if beside else ()
        if not dead:
            return
        buried = yield from Transact(self.database, Bury(dead))
        member.others = tuple(other for other in member.others if other.name not in dead)
        for log in member.bury(buried):
            yield from log
        yield from Nudge(runs_topic(self.database))
