"""The moves of runs that really happen, seen by SQLite, and held against the table of moves."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from legation.store.member_runs import MemberMove, Root, StartMember
from legation.store.run_keeping import ClaimWaiting, ReleaseRun
from legation.store.run_rows import RunLease, StoredEvent
from legation.store.run_states import MEMBER_MOVES, Moves
from legation.store.run_steering import CancelRun, ContinueRun
from legation.store.runs import AppendEvents, FinishRun, StartRun
from legation.store.steps import Records
from legation.store.units import Unit

from .one_database import Database

__all__ = [
    "Seen",
    "find_faults",
    "moves_seen",
    "walk_through",
    "walk_through_members",
    "watch_moves",
]

Seen: TypeAlias = frozenset[tuple[str, str]]
"""From which state runs went to which."""

HOSTED: Final = ("agent:x", "team:x")

_WATCH: Final = """
create temp table moves (
    before text, after text, member integer, unique (before, after, member) on conflict ignore);
create temp trigger moved after update of status on main.runs when old.status <> new.status begin
    insert into moves values (old.status, new.status, new.parent_run_id is not null);
end;
"""


def watch_moves(connection: sqlite3.Connection) -> None:
    """Have `connection` remember each move of a run; what is rolled back is forgotten."""
    connection.executescript(_WATCH)


def moves_seen(connection: sqlite3.Connection, *, members: bool = False) -> Seen:
    """Return the moves of the runs that were asked for, or of those of members."""
    found = connection.execute("select before, after from moves where member = ?", (members,))
    return frozenset(found.fetchall())


def find_faults(seen: Seen, table: Moves) -> list[str]:
    """Return what happened and is no move of `table`, and the moves that nobody has seen."""
    held = {
        (str(before), str(after)): move.value
        for before, moves in table.items()
        for move, after in moves.items()
    }
    return [
        *(f"{before} became {after}: no such move" for before, after in sorted(seen - held.keys())),
        *(
            f"{before} --{held[before, after]}--> {after}: never seen"
            for before, after in sorted(held.keys() - seen)
        ),
    ]


class _Walk:
    """A session, and the units of work that move its runs."""

    def __init__(self) -> None:
        self.database = Database()
        watch_moves(self.database.connection)
        self.now = 0

    def run(self, unit: Unit[Any]) -> Any:
        return self.database.run(unit)

    def start(self, run_id: str, kind: str = "agent") -> Any:
        self.now += 1
        return self.run(StartRun("o", "s", run_id, kind, "x", "{}", "", "n", self.now))

    def move_member(self, team: str, run_id: str, status: str) -> Any:
        """Store the state of a member, with no event of its own."""
        move = MemberMove("o", "s", run_id, status, "{}", None, None, self.now)
        lease = RunLease("n", 1)
        return self.run(AppendEvents("o", team, lease, self.now, (), 0, Records(moves=(move,))))

    def finish(self, run_id: str, status: str, attempt: int = 1, seq: int = 1) -> Any:
        self.now += 1
        return self.run(
            FinishRun(
                owner="o",
                session_id="s",
                run_id=run_id,
                lease=RunLease("n", attempt),
                node="n",
                now_us=self.now,
                status=status,
                output="{}",
                reason=None,
                usage=None,
                events=(StoredEvent(seq, "e", "{}"),),
                hosted=HOSTED,
                members=status in ("ERROR", "CANCELLED"),
            )
        )

    def cancel(self, run_id: str) -> Any:
        self.now += 1
        return self.run(
            CancelRun("o", "s", run_id, self.now, "{}", ("RunCancelled", "{}"), members=True)
        )

    def go_on(self, run_id: str, attempt: int, token: str) -> Any:
        self.now += 1
        return self.run(ContinueRun("o", "s", run_id, attempt, "{}", token, "n", self.now, HOSTED))

    def status(self, run_id: str) -> str:
        return str(self.database.ask("select status from runs where run_id = ?", run_id)[0][0])


def walk_through() -> Seen:
    """Return what is seen of a session in which every move happens.

    What the units promise is asserted on the way, whatever the table says.
    """
    walk = _Walk()
    assert walk.start("a").claim.run_id == "a"
    assert walk.start("b").claim is None
    assert walk.start("c").claim is None
    assert (walk.cancel("c"), walk.status("c")) == ("PENDING", "CANCELLED")
    assert walk.run(ReleaseRun("o", "a", RunLease("n", 1)))
    assert walk.run(ClaimWaiting("n", walk.now, HOSTED)).run_id == "a"
    assert walk.status("a") == "RUNNING"
    assert walk.finish("a", "PAUSED", attempt=2).following.run_id == "b"
    assert walk.go_on("a", 2, "t").claim is None
    assert walk.status("a") == "PENDING"
    assert walk.finish("b", "COMPLETED").following.run_id == "a"
    assert walk.finish("a", "PAUSED", attempt=3, seq=2).kept
    assert walk.go_on("a", 3, "u").claim.run_id == "a"
    assert walk.finish("a", "ERROR", attempt=4, seq=3).kept
    assert walk.start("d").claim
    assert walk.finish("d", "PAUSED").kept
    assert (walk.cancel("d"), walk.status("d")) == ("PAUSED", "CANCELLED")
    assert walk.start("e").claim
    assert (walk.cancel("e"), walk.status("e")) == ("RUNNING", "RUNNING")
    assert walk.finish("e", "CANCELLED").kept
    return moves_seen(walk.database.connection)


def _member_ends() -> Iterator[tuple[str, str]]:
    """Yield how a member's run stands, and how that of its team ends."""
    yield from ((stands, ends) for stands in MEMBER_MOVES for ends in ("ERROR", "CANCELLED"))


def walk_through_members() -> Seen:
    """Return what is seen of the runs of members, in which every move of theirs happens."""
    walk = _Walk()
    for number, (stands, ends) in enumerate(_member_ends()):
        team, member = f"team{number}", f"member{number}"
        walk.start(team, "team")
        root = Root("o", "s", team, RunLease("n", 1))
        walk.run(StartMember(root, member, team, "agent", "x", "{}", "{}", walk.now))
        for status in ("PAUSED", "RUNNING", stands):
            walk.move_member(team, member, status)
        walk.run(StartMember(root, f"{member}c", team, "agent", "x", "{}", "{}", walk.now))
        walk.move_member(team, f"{member}c", "COMPLETED")
        walk.cancel(team)
        walk.finish(team, ends)
        assert walk.status(member) == ends
    return moves_seen(walk.database.connection, members=True)
