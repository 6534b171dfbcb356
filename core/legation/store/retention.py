"""Units of work on the sweep of a database: the deletion of all that is kept for long enough.

A sweep takes many units.  Each does one bite and stores where to go on, in one transaction, so
that a node that dies leaves a sweep that another one goes on with, and what was counted is what
went.  The row of the sweep is the lock: two nodes that bite at once do so one after the other.
While the last bite of a node is not long ago, others leave the sweep to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from attrs import asdict, evolve, field

from ..values import frozen
from .periods import Kind, Periods
from .pruning import BITERS, count_old
from .run_rows import DAY_US
from .table_pruning import START, Old, Place
from .units import Dialect, ReadUnit, Sql, Statements, Undo, Unit

__all__ = ["HELD_US", "AdvanceTrail", "CountOld", "EndSweep", "FetchSweep", "Sweep", "TakeBite"]

HELD_US: Final = 60_000_000
"""For how long a sweep is its node's after a bite."""


@frozen
class Sweep:
    """The sweep of a database as it stands, or the last one where none is under way.

    Attributes:
        begun_us: When it began.
        stage: The kind that is pruned now; None where all of them were.
        place: Where the next bite of that begins.
        counts: How much went, by kind.
        swept_us: When the last one began that came to its end; None where none has.
        totals: How much went in all that came to their end.
        active: Whether it is under way.
    """

    begun_us: int = 0
    stage: Kind | None = None
    place: Place = START
    counts: Mapping[str, int] = field(factory=dict[str, int])
    swept_us: int | None = None
    totals: Mapping[str, int] = field(factory=dict[str, int])
    active: bool = False

    @property
    def pruned(self) -> int:
        """The number of deletions in it, of all kinds."""
        return sum(self.counts.values())

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of which anything went, in this one or before."""
        return tuple(sorted({*self.counts, *self.totals}))

    def count(self, kind: str) -> int:
        """Return how much of `kind` went, in this one while it is under way, and in all before."""
        return self.totals.get(kind, 0) + (self.counts.get(kind, 0) if self.active else 0)

    def is_due(self, now_us: int) -> bool:
        """Return whether the next one is to begin: a day after the last one, by any clock."""
        return not -DAY_US < now_us - self.begun_us < DAY_US

    def begin(self, now_us: int) -> Sweep:
        """Return a new one, before its first stage."""
        first = next(iter(Kind))
        return Sweep(now_us, first, swept_us=self.swept_us, totals=self.totals, active=True)

    def skip(self, periods: Periods) -> Sweep:
        """Return it at the first stage from this one on that has a period."""
        kinds = tuple(Kind)
        if self.stage is None or self.stage in periods.kinds:
            return self
        later = kinds[kinds.index(self.stage) :]
        stage = next((kind for kind in later if kind in periods.kinds), None)
        return evolve(self, stage=stage, place=START)

    def advance(self, pruned: int, place: Place | None) -> Sweep:
        """Return it behind a bite; without a place, at the next stage."""
        counts = dict(self.counts)
        stage = self.stage
        if stage is not None and pruned:
            counts[stage.value] = counts.get(stage.value, 0) + pruned
        if place is not None:
            return evolve(self, counts=counts, place=place)
        kinds = tuple(Kind)
        number = len(kinds) if stage is None else kinds.index(stage) + 1
        following = kinds[number] if number < len(kinds) else None
        return evolve(self, counts=counts, stage=following, place=START)

    def end(self) -> Sweep:
        """Return it as it is kept when it has come to its end."""
        totals = {kind: self.count(kind) for kind in self.kinds}
        return evolve(self, swept_us=self.begun_us, totals=totals, active=False)


NO_SWEEP: Final = Sweep()

# --- The row ------------------------------------------------------------------------------------

_NAME: Final = "retention"
_READ: Final = f"select cursor, lease_by, lease_us from background where name = '{_NAME}'"
READ: Final = Sql(_READ, f"{_READ} for update")
LOOK: Final = Sql(_READ)
OPEN: Final = Sql(f"insert into background (name) values ('{_NAME}') on conflict do nothing")
SAVE: Final = Sql(
    f"""update background set cursor = :cursor, state = :state, done = done + :done,
        lease_by = :node, lease_us = :until_us where name = '{_NAME}'"""
)


@frozen
class _Row:
    """The row of a sweep, and who bit last: until when it is left to them."""

    sweep: Sweep
    node: str | None
    until_us: int

    def is_left_to_another(self, node: str, now_us: int) -> bool:
        """Return whether another node goes on with it; a clock that was set back says no."""
        return self.node not in (None, node) and now_us < self.until_us <= now_us + HELD_US


def _encode(sweep: Sweep) -> str:
    return json.dumps(asdict(sweep), separators=(",", ":"))


def _decode(text: str | None) -> Sweep:
    """Return the sweep that was stored; a kind of a later version is one that is over."""
    if text is None:
        return NO_SWEEP
    said: dict[str, Any] = json.loads(text)
    stage, place = said["stage"], said["place"]
    known = stage in {kind.value for kind in Kind}
    return evolve(
        Sweep(**said), stage=Kind(stage) if known else None, place=tuple(place) if known else START
    )


def _open_row(dialect: Dialect) -> Statements[_Row]:
    """Lock the row, which is made where there was none."""
    rows = yield READ()
    if not rows:
        yield OPEN()
        rows = yield READ()
    text, node, until_us = rows[0]
    return _Row(_decode(text), node, until_us or 0)


def _save(sweep: Sweep, done: int, node: str | None, now_us: int) -> Statements[None]:
    yield SAVE(
        cursor=_encode(sweep),
        state="running" if sweep.active else "ready",
        done=done,
        node=node,
        until_us=None if node is None else now_us + HELD_US,
    )


# --- The units ----------------------------------------------------------------------------------


@frozen
class TakeBite(Unit[Sweep | None]):
    """Go on with a sweep, or begin the one that is due, by one bite; the sweep behind it.

    None where none is due, or another node is at it.  At the stage of the trail nothing is done:
    whoever asked prunes it, and says so by `AdvanceTrail`.  `forced`: one is begun now, or gone on
    with whoever is at it.
    """

    node: str
    now_us: int
    periods: Periods
    forced: bool = False

    def statements(self, dialect: Dialect) -> Statements[Sweep | None | Undo[None]]:
        """Yield the lock of the row, the bite, and the row as it is then."""
        row = yield from _open_row(dialect)
        sweep = row.sweep
        if not self.forced and row.is_left_to_another(self.node, self.now_us):
            return Undo(None)
        if not sweep.active:
            if not (self.forced or sweep.is_due(self.now_us)):
                return Undo(None)
            sweep = sweep.begin(self.now_us)
        sweep = sweep.skip(self.periods)
        pruned = 0
        if sweep.stage is not None and sweep.stage is not Kind.TRAIL:
            old = Old(self.periods.before_us(sweep.stage, self.now_us), self.now_us)
            bite = yield from BITERS[sweep.stage](dialect, old, sweep.place)
            pruned = bite.pruned
            sweep = sweep.advance(pruned, bite.place).skip(self.periods)
        yield from _save(sweep, pruned, self.node, self.now_us)
        return sweep


@frozen
class AdvanceTrail(Unit[Sweep | None]):
    """Note that the trail was pruned by so many rows; None where the sweep is elsewhere by now."""

    node: str
    now_us: int
    begun_us: int
    pruned: int

    def statements(self, dialect: Dialect) -> Statements[Sweep | None | Undo[None]]:
        """Yield the lock of the row, and the row behind the trail."""
        sweep = (yield from _open_row(dialect)).sweep
        if not sweep.active or sweep.begun_us != self.begun_us or sweep.stage is not Kind.TRAIL:
            return Undo(None)
        sweep = sweep.advance(self.pruned, None)
        yield from _save(sweep, self.pruned, self.node, self.now_us)
        return sweep


@frozen
class EndSweep(Unit[Sweep | None]):
    """Note that a sweep has come to its end; None where another node was quicker."""

    begun_us: int
    now_us: int

    def statements(self, dialect: Dialect) -> Statements[Sweep | None | Undo[None]]:
        """Yield the lock of the row, and the row as it is kept."""
        sweep = (yield from _open_row(dialect)).sweep
        if not sweep.active or sweep.begun_us != self.begun_us or sweep.stage is not None:
            return Undo(None)
        sweep = sweep.end()
        yield from _save(sweep, 0, None, self.now_us)
        return sweep


@frozen
class FetchSweep(ReadUnit[Sweep]):
    """The sweep of the database as it stands."""

    def statements(self, dialect: Dialect) -> Statements[Sweep]:
        """Yield one read."""
        rows = yield LOOK()
        return _decode(rows[0][0]) if rows else NO_SWEEP


@frozen
class CountOld(ReadUnit[int]):
    """The number of rows of `kind`, which is not the trail, that a sweep would delete now.

    What goes with its session or its run does not count.
    """

    long: ClassVar[bool] = True

    kind: Kind
    periods: Periods
    now_us: int

    def statements(self, dialect: Dialect) -> Statements[int]:
        """Yield a count for each table."""
        return (yield from count_old(self.kind, self.periods, self.now_us))
