"""The move to 2.6.0 and back, with rows in every table: leases without an end, and nothing lost."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from legation.migrations.catalogue import CATALOGUE
from legation.migrations.schema_version import Version
from legation.store.leases import FOREVER

from ..drivers import Driver
from .migrating import LATEST, asked, driver_of, published, shape

BEFORE: Final = Version(2, 5, 6)
NOW_US: Final = 1_800_000_000_000_000

# By table: the columns of a row, and rows.  A lease with an end is one of a node of 2.5.6.
ROWS: Final[dict[str, tuple[str, list[str]]]] = {
    "sessions": (
        "owner, session_id, kind, component_id, created_us, updated_us",
        ["'ada', 's', 'agent', 'concierge', 1, 2"],
    ),
    "runs": (
        (
            "owner, session_id, run_no, run_id, kind, component_id, status, input, created_us,"
            " reason, lease_by, lease_us, attempt, usage"
        ),
        [
            (
                f"'ada', 's', 1, 'r1', 'agent', 'concierge', 'RUNNING', '1', 1,"
                f" 'claimed:a', 'n1', {NOW_US}, 1, null"
            ),
            (
                "'ada', 's', 2, 'r2', 'agent', 'concierge', 'PENDING', '2', 1,"
                " 'waiting', null, null, 0, null"
            ),
            (
                "'ada', 's', 3, 'r3', 'agent', 'concierge', 'COMPLETED', '3', 1,"
                " null, null, null, 1, '{}'"
            ),
        ],
    ),
    "events": ("run_id, seq, at_us, name, data", ["'r1', 1, 5, 'RunStarted', '{}'"]),
    "inbox": (
        "channel, message_id, sender, payload, state, received_us, ready_us, lease_by, lease_us",
        [
            f"'chat', 'm1', '4911', '{{}}', 'ready', 1, 1, 'n1', {NOW_US}",
            "'chat', 'm2', '4912', '{}', 'done', 1, 1, null, null",
        ],
    ),
    "outbox": (
        "channel, idempotency_key, recipient, payload, created_us, ready_us, lease_by, lease_us",
        [
            f"'chat', 'k1', '4911', '{{}}', 1, 1, 'n1', {NOW_US}",
            "'chat', 'k2', '4912', '{}', 1, 1, null, null",
        ],
    ),
    "audit": (
        (
            "writer, seq, at_us, request_id, operation, resource, decision, scope, status, client,"
            " hash, previous"
        ),
        ["'n1', 1, 1, 'r', 'get_agent', 'concierge', 'allow', 'agents:read', 200, 'c', 'h', 'p'"],
    ),
    "idempotency": (
        "owner, route, key, fingerprint, created_us, expires_us",
        ["'ada', 'POST /agents', 'k', 'f', 1, 2"],
    ),
    "nodes": (
        "node_id, started_us, beat_us, code_version, schema_version",
        ["'n1', 1, 2, '0.1.0', '2.5.6'"],
    ),
    "background": ("name, lease_by, lease_us", [f"'prune', 'n1', {NOW_US}"]),
}
LEASED: Final = ("runs", "inbox", "outbox")

# As nodes of 2.5.6 ask for what nobody works on.
FORSAKEN: Final = (
    f"select run_id from runs where status = 'RUNNING' and lease_us < {NOW_US}",
    f"select message_id from inbox where state = 'ready' and coalesce(lease_us, 0) <= {NOW_US}",
    (
        f"select idempotency_key from outbox where state = 'ready'"
        f" and coalesce(lease_us, 0) <= {NOW_US} and lease_by is not null"
    ),
)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'main.db'}"
    made: str = request.getfixturevalue("postgres")
    return made


async def migrate(url: str, query: str = "") -> Any:
    async with asked(url) as ask:
        return await ask("POST", f"/databases/main/migrate{query}")


async def reach(url: str, query: str, version: object) -> None:
    reply = await migrate(url, query)
    assert (reply.status, reply.json.get("to_version")) == (200, str(version)), reply.json


def fill(driver: Driver) -> None:
    for table, (columns, rows) in ROWS.items():
        for row in rows:
            driver.ask(f"insert into {table} ({columns}) values ({row})")


def read(driver: Driver) -> dict[str, list[tuple[Any, ...]]]:
    """Return what was filled in, by table."""
    return {
        table: [tuple(row) for row in driver.ask(f"select {columns} from {table} {_asked(table)}")]
        for table, (columns, _) in ROWS.items()
    }


def _asked(table: str) -> str:
    """Return the rest of the question: whoever migrates is a node itself."""
    among = "where node_id = 'n1'" if table == "nodes" else ""
    return f"{among} order by 1, 2, 3"


def lines(text: str) -> set[tuple[str, str]]:
    """Return each line of a schema with its table."""
    found, table = set[tuple[str, str]](), ""
    for line in text.splitlines():
        if line.startswith("table "):
            table = line.split()[1]
        else:
            found.add((table, line.strip()))
    return found


def forsaken(driver: Driver) -> list[str]:
    return [row[0] for text in FORSAKEN for row in driver.ask(text)]


def test_every_table_has_a_row_here() -> None:
    tables = {table for table, _ in lines(published("sqlite:", str(BEFORE)))}

    beside = {"schema_ledger", "trail", "trail_subjects", "trail_kept"}
    assert tables - beside == ROWS.keys()


async def test_rows_of_every_table_go_up_and_down_and_up(url: str) -> None:
    await reach(url, f"?target_version={BEFORE}", BEFORE)
    with closing(driver_of(url)) as driver:
        fill(driver)
        rows = read(driver)

    for _ in range(2):
        await reach(url, "", LATEST)
        assert shape(url, ledger=True) == published(url, LATEST)
        with closing(driver_of(url)) as driver:
            assert read(driver) == rows
            assert driver.ask("select one, up_us, beats from cluster") == [(1, 0, 0)]
            assert driver.ask("select distinct token, version from runs") == [(None, None)]
        await reach(url, f"?target_version={BEFORE}&allow_data_loss=true", BEFORE)
        assert shape(url, ledger=True) == published(url, str(BEFORE))
        with closing(driver_of(url)) as driver:
            assert read(driver) == rows


async def test_leases_without_an_end_are_left_alone_until_the_way_down_ends_them(url: str) -> None:
    await reach(url, "", LATEST)
    with closing(driver_of(url)) as driver:
        fill(driver)
        before = forsaken(driver)
        for table in LEASED:
            driver.ask(f"update {table} set lease_us = {FOREVER} where lease_by is not null")
        at_latest = forsaken(driver)
    await reach(url, f"?target_version={BEFORE}&allow_data_loss=true", BEFORE)

    with closing(driver_of(url)) as driver:
        after = forsaken(driver)
        ends = {table: driver.ask(f"select max(lease_us) from {table}")[0][0] for table in LEASED}
        (background,) = driver.ask("select lease_us from background")

    assert (before, at_latest, after) == (["m1", "k1"], [], ["r1", "m1", "k1"])
    assert ends == {"runs": 0, "inbox": 0, "outbox": 0}
    assert tuple(background) == (NOW_US,)


async def test_leases_with_an_end_keep_it_on_the_way_down(url: str) -> None:
    await reach(url, "", LATEST)
    with closing(driver_of(url)) as driver:
        fill(driver)
    await reach(url, f"?target_version={BEFORE}&allow_data_loss=true", BEFORE)

    with closing(driver_of(url)) as driver:
        ends = {driver.ask(f"select max(lease_us) from {table}")[0][0] for table in LEASED}
    assert ends == {NOW_US}


async def test_who_names_the_version_before_is_refused_with_what_it_costs(url: str) -> None:
    """A client made for AgentOS 2.5.6 may ask for its own version."""
    await reach(url, "", LATEST)
    refused = await migrate(url, f"?target_version={BEFORE}")

    assert (refused.status, refused.json["error_code"]) == (400, "BAD_REQUEST")
    for migration in CATALOGUE.migrations[-2:]:
        for loss in migration.loses:
            assert loss in refused.detail
    first = CATALOGUE.migrations[-1].loses[0]
    assert refused.detail.startswith(f"Going down to 2.5.6 discards {first}")
    assert refused.detail.endswith("allow_data_loss=true accepts that")
    async with asked(url) as ask:
        assert await ask.stands() == (LATEST, "current")


@pytest.mark.parametrize("engine", ["sqlite:", "postgresql:"])
def test_what_it_adds_is_in_no_statement_s_way(engine: str) -> None:
    """Every column is where it was, and what is new may be left out of an insert."""
    before, after = lines(published(engine, str(BEFORE))), lines(published(engine, "2.6.0"))
    new = {(table, line) for table, line in after - before if table != "cluster"}

    assert before <= after
    assert {table for table, _ in new} == {"nodes", "runs"}
    assert not [line for _, line in new if "not null" in line and "default" not in line]
