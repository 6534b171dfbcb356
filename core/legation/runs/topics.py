"""The topics of nudges about runs: each has the database, as ids are unique there alone."""

from __future__ import annotations

__all__ = ["cancel_topic", "runs_topic"]


def cancel_topic(database: str, run_id: str) -> str:
    """Return the topic under which whoever executes a run on this node is interrupted."""
    return f"cancel:{database}:{run_id}"


def runs_topic(database: str) -> str:
    """Return the topic that wakes whoever keeps the runs of a database."""
    return f"runs:{database}"
