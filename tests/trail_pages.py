"""Pages of the audit trail that a test has in its hands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from legation.store.audit_entries import AuditEntry, decode_lines, entry_of
from legation.store.audit_pages import NO_KEYS, Head, KeyRing, Page
from legation.store.audit_verify import Verdict, Verifier

__all__ = ["ALL_DATA", "entries_in", "entries_of_data", "verify_pages"]

ALL_DATA: Final = "select data from trail order by writer, last"


def verify_pages(
    pages: Iterable[Page], heads: Iterable[Head] = (), keys: KeyRing = NO_KEYS
) -> Verdict:
    """Say whether `pages`, those of a writer in the order of numbers, are as they were written."""
    verifier = Verifier(heads, keys)
    return verifier.take(pages) or verifier.end()


def entries_in(pages: Iterable[Page]) -> list[AuditEntry]:
    """Return the entries of `pages`."""
    return [entry_of(line) for page in pages for line in decode_lines(page.data) or ()]


def entries_of_data(rows: Iterable[Sequence[Any]]) -> list[AuditEntry]:
    """Return the entries of what `ALL_DATA` selects."""
    return [entry_of(line) for (data,) in rows for line in decode_lines(data) or ()]
