"""The console with much to show: long lists draw what is new, and long names break nothing."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Final

import pytest

from ..browser import NoBrowser
from .console_kit import NARROW, Console, console
from .console_world import World, copy_run, world

RUNS: Final = 400
MOST: Final = 150  # rows that are kept, as store.js has it
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


# --- Long names, and hostile ones -----------------------------------------------------------------

WIDE: Final = "W" * 10_000
LONG: Final = f"first\nsecond\u202eesrever <img src=x onerror='window.ran = 1'> {WIDE}"
SEEN: Final = {
    "/overview": "wait for a person",
    "/agents": WIDE,
    "/agents/agent/clerk": WIDE,
    "/agents/team/desk": WIDE,
    "/playground/agent/clerk": "What you write is sent to it",
    "/runs": WIDE,
    "/runs/{run}?component=agent:clerk&db_id=main": WIDE,
    "/sessions?db_id=main": "W" * 100,
    "/sessions/long?type=agent&db_id=main&user_id=bob": WIDE,
    "/approvals": WIDE,
    "/incidents": "model_overloaded",
    "/audit": "W" * 100,
    "/settings": WIDE,
}
"""What can be read on each screen, in the end."""

TALLEST: Final = 200  # CSS pixels of a heading, which leaves most of a telephone to the rest


def test_long_and_hostile_texts_stay_within_a_telephone(
    shown: Console, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with world(tmp_path_factory.mktemp("long"), title=LONG) as office:
        run = office.run(f"look up {LONG}", session_id="long")
        office.run(f"pay {LONG}", session_id="waits")
        office.run("fail", session_id="fails")
        shown.open(office.origin, office.token("platform:admin", sub=LONG[-200:]))
        shown.resize(*NARROW)
        for place, seen in SEEN.items():
            shown.show(place.format(run=run["run_id"]))
            shown.wait_text(seen)
            assert shown.overflow() == [], place
            assert shown.page.run("document.querySelector('h1').offsetHeight") < TALLEST, place
        assert shown.page.run("'ran' in window") is False
        shown.assert_clean()
        shown.page.go("about:blank")
