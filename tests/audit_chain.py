"""Verify rows of the audit trail that a test has in its hands."""

from __future__ import annotations

from collections.abc import Iterable

from legation.store.audit import AuditRow, Head, Verdict, Verifier

__all__ = ["verify_chain"]


def verify_chain(rows: Iterable[AuditRow], heads: Iterable[Head] = ()) -> Verdict:
    """Say whether `rows`, those of a writer in the order of `seq`, are as they were written."""
    verifier = Verifier(heads)
    return verifier.take(rows) or verifier.end()
