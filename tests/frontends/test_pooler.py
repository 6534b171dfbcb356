"""A real PgBouncer in transaction mode between the nodes and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Generator

import anyio
import psycopg
import pytest
import trio

from legation.resources.audit import verify_trail
from legation.store.audit import Intact
from legation.store.failures import StatementFailed, Unavailable
from legation.store.inbox import CountMessages
from legation_host.databases import open_database

from ..engines import Cluster
from ..pooler import SERVER_CONNECTIONS, NoPooler, pooled, through
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
                f" {verdict.count} rows of the audit trail in {len(verdict.heads)} chains intact"
            )

    trio.run(main)
    with psycopg.connect(postgres_database) as connection:
        row = connection.execute(
            "select count(*) from pg_stat_activity where datname = current_database()"
            " and pid <> pg_backend_pid()"
        ).fetchone()
    assert row is not None
    assert row[0] <= SERVER_CONNECTIONS


def test_without_the_parameter_settings_or_prepared_statements_break_behind_a_pooler(
    postgres_database: str, pooler: int
) -> None:
    """So the tests above would notice if anything were prepared."""

    async def main() -> None:
        plain = through(postgres_database, pooler)
        async with nodes(plain, 1):
            pass
        database = open_database("main", plain.removesuffix("?pgbouncer=true"))
        failed = 0

        async def count() -> None:
            nonlocal failed
            for _ in range(12):
                try:
                    await database.run(CountMessages(0))
                except (StatementFailed, Unavailable):
                    failed += 1

        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(6):
                    tasks.start_soon(count)
        finally:
            await database.aclose()
        assert failed > 0

    trio.run(main)
