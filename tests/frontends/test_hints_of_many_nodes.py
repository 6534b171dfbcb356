"""The same load on each node costs each node the same, however many there are: all is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import anyio
import pytest

from legation.store.run_keeping import CancelsAsked, FindNeglected
from legation.store.units import Unit
from legation_host.databases import Database

from .cluster_kit import NIGHTLY
from .host_units import run
from .test_hints import PATIENCE, begun, patient_nodes, until
from .test_runs_nodes import RUNS, Node

MOST_WORDS: Final = 8
"""A node says that it follows a run, and is told to look; it hears of a few events; and it asks
another to cancel a run."""

MOST_ROUNDS: Final = 4
"""A node looks after its runs as it starts, and when it is asked to cancel one."""


class Counting:
    """A database that counts the units that it is given."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.units: Counter[type[Unit[Any]]] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def run(self, unit: Unit[Any]) -> Any:
        self.units[type(unit)] += 1
        return await self._database.run(unit)


async def be_used(node: Node, neighbour: Node, number: int) -> None:
    """Execute a run here, which is followed and cancelled at another node."""
    run_id = await begun(node, f"s{number}")
    path = f"{RUNS.format('sloth')}/{run_id}"
    told: list[Any] = []

    async def follow() -> None:
        told.extend(await neighbour.ask("GET", f"{path}/events"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        await until(lambda: neighbour.host.hub.state.followers == 1)
        assert await neighbour.ask("POST", f"{path}/cancel") == {}
    assert told[-1]["event"] == "RunCancelled"


@pytest.mark.parametrize(
    "count",
    [2, 4, 8, pytest.param(16, marks=pytest.mark.skipif(not NIGHTLY, reason="at night"))],
)
def test_hints_and_rounds_of_a_node_do_not_grow_with_the_number_of_nodes(
    count: int, postgres: str, figures: Callable[[str], None]
) -> None:
    counted: list[Counting] = []

    def count_units(database: Database) -> Any:
        counted.append(Counting(database))
        return counted[-1]

    async def main() -> None:
        async with patient_nodes(postgres, count, 60.0, wrap=count_units) as nodes:
            with anyio.fail_after(3 * PATIENCE):
                async with anyio.create_task_group() as tasks:
                    for number, node in enumerate(nodes):
                        neighbour = nodes[(number + 1) % count]
                        tasks.start_soon(be_used, node, neighbour, number)
            hints = [node.host.hints["main"] for node in nodes]
            told = [one.book.told for one in hints]
            rounds = [c.units[FindNeglected] + c.units[CancelsAsked] for c in counted]
            figures(
                f"hints: of {count} nodes each told at most {max(told)} words, heard"
                f" {max(one.heard for one in hints)}, and had {max(rounds)} looks"
            )
            assert max(told) <= MOST_WORDS
            assert max(one.heard for one in hints) <= MOST_WORDS
            assert max(one.sent for one in hints) <= MOST_WORDS
            assert max(rounds) <= 2 * MOST_ROUNDS

    run("trio", main)
