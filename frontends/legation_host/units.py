"""The host's half of a unit of work: its statements carried out, its failures given a name.

The other half, and the contract between them, is `legation.store.units`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from legation.store.failures import Busy, Conflict, StoreFailure
from legation.store.units import Dialect, Rows, Statement, Undo, Unit, Work

from .logs import Write

__all__ = ["carry_out", "failure", "short"]

R = TypeVar("R")


def carry_out(
    statements: Work[R | Undo[R]],
    execute: Callable[[Statement], Rows],
) -> tuple[R, bool]:
    """Run `statements` to their end; return the result, and whether what was done is to stay.

    Those that are yielded at once are carried out one after the other.  What `execute` raises ends
    the unit: it is not thrown into the generator.
    """
    try:
        asked = next(statements)
        rows: Any
        while True:
            if isinstance(asked, tuple):
                rows = [execute(statement) for statement in asked]
            else:
                rows = execute(asked)
            asked = statements.send(rows)
    except StopIteration as stop:
        outcome: R | Undo[R] = stop.value
        if isinstance(outcome, Undo):
            return cast(Undo[R], outcome).result, False
        return outcome, True
    finally:
        statements.close()


def short(
    unit: Unit[R], dialect: Dialect, execute: Callable[[Statement], Rows]
) -> tuple[R, bool] | None:
    """Run a reading unit of one statement; None when it has more of them, or may have.

    One statement sees one snapshot by itself, so that the transaction around it, two thirds of
    its time, can be left out.  How many there are shows only when the rows are in; whether there
    were more than one is remembered by type.
    """
    kind = type(unit)
    if unit.writes or unit.exclusive or kind in _LONGER:
        return None
    done = False

    def once(statement: Statement) -> Rows:
        nonlocal done
        if done:
            raise _Longer
        done = True
        return execute(statement)

    try:
        return carry_out(unit.statements(dialect), once)
    except _Longer:
        _LONGER.add(kind)
        return None


class _Longer(Exception):
    """A second statement was yielded."""


_LONGER: Final[set[type[Unit[Any]]]] = set()


def failure(
    kind: type[StoreFailure], error: BaseException, database: str, write: Write
) -> StoreFailure:
    """Return a failure that names an incident, and write the driver's words under that incident.

    A lock not had and a key taken are everyday answers; the rest is an error to look at.
    """
    incident = secrets.token_hex(4)
    level = "debug" if kind in (Busy, Conflict) else "error"
    write(
        level,
        "store_failed",
        {
            "database": database,
            "failure": kind.__name__,
            "incident": incident,
            "error": f"{type(error).__name__}: {_words(error)}",
        },
    )
    return kind(f"incident {incident}")


def _words(error: BaseException) -> str:
    """Return what the driver said, as far as it does not quote what a user sent.

    The detail that PostgreSQL gives beside its message quotes rows, and its message quotes the
    value where that is what is wrong (class 22, data exception).
    """
    state: str = getattr(error, "sqlstate", None) or ""
    if state.startswith("22"):
        return state
    diagnosis = getattr(error, "diag", None)
    return getattr(diagnosis, "message_primary", None) or str(error)
