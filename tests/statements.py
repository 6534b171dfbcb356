"""The statements of a unit one by one, for tests that carry them out themselves."""

from __future__ import annotations

from typing import TypeVar, cast

from legation.store.units import Rows, Statements, Work

__all__ = ["one_by_one"]

R = TypeVar("R")


def one_by_one(work: Work[R]) -> Statements[R]:
    """Yield the statements of `work`, those that it yields together one after the other."""
    try:
        asked = next(work)
        while True:
            if isinstance(asked, tuple):
                found = list[Rows]()
                for statement in asked:
                    found.append((yield statement))
                asked = work.send(cast("Rows", found))
            else:
                asked = work.send((yield asked))
    except StopIteration as stop:
        result: R = stop.value
        return result
    finally:
        work.close()
