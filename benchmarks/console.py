"""The usability of the console with 100,000 runs, and with a run of 5,000 events.

    python benchmarks/console.py

A real Chromium reads pages of the list beyond the most rows that are kept, and scrolls through the
steps of the run.  It needs what the tests need (`--group test`), and a machine that does nothing
else.  Buttons are not looked for by their roles here: that makes a tree for screen readers, which
costs as much as the drawing.  The answers are the longest task of the page, in milliseconds (what
is shorter than 50 counts as none), and its heap behind a collection of garbage, in megabytes.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.frontends.console_kit import Console, console
from tests.frontends.console_world import World, copy_run, world

RUNS: Final = 100_000
EVENTS: Final = 5_000
PAGES: Final = 12
AIM_MS: Final = 50.0
AIM_BYTES: Final = 100 << 20

_OBSERVE: Final = """
window.tasks = [0];
new PerformanceObserver((list) => tasks.push(...list.getEntries().map((task) => task.duration)))
  .observe({entryTypes: ["longtask"]});
"""
_LAST: Final = "document.querySelector('tbody tr:last-child a')?.href"
_MORE: Final = """
[...document.querySelectorAll("main button")].find((one) => one.innerText === "Show more").click()
"""
_SCROLL: Final = """(async () => {
  const list = document.querySelector(".waterfall ol");
  for (let top = 0; top < list.scrollHeight; top += 3000) {
    list.scrollTop = top;
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  }
  return document.querySelectorAll("*").length;
})()"""


def fill(file: Path, run_id: str) -> str:
    """Copy one run often, and give the first copy many steps; return its id.

    Of the run itself, the server remembers the events.
    """
    copy = copy_run(file, run_id, RUNS)
    with closing(sqlite3.connect(file, timeout=60)) as database, database:
        lengthen(database, run_id, copy)
    return copy


def lengthen(database: sqlite3.Connection, run_id: str, copy: str) -> None:
    """Give a copy of a run many requests to a model between its first and its last event."""
    names = [row[1] for row in database.execute("pragma table_info(events)")]
    rows = database.execute(
        f"select {', '.join(names)} from events where run_id = ? order by seq", (run_id,)
    ).fetchall()
    steps: list[Any] = [dict(zip(names, row, strict=True)) for row in rows]
    pair = [one for one in steps if one["name"].startswith("ModelRequest")][:2]
    made = [steps[0], *(pair * (EVENTS // 2 - 1)), steps[-1]]
    for number, step in enumerate(made, start=1):
        values = {**step, "run_id": copy, "seq": number}
        marks = ", ".join(f":{name}" for name in names)
        database.execute(f"insert into events ({', '.join(names)}) values ({marks})", values)
    database.execute("update runs set events = ? where run_id = ?", (len(made), copy))


def measure(shown: Console) -> tuple[float, int]:
    """Return the longest task so far, and the heap."""
    shown.page.call("HeapProfiler.collectGarbage")
    longest = shown.page.run("Math.max(...tasks)")
    return float(longest), int(shown.page.call("Runtime.getHeapUsage")["usedSize"])


def sign_in(office: World, shown: Console) -> None:
    """Open the console, and observe it from now on."""
    shown.open(office.origin, office.token("runs:read"))
    shown.page.call("Accessibility.disable")
    shown.page.run(f"{_OBSERVE};true")


def watch_list(office: World, shown: Console) -> tuple[float, int]:
    """Read pages of the list of all runs."""
    sign_in(office, shown)
    shown.show("/runs")
    for _ in range(PAGES):
        before = shown.page.wait(_LAST)
        shown.page.run(_MORE)
        shown.page.wait(f"{_LAST} !== {json.dumps(before)}")
    rows = shown.page.run("document.querySelectorAll('tbody tr').length")
    assert 0 < rows <= 250, rows
    return measure(shown)


def watch_run(office: World, shown: Console, run_id: str) -> tuple[float, int]:
    """Scroll through the steps of one run."""
    sign_in(office, shown)
    shown.show(f"/runs/{run_id}?component=agent:clerk&db_id=main")
    count = EVENTS // 2
    shown.page.wait(f"!!document.querySelector('.waterfall li[aria-setsize=\"{count}\"]')")
    elements = shown.page.run(_SCROLL)
    assert elements < 2_000, elements
    return measure(shown)


def main() -> None:
    """Print both answers, and whether they are within the aims."""
    with tempfile.TemporaryDirectory() as folder, world(Path(folder)) as office, console() as shown:
        run = office.run("look up Adlon", session_id="many")
        copy = fill(Path(folder, "office.db"), run["run_id"])
        answers = {
            f"a list of {RUNS} runs": watch_list(office, shown),
            f"a run of {EVENTS} events": watch_run(office, shown, copy),
        }
    for name, (longest, heap) in answers.items():
        kept = "kept" if longest <= AIM_MS and heap <= AIM_BYTES else "MISSED"
        print(f"{name}: longest task {longest:.0f} ms, heap {heap / 1e6:.1f} MB: {kept}")
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
