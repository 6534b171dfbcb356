"""Tools on real hosts and both engines: side by side, and confirmed many times on two nodes."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import anyio
import pytest
import trio

from legation import Platform, tool
from legation.config import Agent, Database
from legation.http.messages import Request, Streamed
from legation.models.conversation import Prompt, Usage
from legation_host import Host
from legation_host.hosting import open_platform
from legation_testing import Says, ScriptedModel, call

FORM: Final = ((b"content-type", b"application/x-www-form-urlencoded"), (b"host", b"x"))
PATH: Final = "/agents/clerk/runs"
CALLS: Final = 6


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


class Node:
    """A platform and its host."""

    def __init__(self, platform: Platform, host: Host) -> None:
        self.platform = platform
        self.host = host

    async def ask(self, method: str, target: str, **form: Any) -> tuple[int, Any]:
        """Return the status, and the JSON of an answer or the ids and names of its events."""
        request = Request(method, target, FORM)
        body = Body(urlencode(form).encode())
        answer = await self.host.run(self.platform.answer(request), body=body)
        if not isinstance(answer, Streamed):
            return answer.status, json.loads(answer.body)
        sent = Sent()
        await self.host.run(answer.body, sink=sent)
        lines = b"".join(sent.chunks).decode().splitlines()
        ids = [line[4:] for line in lines if line.startswith("id: ")]
        names = [line[7:] for line in lines if line.startswith("event: ")]
        return answer.status, list(zip(ids, names, strict=True))


def script(prompt: Prompt) -> Any:
    told = [message for message in prompt.messages if message.role == "tool"]
    if not told:
        return [call("look", number=n) for n in range(CALLS)]
    return call("delete", path="/x") if len(told) == CALLS else "Done."


class World:
    """Nodes that share a database, and what their tools were called with."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.called: Counter[str] = Counter()

    def platform(self) -> Platform:
        def look(number: int) -> str:
            """Look at something, slowly and in a thread."""
            time.sleep(0.01 * (number % 3))
            return f"{number} looked at"

        @tool(requires_confirmation=True)
        async def delete(path: str) -> str:
            """Delete a file."""
            self.called[path] += 1
            await trio.sleep(0.02)
            return "gone"

        return Platform(
            databases=(Database("main", self.url, auto_migrate=True),),
            agents=(Agent(id="clerk", model=ScriptedModel([script] * 99), tools=[look, delete]),),
        )

    @asynccontextmanager
    async def nodes(self) -> AsyncGenerator[list[Node]]:
        async with AsyncExitStack() as stack:
            opened: list[Node] = []
            for _ in range(2):
                platform = self.platform()
                host = await stack.enter_async_context(open_platform(platform))
                opened.append(Node(platform, host))
            yield opened


@pytest.fixture(params=["sqlite", "postgresql"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[World]:
    if request.param == "sqlite":
        yield World(f"sqlite:///{tmp_path}/main.db")
    else:
        yield World(request.getfixturevalue("postgres"))


async def test_events_of_calls_side_by_side_are_read_in_order_on_every_node(world: World) -> None:
    async with world.nodes() as (here, there):
        streams: list[list[tuple[str, str]]] = []

        async def run(number: int) -> None:
            session = f"s{number}"
            _, events = await here.ask("POST", PATH, message="x", session_id=session)
            run_id = events[0][0].rpartition(":")[0]
            _, followed = await there.ask("GET", f"{PATH}/{run_id}/events")
            assert followed == events
            streams.append(events)

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(run, number)

    for events in streams:
        numbers = [int(event_id.rpartition(":")[2]) for event_id, _ in events]
        assert numbers == list(range(1, len(events) + 1))
        names = Counter(name for _, name in events)
        assert (names["ToolCallStarted"], names["ToolCallCompleted"]) == (CALLS + 1, CALLS)
        assert events[-1][1] == "RunPaused"


async def test_of_many_who_confirm_at_once_on_two_nodes_one_goes_on(
    world: World, figures: Callable[[str], None]
) -> None:
    statuses: list[int] = []
    async with world.nodes() as nodes:
        _, run = await nodes[0].ask("POST", PATH, message="x", session_id="s", stream="false")
        tools = [{**one["tool_execution"], "confirmed": True} for one in run["requirements"]]
        path = f"{PATH}/{run['run_id']}/continue"

        async def confirm(node: Node) -> None:
            form = {"tools": json.dumps(tools), "stream": "false"}
            statuses.append((await node.ask("POST", path, **form))[0])

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(confirm, nodes[number % 2])
        _, done = await nodes[1].ask("GET", f"{PATH}/{run['run_id']}")

    assert sorted(statuses) == [200, *[409] * 19]
    assert (done["status"], dict(world.called)) == ("COMPLETED", {"/x": 1})
    figures("continue: 20 at once on two nodes, one goes on and the tool is called once")


async def test_answers_and_counts_out_of_all_proportion_can_be_stored_and_read(
    world: World,
) -> None:
    def odd() -> str:
        """Return what no database stores."""
        return "a\0b\ud800"

    most = (1 << 31) - 1
    much = Usage(most, most, most, most, most)
    model = ScriptedModel([Says("\0\ud800", [call("odd")], usage=much), Says("\ud800", usage=much)])
    platform = Platform(
        databases=(Database("main", world.url, auto_migrate=True),),
        agents=(Agent(id="clerk", model=model, tools=[odd]),),
    )
    async with open_platform(platform) as host:
        node = Node(platform, host)
        status, run = await node.ask("POST", PATH, message="x", session_id="s", stream="false")
        got, session = await node.ask("GET", "/sessions/s?type=agent")

    assert (status, run["status"], run["content"]) == (200, "COMPLETED", "\ufffd")
    assert run["tools"][0]["result"] == "a\ufffdb\ufffd"
    assert got == 200
    for name in ("input_tokens", "reasoning_tokens", "cache_read_tokens", "cache_write_tokens"):
        assert session["metrics"][name] == run["metrics"][name] == 2 * most
