"""The judgement of engines that a process may find at its start, and while it serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from ..findings import Finding, find

__all__ = ["BugSeverity", "judge_bug", "judge_pooler"]

BugSeverity: TypeAlias = Literal["low", "medium"]
"""How grave the WAL-reset bug is: `low` where processes keep apart by a lock of their own."""

_BUG: Final = "is written by a SQLite that has the WAL-reset bug"
_BUGS: Final[Mapping[BugSeverity, str]] = {
    "low": f"{_BUG}: it may lose data where another program writes to the file",
    "medium": f"{_BUG}, and its processes have no lock to keep apart: two of them may lose data",
}


def judge_bug(name: str, severity: BugSeverity) -> Finding:
    """Return that the SQLite of the database `name` has the WAL-reset bug."""
    return find("sqlite_wal_reset_bug", f"databases.{name}", _BUGS[severity], severity)


def judge_pooler(name: str) -> Finding:
    """Return that a pooler was found in front of the database `name`, whose URL names none."""
    message = (
        "is behind a pooler, and its URL does not say so: each connection costs a question, and a"
        " pooler that hides itself better would not be noticed"
    )
    return find("pooler_undeclared", f"databases.{name}", message)
