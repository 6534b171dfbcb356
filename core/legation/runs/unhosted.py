"""The watch over what waits and no living node hosts, which only an operator can mend."""

from __future__ import annotations

from typing import Any, Final

from ..effects import Log, Now, Program, RandomBytes, Sleep, Transact
from ..store.unhosted import FindUnhosted
from ..values import frozen
from .executor import ExecutorContext
from .rounds import Pause, RoundJob

__all__ = ["WatchUnhosted"]

_ROUND_SECONDS: Final = 60.0


@frozen
class WatchUnhosted(RoundJob):
    """Look once a minute for what waits in one database and is hosted by nobody who lives.

    What is found is kept with the membership, for `/ready` and the measurements; the log has a
    line when it changes.
    """

    context: ExecutorContext
    database: str

    @property
    def pause(self) -> Pause:
        """Wait for a minute."""
        return Sleep(_ROUND_SECONDS)

    def log_trouble(self, level: str, fields: tuple[tuple[str, Any], ...]) -> Log:
        """Return the line of the log for a round that failed."""
        return Log(level, "unhosted_round_failed", fields)

    def round(self) -> Program[bool]:
        """Look, where a beat has shown who else is there, and say what has changed."""
        member = self.context.cluster.member(self.database)
        if not member.late_us:
            return False
        now_us = yield from Now()
        minutes = self.context.registry.config.unhosted_minutes
        others = (key for other in member.others for key in other.hosts)
        hosted = tuple(sorted({*self.context.hosted, *others}))
        find = FindUnhosted(hosted, now_us - round(minutes * 60_000_000))
        found = yield from Transact(self.database, find)
        before = tuple(sorted(each.component for each in member.unhosted))
        member.unhosted = found
        components = tuple(sorted(each.component for each in found))
        if components == before:
            return False
        fields = (("database", self.database),)
        if not found:
            yield from Log("info", "runs_hosted", fields)
            return False
        incident = (yield from RandomBytes(8)).hex()
        runs = sum(each.runs for each in found)
        self.context.cluster.incidents.note(
            self.database,
            incident,
            now_us,
            error_type="unhosted",
            operation="runs_unhosted",
            component=components[0],
        )
        what = (("components", ", ".join(components)), ("runs", runs))
        yield from Log("error", "runs_unhosted", (("incident", incident), *fields, *what))
        return False
