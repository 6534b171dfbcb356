"""Every reachable state of two nodes and the clock of their database, over the real SQL.

Breadth first, on each engine: nodes beat, some late, one is stopped, time passes, the database is
away for long, its clock is set back.  The search ends when nothing new is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeAlias

import pytest
from attrs import evolve, frozen

from legation.store.nodes import BEATS, Beat, Beaten
from legation.store.units import Dialect

from ..one_database import Database
from .protocol_kit import CLOCK_TABLE, PostgresTables, spoiling, with_clock

pytestmark = pytest.mark.enumeration

BEAT: Final = 1_000_000
LEASE: Final = BEATS * BEAT
NOW: Final = 1_000 * BEAT  # by the database's clock
UP: Final = 500 * BEAT
AWAY, BACK = 200, -200
"""Beats that pass while the database is away; and by how many its clock is set back."""
SKEW: Final = {"n1": 10**10, "n2": -(10**10)}
"""By how much the clock of each node is wrong."""
NODES: Final = tuple(SKEW)
LONG_AGO: Final = BEATS + 2
MOST_MISSED: Final = 4
"""So often in a row a node that lives may find no time to beat when it could."""


class Violation(Exception):
    """A promise was broken."""


@frozen
class Node:
    """A node, as the database has it, and as it is.

    Attributes:
        left: How many beats of up-time its lease has left; None where it is not there.
        age: How many it has not beaten for; without session locks, whether a gap was since.
        missed: How often in a row it could have beaten and did not; an outage counts anew.
        stopped: It does nothing.
    """

    left: int | None = None
    age: int = 0
    missed: int = 0
    stopped: bool = False


@frozen
class World:
    """The nodes and the clock of their database.

    Attributes:
        passed: How many beats ago, by the database's own clock, somebody beat last.
        gap: How many beats of up-time ago the last gap was, where sessions hold locks.
    """

    nodes: tuple[Node, ...] = (Node(), Node())
    passed: int = AWAY
    gap: int = 0


Tables: TypeAlias = Database | PostgresTables
Action: TypeAlias = tuple[str, Callable[[], World]]


class Player:
    """Does one thing in one world, and judges what came of it."""

    def __init__(self, tables: Tables, world: World, *, session_locks: bool) -> None:
        self.tables = tables
        self.world = world
        self.session_locks = session_locks
        self.most_missed = 1 if session_locks else MOST_MISSED

    def actions(self) -> Iterator[Action]:
        """Yield everything that may happen next."""
        for place, node in enumerate(self.world.nodes):
            yield f"beat of {NODES[place]}", partial(self.beat, place)
            if node.left is not None and not node.stopped:
                yield f"stop of {NODES[place]}", partial(self.stop, place)
        if all(node.stopped or node.missed < self.most_missed for node in self.world.nodes):
            yield "time", partial(self.pass_time, 1)
            yield "the database is away", partial(self.pass_time, AWAY)
            yield "its clock is set back", partial(self.pass_time, BACK)

    def stop(self, place: int) -> World:
        return self._with(place, evolve(self.world.nodes[place], stopped=True, missed=0))

    def _with(self, place: int, node: Node) -> World:
        nodes = (*self.world.nodes[:place], node, *self.world.nodes[place + 1 :])
        return evolve(self.world, nodes=nodes)

    def pass_time(self, beats: int) -> World:
        """Let time pass in which every node that lives could have beaten, and none did."""
        passed = self.world.passed + beats
        nodes = tuple(
            node if node.stopped or node.left is None else evolve(node, missed=node.missed + 1)
            for node in self.world.nodes
        )
        known = passed if 0 <= passed <= 2 else BACK if passed < 0 else AWAY
        return World(nodes, known, self.world.gap)

    def load(self) -> None:
        """Have the rows of the world."""
        execute = self.tables.connection.execute
        execute(b"delete from nodes" if self._postgres else "delete from nodes")  # type: ignore[arg-type]
        seen = NOW - self.world.passed * BEAT
        gap = UP - self.world.gap * BEAT
        texts = [
            f"update database_clock set now_us = {NOW}",
            f"update cluster set up_us = {UP}, seen_us = {seen}, gap_us = {gap}, beats = 7",
        ]
        for name, node in zip(NODES, self.world.nodes, strict=True):
            if node.left is not None:
                texts.append(
                    "insert into nodes (node_id, started_us, beat_us, until_us, session_lock,"
                    f" code_version, schema_version) values ('{name}', 0, {UP - node.age * BEAT},"
                    f" {UP + node.left * BEAT}, {int(self.session_locks)}, '', '')"
                )
        for text in texts:
            execute(text.encode() if self._postgres else text)  # type: ignore[arg-type]

    @property
    def _postgres(self) -> bool:
        return isinstance(self.tables, PostgresTables)

    def beat(self, place: int) -> World:
        """Have the node beat, and look at what it found and left."""
        self.load()
        name = NODES[place]
        beaten: Beaten = self.tables.run(
            Beat(name, LEASE, NOW + SKEW[name], (), "", self.session_locks, "", "")
        )
        self._judge(place, beaten)
        ((gap,),) = self._ask("select (up_us - gap_us) from cluster")
        gap = min(int(gap // BEAT), LONG_AGO)
        nodes = (self._read(n, place, gap, found_gap=beaten.gap) for n in range(len(NODES)))
        return World(tuple(nodes), 0, gap if self.session_locks else 0)

    def _ask(self, text: str) -> list[Any]:
        execute = self.tables.connection.execute
        return execute(text.encode() if self._postgres else text).fetchall()  # type: ignore[arg-type]

    def _judge(self, place: int, beaten: Beaten) -> None:
        node, other = self.world.nodes[place], self.world.nodes[1 - place]
        if beaten.database_us != NOW or beaten.beats != 8:
            raise Violation(f"not the clock of the database: {beaten}")
        if (beaten.last_us is None) != (node.left is None):
            raise Violation(f"entered or not: {beaten}")
        if beaten.gap != (self.world.passed in (AWAY, BACK)):
            raise Violation(f"a gap or none: {beaten}")
        if beaten.buried and not other.stopped:
            raise Violation(f"{beaten.buried} lives, and was taken for dead")

    def _read(self, number: int, beat: int, gap: int, *, found_gap: bool) -> Node:
        before = self.world.nodes[number]
        text = f"""select until_us - up_us, up_us - beat_us from nodes cross join cluster
            where node_id = '{NODES[number]}'"""
        rows = self._ask(text)
        if not rows:
            return Node(stopped=before.stopped)
        left, age = (int(us // BEAT) for us in rows[0])
        age = min(age, LONG_AGO + 1) if self.session_locks else int(age > gap)
        if number == beat:
            return Node(left, age)
        was_renewed = found_gap and before.age <= self.world.gap
        missed = 0 if was_renewed else before.missed
        return evolve(before, left=left, age=age, missed=missed)


def explore(
    tables: Tables, most: int | None = None, *, session_locks: bool = False
) -> tuple[int, int]:
    """Try everything everywhere; return the number of states and of transitions."""
    seen, level, transitions = {World()}, [World()], 0
    while level and (most is None or len(seen) < most):
        following: list[World] = []
        for world in level:
            for name, act in Player(tables, world, session_locks=session_locks).actions():
                transitions += 1
                try:
                    after = act()
                except Violation as violation:
                    violation.add_note(f"{name} in {world}")
                    raise
                if after not in seen:
                    seen.add(after)
                    following.append(after)
            _check_end(tables, world, session_locks=session_locks)
        level = following
    return len(seen), transitions


def _check_end(tables: Tables, world: World, *, session_locks: bool) -> None:
    """Check that a node that stays silent is taken for dead while the other one beats."""
    if world.nodes[1].left is None or not world.nodes[1].stopped:
        return
    for passed in (1, AWAY):
        after = world
        for _ in range(BEATS + 3):
            player = Player(tables, after, session_locks=session_locks)
            after = Player(tables, player.beat(0), session_locks=session_locks).pass_time(passed)
        if after.nodes[1].left is not None:
            raise Violation(f"silent and never dead: {world}")


def in_sqlite(rewrite: Callable[[str], str] = str) -> Database:
    database = Database(rewrite=with_clock(Dialect.SQLITE, rewrite))
    database.connection.execute(CLOCK_TABLE)
    return database


def test_no_node_that_beats_is_taken_for_dead(figures: Callable[[str], None]) -> None:
    states, transitions = explore(in_sqlite())

    figures(f"nodes: {states} states and {transitions} transitions of two nodes and their clock")
    assert states > 500


def test_postgresql_goes_the_same_ways(
    postgres_database: str, figures: Callable[[str], None]
) -> None:
    tables = PostgresTables(postgres_database, with_clock(Dialect.POSTGRESQL))
    try:
        tables.connection.execute(CLOCK_TABLE.encode())
        found = explore(tables, most=100)
        locked = explore(tables, most=150, session_locks=True)
    finally:
        tables.close()

    figures(f"nodes: {found[1]} transitions on PostgreSQL, {locked[1]} with sessions that ended")
    assert found == explore(in_sqlite(), most=100)


@pytest.mark.parametrize(
    ("clause", "instead", "broken"),
    [
        ("where beat_us >= :before_us", "where 1 = 0", "taken for dead"),
        ("where beat_us >= :before_us", "where 1 = 1", "never dead"),
        ("(until_us < :up_us", "(until_us < :up_us + 4000000", "taken for dead"),
        ("(until_us < :up_us", "(until_us < 0", "never dead"),
    ],
    ids=["no new leases after a gap", "new leases for all", "leases too short", "no end of them"],
)
def test_without_a_clause_a_promise_is_broken(clause: str, instead: str, broken: str) -> None:
    spoil, found = spoiling(clause, instead)
    with pytest.raises(Violation, match=broken):
        explore(in_sqlite(spoil))
    assert found
