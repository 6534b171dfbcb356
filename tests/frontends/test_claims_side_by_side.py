"""Nodes that claim at one time, on PostgreSQL: each run has one of them, and none waits in vain."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import Final

import anyio
import psycopg
import pytest

from legation.store.run_keeping import ClaimWaiting, Missed
from legation.store.run_rows import ClaimedRun
from legation.store.runs import StartRun
from legation.store.turns import RunShare
from legation_host.postgres import PostgresDatabase

from ..drivers import PostgresDriver
from .host_units import run
from .migrating import with_tables

HOSTED: Final = ("agent:desk",)
NODES: Final = 6
RUNS: Final = 60


@asynccontextmanager
async def waiting(url: str, at_once: int) -> AsyncGenerator[list[PostgresDatabase]]:
    """Yield the database of `url` as several nodes have it; runs of one subject wait there."""
    with closing(PostgresDriver(url)) as driver:
        with_tables(driver)
    async with AsyncExitStack() as stack:
        nodes = [PostgresDatabase("main", url) for _ in range(NODES)]
        for node in nodes:
            stack.push_async_callback(node.aclose)
        share = RunShare(at_once=at_once)
        for number in range(RUNS):
            start = StartRun(
                *("o", f"s{number}", f"r{number}", "agent", "desk", "{}", "", "n", number),
                hosted=HOSTED,
                share=share,
            )
            await nodes[0].run(start)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "update runs set status = 'PENDING', lease_by = null, lease_us = null,"
                f" at_once = {at_once}".encode()
            )
        yield nodes


@pytest.mark.parametrize("at_once", [1_000, 7])
def test_each_run_is_claimed_once_and_no_more_than_may_be_executed(
    postgres: str, at_once: int, figures: Callable[[str], None]
) -> None:
    claimed: Counter[str] = Counter()
    missed = 0

    async def claim(node: PostgresDatabase, name: str) -> None:
        nonlocal missed
        in_vain = 0
        while in_vain < 2:  # what is being claimed by others is left to them, and is gone next time
            found = await node.run(ClaimWaiting(name, 99, HOSTED))
            match found:
                case ClaimedRun():
                    claimed[found.run_id] += 1
                case Missed():
                    missed += 1
                case None:
                    in_vain += 1
                    await anyio.sleep(0.05)

    async def main() -> None:
        async with waiting(postgres, at_once) as nodes:
            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    for number, node in enumerate(nodes):
                        tasks.start_soon(claim, node, f"n{number}")
                await claim(nodes[0], "n0")

    run("trio", main)
    figures(f"claims of {NODES} nodes at once: {len(claimed)} runs, {missed} missed")
    assert set(claimed.values()) == {1}
    assert len(claimed) == min(at_once, RUNS)


def test_what_is_being_claimed_keeps_nobody(postgres: str) -> None:
    """A session that somebody has locked is passed over, and the next is claimed."""

    async def main() -> None:
        async with waiting(postgres, 1_000) as (node, *_):
            with psycopg.connect(postgres) as other:
                other.execute("select 1 from sessions where session_id = 's0' for update")
                found = await node.run(ClaimWaiting("n", 99, HOSTED))
                assert isinstance(found, ClaimedRun)
                assert found.run_id == "r1"
                other.execute("select 1 from sessions for update")
                assert await node.run(ClaimWaiting("n", 99, HOSTED)) is None

    run("trio", main)
