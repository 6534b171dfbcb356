"""The condition of a database: what follows from what was noticed of it.

A database works until something says otherwise, and comes back by itself but for one case: where
its file was deleted or replaced, the server writes to a file that nobody will open again.  Only a
restart helps, so that no notice leads out of `REPLACED`.

Reading proves nothing about writing: a database that refused to write is `FULL` until it has stored
something.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from ..values import frozen
from .failures import DatabaseFull, FileReplaced, StoreFailure, Unavailable
from .units import Dialect, Sql, Statements, Unit

__all__ = [
    "CONDITIONS",
    "PATIENCE_SECONDS",
    "REASONS",
    "WRITE_SECONDS",
    "Condition",
    "Inspection",
    "Notice",
    "ProbeWrite",
    "advance",
    "notice_failure",
    "notice_of",
]

PATIENCE_SECONDS: Final = 5.0
"""For an answer to a look; without one the database is silent."""

WRITE_SECONDS: Final = 6.0
"""For a write to end.  With the pause between two looks, either is noticed within 10 seconds."""


class Condition(Enum):
    """The condition of a database."""

    WORKING = "working"
    FULL = "full"
    SILENT = "silent"
    UNREACHABLE = "unreachable"
    REPLACED = "replaced"


class Notice(Enum):
    """One thing noticed of a database."""

    ANSWERED = "it answered a read"
    STORED = "it stored a write"
    REFUSED = "it has no room, or refuses to write"
    NO_ANSWER = "it gave no answer in time"
    NO_CONNECTION = "it could not be reached"
    OTHER_FILE = "its path leads to another file, or to none"


_TROUBLE: Final = {
    Notice.REFUSED: Condition.FULL,
    Notice.NO_ANSWER: Condition.SILENT,
    Notice.NO_CONNECTION: Condition.UNREACHABLE,
    Notice.OTHER_FILE: Condition.REPLACED,
}
_WORKS: Final = {Notice.ANSWERED: Condition.WORKING, Notice.STORED: Condition.WORKING}

CONDITIONS: Final[Mapping[Condition, Mapping[Notice, Condition]]] = {
    Condition.WORKING: {**_TROUBLE, **_WORKS},
    Condition.FULL: {**_TROUBLE, **_WORKS, Notice.ANSWERED: Condition.FULL},
    Condition.SILENT: {**_TROUBLE, **_WORKS},
    Condition.UNREACHABLE: {**_TROUBLE, **_WORKS},
    Condition.REPLACED: dict.fromkeys(Notice, Condition.REPLACED),
}

REASONS: Final[Mapping[Condition, str]] = {
    Condition.FULL: "Its disk is full, or refuses to write",
    Condition.SILENT: "It does not answer",
    Condition.UNREACHABLE: "It cannot be reached",
    Condition.REPLACED: (
        "Its file was deleted or replaced while the server ran, and nothing more is stored;"
        " restart the server"
    ),
}


def advance(condition: Condition, notice: Notice) -> Condition:
    """Return the condition that follows.  Total: every pair has an answer."""
    return CONDITIONS[condition][notice]


@frozen
class Inspection:
    """A database seen from outside, without a statement.

    Attributes:
        replaced: Its path leads to another file than the one that is open, or to none.
        room: Its file system takes more, and no write was refused since the last inspection.
        waiting_seconds: How long the oldest write has been waiting for its end.
    """

    replaced: bool = False
    room: bool = True
    waiting_seconds: float = 0.0


def notice_of(inspection: Inspection) -> Notice | None:
    """Return what an inspection says, None where it found nothing."""
    if inspection.replaced:
        return Notice.OTHER_FILE
    if inspection.waiting_seconds > WRITE_SECONDS:
        return Notice.NO_ANSWER
    return None if inspection.room else Notice.REFUSED


def notice_failure(trouble: StoreFailure) -> Notice | None:
    """Return what the failure of a unit says of its database, None where it concerns the unit."""
    match trouble:
        case FileReplaced():
            return Notice.OTHER_FILE
        case DatabaseFull():
            return Notice.REFUSED
        case Unavailable():
            return Notice.NO_CONNECTION
        case _:
            return None


_READ: Final = Sql("pragma user_version", "select txid_current()", registered=False)


@frozen
class ProbeWrite(Unit[None]):
    """A write that changes nothing and has to reach the disk, whatever the schema."""

    needs_schema = False

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Store what is there already; on PostgreSQL, the id of this transaction."""
        ((value,),) = yield _READ()
        if dialect is Dialect.SQLITE:
            yield Sql(f"pragma user_version = {int(value)}", registered=False)()
