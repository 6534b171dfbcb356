"""Texts that are stored once, on both engines: what is read is what was stored."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from legation.http.messages import compact_json
from legation.migrations.catalogue import CATALOGUE
from legation.migrations.schema_version import Version
from legation.store.once import LEAST, message_of
from legation.store.run_reads import FetchEvents, FetchRun, RecentRuns
from legation.store.run_rows import RunLease, StoredEvent
from legation.store.runs import FinishRun, StartRun

from ..drivers import Driver, PostgresDriver, SqliteDriver
from .migrating import with_tables

PIECES: Final = st.sampled_from(
    ["a", r"\u001A", r"\u001b", "\x1a", "\\", '"', "\n", "%", "\u00e9\u2028", "\U0001f600", "\0"]
)
LONG: Final = st.lists(PIECES, max_size=6).map(lambda pieces: ("".join(pieces) * LEAST)[:4096])


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Generator[Driver]:
    with closing(SqliteDriver(tmp_path_factory.mktemp("once") / "main.db")) as driver:
        yield with_tables(driver)


@pytest.fixture
def postgresql(postgres: str) -> Generator[Driver]:
    with closing(PostgresDriver(postgres)) as driver:
        yield with_tables(driver)


@pytest.fixture(params=["sqlite", "postgresql"])
def driver(request: pytest.FixtureRequest) -> Driver:
    made: Driver = request.getfixturevalue(request.param)
    return made


def forget(driver: Driver) -> None:
    for table in ("events", "runs", "sessions"):
        driver.ask(f"delete from {table}")


def store(driver: Driver, message: str, content: Any) -> FinishRun:
    """Store a run with `message` and `content`; return the end that was stored."""
    asked = compact_json({"message": message, "stream": False})
    driver.run(StartRun("ada", "s", "r", "agent", "desk", asked, "", "n", 1))
    said = [{"content": message}, {"content": content}]
    head = {"content": content, "content_type": "str", "messages": said, "padding": "-" * 2048}
    unit = FinishRun(
        owner="ada",
        session_id="s",
        run_id="r",
        lease=RunLease("n", 1),
        node="n",
        now_us=8,
        status="COMPLETED",
        output=compact_json({"run_id": "r", **head, "session_state": {}}),
        reason=None,
        usage=None,
        events=(StoredEvent(1, "RunCompleted", compact_json({"content": content, "in": said})),),
        hosted=(),
        message=message_of(asked),
    )
    assert driver.run(unit).kept
    return unit


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=LONG, content=LONG | st.none() | st.lists(PIECES))
def test_engines_give_back_what_was_stored(driver: Driver, message: str, content: Any) -> None:
    forget(driver)
    unit = store(driver, message, content)

    row = driver.run(FetchRun("r", "ada"))
    assert row is not None
    assert row.output == unit.output
    assert driver.run(RecentRuns("ada", "s", 2, 5)) == ((1, unit.output),)
    page = driver.run(FetchEvents("ada", "r", 0))
    assert page.events == unit.events


def test_a_mebibyte_is_whole_again_after_the_way_down(driver: Driver) -> None:
    forget(driver)
    message, answer = "Where? " * 150_000, 'It is "up" \U0001f600. ' * 70_000
    unit = store(driver, message, answer)
    ((output, data),) = driver.ask("select output, data from runs join events using (run_id)")
    assert len(output) + len(data) < len(compact_json(answer)) + 8192

    since = [one for one in CATALOGUE.migrations if one.version >= Version(2, 9)]
    for migration in reversed(since):
        for step in migration.down or ():
            if (statement := step.statement(driver.dialect)) is not None:
                driver.ask(statement.text(driver.dialect))
    stored = driver.ask("select output, data from runs join events using (run_id)")

    # Compared apart from the assertion, which would look for the difference of such texts for long.
    is_whole = [tuple(row) for row in stored] == [(unit.output, unit.events[0].data)]
    assert is_whole
