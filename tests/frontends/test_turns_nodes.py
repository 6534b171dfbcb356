"""Turns of runs where two nodes with one database compete for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import anyio
import trio

from legation import Agent, Database, Platform
from legation.shares.limits import NodeLimits, PlatformLimits
from legation_host.hosting import open_platform

from .test_runs_nodes import RUNS, Node

RUNS_AT_ONCE: Final = 2
MANY: Final = 30


class Work:
    """A function that notes how many of a user's runs it works on at once, on whatever node."""

    def __init__(self) -> None:
        self.under_way: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.done: list[str] = []

    async def __call__(self, message: str) -> str:
        user, _, _ = message.partition(" ")
        self.under_way[user] += 1
        self.most[user] = max(self.most[user], self.under_way[user])
        await anyio.sleep(0.05)
        self.under_way[user] -= 1
        self.done.append(message)
        return message


@asynccontextmanager
async def two_nodes(url: str, work: Work) -> AsyncGenerator[list[Node]]:
    async with AsyncExitStack() as stack:
        nodes: list[Node] = []
        for _ in range(2):
            platform = Platform(
                databases=(Database("main", url, auto_migrate=True),),
                agents=(Agent(id="worker", run=work),),
                limits=PlatformLimits(runs=RUNS_AT_ONCE, node=NodeLimits(runs=3)),
            )
            host = await stack.enter_async_context(open_platform(platform))
            nodes.append(Node(platform, host))
        yield nodes


def test_a_subject_has_no_more_runs_than_its_limit_on_two_nodes(
    url: str, figures: Callable[[str], None]
) -> None:
    work = Work()
    asked = [f"ada {number}" for number in range(MANY)]

    async def main() -> None:
        async with two_nodes(url, work) as nodes:
            async with anyio.create_task_group() as tasks:
                for number, message in enumerate(asked):
                    tasks.start_soon(ask, nodes[number % 2], message)
            before = len(work.done)
            answer = await nodes[1].ask(
                "POST", RUNS.format("worker"), message="bob 0", user_id="bob", stream="no"
            )
            behind = MANY - len(work.done)
            assert answer["status"] == "COMPLETED"
            assert behind > 0
            figures(f"a run of another subject behind {MANY - before}: {behind} still waited")
            with anyio.fail_after(60):
                while len(work.done) <= MANY:
                    await anyio.sleep(0.02)

    async def ask(node: Node, message: str) -> None:
        await node.ask(
            "POST", RUNS.format("worker"), message=message, user_id="ada", background="true"
        )

    trio.run(main)

    assert sorted(work.done) == sorted([*asked, "bob 0"])
    assert work.most["ada"] == RUNS_AT_ONCE
