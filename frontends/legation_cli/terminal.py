"""The terminal of a command: tables and progress bars by rich, where the extra is installed.

A pipe, a terminal that is `dumb`, and an installation without `legation[rich]` get plain text.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final, Literal, TextIO

import click

__all__ = ["Advance", "show_progress", "show_table"]

Advance = Callable[[], None]
"""Count one unit more of the work."""

_DELAY_SECONDS: Final = 2.0
_TICK_SECONDS: Final = 0.5


def show_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    plain: str,
    numbers: Collection[str] = (),
    alarms: Collection[int] = (),
) -> None:
    """Print a table.

    Args:
        heads: The title of each column.
        rows: As many cells each.
        plain: The same as text, for everything that is not a terminal with rich.
        numbers: The titles of columns that are set flush right.
        alarms: The rows that are red, counted from 0.
    """
    if not _is_rich(sys.stdout):
        click.echo(plain)
        return
    from rich import box  # an extra, and 40 ms: for whoever looks at a table
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, highlight=False)
    for head in heads:
        right = head in numbers
        table.add_column(head, justify="right" if right else "left", overflow="fold")
    for number, row in enumerate(rows):
        table.add_row(*(Text(cell) for cell in row), style="red" if number in alarms else None)
    colors: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    Console(file=sys.stdout, color_system=colors).print(table)


@contextmanager
def show_progress(description: str, total: float | None = None) -> Generator[Advance]:
    """Show at a terminal that the work goes on, once it has taken two seconds.

    It is drawn on standard error, by a thread of its own, and wiped when the work ends.

    Args:
        description: Names the work.
        total: The seconds that it may take at most, if it has a bound.

    Yields:
        Counts a unit of the work that is done, such as a page of rows.
    """
    if not sys.stderr.isatty():
        yield lambda: None
        return
    done = threading.Event()
    units = _Units()
    draw = _draw_bar if _is_rich(sys.stderr) else _draw_line
    thread = threading.Thread(target=_wait_and_draw, args=(draw, description, total, units, done))
    thread.start()
    try:
        yield units.advance
    finally:
        done.set()
        thread.join()


class _Units:
    """The number of units that are done; one thread counts, another one reads."""

    def __init__(self) -> None:
        self.count = 0
        self.began = time.monotonic()

    def advance(self) -> None:
        self.count += 1

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


_Draw = Callable[[str, float | None, _Units, threading.Event], None]


def _wait_and_draw(
    draw: _Draw, description: str, total: float | None, units: _Units, done: threading.Event
) -> None:
    if not done.wait(_DELAY_SECONDS):
        draw(description, total, units, done)


def _draw_line(description: str, total: float | None, units: _Units, done: threading.Event) -> None:
    while True:
        count = f", {units.count} done" if units.count else ""
        click.echo(f"\r{description} ... {units.seconds:.0f} s{count}", err=True, nl=False)
        if done.wait(_TICK_SECONDS):
            click.echo(err=True)
            return


def _draw_bar(description: str, total: float | None, units: _Units, done: threading.Event) -> None:
    from rich.console import Console  # as above
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    counted = TextColumn("{task.fields[count]}")
    with Progress(*columns, counted, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=total, count="")
        while True:
            count = f"{units.count} done" if units.count else ""
            elapsed = None if total is None else units.seconds
            progress.update(task, completed=elapsed, count=count)
            if done.wait(_TICK_SECONDS):
                return


def _is_rich(stream: TextIO) -> bool:
    """Tell whether `stream` is a terminal on which rich can draw, and rich is installed."""
    smart = stream.isatty() and os.environ.get("TERM") != "dumb"
    return smart and find_spec("rich") is not None
