"""Every reachable state of a run that pauses for a person, over the real SQL on each engine.

Breadth first, as in `test_runs_protocol`: two nodes, a run that wants a tool called that somebody
has to confirm, another run of the same session, and people who confirm, confirm at once a second
time, and cancel.  Everything that can follow is tried everywhere, a commit without an answer and
the death of a node among it.  The tool is called by whoever has stored that it is about to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import pytest
from attrs import evolve, frozen

from legation.store.leases import FOREVER
from legation.store.run_keeping import ClaimWaiting, FindNeglected, ReleaseRun
from legation.store.run_rows import RECORDED_MARK, ClaimedRun, RunLease, RunRow, StoredEvent
from legation.store.run_states import MOVES
from legation.store.run_steering import CancelRun, ContinueRun
from legation.store.runs import AppendEvents, Ended, FinishRun, StartRun
from legation.store.units import Dialect

from ..run_moves import find_faults, moves_seen, watch_moves
from .cluster_model import (
    AWAY_US,
    BACK_US,
    CLOCKS,
    NODES,
    NOW,
    START,
    STOPPED,
    ClusterState,
    Violation,
)
from .protocol_kit import (
    CLOCK_TABLE,
    PostgresTables,
    SqliteTables,
    StoredRun,
    Tables,
    spoiling,
    with_clock,
)
from .release_before import (
    VERSION,
    Append260,
    Claim260,
    Continue260,
    FindExpired260,
    Finish260,
    Release260,
    Start260,
)

pytestmark = pytest.mark.enumeration

HOSTED: Final = ("agent:x",)
ASKED: Final = "{}"
KEPT: Final = '{"counted":2}'
ANSWERED: Final = '{"answered":{}}'
FINAL: Final = ("COMPLETED", "CANCELLED", "ERROR")
MOST_ATTEMPTS: Final = {"a": 3, "b": 1}  # claims; more of them lead to nothing new
TOKENS: Final = ("t1", "t2")


@frozen
class Held:
    """A run that a node believes it executes; `begun`: it has stored an event of this claim.

    `resumes`: it goes on after a crash, and reads the steps first.
    """

    node: str
    run: str
    attempt: int
    goes_on: bool
    begun: bool = False
    resumes: bool = False


@frozen
class Wish:
    """Somebody's answer, to the pause of an attempt.

    At `node` it was stored, and no answer came to the commit: there it is asked for again.
    """

    token: str
    attempt: int
    node: str | None = None
    spent: bool = False


@frozen
class World:
    """The rows, leases relative to now; what the nodes and the people are about."""

    rows: tuple[StoredRun, ...] = ()
    held: frozenset[Held] = frozenset()
    wishes: frozenset[Wish] = frozenset()
    called: int = 0  # how often the tool was
    there: bool = True  # n1 has not been silent for a lease


def row_of(world: World, run: str) -> StoredRun | None:
    return next((row for row in world.rows if row.run_id == run), None)


class Player:
    """Does one thing in one world, and judges what came of it.

    The node `before` is one of the release before.  Unless it `resumes`, a run in which something
    has happened is given up when its node dies.
    """

    def __init__(
        self, tables: Tables, world: World, before: str = "", *, resumes: bool = False
    ) -> None:
        self.tables = tables
        self.world = world
        self.before = before
        self.resumes = resumes

    def actions(self) -> Iterator[tuple[str, Callable[[], World]]]:
        """Yield everything that may happen next."""
        paused = row_of(self.world, "a")
        for run in ("a", "b"):
            if row_of(self.world, run) is None and self.world.there:
                yield f"start {run}", partial(self.start, run)
        if paused is not None:
            yield "cancel a", self.cancel
            if paused.status == "PAUSED":
                for token in TOKENS:
                    if token not in {wish.token for wish in self.world.wishes}:
                        yield f"{token} answers", partial(self.answer, token, paused.attempt)
        for wish in sorted(self.world.wishes, key=repr):
            for node in () if wish.spent else NODES[TOKENS.index(wish.token) :]:
                if wish.node in (None, node):
                    yield f"{wish} at {node}", partial(self.go_on, wish, node, lost=False)
                if wish.node is None and wish.token == TOKENS[0]:
                    yield f"{wish} at {node}, lost", partial(self.go_on, wish, node, lost=True)
        for held in sorted(self.world.held, key=repr):
            if held.run == "a":
                yield f"{held} begins", partial(self.begin, held)
            pauses = held.run == "a" and not held.goes_on
            status = "PAUSED" if pauses else "COMPLETED"
            yield f"{held} ends {status}", partial(self.finish, held, status)
            if held.resumes:
                yield f"{held} fails", partial(self.finish, held, "ERROR")
        if not self.before:
            yield "the database is away", partial(self.interrupt, AWAY_US)
            yield "its clock is set back", partial(self.interrupt, BACK_US)
        if not self.world.there:
            yield "beat of n1", self.return_node
        # n1 dies, and n2 finds what it left.
        yield "recovery on n2", partial(self.recover, "n2")
        yield "claim on n2", partial(self.claim, "n2")
        yield "death of n1", partial(self.die, "n1")
        yield "time", self.pass_time

    def after(self, held: frozenset[Held], **changes: Any) -> World:
        rows = tuple(_seen(row, NOW) for row in self.tables.rows())
        return evolve(self.world, rows=rows, held=held, **changes)

    def claimed(
        self, node: str, claim: ClaimedRun | None, before: frozenset[Held] | None = None
    ) -> frozenset[Held]:
        """Return what is held, with a claim that nobody may have been given before."""
        already = self.world.held if before is None else before
        if claim is None:
            return already
        row = next(row for row in self.tables.rows() if row.run_id == claim.run_id)
        if row.status != "RUNNING":
            raise Violation(f"{node} was given {row}")
        mine = Held(
            node,
            claim.run_id,
            claim.attempt,
            goes_on=row.input == ANSWERED,
            resumes=node != self.before and row.reason == RECORDED_MARK,
        )
        for held in already:
            if (held.node, held.run, held.attempt) == (node, claim.run_id, claim.attempt):
                raise Violation(f"{mine} was claimed twice")
        return already | {mine}

    def start(self, run: str) -> World:
        if self.before == "n1":
            old = Start260("o", "s", run, "agent", "x", ASKED, "n1", CLOCKS["n1"])
            return self.after(self.claimed("n1", self.tables.run(old)))
        unit = StartRun("o", "s", run, "agent", "x", ASKED, "", "n1", CLOCKS["n1"])
        return self.after(self.claimed("n1", self.tables.run(unit).claim))

    def cancel(self) -> World:
        self.tables.run(CancelRun("o", "s", "a", NOW, "{}", ("RunCancelled", "{}")))
        return self.after(self.world.held)

    def answer(self, token: str, attempt: int) -> World:
        return self.after(self.world.held, wishes=self.world.wishes | {Wish(token, attempt)})

    def go_on(self, wish: Wish, node: str, *, lost: bool) -> World:
        """Store the answer; of one that was lost, the same process asks again what became of it."""
        answer = ("o", "s", "a", wish.attempt, ANSWERED, wish.token, node, CLOCKS[node], HOSTED)
        old = node == self.before
        continued = self.tables.run(Continue260(*answer) if old else ContinueRun(*answer))
        others = self.world.wishes - {wish}
        if lost and continued.kept:
            return self.after(self.world.held, wishes=others | {evolve(wish, node=node)})
        spent = others | {evolve(wish, spent=True)}  # nobody answers with the same token again
        return self.after(self.claimed(node, continued.claim), wishes=spent)

    def begin(self, held: Held) -> World:
        """Store that the tool is about to be called, and call it."""
        row = next(row for row in self.world.rows if row.run_id == held.run)
        lease = RunLease(held.node, held.attempt)
        event = StoredEvent(row.events + 1, "ToolCallStarted", "{}")
        asked = self.tables.run(
            Append260("o", held.run, lease, CLOCKS[held.node], (event,))
            if held.node == self.before
            else AppendEvents("o", held.run, lease, CLOCKS[held.node], (event,), event.seq)
        )
        if asked is None:
            return self.after(self.world.held - {held})
        if asked:
            return self._end(held, "CANCELLED", row.events + 2)
        known = held.begun or (held.resumes and self.world.called)  # from the steps
        calls = int(held.run == "a" and held.goes_on and not known)
        called = self.world.called + calls
        if called > 1:
            raise Violation(f"{held} called the tool a second time")
        begun = self.world.held - {held} | {evolve(held, begun=True)}
        return self.after(begun, called=called)

    def finish(self, held: Held, status: str) -> World:
        row = next(row for row in self.world.rows if row.run_id == held.run)
        return self._end(held, status, row.events + 1)

    def _end(self, held: Held, status: str, seq: int) -> World:
        unit = self.ending(held.node, held.run, RunLease(held.node, held.attempt), status, seq)
        ended = self.tables.run(unit)
        again = self.tables.run(unit)
        if ended.kept and again != ended:
            raise Violation(f"{held} ended and found {again}")
        if ended.cancel_asked:
            return self._end(held, "CANCELLED", seq)
        left = self.world.held - {held}
        return self.after(self.claimed(held.node, ended.following, left))

    def ending(
        self,
        node: str,
        run: str,
        lease: RunLease,
        status: str,
        seq: int,
        *,
        lapsed: bool = False,
    ) -> FinishRun | Finish260:
        if node == self.before:
            return Finish260(
                owner="o",
                session_id="s",
                run_id=run,
                lease=lease,
                node=node,
                now_us=CLOCKS[node],
                status=status,
                events=(StoredEvent(seq, "e", "{}"),),
                hosted=HOSTED,
                lapsed=lapsed,
                input=KEPT if status == "PAUSED" else None,
            )
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
            events=(StoredEvent(seq, "e", "{}"),),
            hosted=HOSTED,
            lapsed=lapsed,
            input=KEPT if status == "PAUSED" else None,
        )

    def recover(self, node: str) -> World:
        held = self.world.held
        old = node == self.before
        for row in self.tables.run(FindExpired260()) if old else self._find_expired():
            waits = row.untouched or (self.resumes and row.is_recorded)
            if waits and row.cancel_us is None:
                lease = ("o", row.run_id, row.lease, True)
                self.tables.run(Release260(*lease) if old else ReleaseRun(*lease))
                continue
            unit = self.ending(node, row.run_id, row.lease, "ERROR", row.events + 1, lapsed=True)
            ended = self.tables.run(unit)
            held = self.claimed(node, ended.following, held)
        return self.after(held)

    def _find_expired(self) -> tuple[RunRow, ...]:
        return self.tables.run(FindNeglected(HOSTED)).expired

    def claim(self, node: str) -> World:
        if node == self.before:
            claimed = self.tables.run(Claim260(node, CLOCKS[node], HOSTED))
        else:
            own = self.tables.run(ClaimWaiting(node, CLOCKS[node], HOSTED))
            claimed = own if isinstance(own, ClaimedRun) else None
        return self.after(self.claimed(node, claimed))

    def die(self, node: str) -> World:
        """Lose what `node` was about: its runs, and the answers that it was asked to store."""
        held = frozenset(one for one in self.world.held if one.node != node)
        wishes = frozenset(
            evolve(wish, spent=True) if wish.node == node else wish for wish in self.world.wishes
        )
        return self.after(held, wishes=wishes)

    def pass_time(self) -> World:
        """Let a lease pass, in which n1 is silent."""
        START.put("n1", state=STOPPED, there=self.world.there).outlast(self.tables)
        rows = tuple(_seen(row, NOW) for row in self.tables.rows())
        return evolve(self.world, rows=rows, there=False)

    def return_node(self) -> World:
        START.put("n1", there=False).beat(self.tables, "n1")
        return evolve(self.world, there=True)

    def interrupt(self, passed: int) -> World:
        """Have the database away, or its clock set; n2 is the first to beat after that."""
        state = evolve(nodes_of(self.world), passed=passed)
        state.load(self.tables)
        after = state.beat(self.tables, "n2")
        if after.member("n1").there != self.world.there:
            raise Violation("n1 was taken for dead")
        return self.world


def enter_before(tables: Tables, before: str) -> None:
    """Have the node of the release before say so, if it is there."""
    tables.ask(f"update nodes set schema_version = '{VERSION}' where node_id = '{before}'")


def nodes_of(world: World) -> ClusterState:
    return START.put("n1", there=world.there)


def _seen(row: StoredRun, now: int) -> StoredRun:
    """Return `row` with times relative to `now`; what nothing asks for is the same everywhere."""
    final = row.status in FINAL
    return evolve(
        row,
        lease_us=row.lease_us if row.lease_us in (None, FOREVER) else max(-1, row.lease_us - now),
        cancel_us=None if row.cancel_us is None or final else 1,
        started_us=None if row.started_us is None else 0,
        ended_us=None if row.ended_us is None else 0,
        created_us=0,
        output=None,
        events=min(row.events, 1),
        attempt=0 if final else row.attempt,
        reason=None if final else row.reason,
        token=None if final else row.token,
        tries=0,  # how often is not counted here
        recorded=row.recorded if row.recorded == row.attempt and not final else -1,
    )


def check(before: World, after: World) -> None:
    """Raise when `after` cannot follow."""
    for row in before.rows:
        now = row_of(after, row.run_id)
        assert now is not None
        if row.status in FINAL and now.status != row.status:
            raise Violation(f"{row.run_id} was {row.status} and is {now.status}")
        if row.cancel_us is not None and now.status == "PAUSED":
            raise Violation(f"{row.run_id} was to be cancelled, and waits for a person")
    if sum(row.status == "RUNNING" for row in after.rows) > 1:
        raise Violation(f"two at once: {after.rows}")


def explore(
    tables: Tables, most: int | None = None, before: str = "", *, resumes: bool = False
) -> tuple[int, int, set[str]]:
    """Try everything everywhere; return how many states and transitions, and what became of a."""
    seen, level, transitions, ends = {World()}, [World()], 0, set[str]()
    while level and (most is None or len(seen) < most):
        following: list[World] = []
        for world in level:
            for name, act in list(Player(tables, world, before, resumes=resumes).actions()):
                tables.load(world.rows, NOW)
                nodes_of(world).load(tables)
                enter_before(tables, before)
                transitions += 1
                try:
                    after = act()
                    check(world, after)
                except Violation as violation:
                    violation.add_note(f"{name} in {world}")
                    raise
                small = all(row.attempt <= MOST_ATTEMPTS[row.run_id] for row in after.rows)
                if small and after not in seen:
                    seen.add(after)
                    following.append(after)
                    ends |= {f"{row.status} {after.called}" for row in after.rows}
        level = following
    return len(seen), transitions, ends


def in_sqlite(rewrite: Callable[[str], str] = str) -> SqliteTables:
    tables = SqliteTables(rewrite=with_clock(Dialect.SQLITE, rewrite))
    tables.ask(CLOCK_TABLE)
    return tables


def test_a_confirmed_tool_is_called_at_most_once(figures: Callable[[str], None]) -> None:
    tables = in_sqlite()
    watch_moves(tables.connection)
    states, transitions, ends = explore(tables)

    figures(
        f"continue: {states} states and {transitions} transitions, the tool called once at most"
    )
    # Whatever happens is a move of the table, and every move of the table happens.
    assert find_faults(moves_seen(tables.connection), MOVES) == []
    assert {"COMPLETED 1", "CANCELLED 0", "CANCELLED 1", "ERROR 1", "PENDING 0"} <= ends
    assert states > 500


def test_postgresql_goes_the_same_ways(
    postgres_database: str, figures: Callable[[str], None]
) -> None:
    tables = PostgresTables(postgres_database, with_clock(Dialect.POSTGRESQL))
    try:
        tables.ask(CLOCK_TABLE)
        found = explore(tables, most=150)
    finally:
        tables.close()

    figures(f"continue: {found[1]} transitions on PostgreSQL")
    assert found == explore(in_sqlite(), most=150)


MOST: Final = 3_000 if "LEGATION_NIGHTLY" in os.environ else 1_200
"""So many states, of the nearest: those of runs that are resumed are too many to see them all."""


def test_a_run_that_is_resumed_calls_it_at_most_once(figures: Callable[[str], None]) -> None:
    states, transitions, ends = explore(in_sqlite(), MOST, resumes=True)

    figures(f"continue, resumed: {states} states, {transitions} transitions")
    assert {"COMPLETED 1", "CANCELLED 0", "CANCELLED 1", "PENDING 0", "PENDING 1"} <= ends


@pytest.mark.parametrize("before", NODES)
def test_beside_a_node_of_the_release_before_it_is_called_at_most_once(
    before: str, figures: Callable[[str], None]
) -> None:
    """It knows no steps: what it executed ends, and what has to go on is kept from it."""
    states, transitions, ends = explore(in_sqlite(), MOST, before, resumes=True)

    figures(f"continue, {before} of the release before: {states} states, {transitions} transitions")
    assert {"COMPLETED 1", "CANCELLED 0", "CANCELLED 1", "ERROR 1", "PENDING 0"} <= ends


@pytest.mark.parametrize(
    ("clause", "instead"),
    [
        ("and lease_by = :node and attempt = :attempt", ""),
        (", reason = null", ""),
        ("and (:status <> 'PAUSED' or cancel_us is null)", ""),
    ],
    ids=["the fence", "what has happened", "the wish to cancel"],
)
def test_without_a_clause_a_promise_is_broken(clause: str, instead: str) -> None:
    spoil, found = spoiling(clause, instead)
    with pytest.raises(Violation):
        explore(in_sqlite(spoil))
    assert found


def test_who_asks_again_after_an_end_does_not_take_what_was_continued_meanwhile() -> None:
    tables = in_sqlite()
    player = Player(tables, World())
    player.start("a")
    tables.run(player_end("a", "PAUSED"))
    player.start("b")
    end = player_end("b", "COMPLETED")
    assert tables.run(end).following is None
    continued = tables.run(ContinueRun("o", "s", "a", 1, ANSWERED, "t", "n1", NOW, HOSTED))

    assert continued.claim is not None
    assert tables.run(end) == Ended(kept=True)


def player_end(run: str, status: str) -> FinishRun | Finish260:
    """Return what `n1` ends its first claim of `run` with."""
    player = Player(in_sqlite(), World())
    return player.ending("n1", run, RunLease("n1", 1), status, 1)
