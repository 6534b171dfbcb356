"""The statements of a unit one by one, for tests that carry them out themselves."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from legation.store.units import Dialect, Rows, Statement, Statements, Undo, Unit, Work

__all__ = ["one_by_one", "statements_of"]

R = TypeVar("R")


def statements_of(unit: Unit[R], dialect: Dialect) -> Statements[R | Undo[R]]:
    """Yield the statements of `unit` one by one; behind one that is closing it has to be over."""
    closed = False

    def watched() -> Work[R | Undo[R]]:
        nonlocal closed
        work = unit.statements(dialect)
        rows: Any = None
        try:
            while True:
                asked = work.send(rows)
                assert not closed, f"{unit} goes on behind its closing statement"
                closed = isinstance(asked, Statement) and asked.sql in unit.closing
                rows = yield asked
        except StopIteration as stop:
            result: R | Undo[R] = stop.value
            return result
        finally:
            work.close()

    result = yield from one_by_one(watched())
    assert not (closed and isinstance(result, Undo)), f"{unit} undoes what it has closed"
    return result


def one_by_one(work: Work[R]) -> Statements[R]:
    """Yield the statements of `work`, those that it yields together one after the other.

    What is thrown in is thrown into `work`.
    """
    try:
        asked = next(work)
        while True:
            found = list[Rows]()
            try:
                for statement in asked if isinstance(asked, tuple) else (asked,):
                    found.append((yield statement))
            except Exception as error:  # noqa: BLE001 (it is for whom it was meant)
                asked = work.throw(error)
            else:
                asked = work.send(cast("Rows", found) if isinstance(asked, tuple) else found[0])
    except StopIteration as stop:
        result: R = stop.value
        return result
    finally:
        work.close()
