"""The audit trail: who asked for what, on which resource, and what came of it.

Rows are chained: each holds a hash over itself and the hash before it.  A chain belongs to one
writer, because two that append at the same moment could not agree on what came before.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from attrs import astuple, fields, frozen

from .units import Dialect, Sql, Statements, Undo, Unit

__all__ = ["AppendAudit", "AuditEntry", "chained"]


@frozen
class AuditEntry:
    """One decision or change.  It never holds a token, a secret or the text of a message.

    `at_us` is in microseconds since the epoch; `decision` is allow, deny or open (authorization
    off, or a public route); `scope` is the scope that allowed or the one that was missing.
    """

    at_us: int
    request_id: str
    subject: str | None
    key_id: str | None
    operation: str
    resource: str
    decision: str
    scope: str
    status: int
    client: str


def chained(previous: str, writer: str, seq: int, entry: AuditEntry) -> str:
    """Return the hash of a row: SHA-256 over the one before, its place and its content."""
    content = json.dumps([previous, writer, seq, *astuple(entry)], ensure_ascii=True)
    return hashlib.sha256(content.encode()).hexdigest()


LAST: Final = Sql("select seq, hash from audit where writer = :writer order by seq desc limit 1")
_FIELDS: Final = tuple(attribute.name for attribute in fields(AuditEntry))
APPEND: Final = Sql(
    f"""insert into audit (writer, seq, previous, hash, {", ".join(_FIELDS)})
    values (:writer, :seq, :previous, :hash, {", ".join(":" + name for name in _FIELDS)})"""
)


@frozen
class AppendAudit(Unit[None]):
    """Append `entries` to the chain of `writer`, which appends nowhere else at the same time."""

    writer: str
    entries: tuple[AuditEntry, ...]

    def statements(self, dialect: Dialect) -> Statements[None | Undo[None]]:
        """Yield the end of the chain, then each row."""
        last = yield LAST(writer=self.writer)
        seq, previous = last[0] if last else (0, "")
        for entry in self.entries:
            seq += 1
            row: dict[str, Any] = dict(zip(_FIELDS, astuple(entry), strict=True))
            hashed = chained(previous, self.writer, seq, entry)
            yield APPEND(writer=self.writer, seq=seq, previous=previous, hash=hashed, **row)
            previous = hashed
        return None
