"""Every reachable state of the inbox's protocol, over the real SQL on SQLite.

Breadth first: from each state every action of every node is tried, nodes stop, die and start, the
database is away or its clock is set, and the clocks of the nodes are wrong; states that differ only
in what no statement can see (which node has which name, how long ago something was) are one.  The
search ends when nothing new is found, so what it asserts holds for histories of any length.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias, TypeVar

import pytest
from attrs import evolve, frozen

from legation.store.inbox import INBOX, CompleteMessage, FailMessage, NewMessage, PutMessages
from legation.store.leased_queue import ClaimItems, ItemKey, Lease
from legation.store.leases import is_held
from legation.store.letters import Retried, RetryDeadMessage
from legation.store.outbox import NewReply
from legation.store.units import Dialect

from .. import one_database
from .cluster_model import (
    AWAY,
    BACK,
    CLOCKS,
    DEAD,
    LEASE,
    NODES,
    NOW,
    START,
    ClusterState,
    Violation,
    cluster_actions,
)
from .protocol_kit import CLOCK_TABLE, spoiling, with_clock

pytestmark = pytest.mark.enumeration

R = TypeVar("R")
Row: TypeAlias = tuple[Any, ...]
Held: TypeAlias = tuple[str, str, int]  # node, message, token

MAX_ATTEMPTS: Final = 2
COLUMNS: Final = (
    "message_id, sender, state, received_us, position, ready_us, attempts, lease_by, lease_us"
)
ID, SENDER, STATE, RECEIVED, POSITION, READY, ATTEMPTS, LEASE_BY, LEASED = range(9)


@frozen
class World:
    """The rows, times relative to now; the leases nodes believe they have; what was answered.

    `retried` was revived by the operator; `late` was stored when a younger one was in work already.
    Neither can come before what is in work.
    """

    rows: tuple[Row, ...] = ()
    held: frozenset[Held] = frozenset()
    completed: frozenset[str] = frozenset()
    retried: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()
    cluster: ClusterState = START


@frozen
class Scene:
    """The deliveries that may come, each of (message, sender); with an operator or without.

    Attributes:
        stops: Nodes stand still for longer than a lease.
        aways: The database is away, or its clock is set.
    """

    deliveries: tuple[tuple[tuple[str, str], ...], ...]
    operator: bool = False
    stops: bool = False
    aways: bool = False


@frozen
class Action:
    """What somebody does: its name, and on what."""

    name: str
    subject: Any


class Database(one_database.Database):
    """Messages, put there and read; the clock is what a test says."""

    def __init__(self, rewrite: Callable[[str], str] = str) -> None:
        super().__init__(rewrite=with_clock(Dialect.SQLITE, rewrite))
        self.ask(CLOCK_TABLE)

    def load(self, rows: tuple[Row, ...]) -> None:
        """Be as `rows` say, whose times are relative to NOW."""
        self.connection.execute("delete from outbox")
        self.connection.execute("delete from inbox")
        self.connection.executemany(
            f"insert into inbox (channel, payload, {COLUMNS}) values ('c', '', {'?, ' * 8}?)",
            [_shifted(row, NOW) for row in rows],
        )

    def rows(self) -> tuple[Row, ...]:
        """Return the rows in the order of the lane."""
        text = f"select {COLUMNS} from inbox order by received_us, position, message_id"
        return tuple(self.connection.execute(text).fetchall())

    def answers(self) -> int:
        """Return how many replies there are."""
        (count,) = self.connection.execute("select count(*) from outbox").fetchone()
        return int(count)


def _shifted(row: Row, by: int) -> Row:
    return tuple(
        value + by if place in (RECEIVED, READY) else value for place, value in enumerate(row)
    )


def _seen(rows: tuple[Row, ...], now: int) -> tuple[Row, ...]:
    """Return `rows` as any statement from `now` on can tell them apart."""
    ages = sorted({row[RECEIVED] for row in rows if row[RECEIVED] < now}, reverse=True)
    rank = {received: -1 - place for place, received in enumerate(ages)}
    told: list[Row] = []
    for row in rows:
        new = list(row)
        new[RECEIVED] = rank.get(row[RECEIVED], 0)
        new[READY] = min(max(row[READY] - now, 0), 1)
        told.append(tuple(new))
    return tuple(told)


def _same(world: World) -> World:
    """Return `world` with its nodes named so that it equals its mirror image."""
    swap = {"n1": "n2", "n2": "n1", None: None}
    mirror = evolve(
        world,
        rows=tuple((*row[:LEASE_BY], swap[row[LEASE_BY]], row[LEASED]) for row in world.rows),
        held=frozenset((swap[node] or "", message, token) for node, message, token in world.held),
        cluster=world.cluster.mirror(),
    )
    return min(world, mirror, key=lambda w: (repr(w.rows), sorted(w.held), repr(w.cluster)))


def _actions(world: World, scene: Scene) -> Iterator[Action]:
    yield from (Action("put", delivery) for delivery in scene.deliveries)
    yield from (Action("claim", node) for node in NODES if world.cluster.member(node).works)
    yield from (Action(name, held) for held in sorted(world.held) for name in ("done", "fail"))
    yield Action("wait", 1)
    leased = frozenset(row[LEASE_BY] for row in world.rows if row[LEASE_BY] is not None)
    yield from (
        Action(name, act)
        for name, act in cluster_actions(
            world.cluster, leased, stops=scene.stops, aways=scene.aways
        )
    )
    if scene.operator:
        dead = [row[ID] for row in world.rows if row[STATE] == "dead"]
        yield from (Action("retry", message) for message in dead if not world.retried)


def _lease(held: Held) -> Lease:
    node, message, token = held
    return Lease(INBOX, ItemKey("c", message), node, token)


def _act(database: Database, world: World, action: Action) -> World:
    """Return the world behind `action`."""
    database.load(world.rows)
    world.cluster.load(database)
    match action:
        case Action("put", delivery):
            new = database.run(
                PutMessages("c", tuple(NewMessage(i, sender, "") for i, sender in delivery), NOW)
            )
            known = {row[ID] for row in world.rows}
            _check(set(new) == {i for i, _ in delivery} - known, "a duplicate was taken for new")
            world = evolve(world, late=world.late | _late(database.rows(), new))
        case Action("claim", node):
            world = _claim(database, world, node)
        case Action("wait", _):
            pass
        case Action("retry", message):
            retried = database.run(RetryDeadMessage("c", message))
            _check(retried == Retried(message=True, replies=0), "not revived")
            world = evolve(world, retried=world.retried | {message})
        case Action("done" | "fail" as name, held):
            world = _end(database, world, name, held)
        case Action(_, act):
            cluster: ClusterState = act(database)
            lives = {node for node in NODES if cluster.member(node).state != DEAD}
            held = frozenset(h for h in world.held if h[0] in lives)
            world = evolve(world, held=held, cluster=cluster)
    after = database.rows()
    _check(len(after) >= len(world.rows), "a message was lost")
    _check_lanes(after, world.cluster)
    return _same(evolve(world, rows=_seen(after, NOW + PASSED.get(action.name, 0))))


PASSED: Final = {"wait": 1, LEASE: 10, AWAY: 10, BACK: -10}
"""The actions that move the clock of the database."""


def _late(rows: tuple[Row, ...], new: tuple[str, ...]) -> frozenset[str]:
    return frozenset(
        row[ID]
        for place, row in enumerate(rows)
        if row[ID] in new and any(r[ATTEMPTS] and r[SENDER] == row[SENDER] for r in rows[place:])
    )


def _claim(database: Database, world: World, node: str, limit: int = 9) -> World:
    claimed = database.run(ClaimItems(INBOX, node, limit, MAX_ATTEMPTS))
    tokens = {(node, m.lease.key.item_id, m.lease.attempts) for m in claimed.items}
    rows = {row[ID]: row for row in world.rows}
    buried = evolve(world, rows=database.rows())  # the claim may have given up an older one
    for _, message, _ in tokens:
        _check(rows[message][STATE] == "ready", "what had ended was claimed")
        for other, theirs, token in world.held:
            lease = (rows[message][LEASE_BY], rows[message][ATTEMPTS])
            taken = theirs == message and lease == (other, token)
            _check(not (taken and world.cluster.member(other).works), "taken from a living node")
        _check(not _older(buried, message), "claimed out of order")
    return evolve(world, held=world.held | tokens)


def _end(database: Database, world: World, name: str, held: Held) -> World:
    """Complete or fail under a lease that may have been lost."""
    node, message, token = held
    row = next(row for row in world.rows if row[ID] == message)
    completed = world.completed
    if name == "done":
        replies = (NewReply(f"reply-{message}", "r", ""),)
        kept = database.run(CompleteMessage(_lease(held), CLOCKS[node], replies))
        _check(database.answers() == kept, "an answer without its completion")
        if kept:
            _check(message not in completed, "answered twice")
            _check(not _older(world, message), "answered out of order")
            completed |= {message}
    else:
        wait_us = None if token >= MAX_ATTEMPTS else 1
        kept = database.run(FailMessage(_lease(held), "it", wait_us, CLOCKS[node]))
    _check(not kept or row[ATTEMPTS] == token, "done under a lease that was lost")
    return evolve(world, held=world.held - {held}, completed=completed)


def _older(world: World, message: str) -> list[str]:
    """Return what must come before `message` and has not ended."""
    ids = [row[ID] for row in world.rows]
    place = ids.index(message)
    return [
        row[ID]
        for row in world.rows[:place]
        if row[STATE] == "ready"
        and row[SENDER] == world.rows[place][SENDER]
        and row[ID] not in world.retried | world.late
    ]


def _check(held: object, broken: str) -> None:
    if not held:
        raise Violation(broken)


def _check_lanes(rows: tuple[Row, ...], cluster: ClusterState) -> None:
    leased = [
        row[SENDER]
        for row in rows
        if row[STATE] == "ready" and row[LEASE_BY] and cluster.member(row[LEASE_BY]).there
    ]
    _check(len(leased) == len(set(leased)), "two messages of one sender at once")


def _ends(database: Database, world: World) -> bool:
    """Tell whether one node, when all others are gone, brings every message to its end."""
    database.load(world.rows)
    database.ask("delete from nodes")
    database.ask(
        "insert into nodes (node_id, started_us, beat_us, code_version, schema_version)"
        " values ('n9', 0, 0, '', '')"
    )
    for turn in range(1, 9):
        now = NOW + 10 * turn
        database.ask(f"update database_clock set now_us = {now}")
        claimed = database.run(ClaimItems(INBOX, "n9", 9, MAX_ATTEMPTS))
        for message in claimed.items:
            if not database.run(CompleteMessage(message.lease, now)):
                return False
    return all(row[STATE] in {"done", "dead"} for row in database.rows())


def search(scene: Scene, rewrite: Callable[[str], str] = str) -> str:
    """Walk every state of `scene`; the sentence says how many there were.

    Raises:
        Violation: With the shortest way to it.
    """
    database = Database(rewrite)
    start = World()
    paths: dict[World, tuple[Action, ...]] = {start: ()}
    level, transitions = [start], 0
    while level:
        found: list[World] = []
        for world in level:
            path = paths[world]
            if not _ends(database, world):
                raise Violation(f"never ends: {path}")
            for action in _actions(world, scene):
                transitions += 1
                try:
                    new = _act(database, world, action)
                except Violation as violation:
                    raise Violation(f"{violation} after {(*path, action)}") from None
                if new not in paths:
                    paths[new] = (*path, action)
                    found.append(new)
        level = found
    database.connection.close()
    return f"{len(paths)} states, {transitions} transitions, closed"


ONE: Final = Scene(((("a", "ada"),),), operator=True, stops=True, aways=True)
TOGETHER: Final = Scene(((("a", "ada"), ("b", "ada")),), aways=True)
APART: Final = Scene(((("a", "ada"),), (("b", "ada"),)))
REVIVED: Final = Scene(((("a", "ada"), ("b", "ada")),), operator=True)
SENDERS: Final = Scene(((("a", "ada"), ("b", "bob")),))


@pytest.mark.parametrize(
    "scene",
    [ONE, TOGETHER, APART, REVIVED, SENDERS],
    ids=[
        "one message and an operator",
        "two messages of one sender in one delivery",
        "two messages of one sender in two deliveries",
        "two messages of one sender and an operator",
        "two senders",
    ],
)
def test_no_history_answers_twice_breaks_the_order_or_loses_a_message(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    walked = search(scene)

    with capsys.disabled():
        sys.stdout.write(f"\n  inbox protocol: {walked}\n")


FENCE: Final = "and lease_by = :node and attempts = :attempts"
TOKEN: Final = "and attempts = :attempts"
OLDER: Final = "sender, received_us, position, message_id"
LIVES: Final = "exists (select 1 from nodes where nodes.node_id = busy.lease_by)"
BUSY: Final = is_held("busy").replace("$CLOCK", "(select now_us from database_clock)")


@pytest.mark.parametrize(
    ("clause", "instead", "scene", "broken"),
    [
        (f"and state = 'ready' {FENCE}", "", ONE, "done under a lease that was lost"),
        (FENCE, "", ONE, "done under a lease that was lost"),
        (TOKEN, "", ONE, "done under a lease that was lost"),
        (OLDER, "sender, received_us, position desc", TOGETHER, "claimed out of order"),
        (
            BUSY,
            f"busy.message_id = head.message_id and {BUSY}",
            REVIVED,
            "two messages of one sender at once",
        ),
        (BUSY, "busy.lease_us is not null", ONE, "never ends"),
        (LIVES, "1 = 0", ONE, "taken from a living node"),
        ("on conflict do nothing", "on conflict do update set state = 'ready'", ONE, "duplicate"),
    ],
    ids=[
        "no guard",
        "no fence",
        "no token",
        "no order",
        "no lane",
        "no rescue",
        "nobody lives",
        "no duplicates",
    ],
)
def test_every_clause_is_needed(clause: str, instead: str, scene: Scene, broken: str) -> None:
    spoil, found = spoiling(clause, instead)
    with pytest.raises(Violation, match=broken):
        search(scene, spoil)
    assert found
