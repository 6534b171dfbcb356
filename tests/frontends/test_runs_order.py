"""Many runs of one session at once, on one node and on two: executed one after the other."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, closing
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import anyio
import psycopg
import pytest
import trio
from attrs import define, field, frozen

from legation.store.run_rows import StoredEvent
from legation_host.hub import Hub

from .test_runs_nodes import Node, nodes

RUNS: Final = 50
MODEL_SECONDS: Final = 0.005
LATE_SECONDS: Final = 0.2


@define
class Prompt(Hub):
    """Tells everything at once, as a hub does."""

    async def deliver(self) -> None:
        """Have nothing left to tell."""


@define
class Lost(Prompt):
    """Tells nothing."""

    def publish(self, run_id: str, events: Sequence[StoredEvent]) -> None:
        """Forget the events."""

    def nudge(self, topic: str) -> None:
        """Forget the nudge."""


@define
class Late(Prompt):
    """Tells everything, long after it happened."""

    held_back: list[Callable[[], None]] = field(factory=list[Callable[[], None]])

    def publish(self, run_id: str, events: Sequence[StoredEvent]) -> None:
        """Keep the events for later."""
        tell = super().publish
        self.held_back.append(lambda: tell(run_id, events))

    def nudge(self, topic: str) -> None:
        """Keep the nudge for later."""
        tell = super().nudge
        self.held_back.append(lambda: tell(topic))

    async def deliver(self) -> None:
        """Tell, now and then, what was kept since."""
        while True:
            old, self.held_back = self.held_back, []
            await anyio.sleep(LATE_SECONDS)
            for tell in old:
                tell()


@frozen
class Stored:
    """A run as it lies in the database: times in microseconds, those of its events too."""

    run_no: int
    status: str
    started_us: int
    ended_us: int
    first_us: int
    last_us: int
    attempt: int


# The first event is stored when the run is about to wait for its model, the last when it ends.
STORED: Final = """
    select run_no, status, started_us, ended_us,
        (select min(at_us) from events where events.run_id = runs.run_id),
        (select max(at_us) from events where events.run_id = runs.run_id), attempt
    from runs where session_id = 's' order by run_no
"""


def stored(url: str) -> list[Stored]:
    """Return the runs of the session, read with a plain driver."""
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(urlsplit(url).path[1:])) as connection:
            return [Stored(*row) for row in connection.execute(STORED)]
    with psycopg.connect(url) as other:
        return [Stored(*row) for row in other.execute(STORED)]


Where: TypeAlias = tuple[str, int]


@pytest.fixture(params=[("sqlite", 1), ("postgresql", 2)], ids=["sqlite", "two on postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Where]:
    """The URL of a database, and how many nodes work on it."""
    engine, count = request.param
    if engine == "sqlite":
        yield f"sqlite:///{tmp_path}/main.db", count
    else:
        yield request.getfixturevalue("postgres"), count


@asynccontextmanager
async def hearing(where: Where, hub: type[Prompt]) -> AsyncGenerator[list[Node]]:
    """Open the nodes, each with a hub of this kind."""
    url, count = where
    late = anyio.create_task_group()
    async with nodes(url, count, delay=MODEL_SECONDS) as opened, late:
        for node in opened:
            made = node.host.hub = hub()
            late.start_soon(made.deliver)
        yield opened
        late.cancel_scope.cancel()


async def asked_at_once(opened: list[Node]) -> list[dict[str, Any]]:
    """Ask for all runs at once, of one node after the other; return what was answered."""
    answers: list[dict[str, Any]] = []

    async def ask(number: int) -> None:
        node = opened[number % len(opened)]
        form = {"message": str(number), "session_id": "s", "stream": "no"}
        answers.append(await node.ask("POST", "/agents/sloth/runs", **form))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for number in range(RUNS):
                tasks.start_soon(ask, number)
    return answers


@pytest.mark.parametrize("hub", [Prompt, Late, Lost])
def test_runs_of_one_session_are_executed_one_after_the_other_in_the_order_of_their_numbers(
    where: Where, hub: type[Prompt], figures: Callable[[str], None]
) -> None:
    async def main() -> list[dict[str, Any]]:
        async with hearing(where, hub) as opened:
            return await asked_at_once(opened)

    answers = trio.run(main)
    url, count = where
    runs = stored(url)

    assert sorted(int(answer["content"]) for answer in answers) == list(range(RUNS))
    assert [run.run_no for run in runs] == list(range(1, RUNS + 1))
    assert {(run.status, run.attempt) for run in runs} == {("COMPLETED", 1)}
    for run in runs:
        assert run.started_us <= run.first_us <= run.last_us <= run.ended_us
    for one, next_one in pairwise(runs):
        assert one.last_us <= next_one.first_us
        assert one.ended_us <= next_one.started_us
    figures(
        f"runs: {RUNS} at once on {count} node(s) of {urlsplit(url).scheme}, hints"
        f" {hub.__name__.lower()}: {len(runs)} stored, in order, none at the same time"
    )
