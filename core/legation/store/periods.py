"""The periods for which each kind of data is kept, and the rule of every table of the schema.

A table is pruned by settings of `[retention]`, or something else bounds it, or both.  What neither
prunes nor bounds is what grows without end, which an operator is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from attrs import fields

from ..values import frozen
from .run_rows import DAY_US

__all__ = ["FOR_EVER", "TABLES", "Kind", "Periods", "TableRule"]


class Kind(StrEnum):
    """A kind of data that has a period of its own, in the order in which they are pruned."""

    SESSIONS = "sessions"
    RUNS = "runs"
    EVENTS = "events"
    STEPS = "steps"
    MESSAGES = "messages"
    DEAD_LETTERS = "dead_letters"
    ANSWERS = "answers"
    INCIDENTS = "incidents"
    COUNTERS = "counters"
    TRAIL = "trail"


@frozen(kw_only=True)
class Periods:
    """For how long each kind of data is kept, in days; None where nothing was said."""

    sessions: int | None = None
    runs: int | None = None
    events: int | None = None
    steps: int | None = None
    messages: int | None = None
    dead_letters: int | None = None
    answers: int | None = None
    incidents: int | None = None
    counters: int | None = None
    trail: int | None = None

    def days(self, kind: Kind) -> int | None:
        """Return the period of `kind`."""
        found: int | None = getattr(self, kind.value)
        return found

    def before_us(self, kind: Kind, now_us: int) -> int:
        """Return the time before which data of `kind` is old; 0 where none ever is."""
        days = self.days(kind)
        return 0 if days is None else max(0, now_us - days * DAY_US)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds that have a period, in their order."""
        return tuple(kind for kind in Kind if self.days(kind) is not None)

    def over(self, usual: Periods) -> Periods:
        """Return these, and what `usual` says where they say nothing."""
        said = {name: getattr(self, name) for name in _NAMES}
        return Periods(
            **{
                name: getattr(usual, name) if value is None else value
                for name, value in said.items()
            }
        )


_NAMES: Final = tuple(attribute.name for attribute in fields(Periods))
FOR_EVER: Final = Periods()


@frozen
class TableRule:
    """The end of the rows of a table.

    Attributes:
        pruned_by: The kinds whose periods prune it.
        bounded_by: What bounds it where no period is set; empty where nothing does.
    """

    pruned_by: tuple[Kind, ...] = ()
    bounded_by: str = ""


_OF_RUNS: Final = (Kind.RUNS, Kind.SESSIONS)

TABLES: Final[Mapping[str, TableRule]] = {
    "sessions": TableRule((Kind.SESSIONS,)),
    "runs": TableRule(_OF_RUNS),
    "events": TableRule((Kind.EVENTS, *_OF_RUNS)),
    "steps": TableRule((Kind.STEPS, *_OF_RUNS)),
    "session_states": TableRule(_OF_RUNS),
    "session_summaries": TableRule(_OF_RUNS),
    # Of both, what is done with goes after 30 days; what was given up stays.
    "inbox": TableRule((Kind.MESSAGES, Kind.DEAD_LETTERS)),
    "outbox": TableRule((Kind.MESSAGES, Kind.DEAD_LETTERS)),
    "audit": TableRule((Kind.TRAIL,)),
    "idempotency": TableRule((Kind.ANSWERS,), "an answer is kept for a day"),
    "incidents": TableRule((Kind.INCIDENTS,), "the newest 10,000, for 30 days"),
    "refusals": TableRule((Kind.COUNTERS,), "the newest 100,000, for 30 days"),
    "usage": TableRule((Kind.COUNTERS,), "one row for each caller"),
    "session_counts": TableRule((Kind.SESSIONS,), "a few rows for each owner of many sessions"),
    "definitions": TableRule((), "one row for each version of an agent or a team that ran"),
    "nodes": TableRule((), "one row for each node that lives"),
    "cluster": TableRule((), "one row"),
    "background": TableRule((), "one row for each kind of work"),
    "channel_states": TableRule((), "one row for each channel"),
    "channel_chats": TableRule((), "one row for each chat that its provider has moved"),
    "channel_optouts": TableRule((), "one row for each person who wants no messages"),
}
"""The rule of each table of the catalogue."""
