"""Every reachable state of two runs of one session on two nodes, over the real SQL on SQLite.

Breadth first: from each state every node tries every unit of work that it could, nodes stop, die
and start, the database is away or its clock is set, and the clocks of the nodes are wrong; states
that differ only in how long ago something was, or in which node is which, are one.  The search ends
when nothing new is found, so what it asserts holds for histories of any length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import pytest
from attrs import frozen

from legation.store.run_keeping import (
    ClaimWaiting,
    FindNeglected,
    Missed,
    ReleaseRun,
)
from legation.store.run_rows import ACTIVE_RUN, OF_A_CLIENT, ClaimedRun, RunLease, StoredEvent
from legation.store.run_states import MOVES, Moves, RunMove, RunState
from legation.store.run_steering import CancelRun
from legation.store.runs import (
    CLAIMED_SO,
    NEXT,
    OPEN_SESSION,
    OPEN_SESSION_OF_ANY,
    TOUCH_SESSION,
    AppendEvents,
    FinishRun,
    StartRun,
)
from legation.store.turns import ANY_WAITING, LOOK, LOOK_OF_ANY
from legation.store.units import Dialect

from ..one_database import Database
from ..run_moves import find_faults, moves_seen, watch_moves
from .cluster_model import CLOCKS, DEAD, NODES, START, ClusterState, Violation, cluster_actions
from .protocol_kit import CLOCK_TABLE, spoiling, with_clock

pytestmark = pytest.mark.enumeration

R = TypeVar("R")
Row: TypeAlias = tuple[Any, ...]
Held: TypeAlias = tuple[str, str, int]  # node, run, attempt

RUNS: Final = ("a", "b")
HOSTED: Final = ("agent:x",)
FINAL: Final = ("COMPLETED", "CANCELLED", "ERROR")
COLUMNS: Final = "run_id, run_no, status, events, attempt, lease_by, lease_us, cancel_us"
ID, NO, STATUS, EVENTS, ATTEMPT, LEASE_BY, LEASED, CANCELLED = range(8)
OF_ITS_NODE: Final = "nodes.node_id = runs.lease_by"
FENCE: Final = "and lease_by = :node and attempt = :attempt"


@frozen
class World:
    """The rows, what each node believes that it executes, and the nodes."""

    rows: tuple[Row, ...] = ()
    held: frozenset[Held] = frozenset()
    cluster: ClusterState = START

    @property
    def leased(self) -> frozenset[str]:
        """The nodes that leases name."""
        return frozenset(row[LEASE_BY] for row in self.rows if row[LEASE_BY] is not None)


def _same(world: World) -> World:
    """Return `world` with its nodes named so that it equals its mirror image."""
    swap = {"n1": "n2", "n2": "n1", None: None}
    mirror = World(
        tuple((*r[:LEASE_BY], swap[r[LEASE_BY]], *r[LEASE_BY + 1 :]) for r in world.rows),
        frozenset((str(swap[node]), run, attempt) for node, run, attempt in world.held),
        world.cluster.mirror(),
    )
    return min(world, mirror, key=lambda w: (repr(w.rows), sorted(w.held), repr(w.cluster)))


class Tables(Database):
    """Runs of one session, put there and read as a `World`."""

    def __init__(self, rewrite: Callable[[str], str] = str) -> None:
        super().__init__(rewrite=with_clock(Dialect.SQLITE, rewrite))
        self.ask(CLOCK_TABLE)

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
            self.connection.execute(
                f"insert into runs (owner, session_id, kind, component_id, input, created_us,"
                f" {COLUMNS}) values ('o', 's', 'agent', 'x', '{{}}', 0, {', '.join('?' * 8)})",
                row,
            )
        world.cluster.load(self)

    def world(self, held: frozenset[Held], cluster: ClusterState) -> World:
        """Return what there is."""
        found = self.connection.execute(f"select {COLUMNS} from runs order by run_no").fetchall()
        return World(tuple(_seen(row) for row in found), held, cluster)


def _seen(row: Row) -> Row:
    seen = list(row)
    seen[CANCELLED] = None if row[CANCELLED] is None else 1
    seen[EVENTS] = min(row[EVENTS], 1)  # whether anything has happened is all that is asked
    if row[STATUS] in FINAL:
        seen[ATTEMPT] = 0
    return tuple(seen)


def held_by(node: str, claim: ClaimedRun | None) -> frozenset[Held]:
    return frozenset() if claim is None else frozenset({(node, claim.run_id, claim.attempt)})


@frozen
class Scene:
    """What is searched: the runs that people start, and whether nodes stand still for a time."""

    runs: tuple[str, ...] = RUNS
    stops: bool = False


TWO_RUNS: Final = Scene()
ONE_RUN: Final = Scene(("a",), stops=True)


class Player:
    """Does one thing in one world, and judges what came of it."""

    def __init__(self, database: Tables, world: World, scene: Scene) -> None:
        self.database = database
        self.world = world
        self.scene = scene

    def actions(self) -> Iterator[tuple[str, Callable[[], World]]]:
        """Yield everything that may happen next; who stands still may yet write."""
        known = {row[ID] for row in self.world.rows}
        working = [node for node in NODES if self.world.cluster.member(node).works]
        for run in self.scene.runs:
            for node in working:
                if run not in known:
                    yield f"start {run} on {node}", partial(self.start, node, run)
            if run in known:
                yield f"cancel {run}", partial(self.cancel, run)
        for held in sorted(self.world.held):
            yield f"append {held}", partial(self.append, held)
            for status in ("COMPLETED", "CANCELLED"):
                yield f"finish {held} {status}", partial(self.finish, held, status)
        for node in working:
            yield f"recover on {node}", partial(self.recover, node)
            yield f"claim on {node}", partial(self.claim, node)
        for name, act in cluster_actions(
            self.world.cluster, self.world.leased, stops=self.scene.stops
        ):
            yield name, partial(self.change, act)

    def after(self, held: frozenset[Held]) -> World:
        return self.database.world(held, self.world.cluster)

    def change(self, act: Callable[[Tables], ClusterState]) -> World:
        """Do what befalls a node or the database; the dead forget what they held."""
        cluster = act(self.database)
        held = frozenset(h for h in self.world.held if cluster.member(h[0]).state != DEAD)
        return self.database.world(held, cluster)

    def start(self, node: str, run: str) -> World:
        unit = StartRun("o", "s", run, "agent", "x", "{}", "", node, CLOCKS[node])
        return self.after(self.world.held | held_by(node, self.database.run(unit).claim))

    def cancel(self, run: str) -> World:
        self.database.run(CancelRun("o", "s", run, CLOCKS["n1"], "{}", ("RunCancelled", "{}")))
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
        lease = RunLease(node, attempt)
        unit = AppendEvents("o", run, lease, CLOCKS[node], (StoredEvent(last, "e", "{}"),), last)
        wrote = self.database.run(unit) is not None
        self.judge(held, wrote=wrote)
        return self.after(self.world.held if wrote else self.world.held - {held})

    def ending(
        self, node: str, run: str, lease: RunLease, status: str, *, lapsed: bool = False
    ) -> FinishRun:
        last = (StoredEvent(self.row(run)[EVENTS] + 1, "e", "{}"),)
        return FinishRun(
            owner="o",
            session_id="s",
            run_id=run,
            lease=lease,
            node=node,
            now_us=CLOCKS[node],
            status=status,
            output="{}",
            reason=None,
            usage=None,
            events=last,
            hosted=HOSTED,
            lapsed=lapsed,
        )

    def finish(self, held: Held, status: str) -> World:
        node, run, attempt = held
        unit = self.ending(node, run, RunLease(node, attempt), status)
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
        """End or release what the dead have left, under their leases."""
        held = self.world.held
        for row in self.database.run(FindNeglected(HOSTED)).expired:
            if (row.lease.node, row.run_id, row.attempt) in held:
                self._judge_loss(row.lease.node, row.run_id)
            if row.events == 0 and row.cancel_us is None:
                self.database.run(ReleaseRun("o", row.run_id, row.lease, lapsed=True))
                continue
            unit = self.ending(node, row.run_id, row.lease, "ERROR", lapsed=True)
            held |= held_by(node, self.database.run(unit).following)
        return self.after(held)

    def _judge_loss(self, node: str, run: str) -> None:
        if self.world.cluster.member(node).works:
            raise Violation(f"{run} was taken from {node}, which lives and beats")

    def claim(self, node: str) -> World:
        claimed = self.database.run(ClaimWaiting(node, CLOCKS[node], HOSTED))
        assert not isinstance(claimed, Missed)
        return self.after(self.world.held | held_by(node, claimed))


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


def bring_to_end(database: Tables, world: World) -> None:
    """Check that a node that starts when all others are gone brings every run to its end."""
    alone = START.put("n2", state=DEAD, there=False)
    left = World(tuple(_without_node(row) for row in world.rows), frozenset(), alone)
    for _ in range(len(RUNS)):
        database.load(left)
        left = Player(database, left, TWO_RUNS).recover("n1")
        left = Player(database, left, TWO_RUNS).claim("n1")
        for held in sorted(left.held):
            player = Player(database, left, TWO_RUNS)
            wanted = player.row(held[1])[CANCELLED] is None
            left = player.finish(held, "COMPLETED" if wanted else "CANCELLED")
    if any(row[STATUS] not in FINAL for row in left.rows):
        raise Violation(f"never ends: {world}")


def _without_node(row: Row) -> Row:
    return tuple("n0" if n == LEASE_BY and value else value for n, value in enumerate(row))


def test_what_is_active_in_a_session_is_found_without_reading_what_is_over() -> None:
    database = Tables()
    indexes = {
        LOOK: {"runs_active", "runs_turn"},
        LOOK_OF_ANY: {"runs_active", "runs_leased", "runs_turn"},
        OPEN_SESSION: {"runs_active", "runs_turn"},
        OPEN_SESSION_OF_ANY: {"runs_active", "runs_leased", "runs_turn"},
        TOUCH_SESSION: {"runs_turn"},
        NEXT: {"runs_active", "runs_turn"},
        CLAIMED_SO: {"runs_active"},
        ANY_WAITING: {"runs_active", "runs_leased", "runs_turn"},
    }
    for sql, used in indexes.items():
        values = dict.fromkeys(sql.names, "[]")
        rows = database.connection.execute(f"explain query plan {sql.sqlite_text}", values)
        plan = "\n".join(row[3] for row in rows)
        assert set(re.findall(r"INDEX (runs_\w+)", plan)) == used, plan
        assert not re.search(r"SCAN (runs|r|a)\b(?! USING)", plan), plan


UNPAUSED: Final[Moves] = {
    state: {move: after for move, after in moves.items() if move is not RunMove.PAUSE}
    for state, moves in MOVES.items()
    if state is not RunState.PAUSED
}
"""The moves of runs that do not pause: here nobody waits for a person."""

EVERY: Final = 20
"""Of so many worlds, one is left to a new node, which has to bring every run to its end."""
MOST_ATTEMPTS: Final = 3  # a run may be released and claimed for ever; nothing new comes of it


def explore(database: Tables, scene: Scene) -> tuple[int, int]:
    """Try everything everywhere; return the number of states and of transitions."""
    seen, level, transitions = {World()}, [World()], 0
    while level:
        following: list[World] = []
        for place, world in enumerate(level):
            if place % EVERY == 0:
                bring_to_end(database, world)
            player = Player(database, world, scene)
            for name, act in player.actions():
                database.load(world)
                transitions += 1
                try:
                    after = act()
                    check(world, after)
                except Violation as violation:
                    violation.add_note(f"{name} in {world}")
                    raise
                after = _same(after)
                small = all(row[ATTEMPT] < MOST_ATTEMPTS for row in after.rows)
                if small and after not in seen:
                    seen.add(after)
                    following.append(after)
        level = following
    return len(seen), transitions


def test_no_run_ends_twice_or_is_executed_twice(figures: Callable[[str], None]) -> None:
    tables = Tables()
    watch_moves(tables.connection)
    states, transitions = explore(tables, TWO_RUNS)

    figures(f"runs: {states} states and {transitions} transitions of two runs on two nodes")
    assert states > 500
    # Whatever happens is a move of the table, and every move happens, but for those of a pause.
    assert find_faults(moves_seen(tables.connection), UNPAUSED) == []


def test_nor_where_nodes_stand_still_for_longer_than_a_lease(
    figures: Callable[[str], None],
) -> None:
    states, transitions = explore(Tables(), ONE_RUN)

    figures(f"runs: {states} states and {transitions} transitions of one run, nodes stand still")
    assert states > 500


@pytest.mark.parametrize(
    ("clause", "instead", "scene"),
    [
        (FENCE, "", ONE_RUN),
        ("and attempt = :attempt", "", ONE_RUN),
        (f"{ACTIVE_RUN} and {OF_A_CLIENT}),", "status = 'nothing'),", TWO_RUNS),
        (f"and not exists (select 1 from nodes where {OF_ITS_NODE})", "", TWO_RUNS),
        (f"and not exists (select 1 from nodes where {OF_ITS_NODE})", "and 1 = 0", TWO_RUNS),
    ],
    ids=["the fence", "its token", "what is active", "who lives", "who is dead"],
)
def test_without_a_clause_a_promise_is_broken(clause: str, instead: str, scene: Scene) -> None:
    spoil, found = spoiling(clause, instead)
    with pytest.raises(Violation):
        explore(Tables(rewrite=spoil), scene)
    assert found
