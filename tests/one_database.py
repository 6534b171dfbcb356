"""A database in memory for tests of units: the tables of the catalogue, and no host."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, Final, TypeGuard, TypeVar, cast

from legation.migrations.catalogue import CATALOGUE, Catalogue
from legation.store.audit_tables import create_trail
from legation.store.leases import fill_clock
from legation.store.nodes import Beat, Bury
from legation.store.units import Dialect, Undo, Unit

from .statements import statements_of

__all__ = ["Database"]

R = TypeVar("R")

CLOCK: Final = fill_clock("select $CLOCK").sqlite_text.removeprefix("select ")
HOUR_US: Final = 3_600_000_000


def _is_undo(result: object) -> TypeGuard[Undo[Any]]:
    return isinstance(result, Undo)


class Database:
    """The tables of the newest version, on which units run, each in a savepoint.

    `rewrite` may spoil the text of a statement; `only` names what a step of the schema has to have
    in its text, where a test makes thousands of databases and needs few tables.  `clock_us` is its
    own clock where a test sets it.
    """

    clock_us: int | None = None

    def __init__(
        self,
        catalogue: Catalogue = CATALOGUE,
        *,
        rewrite: Callable[[str], str] = str,
        only: str = "",
    ) -> None:
        self.connection = sqlite3.connect(
            ":memory:",
            isolation_level=None,
            cached_statements=500,
            check_same_thread=False,  # any thread may collect what is dropped
        )
        self.rewrite = rewrite
        for migration in catalogue.migrations:
            for step in migration.up:
                statement = step.statement(Dialect.SQLITE)
                if statement is not None and only in (text := statement.text(Dialect.SQLITE)):
                    self.connection.execute(text)
        for statement in create_trail():
            self.connection.execute(statement.text(Dialect.SQLITE))

    def __del__(self) -> None:
        self.connection.close()  # Python 3.13 warns of those that are dropped open

    def run(self, unit: Unit[R]) -> R:
        """Run `unit` as a host does."""
        self.connection.execute("savepoint unit")
        work = statements_of(unit, Dialect.SQLITE)
        try:
            statement = next(work)
            while True:
                text = self.rewrite(statement.text(Dialect.SQLITE))
                if self.clock_us is not None:
                    text = text.replace(CLOCK, str(self.clock_us))
                rows = self.connection.execute(text, dict(statement.parameters)).fetchall()
                statement = work.send(rows)
        except StopIteration as stop:
            result: Any = stop.value
        except BaseException:
            self.connection.execute("rollback to unit")
            self.connection.execute("release unit")
            raise
        if _is_undo(result):
            self.connection.execute("rollback to unit")
        self.connection.execute("release unit")
        outcome: Any = result.result if _is_undo(result) else result
        return cast("R", outcome)

    def enter(self, *nodes: str) -> None:
        """Have `nodes` among those that live, whose leases of an hour go by its clock."""
        for node in nodes:
            self.run(
                Beat(
                    node,
                    HOUR_US,
                    0,
                    (),
                    "",
                    session_lock=False,
                    code_version="1",
                    schema_version="1",
                )
            )

    def bury(self, *nodes: str) -> None:
        """Have `nodes` among the living no more."""
        self.run(Bury(nodes))

    def ask(self, text: str, *parameters: Any) -> list[Any]:
        """Return the rows of a statement of the test's own."""
        return self.connection.execute(text, parameters).fetchall()
