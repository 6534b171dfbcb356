"""The heads of all chains, along the key, on the engine that a simulation has."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from legation.store.audit import AppendAudit
from legation.store.audit_entries import AuditEntry
from legation.store.audit_heads import ReadHeads
from legation.store.audit_pages import SigningKey

from ...one_database import Database

ENTRY = AuditEntry(5, "r", "ada", None, "op", "a/b", "allow", "", 200, "")
KEY = SigningKey("2026", bytes(range(32)))


def filled(chains: int, pages: int = 3) -> Database:
    database = Database()
    for number in range(chains):
        for page in range(pages):
            entry = evolve(ENTRY, at_us=page)
            database.run(AppendAudit(f"n{number:03}", (entry,), KEY if number % 2 else None))
    return database


def heads(database: Database, after: str = "", size: int = 100) -> list[tuple[str, int, int]]:
    found: Any = database.run(ReadHeads(after, size))
    return [(one.head.writer, one.head.seq, one.at_us) for one in found]


def test_each_chain_has_one_head_in_the_order_of_writers() -> None:
    database = filled(4)

    assert heads(database) == [
        ("chained/n000", 3, 2),
        ("chained/n002", 3, 2),
        ("signed/n001", 3, 2),
        ("signed/n003", 3, 2),
    ]
    assert heads(Database()) == []


def test_a_few_at_a_time_are_all_of_them() -> None:
    database, after, found = filled(7), "", list[tuple[str, int, int]]()
    while some := heads(database, after, 3):
        found += some
        after = some[-1][0]

    assert found == heads(database)
    assert len(found) == 7
    assert heads(database, size=1) == found[:1]
