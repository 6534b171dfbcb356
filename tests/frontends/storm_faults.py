"""Faults to plant in the product, each of which breaks a promise that storms judge.

A fault replaces the text of a statement, or a function; what was there is back behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from typing import Any, Final

from attrs import evolve, frozen

from legation import node_state
from legation.api.call import Call
from legation.effects import FindDead, Program
from legation.runs.ids import new_id
from legation.store import inbox, leases, nodes, run_keeping, run_rows, run_steering, runs
from legation.store.units import Dialect, Sql, Statements
from legation_testing.performing import PERFORMERS

__all__ = ["FAULTS", "PlantedFault"]


SEEDS: Final = 1_000
"""So many seeds are enough for each of the faults: a tenth of what is promised."""


@contextmanager
def rewrite(statements: tuple[Sql, ...], old: str, new: str) -> Generator[None]:
    """Replace a part of the text that SQLite is given."""
    before = [statement.sqlite_text for statement in statements]
    try:
        for statement, text in zip(statements, before, strict=True):
            assert old in text, (old, text)
            object.__setattr__(statement, "sqlite_text", text.replace(old, new))
        yield
    finally:
        for statement, text in zip(statements, before, strict=True):
            object.__setattr__(statement, "sqlite_text", text)


@contextmanager
def replace(owner: Any, name: str, value: Any) -> Generator[None]:
    """Replace an attribute."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def name_all_dead() -> Generator[None]:
    """Let `FindDead` name all that it is asked for."""
    performers: Any = PERFORMERS
    before = performers[FindDead]

    def name_all(_: object, __: object, effect: FindDead) -> tuple[str, ...]:
        return effect.names

    performers[FindDead] = name_all
    try:
        yield
    finally:
        performers[FindDead] = before


def draw_id(call: Call, what: str) -> Program[str]:
    """Draw an id, also where the request has a key."""
    return (yield from new_id(call.now_us))


def advance_always(
    clock: nodes.ClusterClock, database_us: int, lease_us: int
) -> nodes.ClusterClock:
    """Count every time that passed as up-time."""
    passed = max(0, database_us - clock.seen_us)
    return evolve(clock, up_us=clock.up_us + passed, seen_us=database_us)


def behind_without_looking(feed: Any, after: int) -> Any:
    """Return what is held behind `after`, whatever is missing."""
    return tuple(event for event in feed.events if event.seq > after) or None


_beat = nodes.Beat.statements


def beat_by_own_clock(unit: nodes.Beat, dialect: Dialect) -> Statements[nodes.Beaten]:
    """Beat by the clock of the node in place of the database's."""
    statements = _beat(unit, dialect)
    ((*row, _),) = yield next(statements)
    answer: Any = [(*row, unit.now_us)]
    while True:
        try:
            statement = statements.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        answer = yield statement


@contextmanager
def together(
    one: AbstractContextManager[None], other: AbstractContextManager[None]
) -> Generator[None]:
    with one, other:
        yield


@frozen
class PlantedFault:
    """A fault, the storms that look for it, and the seed that was known to find it."""

    plant: Callable[[], AbstractContextManager[None]]
    known: int
    workloads: tuple[str, ...]
    faults: tuple[str, ...]

    def seeds(self) -> Iterator[int]:
        """Return the seeds to look with: the known one first."""
        return chain((self.known,), range(SEEDS))


_THERE: Final = leases.lapsed("runs").partition("and not ")[2].rstrip(")") + ")"
_BUSY: Final = leases.held("busy").replace("$CLOCK", leases._SQLITE_CLOCK)

FAULTS: Final = {
    "events are stored without a fence": PlantedFault(
        lambda: rewrite(
            (runs.ADVANCE,), f"and lease_by = :node and attempt = :attempt and {runs._GOES_ON}", ""
        ),
        44, ("runs",), ("stalls", "partitions"),
    ),
    "the end of a run claims the last that waits": PlantedFault(
        lambda: rewrite((runs.NEXT,), "order by run_no", "order by run_no desc"),
        2, ("runs",), ("kills",),
    ),
    "a claim of messages ignores what is under work": PlantedFault(
        lambda: rewrite((inbox.CLAIM,), _BUSY, "0"),
        162, ("messages",), ("kills", "stalls"),
    ),
    "the run of a message is not noted": PlantedFault(
        lambda: rewrite((inbox.ATTACH,), "set run_id = :run_id", "set run_id = run_id"),
        22, ("messages",), ("kills", "stalls", "lost answers", "refusals"),
    ),
    "a key does not name its run": PlantedFault(
        lambda: replace(Call, "new_id", draw_id),
        49, ("runs",), ("kills", "lost answers"),
    ),
    "a follower skips what a lost hint left out": PlantedFault(
        lambda: replace(node_state._Feed, "behind", behind_without_looking),
        261, ("runs", "followers"), ("hints",),
    ),
    "a cancellation forgets its wish": PlantedFault(
        lambda: rewrite((run_steering.ASK_TO_CANCEL,), "coalesce(cancel_us, :now_us)", "cancel_us"),
        174, ("runs", "cancels"), ("hints",),
    ),
    "a run is released in which something happened": PlantedFault(
        lambda: together(
            rewrite((run_keeping.RELEASE,), run_rows.UNTOUCHED, "1"),
            replace(run_rows.RunRow, "untouched", property(lambda row: True)),
        ),
        4, ("runs",), ("kills",),
    ),
    "an outage counts as up-time": PlantedFault(
        lambda: replace(nodes, "advance", advance_always),
        7, ("runs",), ("outages",),
    ),
    "a beat renews no lease": PlantedFault(
        lambda: rewrite((nodes._ENTER,), "until_us = excluded.until_us", "until_us = until_us"),
        0, ("runs",), ("hints",),
    ),
    "a lease does not ask for its node": PlantedFault(
        lambda: rewrite((run_keeping.ANY_EXPIRED, runs.FINISH), "not " + _THERE, "1"),
        0, ("runs",), ("kills",),
    ),
    "a node that is ahead buries the others": PlantedFault(
        lambda: together(
            replace(nodes.Beat, "statements", beat_by_own_clock),
            replace(nodes, "advance", advance_always),
        ),
        0, ("runs",), ("node clocks",),
    ),
    "the living are named dead": PlantedFault(
        name_all_dead,
        0, ("runs",), ("kills",),
    ),
    "a lease without a program never lapses": PlantedFault(
        lambda: rewrite((run_keeping.EXPIRE,), "where run_id", "where 0 and run_id"),
        234, ("runs",), ("lost answers", "refusals", "outages"),
    ),
}  # fmt: skip
"""By their names; the first eight are of promises that have no need of leases."""
