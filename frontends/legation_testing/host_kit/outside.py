"""Another process that uses a database of the host under test: what it stores, what it locks."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from attrs import define, frozen

from legation.store.units import Dialect, Statements, Unit
from legation_host.databases import RunUnit, dialect_of, open_writer

from .tables import COUNT, Prepare, ScriptedExclusive

__all__ = ["Outside", "open_outside"]

_PATIENCE: Final = 10.0
"""Seconds, for a thread of ours to begin and to end."""


@define(eq=False)
class Outside:
    """One database, by a connection that the host under test knows nothing of."""

    name: str
    url: str
    _run: RunUnit

    @property
    def dialect(self) -> Dialect:
        """The SQL that it speaks."""
        return dialect_of(self.url)

    def run(self, unit: Unit[Any]) -> Any:
        """Run `unit` on this thread, as another process does."""
        return self._run(unit)

    @contextmanager
    def hold(self) -> Generator[None]:
        """Hold the migration lock of the database for the length of the block."""
        holding = _Holding(threading.Event(), threading.Event())
        thread = threading.Thread(
            target=self._hold, args=(ScriptedExclusive(holding.script),), daemon=True
        )
        thread.start()
        try:
            if not holding.held.wait(_PATIENCE):
                raise TimeoutError(f"the migration lock of {self.name} is not to be had")
            yield
        finally:
            holding.over.set()
            thread.join(_PATIENCE)

    def _hold(self, unit: Unit[Any]) -> None:
        with open_writer(self.name, self.url) as run:
            run(unit)


@frozen
class _Holding:
    """A unit that lasts until it is told that its time is over."""

    held: threading.Event
    over: threading.Event

    def script(self, _: Dialect) -> Statements[None]:
        yield COUNT(pattern="")
        self.held.set()
        self.over.wait(_PATIENCE)


@contextmanager
def open_outside(name: str, url: str) -> Generator[Outside]:
    """Open the database, with the tables of the kit, and remove these in the end."""
    with ExitStack() as stack:
        run = stack.enter_context(open_writer(name, url))
        run(Prepare(wanted=True))
        stack.callback(run, Prepare(wanted=False))
        yield Outside(name, url, run)
