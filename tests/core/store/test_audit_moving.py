"""Moving old rows into pages: each row once, its chain still proven, whatever comes in between."""

from __future__ import annotations

from random import Random
from typing import Final

import pytest
from attrs import evolve

from legation.store.audit import AppendAudit, OldPlace, ReadOldRows, ReadPages
from legation.store.audit_entries import AuditEntry, OldRow, decode_lines
from legation.store.audit_moving import MOVED_AT_ONCE, MoveOldRows
from legation.store.audit_pages import NO_KEYS, Head, KeyRing, Page, SigningKey
from legation.store.audit_pruning import PruneChain
from legation.store.audit_verify import Intact, Verifier

from ...old_audit import put_old_rows
from ...one_database import Database

ENTRY: Final = AuditEntry(0, "r", "ada", None, "op", "x", "allow", "s", 200, "")
KEY: Final = SigningKey("2026", bytes(range(32)))
DAY: Final = 24 * 3_600_000_000
NOW: Final = 100 * DAY


def young(count: int) -> list[AuditEntry]:
    return [evolve(ENTRY, at_us=NOW - DAY + number) for number in range(count)]


def read_pages(database: Database) -> tuple[Page, ...]:
    return database.run(ReadPages("", 0, 10_000))


def verify(database: Database, *heads: Head) -> Intact:
    verifier = Verifier(heads, KeyRing((KEY,)))
    place: OldPlace | None = OldPlace()
    while place is not None:
        old = database.run(ReadOldRows(place, 1_000))
        assert verifier.take_rows(old.rows) is None
        place = old.following
    verdict = verifier.take(read_pages(database)) or verifier.end()
    assert isinstance(verdict, Intact), verdict
    return verdict


def prove(database: Database, *heads: Head) -> Intact:
    verdict = verify(database, *heads)
    assert verdict.proven, verdict.findings
    return verdict


def moved(database: Database) -> list[OldRow]:
    pages = read_pages(database)
    lines = [line for page in pages for line in decode_lines(page.data) or ()]
    return [line for line in lines if isinstance(line, OldRow)]


def move(database: Database, size: int = MOVED_AT_ONCE, key: SigningKey | None = KEY) -> int:
    """Move until nothing is left to move; return how many rows that was."""
    count = 0
    while some := database.run(MoveOldRows(NOW, key, size)):
        count += some
    return count


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_rows_are_moved_as_they_are(size: int) -> None:
    database = Database()
    rows = put_old_rows(database.connection, "w", [ENTRY] * 7)
    heads = [Head(row.writer, row.seq, row.hash) for row in rows]
    prove(database, *heads)

    assert move(database, size) == 7
    assert moved(database) == rows
    assert database.ask("select count(*) from audit") == [(0,)]
    assert {page.writer for page in read_pages(database)} == {"signed/moved/w"}
    assert prove(database, *heads).old_rows == 7


def test_at_each_moment_each_row_is_there_once_and_the_trail_is_proven() -> None:
    database = Database()
    rows = [
        row
        for writer in ("n", "w/1", "w/2")
        for row in put_old_rows(database.connection, writer, [ENTRY] * 9)
    ]
    heads = [Head(row.writer, row.seq, row.hash) for row in rows]

    while database.run(MoveOldRows(NOW, KEY, 4)):
        assert prove(database, *heads).old_rows == len(rows)
    assert sorted(moved(database), key=lambda row: (row.writer, row.seq)) == rows


def test_the_last_row_of_a_chain_waits_for_a_day() -> None:
    database = Database()
    rows = put_old_rows(database.connection, "w", young(3))

    assert move(database) == 2
    assert database.ask("select seq from audit") == [(3,)]
    prove(database, Head("w", 3, rows[-1].hash))
    more = put_old_rows(database.connection, "w", young(3), rows[-1])
    assert move(database) == 3
    assert database.run(MoveOldRows(NOW + DAY + 3, KEY)) == 1
    assert moved(database) == [*rows, *more]
    prove(database)


def test_the_oldest_chain_is_moved_first() -> None:
    database = Database()
    put_old_rows(database.connection, "a", [evolve(ENTRY, at_us=2)] * 2)
    put_old_rows(database.connection, "b", [evolve(ENTRY, at_us=1)] * 2)

    database.run(MoveOldRows(NOW, KEY))
    assert {row.writer for row in moved(database)} == {"b"}


def test_rows_over_some_time_are_split_into_pages() -> None:
    database = Database()
    times = [0, 1, 1_000_001, 1_000_002, 500_000, 9_000_000]
    put_old_rows(database.connection, "w", [evolve(ENTRY, at_us=at) for at in times])
    move(database)

    pages = read_pages(database)
    assert [page.count for page in pages] == [2, 3, 1]
    prove(database)


def test_a_chain_that_an_old_node_began_anew_is_moved_beside_the_first() -> None:
    database = Database()
    put_old_rows(database.connection, "w", [ENTRY] * 3)
    move(database)
    again = put_old_rows(database.connection, "w", [evolve(ENTRY, status=403)] * 3)
    move(database, 2)

    writers = {page.writer for page in read_pages(database)}
    assert writers >= {"signed/moved/w", f"signed/moved/w~{again[0].hash[:16]}"}
    assert prove(database, Head("w", 2, again[1].hash)).old_rows == 6


def test_rows_put_back_after_they_were_moved_are_moved_again() -> None:
    database = Database()
    for _ in range(4):
        put_old_rows(database.connection, "w", [ENTRY] * 3)
        move(database)

    assert prove(database).old_rows == 12


def test_a_row_that_is_missing_shows_after_the_move_as_before() -> None:
    database = Database()
    rows = put_old_rows(database.connection, "w", [ENTRY] * 5)
    database.ask("delete from audit where seq = 3")
    move(database)

    verifier = Verifier(keys=KeyRing((KEY,)))
    verifier.take(read_pages(database))
    assert not isinstance(verifier.end(), Intact)
    assert len(moved(database)) == len(rows) - 1


def test_rows_of_a_key_and_of_none_are_in_chains_of_their_own() -> None:
    database = Database()
    put_old_rows(database.connection, "w", [ENTRY] * 6)
    database.run(MoveOldRows(NOW, None, 3))
    database.run(MoveOldRows(NOW, KEY, 3))

    pages = read_pages(database)
    assert [page.writer for page in pages] == ["chained/moved/w", "signed/moved/w"]
    assert verify(database).old_rows == 6


def test_rows_that_a_migration_kept_are_moved_first() -> None:
    database = Database()
    here = put_old_rows(database.connection, "w", [evolve(ENTRY, status=403)] * 3)
    kept = put_old_rows(database.connection, "w", [ENTRY] * 3, kept=1)
    again = put_old_rows(database.connection, "w", [evolve(ENTRY, status=500)] * 3, kept=2)

    assert database.run(MoveOldRows(NOW, KEY, 4)) == 4
    assert database.run(MoveOldRows(NOW, KEY, 4)) == 2
    assert move(database) == 3
    assert sorted(map(repr, moved(database))) == sorted(map(repr, kept + again + here))
    assert prove(database).old_rows == 9


def test_rows_are_moved_behind_what_was_pruned_of_them() -> None:
    database = Database()
    rows = put_old_rows(database.connection, "w", young(6))
    database.run(MoveOldRows(NOW, KEY, 3))
    prune = PruneChain("p", "signed/moved/w", NOW, ENTRY, KeyRing((KEY,)))
    assert database.run(prune) == 3
    move(database)

    assert prove(database, Head("w", 5, rows[4].hash)).old_rows == 3


def test_where_nothing_is_old_nothing_is_written() -> None:
    database = Database()
    database.run(AppendAudit("n", (ENTRY,), KEY))

    assert database.run(MoveOldRows(NOW, KEY)) == 0
    assert len(read_pages(database)) == 1


def test_a_random_history_of_old_and_new_nodes_is_always_proven() -> None:
    for seed in range(20):
        chance, database = Random(seed), Database()
        last: dict[str, OldRow | None] = {"v": None, "w": None}
        heads: list[Head] = []
        for turn in range(20):
            now_us = NOW + turn * 1_000_000
            writer = chance.choice("vw")
            if chance.random() < 0.6:
                entries = [evolve(ENTRY, at_us=now_us)] * chance.randrange(1, 4)
                last[writer] = put_old_rows(database.connection, writer, entries, last[writer])[-1]
            else:
                database.run(MoveOldRows(now_us, KEY, chance.randrange(1, 4)))
            heads += [Head(row.writer, row.seq, row.hash) for row in last.values() if row]
            prove(database, *heads)


def test_no_key_moves_as_well() -> None:
    database = Database()
    put_old_rows(database.connection, "w", [ENTRY] * 3)
    move(database, key=None)

    verifier = Verifier(keys=NO_KEYS)
    assert verifier.take(read_pages(database)) is None
    assert isinstance(verifier.end(), Intact)
