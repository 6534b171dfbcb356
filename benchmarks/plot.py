"""The drawing of the figures that `http_load` measured; the figures are kept beside it.

    python benchmarks/plot.py RESULTS FOLDER

RESULTS is a folder with what the benchmarks wrote with `--json`; written are `performance.svg`, a
bar of each server for each question, and `performance.json`, the medians of everything there is.
A bar is as long as the logarithm of the CPU time per request: a step of the grid is ten times.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any, Final, TypeAlias

CONNECTIONS: Final = 64
COLOURS: Final = {
    "Legation": "#1f6feb",
    "Legation, heads parsed": "#79b0f7",
    "canned loop, same front": "#8c959f",
    "canned loop, heads parsed": "#c4cad0",
    "FastAPI + PyJWT": "#2da44e",
    "AgentOS 2.5.6": "#cf6f22",
}
TEXT: Final = "#707a84"  # read on white and on black: a page may be either
LINE: Final = 'stroke="#707a84" stroke-opacity="0.35"'
LEFT: Final = 190
WIDTH: Final = 440
BAR: Final = 13
LEAST: Final = 10.0  # microseconds at the left end
MOST: Final = 20_000.0

Value: TypeAlias = "dict[str, Value] | list[Value] | float | str | None"
"""What JSON may hold."""

Figures: TypeAlias = Mapping[str, Mapping[str, Any]]
"""What each server did, by its name."""


def across(microseconds: float) -> float:
    """Return how far to the right a time is."""
    return WIDTH * math.log(microseconds / LEAST) / math.log(MOST / LEAST)


def bars(question: str, figures: Figures, top: int) -> Iterator[str]:
    """Yield one question: its name, and a bar for each server."""
    middle = top + BAR * len(figures) / 2 + 4
    yield f'<text x="{LEFT - 10}" y="{middle:.0f}" text-anchor="end">{escape(question)}</text>'
    for row, (name, figure) in enumerate(figures.items()):
        y, cpu = top + BAR * row, figure["cpu_us"]
        yield (
            f'<rect x="{LEFT}" y="{y}" width="{across(cpu):.1f}" height="{BAR - 2}"'
            f' fill="{COLOURS[name]}"><title>{escape(name)}: {cpu:.0f} µs</title></rect>'
        )
        yield f'<text x="{LEFT + across(cpu) + 4:.1f}" y="{y + BAR - 4}">{cpu:,.0f}</text>'


def legend(names: list[str], top: int) -> Iterator[str]:
    """Yield what the colours mean."""
    for row, name in enumerate(names):
        x, y = LEFT + (row % 2) * 230, top + 18 * (row // 2)
        yield f'<rect x="{x}" y="{y}" width="11" height="11" fill="{COLOURS[name]}"/>'
        yield f'<text x="{x + 17}" y="{y + 10}">{escape(name)}</text>'


def grid(bottom: int) -> Iterator[str]:
    """Yield a line for every power of ten."""
    for power in range(1, 5):
        x = LEFT + across(10**power)
        yield f'<line x1="{x:.1f}" y1="24" x2="{x:.1f}" y2="{bottom}" {LINE}/>'
        yield f'<text x="{x:.1f}" y="18" text-anchor="middle">{10**power:,} µs</text>'


def draw(questions: Mapping[str, Figures]) -> str:
    """Return the drawing as SVG."""
    top, parts = 34, list[str]()
    for question, figures in questions.items():
        parts += bars(question, figures, top)
        top += BAR * len(figures) + 14
    names = [name for name in COLOURS if any(name in figures for figures in questions.values())]
    height = top + 18 * math.ceil(len(names) / 2) + 8
    begin = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {height}"'
        f' font-family="sans-serif" font-size="11" fill="{TEXT}" role="img"'
        ' aria-label="CPU time per request of each server">'
    )
    return "\n".join([begin, *grid(top - 8), *parts, *legend(names, top + 4), "</svg>\n"])


def medians(value: Value) -> Value:
    """Return `value` without the single rounds, and with three digits of each number."""
    if isinstance(value, dict):
        return {name: medians(one) for name, one in value.items() if name != "rounds"}
    if isinstance(value, list):
        return [medians(one) for one in value]
    if isinstance(value, float):
        return None if math.isnan(value) else float(f"{value:.3g}")
    return value


def main() -> None:
    """Draw, and write."""
    results, folder = Path(sys.argv[1]), Path(sys.argv[2])
    every = {path.stem: json.loads(path.read_text()) for path in results.glob("*.json")}
    (folder / "performance.json").write_text(
        json.dumps(medians(every), indent=2, sort_keys=True) + "\n"
    )
    load = every["http_load"]
    ending = f", {CONNECTIONS}"
    questions = {
        name.removesuffix(ending): {
            server: figure
            for server, figure in load[name].items()
            if not math.isnan(figure["cpu_us"])  # nothing was answered in the time
        }
        for name in load
        if name.endswith(ending)
    }
    (folder / "performance.svg").write_text(draw(questions))


if __name__ == "__main__":
    main()
