"""The console with much to show: long lists draw what is new, and long names break nothing."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Final

import pytest

from ..browser import NoBrowser
from .console_kit import Console, console
from .console_world import World, copy_run, world

RUNS: Final = 400
MOST: Final = 200  # rows that are kept, as store.js has it
GROUP: Final = 50

_ROWS: Final = "[...document.querySelectorAll('tbody tr')]"
_OBSERVE: Final = f"""
window.rows = {_ROWS};
window.changes = {{added: 0, removed: 0}};
new MutationObserver((records) => {{
  for (const {{addedNodes, removedNodes}} of records) {{
    changes.added += [...addedNodes].filter((one) => one.nodeType === 1).length;
    changes.removed += [...removedNodes].filter((one) => one.nodeType === 1).length;
  }}
}}).observe(document.querySelector("table"), {{childList: true, subtree: true}});
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("office")
    with world(folder) as office:
        run = office.run("look up Ritz", session_id="many")
        copy_run(folder / "office.db", run["run_id"], RUNS - 1)
        yield office


@pytest.fixture(scope="module")
def shown(served: World) -> Generator[Console]:
    """A browser that is gone before the office is."""
    try:
        with console() as started:
            started.origin = served.origin
            yield started
    except NoBrowser as reason:
        pytest.skip(str(reason))


def show_more(shown: Console) -> None:
    last = "document.querySelector('tbody tr:last-child a').href"
    before = shown.page.run(last)
    shown.click("Show more")
    shown.page.wait(f"{last} !== {json.dumps(before)}")


def test_another_page_of_a_long_list_draws_its_own_rows_alone(
    shown: Console, served: World
) -> None:
    shown.open(served.origin, served.token("runs:read"), "/runs")
    shown.wait_for("button", "Show more")
    for _ in range(MOST // GROUP - 1):
        show_more(shown)
    assert shown.page.run(f"{_ROWS}.length") == MOST

    shown.page.run(_OBSERVE)
    show_more(shown)

    assert shown.page.run("changes") == {"added": GROUP, "removed": GROUP}
    assert shown.page.run(
        f"{_ROWS}.slice(0, -{GROUP}).every((row, i) => row === rows[{GROUP} + i])"
    )
    shown.wait_text("50 rows before these")
    while shown.find("button", "Show more"):
        show_more(shown)
    assert shown.page.run(f"{_ROWS}.length") == MOST
    shown.click("Back to the first")
    shown.page.wait(f"{_ROWS}.length === {GROUP}")
    shown.assert_clean()
