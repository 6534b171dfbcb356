"""The failures between the core and its databases.

A host throws one of these into the program at its `Transact`.  They say what the program may
conclude, not what the driver said: driver text never leaves the host but in its log.
"""

from __future__ import annotations

__all__ = [
    "Busy",
    "CommitLost",
    "Conflict",
    "DatabaseFull",
    "FileReplaced",
    "NotServed",
    "StatementFailed",
    "StoreFailure",
    "Unavailable",
    "WrongSchema",
]


class StoreFailure(Exception):
    """Base class.  The transaction left nothing behind, `CommitLost` aside."""


class Busy(StoreFailure):
    """A lock was not to be had in time; the same unit may be tried again."""


class Conflict(StoreFailure):
    """A unique key was taken: somebody else did it first."""


class CommitLost(StoreFailure):
    """COMMIT was sent and no answer came.

    Neither success nor failure: whoever needs to know looks for its own row.
    """


class DatabaseFull(StoreFailure):
    """No space, or the storage refuses to write."""


class FileReplaced(StoreFailure):
    """The file was deleted or replaced under the server, which has to be restarted.

    What the unit did may stand in the file that is gone; nobody will read it there.
    """


class NotServed(StoreFailure):
    """The schema is one that this code must not touch; the text tells an operator what to do."""


class StatementFailed(StoreFailure):
    """The engine refused a statement for another reason."""


class Unavailable(StoreFailure):
    """The database could not be reached, or the connection broke before COMMIT."""


class WrongSchema(StoreFailure):
    """A table or column is missing: the schema is not the one this code was written for."""
