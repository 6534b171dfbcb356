"""Count what a run and a read cost this process, and print it as JSON.

A process of its own: the hook that finds the connections of SQLite, and the profile function, stay
for its life.  Each operation is done `ROUNDS` times after a warm-up; of each count the least is
printed, and of bytes the median, so that what the jobs of the platform do meanwhile does not show.
"""

from __future__ import annotations

import hmac
import json
import socket
import sqlite3
import sys
import tempfile
import threading
import time
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any, Final

import trio

from legation import Agent, Channel, Database, Platform, Request
from legation.effects import Program, Transact
from legation.http.messages import Streamed
from legation.models.chat_completions import ChatCompletions
from legation.models.conversation import Message, Prompt, ToolCall
from legation.runs.fold import fold
from legation.runs.run_record import fetch_record
from legation.runs.turn_state import ModelTurn, TurnState
from legation.store.run_reads import FetchRun
from legation.store.run_rows import RunRow
from legation_host.hosting import open_platform
from legation_testing import ScriptedModel, call

__all__ = ["FORM", "ROUNDS", "Body", "Sink", "clerk", "main"]

ROUNDS: Final = 31
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
COUNTS: Final = ("calls", "on the loop", "statements", "commits")
STEPS: Final = 50
"""The calls of a run that goes on after a crash: each is a step, and so is each wish for one."""

TOKENS: Final = 1_000
"""How many tokens the answer of a model has that is streamed."""

_OURS: Final = tuple(
    f"{Path(sys.modules[name].__file__ or '').parent}/" for name in ("legation", "legation_host")
)
_CHANGES: Final = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "PRAGMA")
FORM: Final = ((b"content-type", b"application/x-www-form-urlencoded"), (b"host", b"localhost"))

counted: Counter[str] = Counter()
connections: list[sqlite3.Connection] = []


def profile(frame: FrameType, event: str, arg: object) -> None:
    """Count a call of a function of ours; a program that is resumed counts as one."""
    if event == "call" and frame.f_code.co_filename.startswith(_OURS):
        counted["calls"] += 1


def profile_loop(frame: FrameType, event: str, arg: object) -> None:
    """Count a call on the thread of the event loop: ours, of libraries, and of this script."""
    if event == "call":
        counted["on the loop"] += 1
        if frame.f_code.co_filename.startswith(_OURS):
            counted["calls"] += 1


def tracer() -> Callable[[str], None]:
    """Return what counts a statement of one connection, or a transaction by its end.

    Behind a statement that fires triggers SQLite traces each statement in them, and Python gives
    them the text of the first, with its values: nobody changes one session twice to the same.
    """
    last = ""

    def trace(sql: str) -> None:
        nonlocal last
        if sql.upper().startswith("COMMIT"):
            counted["commits"] += 1
        elif not (sql.upper().startswith((*_CHANGES, "--")) or (sql == last and _fires(sql))):
            counted["statements"] += 1
        last = sql

    return trace


def _fires(sql: str) -> bool:
    """Return whether the statement changes a table that has triggers."""
    return sql.startswith(("insert into sessions", "update sessions", "delete from sessions"))


def found(event: str, args: tuple[Any, ...]) -> None:
    """Keep each connection of SQLite that is opened; it can be traced when it is ready."""
    if event == "sqlite3.connect/handle":
        connections.append(args[0])


def written() -> int:
    """Return how many bytes this process has handed to the kernel, as Linux counts them."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


async def measured(
    operation: Callable[[], Awaitable[object]], typical: Callable[[list[int]], float] = min
) -> dict[str, float]:
    """Return the least of each count over `ROUNDS` rounds, and of bytes the median.

    On a busy machine most rounds are so long that a job of the platform falls into each.  With
    another `typical`, that is returned in place of the least.  With an operation counts the pause
    behind it, and the reading of the bytes.
    """
    rounds: list[dict[str, int]] = []
    for number in range(2 * ROUNDS):
        counted.clear()
        before = written()
        await operation()
        await trio.sleep(0.02)  # the audit trail, and what the end of a run brings about
        if number >= ROUNDS:
            rounds.append({**counted, "bytes": written() - before})
    found = {name: typical([counts.get(name, 0) for counts in rounds]) for name in COUNTS}
    return {**found, "bytes": median(counts["bytes"] for counts in rounds)}


async def look(number: int) -> str:
    """Look at something."""
    return f"{number} looked at"


def answer(calls: int, prompt: Prompt) -> str | ToolCall:
    """Want so many calls, one after the other, and answer then."""
    made = sum(message.role == "tool" for message in prompt.messages)
    return "Done." if made == calls else call("look", number=made)


def clerk(name: str, calls: int, runs: int) -> Agent:
    """Return an agent whose runs have so many calls of a tool."""
    model = ScriptedModel([partial(answer, calls)] * (runs * (calls + 1)))
    return Agent(id=name, model=model, tools=[look], max_rounds=calls + 1)


def read(run_id: str) -> Program[RunRow | None]:
    """Return a run as it is stored."""
    return (yield from Transact("main", FetchRun(run_id, None, any_owner=True)))


def deliver(number: int) -> tuple[tuple[tuple[bytes, bytes], ...], bytes]:
    """Return the fields and the body of a message to the channel, signed as it asks."""
    told = {"sender": "ada", "text": f"hello {number}"}
    body = json.dumps({"type": "message", "data": told}).encode()
    name, seconds = f"m{number}".encode(), str(int(time.time())).encode()
    key = b64decode(SECRET.removeprefix("whsec_"))
    digest = hmac.digest(key, b"%s.%s.%s" % (name, seconds, body), "sha256")
    return (
        (b"host", b"localhost"),
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"webhook-id", name),
        (b"webhook-timestamp", seconds),
        (b"webhook-signature", b"v1," + b64encode(digest)),
    ), body


class Loopback:
    """A server on loopback, in a thread: one request a connection."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            with connection, connection.makefile("rb") as lines:
                length = 0
                while (line := lines.readline().strip().lower()) != b"":
                    if line.startswith(b"content-length:"):
                        length = int(line.partition(b":")[2])
                lines.read(length)
                self.answer(connection)

    def answer(self, connection: socket.socket) -> None:
        """Send the answer to a request."""
        raise NotImplementedError


class Speaker(Loopback):
    """A model that says `TOKENS` tokens at once, each an event and an HTTP chunk of its own."""

    def answer(self, connection: socket.socket) -> None:
        """Send the whole answer."""
        connection.sendall(
            b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        words = b"".join(speak({"content": "word "}) for _ in range(TOKENS))
        connection.sendall(words + speak({}, "stop") + in_chunk(b"data: [DONE]\n\n"))
        connection.sendall(b"0\r\n\r\n")


def speak(delta: dict[str, str], finish: str | None = None) -> bytes:
    """Return a piece of an answer of chat completions."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return in_chunk(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())


def in_chunk(data: bytes) -> bytes:
    """Return `data` as a chunk of HTTP."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class Provider(Loopback):
    """A system that takes the replies of the channel, on loopback."""

    def __init__(self) -> None:
        self.taken = 0
        super().__init__()

    def answer(self, connection: socket.socket) -> None:
        """Take a reply."""
        connection.sendall(
            b"HTTP/1.1 204 No Content\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        )
        self.taken += 1


async def do_nothing() -> None:
    """Be an operation that costs nothing but the pause behind it."""


def without(idle: Mapping[str, float], counts: Mapping[str, float]) -> dict[str, float]:
    """Return `counts` without the calls on the loop that an operation took which does nothing.

    The audit trail, and what the end of a run brings about, stay: there is none of it then.
    """
    return {**counts, "on the loop": counts["on the loop"] - idle["on the loop"]}


async def count(folder: str) -> dict[str, dict[str, float]]:
    """Return the counts of each operation, on a platform with agents and one SQLite file."""
    speaker = ChatCompletions(id="gpt", base_url=f"http://127.0.0.1:{Speaker().port}/v1")
    provider, numbers = Provider(), iter(range(4 * ROUNDS))
    platform = Platform(
        agents=[
            Agent(id="concierge"),
            Agent(id="speaker", model=speaker),
            clerk("clerk", 1, 4 * ROUNDS),
            clerk("porter", STEPS, 1),
        ],
        databases=[Database("main", f"sqlite:///{folder}/main.db")],
        channels=[
            Channel(
                id="desk",
                kind="standard",
                agent="concierge",
                secret_env="SECRET",
                reply_url=f"http://127.0.0.1:{provider.port}/replies",
            )
        ],
        environ={"SECRET": SECRET},
    )
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(open_platform(platform))
        for connection in connections:
            connection.set_trace_callback(tracer())

        async def ask(method: str, path: str, body: bytes = b"") -> bytes:
            headers = (*FORM, (b"content-length", str(len(body)).encode()))
            request = Request(method, path, headers)
            answer = await host.run(platform.answer(request), body=Body(body))
            assert answer.status == 200, answer
            if not isinstance(answer, Streamed):
                return answer.body
            await host.run(answer.body, sink=Sink())
            return b""

        async def run(stream: str, agent: str = "concierge") -> bytes:
            body = b"message=hello&stream=%b" % stream.encode()
            return await ask("POST", f"/agents/{agent}/runs", body)

        stored = await host.run(read(json.loads(await run("false", "porter"))["run_id"]))
        assert stored is not None
        base = TurnState(said=(ModelTurn(Message("user", "hello"), 0),))

        async def hear() -> None:
            """Deliver a message, and wait until its answer was taken."""
            fields, body = deliver(next(numbers))
            taken = provider.taken
            request = Request("POST", "/desk/webhook", fields)
            answer = await host.run(platform.answer(request), body=Body(body))
            assert answer.status == 200, answer
            while provider.taken == taken:
                await trio.sleep(0.01)

        async def go_on() -> None:
            record = await host.run(fetch_record("main", stored.claim, {}))
            assert record is not None
            assert fold(record, "", base).rounds == STEPS

        found = {
            "GET /agents": await measured(lambda: ask("GET", "/agents")),
            "joined run": await measured(lambda: run("false")),
            "streamed run": await measured(lambda: run("true")),
            "joined run, one call": await measured(lambda: run("false", "clerk")),
            "streamed run, one call": await measured(lambda: run("true", "clerk")),
            "going on with 101 steps": await measured(go_on),
            "1,000 tokens of a model": await measured(lambda: run("true", "speaker")),
            "message of a channel": await measured(
                hear, median
            ),  # a part of one may fall into the next
        }
        idle = await measured(do_nothing)
        return {operation: without(idle, counts) for operation, counts in found.items()}


class Body:
    """A body that is there."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    async def read(self, limit: int) -> bytes:
        """Return it."""
        return self.content


class Sink:
    """A client that reads all it is sent."""

    async def send(self, data: bytes) -> None:
        """Take a part of a stream."""


def main() -> None:
    """Print the counts."""
    sys.addaudithook(found)
    threading.setprofile(profile)
    sys.setprofile(profile_loop)
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(json.dumps(trio.run(count, folder)))


if __name__ == "__main__":
    main()
