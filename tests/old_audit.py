"""Rows of the audit trail as code for versions up to 2.11.0 stored them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attrs import astuple

from legation.store.audit_entries import AuditEntry, OldRow, hash_row

__all__ = ["chain_rows", "put_old_rows"]

_COLUMNS = (
    "writer, seq, previous, hash, at_us, request_id, subject, key_id, operation, resource,"
    " decision, scope, status, client"
)


def chain_rows(
    writer: str, entries: Iterable[AuditEntry], after: OldRow | None = None
) -> list[OldRow]:
    """Return `entries` as rows of a chain, behind one of its rows where that is given."""
    seq, previous = (after.seq, after.hash) if after else (0, "")
    rows: list[OldRow] = []
    for entry in entries:
        seq += 1
        hashed = hash_row(previous, writer, seq, entry)
        rows.append(OldRow(writer, seq, previous, hashed, entry))
        previous = hashed
    return rows


def put_old_rows(
    connection: Any,
    writer: str,
    entries: Iterable[AuditEntry],
    after: OldRow | None = None,
    *,
    kept: int = 0,
    mark: str = "?",
) -> list[OldRow]:
    """Store such rows as a node did, or as a migration that kept them; return them.

    Args:
        connection: Of the `sqlite3` module, or of psycopg with `mark="%s"`.
        writer: The writer of the chain.
        entries: Its next entries.
        after: The row before.
        kept: The number of the migration; 0 for the table of nodes.
        mark: The placeholder of a parameter.
    """
    rows = chain_rows(writer, entries, after)
    table, columns = ("trail_kept", f"kept, {_COLUMNS}") if kept else ("audit", _COLUMNS)
    values = ", ".join([mark] * len(columns.split(", ")))
    for row in rows:
        place = (row.writer, row.seq, row.previous, row.hash, *astuple(row.entry))
        connection.execute(
            f"insert into {table} ({columns}) values ({values})",
            (kept, *place) if kept else place,
        )
    return rows
