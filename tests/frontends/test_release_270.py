"""Nodes of 2.7.0 beside ones of this release, on both engines: what runs show of the state."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve

from legation.migrations.catalogue import CATALOGUE
from legation.migrations.schema_version import Version
from legation.runs.output import run_output
from legation.store.run_reads import FetchEvents, FetchRun
from legation.store.run_rows import RunLease, StoredEvent
from legation.store.runs import FinishRun, StartRun

from ..drivers import Driver
from .migrating import driver_of, move
from .release_270 import VERSION, Cancel270, Continue270, Delete270, Finish270, Read270, Start270

OLD: Final = '{"content":"x","session_state":{"n":"old"},"status":"COMPLETED","metrics":{}}'
NEW: Final = '{"content":"x","status":"COMPLETED","metrics":{},"session_state":{}}'


@pytest.fixture(params=["sqlite", "postgresql"])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Driver]:
    url = f"sqlite:///{tmp_path}/main.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres")
    with closing(driver_of(url)) as made:
        move(made, VERSION)
        yield made


def start(driver: Driver, run_id: str = "r", state: str = '{"n":1}') -> None:
    unit = StartRun("o", f"s-{run_id}", run_id, "agent", "desk", "{}", "", "n", 1, state=state)
    assert driver.run(unit).claim is not None


def finish_old(driver: Driver, run_id: str = "r", attempt: int = 1, seq: int = 1) -> None:
    event = StoredEvent(seq, "RunCompleted", OLD)
    lease = RunLease("n", attempt)
    unit = Finish270("o", f"s-{run_id}", run_id, lease, 9, "COMPLETED", OLD, event)
    assert driver.run(unit)


def finish_new(driver: Driver, run_id: str = "r", **others: Any) -> None:
    unit = FinishRun(
        owner="o",
        session_id=f"s-{run_id}",
        run_id=run_id,
        lease=RunLease("n", 1),
        node="n",
        now_us=9,
        status="COMPLETED",
        output=NEW,
        reason=None,
        usage=None,
        events=(StoredEvent(1, "RunCompleted", NEW),),
        hosted=("agent:desk",),
    )
    assert driver.run(evolve(unit, **others)).kept


def shown(driver: Driver, run_id: str = "r") -> tuple[Any, Any]:
    """Return the state in the output, and the one in the last event."""
    row = driver.run(FetchRun(run_id, "o"))
    assert row is not None
    last = driver.run(FetchEvents("o", run_id, 0)).events[-1]
    output = run_output(row)
    return output["session_state"], json.loads(last.data).get("session_state")


def test_a_run_that_ended_before_or_on_an_old_node_shows_the_state_that_it_had(
    driver: Driver,
) -> None:
    driver.run(Start270("o", "s-before", "before", "n", 1, '{"n":1}'))
    finish_old(driver, "before")
    move(driver, CATALOGUE.latest)
    start(driver, "after")
    finish_old(driver, "after")

    for run_id in ("before", "after"):
        assert shown(driver, run_id) == ({"n": "old"}, {"n": "old"})


def test_an_old_node_shows_an_empty_state_of_a_run_of_a_new_one(driver: Driver) -> None:
    move(driver, CATALOGUE.latest)
    start(driver)
    finish_new(driver)

    assert shown(driver) == ({"n": 1}, {"n": 1})
    output, events = driver.run(Read270("o", "r"))
    assert (output["session_state"], events) == ({}, (NEW,))


def test_a_pause_of_a_new_node_that_an_old_one_ends_shows_the_state_of_the_end(
    driver: Driver,
) -> None:
    """The row still names the state of the pause."""
    move(driver, CATALOGUE.latest)
    start(driver)
    finish_new(driver, status="PAUSED", input="{}")
    assert driver.run(Continue270("o", "s-r", "r", 1, "n", 10))
    finish_old(driver, attempt=2, seq=2)

    assert shown(driver) == ({"n": "old"}, {"n": "old"})


def test_a_pause_of_a_new_node_that_an_old_one_cancels_shows_the_state_of_the_pause(
    driver: Driver,
) -> None:
    move(driver, CATALOGUE.latest)
    start(driver)
    finish_new(driver, status="PAUSED", input="{}")
    driver.run(Cancel270("o", "s-r", "r", 10))

    assert shown(driver) == ({"n": 1}, None)


def test_what_an_old_node_deletes_leaves_states_that_nobody_can_read(driver: Driver) -> None:
    """As `docs/howto/migrating.md` says, with the statement that removes them."""
    move(driver, CATALOGUE.latest)
    for run_id in ("gone", "stays"):
        start(driver, run_id)
        finish_new(driver, run_id)
    driver.run(Delete270("o", "s-gone"))

    assert driver.run(FetchRun("gone", "o")) is None
    statement = (
        "delete from session_states where not exists (select 1 from sessions"
        " where sessions.owner = session_states.owner"
        " and sessions.session_id = session_states.session_id)"
    )
    page = Path(__file__).parents[2] / "docs" / "howto" / "migrating.md"
    assert statement in " ".join(page.read_text("utf-8").split())
    driver.ask(statement)
    assert driver.ask("select session_id from session_states") == [("s-stays",)]
    assert shown(driver, "stays") == ({"n": 1}, {"n": 1})


def test_the_way_down_loses_what_it_says_and_no_more(driver: Driver) -> None:
    move(driver, CATALOGUE.latest)
    for run_id, finish in (("new", finish_new), ("old", finish_old)):
        start(driver, run_id)
        finish(driver, run_id)
    runs = "select run_id, status, output, events from runs order by run_id"
    sessions = "select session_id, state from sessions order by session_id"
    before = driver.ask(runs), driver.ask(sessions)

    move(driver, VERSION)
    assert (driver.ask(runs), driver.ask(sessions)) == before
    assert driver.run(Read270("o", "new"))[0]["session_state"] == {}
    move(driver, CATALOGUE.latest)

    assert (driver.ask(runs), driver.ask(sessions)) == before
    assert (shown(driver, "new"), shown(driver, "old")) == (({}, {}), ({"n": "old"},) * 2)
    (after,) = (one for one in CATALOGUE.migrations if one.version == Version(2, 8, 0))
    loses = " ".join(after.loses)
    assert "runs.state" in loses
    assert "session_states" in loses
