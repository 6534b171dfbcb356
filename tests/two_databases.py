"""The two databases of the platforms that tests host, unless a test is about databases.

A run of one is unknown to the other, and so is a session: what is true of one database alone shows
there.  A simulation keeps both in memory; processes and hosts have files, or PostgreSQL beside one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from legation import Database

__all__ = ["IN_MEMORY", "in_folder"]

IN_MEMORY: Final = (Database("main", "sqlite://"), Database("second", "sqlite://"))
"""Of a simulation; agents store in the first, unless they name the other."""


def in_folder(folder: Path, second: str | None = None) -> tuple[Database, Database]:
    """Return a file in `folder`, and what is at the URL `second`, else another file."""
    url = second or f"sqlite:///{folder}/second.db"
    return (
        Database("main", f"sqlite:///{folder}/main.db"),
        Database("second", url, auto_migrate=True),
    )
