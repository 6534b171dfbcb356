"""The picture of the page of concepts: how agents, sessions, runs and nodes stand to each other."""

from __future__ import annotations

from html import escape
from typing import Final

__all__ = ["draw"]

_TITLE: Final = (
    "Clients and messengers reach a node; agents and teams in it call models and tools; "
    "sessions, runs and steps are in the database"
)
_TIP: Final = (
    '<defs><marker id="reach" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
    ' orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs>'
)


def draw() -> str:
    """Return the picture as SVG; it is narrow, so that a telephone shows it."""
    parts = (
        f'<svg class="concepts" viewBox="0 0 480 516" role="img" aria-label="{escape(_TITLE)}">',
        _TIP,
        _node(),
        _outside(),
        _database(),
        "</svg>",
    )
    return "".join(parts)


def _outside() -> str:
    return "".join(
        (
            _box("outer", 20, 4, 200, 46, "Client", "a token with scopes"),
            _box("outer", 260, 4, 200, 46, "Messenger", "signed webhooks"),
            _arrow(120, 50, 120, 118),
            _arrow(360, 50, 360, 118),
        )
    )


def _node() -> str:
    return "".join(
        (
            _frame(6, 82, 468, 232, "Node: a process that serves the platform"),
            _box("inner", 20, 120, 200, 46, "Agent", "instructions, model, tools"),
            _box("inner", 260, 120, 200, 46, "Channel", "WhatsApp, Slack, …"),
            _arrow(260, 143, 222, 143),
            _box("inner", 20, 186, 200, 112, "Team", "a leader and its members"),
            _box("small", 34, 240, 80, 44, "Agent"),
            _box("small", 126, 240, 80, 44, "Agent"),
            _box("outer", 330, 192, 130, 46, "Model", "of a provider"),
            _box("outer", 330, 252, 130, 46, "Tool", "your function"),
            _arrow(220, 160, 328, 210),
            _arrow(220, 160, 328, 270),
        )
    )


def _database() -> str:
    runs = "".join(_run(34 + 140 * index, number) for index, number in enumerate((2, 4, 3)))
    return "".join(
        (
            _arrow(240, 314, 240, 342),
            _frame(6, 344, 468, 166, "Database: SQLite or PostgreSQL"),
            _box("inner", 20, 380, 440, 118, "Session", "a conversation of one user"),
            runs,
        )
    )


def _run(left: int, steps: int) -> str:
    squares = "".join(
        f'<rect class="step" x="{left + 48 + 20 * index}" y="446" width="14" height="14"/>'
        for index in range(steps)
    )
    return "".join(
        (
            f'<rect class="small" x="{left}" y="430" width="132" height="58" rx="5"/>',
            _text("term", left + 24, 458, "Run"),
            squares,
            _text("note", left + 66, 480, "steps"),
        )
    )


def _box(kind: str, x: int, y: int, wide: int, high: int, term: str, note: str = "") -> str:
    middle = x + wide // 2
    lines = _text("term", middle, y + (20 if note else high // 2 + 5), term)
    lines += _text("note", middle, y + 37, note) if note else ""
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{wide}" height="{high}" rx="6"/>{lines}'


def _frame(x: int, y: int, wide: int, high: int, term: str) -> str:
    frame = f'<rect class="frame" x="{x}" y="{y}" width="{wide}" height="{high}" rx="9"/>'
    return frame + _text("term", x + wide // 2, y + 22, term)


def _arrow(x1: int, y1: int, x2: int, y2: int) -> str:
    return f'<line class="reach" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'


def _text(kind: str, x: int, y: int, text: str) -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{escape(text)}</text>'
