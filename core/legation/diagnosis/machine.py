"""The judgement of the machine: what a server may open there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..findings import Finding, find

__all__ = ["SPARE_FILES", "judge_open_files"]

SPARE_FILES: Final = 64
"""For files, the log, and connections to providers of models."""


def judge_open_files(limit: int | None, connections: int) -> Iterator[Finding]:
    """Yield that a server may open fewer files than it may need.

    Args:
        limit: The soft limit of open files (`RLIMIT_NOFILE`); None for none.
        connections: The most that a process may have open, of clients and to databases.
    """
    needed = connections + SPARE_FILES
    if limit is not None and limit < needed:
        message = f"is {limit}, and a process of the server may open {needed}"
        yield find("open_files_low", "machine.open_files", message)
