"""Two nodes on one database, PostgreSQL or a file: any of them serves any request."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import anyio
import pytest
import trio

from legation import Platform
from legation.config import Agent, Database, Model
from legation.http.messages import Request, Streamed
from legation.store.run_rows import StoredEvent
from legation_host import Host
from legation_host.hosting import open_platform
from legation_host.hub import Hub

FORM: Final = ((b"content-type", b"application/x-www-form-urlencoded"), (b"host", b"x"))
RUNS: Final = "/agents/{}/runs"


class Node:
    """A platform and its host."""

    def __init__(self, platform: Platform, host: Host) -> None:
        self.platform = platform
        self.host = host

    async def ask(self, method: str, target: str, **form: Any) -> Any:
        """Return the JSON of an answer, streamed or not, or the data of the events of a stream."""
        body = Body(urlencode(form).encode())
        request = Request(method, target, FORM)
        answer = await self.host.run(self.platform.answer(request), body=body)
        if isinstance(answer, Streamed):
            sent = Sent()
            await self.host.run(answer.body, sink=sent)
            text = b"".join(sent.chunks).decode()
            if (b"content-type", b"application/json") in answer.headers:
                return json.loads(text)
            lines = text.splitlines()
            return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
        assert answer.status < 500, answer.body
        return json.loads(answer.body)


class Body:
    def __init__(self, data: bytes) -> None:
        self.data = data

    async def read(self, limit: int) -> bytes | None:
        return self.data


class Sent:
    def __init__(self) -> None:
        self.chunks: list[bytes] = []

    async def send(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        self.chunks.append(data)


@asynccontextmanager
async def nodes(url: str, count: int, *, delay: float = 30.0) -> AsyncGenerator[list[Node]]:
    async with AsyncExitStack() as stack:
        opened: list[Node] = []
        for _ in range(count):
            platform = Platform(
                databases=(Database("main", url, auto_migrate=True),),
                models=(Model("slow", "echo", delay_seconds=delay),),
                agents=(Agent(id="quick"), Agent(id="sloth", model="slow")),
            )
            host = await stack.enter_async_context(open_platform(platform))
            opened.append(Node(platform, host))
        yield opened


def test_fifty_runs_at_once_in_one_session_are_all_stored_in_order(
    url: str, figures: Callable[[str], None]
) -> None:
    answers: list[dict[str, Any]] = []

    async def main() -> None:
        async with nodes(url, 1 if url.startswith("sqlite") else 2) as opened:

            async def run(number: int) -> None:
                node = opened[number % len(opened)]
                target = RUNS.format("quick")
                answers.append(
                    await node.ask("POST", target, message=str(number), session_id="s", stream="no")
                )

            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    for number in range(50):
                        tasks.start_soon(run, number)
            rows = await opened[-1].ask("GET", "/sessions/s/runs")
            assert [row["status"] for row in rows] == ["COMPLETED"] * 50
            assert sorted(int(row["content"]) for row in rows) == list(range(50))
            assert {row["run_id"] for row in rows} == {answer["run_id"] for answer in answers}
            figures(f"runs: 50 at once in one session on {len(opened)} node(s), none lost")

    trio.run(main)


async def _begun(node: Node) -> str:
    accepted = await node.ask(
        "POST", RUNS.format("sloth"), message="x", session_id="s", background="true"
    )
    run_id: str = accepted["run_id"]
    return run_id


def test_a_run_is_cancelled_and_followed_from_another_node(postgres: str) -> None:
    async def main() -> None:
        async with nodes(postgres, 2) as (one, two):
            run_id = await _begun(one)
            path = f"{RUNS.format('sloth')}/{run_id}"
            told: list[Any] = []
            with anyio.fail_after(20):
                async with anyio.create_task_group() as tasks:

                    async def follow() -> None:
                        told.extend(await two.ask("GET", f"{path}/events"))

                    tasks.start_soon(follow)
                    await anyio.sleep(0.3)
                    assert await two.ask("POST", f"{path}/cancel") == {}
            assert [event["event"] for event in told][-1] == "RunCancelled"
            assert (await one.ask("GET", path))["status"] == "CANCELLED"

    trio.run(main)


def test_a_run_in_the_background_is_followed_piece_by_piece_live_and_late(url: str) -> None:
    async def main() -> None:
        async with nodes(url, 2, delay=0.2) as (one, two):
            accepted = await one.ask(
                "POST", RUNS.format("sloth"), message="a b c d", session_id="s", background="true"
            )
            target = f"{RUNS.format('sloth')}/{accepted['run_id']}/events"
            told: dict[str, list[Any]] = {}

            async def follow(name: str, node: Node) -> None:
                told[name] = await node.ask("GET", target)

            with anyio.fail_after(30):
                async with anyio.create_task_group() as tasks:
                    for name, node in (("here", one), ("there", two)):
                        tasks.start_soon(follow, name, node)
                for name, node in (("late here", one), ("late there", two)):
                    await follow(name, node)
        first, *others = told.values()
        assert "".join(e["content"] for e in first if e["event"] == "RunContent") == "a b c d"
        assert [e["event"] for e in first].count("RunContent") == 4
        assert first[-1]["event"] == "RunCompleted"
        assert others == [first] * 3

    trio.run(main)


class Lost(Hub):
    """Hears nothing."""

    def publish(self, run_id: str, events: Any) -> None:
        pass

    def nudge(self, topic: str) -> None:
        pass


class Doubled(Hub):
    """Hears everything twice, the second time when it is old."""

    def publish(self, run_id: str, events: Any) -> None:
        super().publish(run_id, events)
        super().publish(run_id, tuple(StoredEvent(e.seq, e.name, e.data, e.final) for e in events))

    def nudge(self, topic: str) -> None:
        super().nudge(topic)
        super().nudge(topic)


@pytest.mark.parametrize("hub", [Lost, Doubled])
def test_hints_that_are_lost_or_doubled_change_nothing(hub: type[Hub], tmp_path: Path) -> None:
    async def main() -> None:
        async with nodes(f"sqlite:///{tmp_path}/main.db", 1, delay=0.1) as (node,):
            node.host.hub = hub()
            with anyio.fail_after(20):
                events = await node.ask("POST", RUNS.format("sloth"), message="a b")
                assert [event["event"] for event in events] == [
                    "RunStarted",
                    "ModelRequestStarted",
                    "RunContent",
                    "RunContent",
                    "ModelRequestCompleted",
                    "RunContentCompleted",
                    "RunCompleted",
                ]
                run = await node.ask("POST", RUNS.format("sloth"), message="a", stream="no")
                assert run["status"] == "COMPLETED"

    trio.run(main)


def test_a_body_of_no_declared_length_is_counted_as_it_is_once_it_was_read(url: str) -> None:
    async def main() -> None:
        async with nodes(url, 1) as (node,), anyio.create_task_group() as tasks:
            bodies = node.platform.context.shares.bodies
            for number in range(40):
                form = {"message": "x" * 1_000, "session_id": f"s{number}", "stream": "no"}
                tasks.start_soon(partial(node.ask, "POST", RUNS.format("sloth"), **form))
            with anyio.fail_after(30):
                while not 40_000 < bodies.total < 50_000:
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
            with anyio.fail_after(30, shield=True):
                while bodies.total:
                    await anyio.sleep(0.01)

    trio.run(main)
