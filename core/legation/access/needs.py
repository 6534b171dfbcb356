"""The needs that several places ask, because other routes show the same data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import evolve

from .scopes import Scoped

__all__ = [
    "DELETE_APPROVALS",
    "DESTROY_DATABASE",
    "ERASE_USERS",
    "FOLLOW_RUNS",
    "LIST_CHANNELS",
    "READ_APPROVALS",
    "READ_DATABASE",
    "READ_RUN",
    "READ_RUNS",
    "READ_USERS",
    "RUN",
    "WRITE_APPROVALS",
]

READ_DATABASE: Final = Scoped("databases", ("read",), parameter="db_id")
DESTROY_DATABASE: Final = Scoped("databases", ("destroy",), parameter="db_id")
LIST_CHANNELS: Final = Scoped("channels", ("read",), listing=True)

FOLLOW_RUNS: Final[Mapping[str, Scoped]] = {
    kind: Scoped(f"{kind}s", ("read", "run"), parameter=f"{kind}_id") for kind in ("agent", "team")
}
"""By kind: a caller who may follow runs may know that the agent or the team exists."""

READ_RUNS: Final = Scoped("runs", ("read",))
"""Who holds this sees the runs of every owner."""

READ_RUN: Final[Mapping[str, Scoped]] = {
    kind: evolve(need, also=(READ_RUNS.scope,)) for kind, need in FOLLOW_RUNS.items()
}
"""By kind: who may read one run, and its events."""

RUN: Final[Mapping[str, Scoped]] = {
    kind: Scoped(f"{kind}s", ("run",), parameter=f"{kind}_id") for kind in ("agent", "team")
}
"""By kind: who may start runs, and go on with its own."""

READ_APPROVALS: Final = Scoped("approvals", ("read", "write"), parameter="component_id")
WRITE_APPROVALS: Final = Scoped("approvals", ("write",), parameter="component_id")
"""Of the agent or team that an approval is for; these show and answer those of every owner."""

DELETE_APPROVALS: Final = Scoped("approvals", ("delete",))

ERASE_USERS: Final = Scoped("users", ("erase",))
READ_USERS: Final = Scoped("users", ("read",))
"""Who holds this exports every user; anybody else itself."""
