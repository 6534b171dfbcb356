"""Every reachable state of two runs of one session on two nodes, over the real SQL on SQLite.

Breadth first: from each state every node tries every unit of work that it could; states that differ
only in how long ago something was are one.  The search ends when nothing new is found, so what it
asserts holds for histories of any length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import pytest
from attrs import frozen

from legation.store.run_keeping import (
    RUNNING,
    ClaimWaiting,
    ExtendRunLeases,
    FindNeglected,
    ReleaseRun,
)
from legation.store.run_rows import ACTIVE_RUN, OF_A_CLIENT, ClaimedRun, RunLease, StoredEvent
from legation.store.run_states import MOVES, Moves, RunMove, RunState
from legation.store.run_steering import CancelRun
from legation.store.runs import ACTIVE, CLAIMED_SO, NEXT, AppendEvents, FinishRun, StartRun

from ..one_database import Database
from ..run_moves import find_faults, moves_seen, watch_moves
from .protocol_kit import spoiling

pytestmark = pytest.mark.enumeration

R = TypeVar("R")
Row: TypeAlias = tuple[Any, ...]
Held: TypeAlias = tuple[str, str, int]  # node, run, attempt

NODES: Final = ("n1", "n2")
RUNS: Final = ("a", "b")
LEASE: Final = 2
NOW: Final = 100
FINAL: Final = ("COMPLETED", "CANCELLED", "ERROR")
COLUMNS: Final = "run_id, run_no, status, events, attempt, lease_by, lease_us, cancel_us"
ID, NO, STATUS, EVENTS, ATTEMPT, LEASE_BY, LEASED, CANCELLED = range(8)
FENCE: Final = "and lease_by = :node and attempt = :attempt"


class Violation(Exception):
    """A promise was broken."""


@frozen
class World:
    """The rows, leases relative to now, and what each node believes that it executes."""

    rows: tuple[Row, ...] = ()
    held: frozenset[Held] = frozenset()


class Tables(Database):
    """Runs of one session, put there and read as a `World`."""

    def load(self, world: World) -> None:
        """Be as `world` says."""
        for table in ("events", "runs", "sessions"):
            self.connection.execute(f"delete from {table}")
        if world.rows:
            self.connection.execute(
                "insert into sessions (owner, session_id, kind, component_id, runs, created_us,"
                " updated_us) values ('o', 's', 'agent', 'x', ?, 0, 0)",
                (len(world.rows),),
            )
        for row in world.rows:
            run = list(row)
            run[LEASED] = None if row[LEASED] is None else row[LEASED] + NOW
            self.connection.execute(
                f"insert into runs (owner, session_id, kind, component_id, input, created_us,"
                f" {COLUMNS}) values ('o', 's', 'agent', 'x', '', 0, {', '.join('?' * 8)})",
                run,
            )

    def world(self, now: int, held: frozenset[Held]) -> World:
        """Return what there is; a lease that has passed is as old as any other that has."""
        found = self.connection.execute(f"select {COLUMNS} from runs order by run_no").fetchall()
        return World(tuple(_seen(row, now) for row in found), held)


def _seen(row: Row, now: int) -> Row:
    seen = list(row)
    seen[LEASED] = None if row[LEASED] is None else max(-1, row[LEASED] - now)
    seen[CANCELLED] = None if row[CANCELLED] is None else 1
    seen[EVENTS] = min(row[EVENTS], 1)  # whether anything has happened is all that is asked
    if row[STATUS] in FINAL:
        seen[ATTEMPT] = 0
    return tuple(seen)


def held_by(node: str, claim: ClaimedRun | None) -> frozenset[Held]:
    return frozenset() if claim is None else frozenset({(node, claim.run_id, claim.attempt)})


class Player:
    """Does one thing in one world, and judges what came of it."""

    def __init__(self, database: Tables, world: World) -> None:
        self.database = database
        self.world = world

    def actions(self) -> Iterator[tuple[str, Callable[[], World]]]:
        """Yield everything that may happen next."""
        known = {row[ID] for row in self.world.rows}
        for run in RUNS:
            for node in NODES:
                if run not in known:
                    yield f"start {run} on {node}", partial(self.start, node, run)
            if run in known:
                yield f"cancel {run}", partial(self.cancel, run)
        for held in sorted(self.world.held):
            yield f"append {held}", partial(self.append, held)
            for status in ("COMPLETED", "CANCELLED"):
                yield f"finish {held} {status}", partial(self.finish, held, status)
        for node in NODES:
            yield f"recover on {node}", partial(self.recover, node)
            yield f"claim on {node}", partial(self.claim, node)
            yield f"beat of {node}", partial(self.beat, node)
            yield f"death of {node}", partial(self.die, node)
        yield "time", lambda: self.database.world(NOW + LEASE + 1, self.world.held)

    def after(self, held: frozenset[Held]) -> World:
        return self.database.world(NOW, held)

    def start(self, node: str, run: str) -> World:
        unit = StartRun("o", "s", run, "agent", "x", "{}", "", node, NOW, NOW + LEASE)
        return self.after(self.world.held | held_by(node, self.database.run(unit).claim))

    def cancel(self, run: str) -> World:
        self.database.run(CancelRun("o", "s", run, NOW, "{}", ("RunCancelled", "{}")))
        return self.after(self.world.held)

    def row(self, run: str) -> Row:
        return next(row for row in self.world.rows if row[ID] == run)

    def judge(self, held: Held, *, wrote: bool) -> None:
        row = self.row(held[1])
        if wrote and (row[STATUS], row[LEASE_BY], row[ATTEMPT]) != ("RUNNING", held[0], held[2]):
            raise Violation(f"{held} wrote to {row}")

    def append(self, held: Held) -> World:
        node, run, attempt = held
        last = self.row(run)[EVENTS] + 1
        lease = RunLease(node, attempt, NOW + LEASE)
        unit = AppendEvents("o", run, lease, NOW, (StoredEvent(last, "e", "{}"),))
        wrote = self.database.run(unit) is not None
        self.judge(held, wrote=wrote)
        return self.after(self.world.held if wrote else self.world.held - {held})

    def ending(self, node: str, run: str, lease: RunLease, status: str, expired: int | None) -> Any:
        last = (StoredEvent(self.row(run)[EVENTS] + 1, "e", "{}"),)
        return FinishRun(
            owner="o",
            session_id="s",
            run_id=run,
            lease=lease,
            node=node,
            now_us=NOW,
            until_us=NOW + LEASE,
            status=status,
            output="{}",
            reason=None,
            usage=None,
            events=last,
            expired_us=expired,
        )

    def finish(self, held: Held, status: str) -> World:
        node, run, attempt = held
        unit = self.ending(node, run, RunLease(node, attempt), status, None)
        ended = self.database.run(unit)
        self.judge(held, wrote=ended.kept)
        again = self.database.run(unit)
        if ended.kept and again != ended:
            raise Violation(f"{held} ended and found {again}")
        if ended.kept and status == "CANCELLED" and self.row(run)[CANCELLED] is None:
            raise Violation(f"{held} was cancelled, and nobody asked for it")
        if ended.cancel_unasked:
            return self.finish(held, "ERROR")
        return self.after((self.world.held - {held}) | held_by(node, ended.following))

    def recover(self, node: str) -> World:
        held = self.world.held
        for row in self.database.run(FindNeglected(NOW)).expired:
            if row.events == 0 and row.cancel_us is None:
                self.database.run(ReleaseRun("o", row.run_id, row.lease, NOW))
                continue
            unit = self.ending(node, row.run_id, row.lease, "ERROR", NOW)
            held |= held_by(node, self.database.run(unit).following)
        return self.after(held)

    def claim(self, node: str) -> World:
        claimed = self.database.run(ClaimWaiting(node, NOW, NOW + LEASE))
        return self.after(self.world.held | held_by(node, claimed))

    def beat(self, node: str) -> World:
        runs = tuple(sorted({run for who, run, _ in self.world.held if who == node}))
        self.database.run(ExtendRunLeases(node, runs, NOW + LEASE))
        return self.after(self.world.held)

    def die(self, node: str) -> World:
        return self.after(frozenset(held for held in self.world.held if held[0] != node))


def check(before: World, after: World) -> None:
    """Raise when `after` cannot follow: a final state stays, and one run of a session is active."""
    ends = {row[ID]: row[STATUS] for row in after.rows}
    for row in before.rows:
        if row[STATUS] in FINAL and ends[row[ID]] != row[STATUS]:
            raise Violation(f"{row} became {ends[row[ID]]}")
    if sum(row[STATUS] == "RUNNING" for row in after.rows) > 1:
        raise Violation(f"two at once: {after.rows}")
    if [row[NO] for row in after.rows] != list(range(1, len(after.rows) + 1)):
        raise Violation(f"not numbered densely: {after.rows}")


def test_what_is_active_in_a_session_is_found_without_reading_what_is_over() -> None:
    database = Tables()
    values: dict[str, Any] = dict.fromkeys(("owner", "session_id", "node", "now_us", "until_us"), 1)
    for sql in (ACTIVE, RUNNING, NEXT, CLAIMED_SO):
        plan = database.connection.execute(
            f"explain query plan {sql.sqlite_text}", values
        ).fetchall()
        assert any("INDEX runs_active" in row[3] for row in plan), sql.text


UNPAUSED: Final[Moves] = {
    state: {move: after for move, after in moves.items() if move is not RunMove.PAUSE}
    for state, moves in MOVES.items()
    if state is not RunState.PAUSED
}
"""The moves of runs that do not pause: here nobody waits for a person."""

MOST_ATTEMPTS: Final = 3  # a run may be released and claimed for ever; nothing new comes of it


def explore(database: Tables) -> tuple[int, int]:
    """Try everything everywhere; return the number of states and of transitions."""
    seen, level, transitions = {World()}, [World()], 0
    while level:
        following: list[World] = []
        for world in level:
            player = Player(database, world)
            for name, act in player.actions():
                database.load(world)
                transitions += 1
                try:
                    after = act()
                    check(world, after)
                except Violation as violation:
                    violation.add_note(f"{name} in {world}")
                    raise
                small = all(row[ATTEMPT] < MOST_ATTEMPTS for row in after.rows)
                if small and after not in seen:
                    seen.add(after)
                    following.append(after)
        level = following
    return len(seen), transitions


def test_no_run_ends_twice_or_is_executed_twice(figures: Callable[[str], None]) -> None:
    tables = Tables()
    watch_moves(tables.connection)
    states, transitions = explore(tables)

    figures(f"runs: {states} states and {transitions} transitions of two runs on two nodes")
    assert states > 500
    # Whatever happens is a move of the table, and every move happens, but for those of a pause.
    assert find_faults(moves_seen(tables.connection), UNPAUSED) == []


@pytest.mark.parametrize(
    ("clause", "instead"),
    [
        (FENCE, ""),
        ("and attempt = :attempt", ""),
        (f"{ACTIVE_RUN} and {OF_A_CLIENT} limit 1", "status = 'nothing' limit 1"),
    ],
    ids=["the fence", "its token", "what is active"],
)
def test_without_a_clause_a_promise_is_broken(clause: str, instead: str) -> None:
    spoil, found = spoiling(clause, instead)
    with pytest.raises(Violation):
        explore(Tables(rewrite=spoil))
    assert found
