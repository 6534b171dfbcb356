"""A real PgBouncer in transaction mode between the nodes and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Generator

import anyio
import psycopg
import pytest
import trio

from legation.api.handlers.audit import verify_trail
from legation.store.audit_verify import Intact
from legation.store.failures import StoreFailure
from legation.store.inbox import INBOX
from legation.store.leased_queue import CountItems
from legation_host import Database, open_database

from ..engines import Cluster
from ..pooler import SERVER_CONNECTIONS, NoPooler, pooled, through
from ..relay import relay
from .host_units import Lines
from .test_runs_nodes import RUNS, nodes


@pytest.fixture(scope="module")
def pooler(postgres_cluster: Cluster) -> Generator[int]:
    """The port of the pooler, or a skip that says why there is none."""
    try:
        with pooled(postgres_cluster) as port:
            yield port
    except NoPooler as reason:
        pytest.skip(str(reason))


def test_two_nodes_behind_a_pooler_share_two_connections_and_lose_nothing(
    postgres_database: str, pooler: int, figures: Callable[[str], None]
) -> None:
    """What a session would hold, a prepared statement or a setting, is another one's by then."""
    url = through(postgres_database, pooler)

    async def main() -> None:
        async with nodes(url, 2) as opened:

            async def run(number: int) -> None:
                node = opened[number % 2]
                form = {"message": str(number), "session_id": f"s{number % 4}", "stream": "no"}
                answer = await node.ask("POST", RUNS.format("quick"), **form)
                assert answer["content"] == str(number)

            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    for number in range(40):
                        tasks.start_soon(run, number)
            for session in range(4):
                rows = await opened[0].ask("GET", f"/sessions/s{session}/runs")
                assert [row["status"] for row in rows] == ["COMPLETED"] * 10
            await anyio.sleep(0.3)  # what is recorded is stored within a tenth of a second
            verdict = await opened[0].host.run(verify_trail("main"))
            assert isinstance(verdict, Intact)
            figures(
                f"pgbouncer: 40 runs on 2 nodes over {SERVER_CONNECTIONS} connections, none lost,"
                f" {verdict.entries} rows of the audit trail in {len(verdict.heads)} chains intact"
            )

    trio.run(main)
    with psycopg.connect(postgres_database) as connection:
        row = connection.execute(
            "select count(*) from pg_stat_activity where datname = current_database()"
            " and pid <> pg_backend_pid()"
        ).fetchone()
    assert row is not None
    assert row[0] <= SERVER_CONNECTIONS


@pytest.fixture(params=[("transaction", 2), ("transaction", 1), ("session", 8)], ids=str)
def unnamed(request: pytest.FixtureRequest, postgres_cluster: Cluster) -> Generator[int]:
    """The port of a pooler that no URL tells of."""
    mode, size = request.param
    try:
        with pooled(postgres_cluster, size, mode) as port:
            yield port
    except NoPooler as reason:
        pytest.skip(str(reason))


async def count_messages(database: Database, failed: list[StoreFailure]) -> None:
    """Run units often enough to have them prepared."""
    for _ in range(12):
        try:
            await database.run(CountItems(INBOX))
        except StoreFailure as failure:
            failed.append(failure)


async def strain(database: Database) -> list[StoreFailure]:
    """Return how units of several tasks failed."""
    failed: list[StoreFailure] = []
    async with anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(count_messages, database, failed)
    return failed


def test_a_pooler_is_found_without_the_parameter_and_nothing_fails(
    postgres_database: str, unnamed: int
) -> None:
    lines = Lines()
    url = through(postgres_database, unnamed, "?max_connections=6")

    async def main() -> None:
        async with nodes(url, 1) as (node,):
            for number in range(8):
                form = {"message": str(number), "session_id": "s", "stream": "no"}
                answer = await node.ask("POST", RUNS.format("quick"), **form)
                assert answer["content"] == str(number)
        database = open_database("main", url, lines.write)
        try:
            assert await strain(database) == []
        finally:
            await database.aclose()

    trio.run(main)
    assert [event for _, event, _ in lines] == ["pooler_found"]


def test_nobody_else_behind_the_pooler_gets_our_settings(
    postgres_database: str, pooler: int
) -> None:
    url = through(postgres_database, pooler, "")
    plain = open_database("main", url)
    asked = "select current_setting('default_transaction_read_only')"

    async def main() -> None:
        async with nodes(through(postgres_database, pooler), 1):
            await strain(plain)
            await plain.aclose()

    trio.run(main)
    for _ in range(2 * SERVER_CONNECTIONS):
        with psycopg.connect(url, autocommit=True, prepare_threshold=None) as other:
            assert other.execute(asked).fetchone() == ("off",)


def test_a_pooler_that_comes_later_is_found_when_a_connection_is_made(
    postgres_database: str, postgres_cluster: Cluster, pooler: int
) -> None:
    lines = Lines()

    async def main() -> None:
        async with nodes(through(postgres_database, pooler), 1):
            pass
        with relay(postgres_cluster.port) as way:
            database = open_database("main", through(postgres_database, way.port, ""), lines.write)
            assert await strain(database) == []
            assert list(lines) == []
            way.lead_to(pooler)
            assert await strain(database) == []
            await database.aclose()

    trio.run(main)
    assert [event for _, event, _ in lines] == ["pooler_found"]
