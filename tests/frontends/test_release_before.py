"""Nodes of 2.6.0, which knows no steps, beside ones that do, on both engines, by their statements.

An upgrade while runs are under way: the old node has claimed some, the schema moves, new nodes
start, the old one dies or stops.  Nothing is lost, nothing is begun twice, and nothing ends for
want of somebody who hosts it.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from legation.migrations.catalogue import CATALOGUE
from legation.migrations.schema_version import Version
from legation.store.nodes import Beat, Bury
from legation.store.run_keeping import ClaimWaiting, FindNeglected, ReleaseRun
from legation.store.run_reads import FetchRun
from legation.store.run_rows import ClaimedRun, RunLease, RunRow, StoredEvent
from legation.store.run_steering import ContinueRun
from legation.store.runs import AppendEvents, Ended, FinishRun, StartRun
from legation.store.steps import FetchSteps, Records, Step, StepKind

from ..drivers import Driver
from .migrating import driver_of, move
from .release_before import (
    Append260,
    Claim260,
    Continue260,
    Delete260,
    Enter260,
    FindExpired260,
    Finish260,
    Release260,
    Start260,
)

HOSTED: Final = ("agent:desk",)
BEFORE: Final = Version(2, 6, 0)
CALL: Final = Step("1.1", StepKind.CALL, "book", 5)


@pytest.fixture(params=["sqlite", "postgresql"])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Driver]:
    """A database of the release before, with a node of it."""
    url = f"sqlite:///{tmp_path}/main.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres")
    with closing(driver_of(url)) as made:
        move(made, BEFORE)
        made.run(Enter260("old"))
        yield made


def enter(driver: Driver, *nodes: str) -> None:
    for node in nodes:
        latest = str(CATALOGUE.latest)
        driver.run(Beat(node, 3_600_000_000, 0, HOSTED, "", False, "1", latest))


def start_old(driver: Driver, run_id: str, session_id: str = "s") -> bool:
    unit = Start260("o", session_id, run_id, "agent", "desk", "{}", "old", 1)
    return driver.run(unit) is not None


def row_of(driver: Driver, run_id: str) -> RunRow:
    row = driver.run(FetchRun(run_id, "o"))
    assert row is not None
    return row


def lease_of(driver: Driver, run_id: str) -> RunLease:
    """Return the lease of a run, whatever the version of the schema is."""
    ((node, attempt),) = driver.ask(f"select lease_by, attempt from runs where run_id = '{run_id}'")
    return RunLease(node, attempt)


def event(driver: Driver, run_id: str) -> tuple[StoredEvent, ...]:
    """Return the next event of a run."""
    ((events,),) = driver.ask(f"select events from runs where run_id = '{run_id}'")
    return (StoredEvent(events + 1, "e", "{}"),)


def append_old(driver: Driver, run_id: str) -> bool | None:
    lease = lease_of(driver, run_id)
    return driver.run(Append260("o", run_id, lease, 2, event(driver, run_id)))


def append_new(driver: Driver, run_id: str) -> bool | None:
    events, lease = event(driver, run_id), lease_of(driver, run_id)
    unit = AppendEvents("o", run_id, lease, 2, events, events[0].seq, Records((CALL,)))
    return driver.run(unit)


def finish_old(driver: Driver, run_id: str, status: str = "COMPLETED", **more: Any) -> Ended:
    ((session_id,),) = driver.ask(f"select session_id from runs where run_id = '{run_id}'")
    lease, events = lease_of(driver, run_id), event(driver, run_id)
    unit = Finish260("o", session_id, run_id, lease, "old", 9, status, events, HOSTED, **more)
    return driver.run(unit)


def finish_new(driver: Driver, run_id: str, status: str = "COMPLETED") -> Ended:
    row = row_of(driver, run_id)
    return driver.run(
        FinishRun(
            owner="o",
            session_id=row.session_id,
            run_id=run_id,
            lease=row.lease,
            node="new",
            now_us=9,
            status=status,
            output="{}",
            reason=None,
            usage=None,
            events=event(driver, run_id),
            hosted=HOSTED,
            input="{}" if status == "PAUSED" else None,
        )
    )


def release_new(driver: Driver, run_id: str) -> bool:
    return driver.run(ReleaseRun("o", run_id, row_of(driver, run_id).lease, lapsed=True))


# --- an old node works on


def test_an_old_node_carries_its_runs_through_the_move(driver: Driver) -> None:
    """Started, queued, paused and continued before it, at work during it, ended after it."""
    assert start_old(driver, "work")
    assert not start_old(driver, "queued")
    assert start_old(driver, "paused", "t")
    assert append_old(driver, "work") is False
    assert finish_old(driver, "paused", "PAUSED", input="{}").kept
    move(driver, CATALOGUE.latest)
    enter(driver, "new")

    assert append_old(driver, "work") is False
    ended = finish_old(driver, "work")
    assert ended.following is not None
    assert (ended.kept, ended.following.run_id) == (True, "queued")
    assert append_old(driver, "queued") is False
    continued = driver.run(Continue260("o", "t", "paused", 1, "{}", "k", "old", 3, HOSTED))
    assert continued.claim is not None
    for run_id in ("queued", "paused"):
        assert finish_old(driver, run_id).kept
        assert row_of(driver, run_id).status == "COMPLETED"
    assert start_old(driver, "later", "u")
    assert finish_old(driver, "later").kept


@pytest.mark.parametrize("reaper", ["old", "new"])
def test_what_an_old_node_executed_is_not_recorded_and_ends_as_interrupted(
    driver: Driver, reaper: str
) -> None:
    start_old(driver, "before")
    append_old(driver, "before")
    move(driver, CATALOGUE.latest)
    enter(driver, "new")
    start_old(driver, "after", "t")
    append_old(driver, "after")
    driver.run(Bury(("old",)))
    if reaper == "old":
        driver.run(Enter260("old too"))
        found = {one.run_id: one.untouched for one in driver.run(FindExpired260())}
        assert found == {"before": False, "after": False}
    for row in driver.run(FindNeglected(HOSTED)).expired:
        assert (row.untouched, row.is_recorded) == (False, False)
        assert not release_new(driver, row.run_id)
        assert finish_old(driver, row.run_id, "ERROR", lapsed=True, reason="interrupted").kept
        assert row_of(driver, row.run_id).reason == "interrupted"


@pytest.mark.parametrize("claims", [1, 2])
def test_one_that_it_had_only_claimed_waits_and_is_recorded_by_the_next(
    driver: Driver, claims: int
) -> None:
    start_old(driver, "r")
    move(driver, CATALOGUE.latest)
    enter(driver, "new")
    for attempt in range(1, claims):
        assert driver.run(Release260("o", "r", RunLease("old", attempt)))
        assert driver.run(Claim260("old", 5, HOSTED)) is not None
    driver.run(Bury(("old",)))

    assert row_of(driver, "r").untouched
    assert release_new(driver, "r")
    claimed = driver.run(ClaimWaiting("new", 7, HOSTED))
    assert isinstance(claimed, ClaimedRun)
    row = row_of(driver, "r")
    assert (row.attempt, row.is_recorded) == (claims + 1, True)


def test_a_pause_of_either_is_continued_by_the_other(driver: Driver) -> None:
    start_old(driver, "of old")
    append_old(driver, "of old")
    finish_old(driver, "of old", "PAUSED", input="{}")
    move(driver, CATALOGUE.latest)
    enter(driver, "new")
    driver.run(StartRun("o", "t", "of new", "agent", "desk", "{}", "", "new", 1))
    append_new(driver, "of new")
    finish_new(driver, "of new", "PAUSED")

    by_new = ContinueRun("o", "s", "of old", 1, "{}", "k", "new", 3, HOSTED)
    by_old = Continue260("o", "t", "of new", 1, "{}", "k", "old", 3, HOSTED)
    assert driver.run(by_new).claim is not None
    assert driver.run(by_old).claim is not None
    assert row_of(driver, "of old").is_recorded
    assert not row_of(driver, "of new").is_recorded
    append_old(driver, "of new")
    driver.run(Bury(("old",)))
    assert not release_new(driver, "of new")


# --- what has to go on


def test_a_run_that_has_to_go_on_waits_until_no_old_node_is_there(driver: Driver) -> None:
    """No old node can claim it: it is not released as long as there is one."""
    move(driver, CATALOGUE.latest)
    enter(driver, "new", "dead")
    driver.run(StartRun("o", "s", "r", "agent", "desk", "{}", "", "dead", 1))
    append_new(driver, "r")
    driver.run(Bury(("dead",)))

    for _ in range(2):
        assert not release_new(driver, "r")
        assert driver.run(Claim260("old", 5, HOSTED)) is None
    assert not driver.run(Release260("o", "r", RunLease("dead", 1), True))

    driver.run(Bury(("old",)))
    assert release_new(driver, "r")
    claimed = driver.run(ClaimWaiting("new", 7, HOSTED))
    assert isinstance(claimed, ClaimedRun)
    assert (claimed.events, claimed.tries) == (1, 2)
    assert [step.place for step in driver.run(FetchSteps("o", "r"))] == ["1.1"]


def test_a_node_that_says_another_version_of_the_schema_is_a_new_one(driver: Driver) -> None:
    move(driver, CATALOGUE.latest)
    driver.run(Bury(("old",)))
    enter(driver, "new", "dead", "third")
    driver.run(StartRun("o", "s", "r", "agent", "desk", "{}", "", "dead", 1))
    append_new(driver, "r")
    driver.run(Bury(("dead",)))
    assert release_new(driver, "r")


def test_what_an_old_node_deletes_leaves_steps_that_nobody_can_read(driver: Driver) -> None:
    """As `docs/howto/migrating.md` says, with the statement that removes them."""
    move(driver, CATALOGUE.latest)
    enter(driver, "new")
    for session_id in ("s", "t"):
        driver.run(StartRun("o", session_id, session_id, "agent", "desk", "{}", "", "new", 1))
        append_new(driver, session_id)
    driver.run(Delete260("o", "s"))

    assert driver.run(FetchSteps("o", "s")) == ()
    assert driver.ask("select run_id from steps order by 1") == [("s",), ("t",)]
    page = Path(__file__).parents[2] / "docs" / "howto" / "migrating.md"
    statement = "delete from steps where run_id not in (select run_id from runs)"
    assert statement in page.read_text("utf-8")
    driver.ask(statement)
    assert driver.ask("select run_id from steps") == [("t",)]


# --- and back


def test_on_the_way_down_what_has_to_go_on_ends_as_interrupted(driver: Driver) -> None:
    """It waits, or was claimed to go on and has not: nodes of 2.6.0 find both, and end both."""
    move(driver, CATALOGUE.latest)
    driver.run(Bury(("old",)))
    enter(driver, "dead", "new")
    for run_id in ("waits", "claimed"):
        driver.run(StartRun("o", run_id, run_id, "agent", "desk", "{}", "", "dead", 1))
        append_new(driver, run_id)
    driver.run(StartRun("o", "fresh", "fresh", "agent", "desk", "{}", "", "dead", 1))
    driver.run(Bury(("dead",)))
    for run_id in ("claimed", "fresh"):
        assert release_new(driver, run_id)
    assert driver.run(ClaimWaiting("new", 7, HOSTED)) is not None
    assert driver.run(ClaimWaiting("new", 7, HOSTED)) is not None
    assert release_new(driver, "waits")
    driver.run(Bury(("new",)))
    assert row_of(driver, "claimed").reason == row_of(driver, "waits").reason == "recorded"
    move(driver, BEFORE)
    driver.run(Enter260("old"))

    assert driver.run(Claim260("old", 5, HOSTED)) is None
    found = {one.run_id: one.untouched for one in driver.run(FindExpired260())}
    assert found == {"waits": False, "claimed": False, "fresh": True}
    assert driver.run(Release260("o", "fresh", RunLease("new", 2), True))
    for run_id in ("waits", "claimed"):
        assert not driver.run(Release260("o", run_id, lease_of(driver, run_id), True))
        lease, one = lease_of(driver, run_id), (StoredEvent(2, "e", "{}"),)
        end = Finish260("o", run_id, run_id, lease, "old", 9, "ERROR", one, HOSTED, lapsed=True)
        assert driver.run(end).kept
    assert driver.ask("select run_id, status from runs order by 1") == [
        ("claimed", "ERROR"),
        ("fresh", "PENDING"),
        ("waits", "ERROR"),
    ]


def test_the_way_down_loses_what_it_says(driver: Driver) -> None:
    move(driver, CATALOGUE.latest)
    enter(driver, "new")
    driver.run(StartRun("o", "s", "r", "agent", "desk", "{}", "", "new", 1))
    append_new(driver, "r")
    kept = "select run_id, status, events, attempt, lease_by from runs"
    before, events = driver.ask(kept), driver.ask("select seq, name, data from events")
    move(driver, BEFORE)
    assert (driver.ask(kept), driver.ask("select seq, name, data from events")) == (before, events)
    move(driver, CATALOGUE.latest)

    assert driver.ask(kept) == before
    assert driver.run(FetchSteps("o", "r")) == ()
    row = row_of(driver, "r")
    assert (row.tries, row.recorded, row.is_recorded) == (0, 0, False)
    (after,) = (one for one in CATALOGUE.migrations if one.version == Version(2, 7, 0))
    loses = " ".join(after.loses)
    for word in ("steps", "definitions", "runs.tries", "runs.recorded"):
        assert word in loses
