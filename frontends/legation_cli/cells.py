"""Values of rows at a terminal: one line each, of bounded length, and harmless."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from .terminal import show_table

__all__ = ["fit_cell", "show_fields", "show_rows"]

_CELL: Final = 60
_FIELD: Final = 1_000


def fit_cell(value: object, most: int = _CELL) -> str:
    """Return `value` in one line of at most `most` characters, without what a terminal obeys."""
    from .chat_screen import make_harmless  # for who looks at values alone

    text = value if isinstance(value, str) else _encode(value)
    line = make_harmless(" ".join(text[: 4 * most].split()))
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _encode(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def show_fields(values: Mapping[str, Any]) -> None:
    """Print a value in each line, with its name; what is not known is left out."""
    known = {name: value for name, value in values.items() if value not in (None, "", [], {})}
    width = max(map(len, known), default=0)
    for name, value in known.items():
        click.echo(f"{name.ljust(width)}  {fit_cell(value, _FIELD)}")


def show_rows(
    heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str] = ()
) -> None:
    """Print a table, plain or by rich; `numbers` are the titles of columns that are set right."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    right = [head in numbers for head in heads]
    lines = [_line([head.upper() for head in heads], widths, right)]
    lines += [_line(row, widths, right) for row in rows]
    show_table(heads, rows, "\n".join(lines), numbers)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    padded = (
        cell.rjust(width) if flush else cell.ljust(width)
        for cell, width, flush in zip(cells, widths, right, strict=True)
    )
    return "  ".join(padded).rstrip()
