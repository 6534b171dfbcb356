"""Deliveries to real servers that are killed all the while, and what people got in the end.

A provider is played as it behaves: what got no 200 is delivered again until it gets one, the
deliveries of one sender one after the other; some come twice, at the same moment or later.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import IO, Any, Final, Self

import trio
from attrs import define, field, frozen

from ..ports import free_port
from .deliveries import ENVIRON, Delivery, Text, whatsapp
from .server import Faults, listening
from .strict import WhatsAppApi

__all__ = ["CANARY", "Node", "Plan", "Soak", "Tally", "platform_file"]

CANARY: Final = "soak-canary"
PREFIX: Final = "4915199"
_SENDERS_OF_A_GROUP: Final = 2
_PATIENCE: Final = 240.0


@frozen
class Plan:
    """How much: deliveries in all, senders, shares of duplicates and batches, kills."""

    deliveries: int
    kills: int
    senders: int = 200
    duplicates: float = 0.3
    batches: float = 0.1
    connections: int = 32
    seconds_between_kills: float = 1.0
    seed: int = 1


@define
class Tally:
    """What was counted."""

    deliveries: int = 0
    duplicates: int = 0
    batches: int = 0
    messages: int = 0
    redelivered: int = 0
    kills: int = 0
    refused: dict[int, int] = field(factory=dict[int, int])
    seconds: float = 0.0

    def line(self, name: str, provider: WhatsAppApi, faults: Faults) -> str:
        """Return the counts as one line."""
        went = ", ".join(f"{share} {n}" for share, n in sorted(faults.counted.items()))
        return (
            f"soak on {name}: {self.deliveries} deliveries ({self.duplicates} duplicates,"
            f" {self.batches} batches), {self.messages} messages, {self.kills} kills,"
            f" {self.redelivered} delivered again, provider: {went}, {provider.repeats} repeated"
            f" keys; {len(provider.seen)} answers seen, 0 lost, 0 twice, 0 out of order;"
            f" {self.seconds:.0f} s"
        )


def platform_file(folder: Path, database: str, provider: str) -> Path:
    """Write the configuration of the nodes."""
    path = folder / "platform.toml"
    path.write_text(f"""
[platform]
id = "soak"
lease_seconds = 8
[databases.main]
url = "{database}"
auto_migrate = true
[databases.second]
url = "sqlite:///{folder}/second.db"
[[agents]]
id = "concierge"
[channels.whatsapp]
kind = "whatsapp"
agent = "concierge"
app_secret_env = "APP_SECRET"
verify_token_env = "VERIFY"
access_token_env = "ACCESS"
phone_number_id = "111"
api_base_url = "{provider}/v22.0"
""")
    return path


@define(eq=False)
class Node:
    """A server as an operator starts it: `legation serve`, on a port of its own."""

    file: Path
    log: IO[bytes]
    port: int = field(factory=free_port)
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> None:
        """Start it, on the port it had before."""
        command = [sys.executable, "-m", "legation_cli", "serve", str(self.file)]
        self.process = subprocess.Popen(
            [*command, "--port", str(self.port), "--log-format", "json"],
            env={**os.environ, **ENVIRON},
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )

    async def ready(self) -> None:
        """Wait until it serves."""
        with trio.fail_after(30):
            while await self.status("/ready") != 200:
                assert self.process is not None
                assert self.process.poll() is None, "the server did not start"
                await trio.sleep(0.05)

    async def status(self, target: str) -> int:
        """Return the status of a GET, 0 where nobody answers."""
        with Line(self.port) as line:
            return await line.exchange(f"GET {target} HTTP/1.1\r\nhost: a\r\n\r\n".encode())

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Kill it, and wait until it is gone."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(30)
            self.process = None


class Line:
    """A connection to a server, made when it is needed; 0 is what a broken one answers."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.stream: trio.SocketStream | None = None
        self.body = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    def drop(self) -> None:
        if self.stream is not None:
            self.stream.socket.close()
            self.stream = None

    async def exchange(self, request: bytes) -> int:
        """Send `request` and return the status of its answer."""
        try:
            with trio.fail_after(20):
                if self.stream is None:
                    self.stream = await trio.open_tcp_stream("127.0.0.1", self.port)
                await self.stream.send_all(request)
                return await self._answer(self.stream)
        except (OSError, trio.BrokenResourceError, trio.TooSlowError, ValueError):
            self.drop()
            return 0

    async def _answer(self, stream: trio.SocketStream) -> int:
        data = b""
        while b"\r\n\r\n" not in data:
            data += await self._more(stream)
        head, _, self.body = data.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
        while len(self.body) < length:
            self.body += await self._more(stream)
        if b"connection: close" in lines:
            self.drop()
        return int(lines[0].split()[1])

    async def _more(self, stream: trio.SocketStream) -> bytes:
        data = await stream.receive_some(65536)
        if not data:
            raise ValueError("cut")
        return data


def request_of(delivery: Delivery) -> bytes:
    """Return a delivery as it stands on the wire."""
    fields = [("host", "a"), ("content-length", str(len(delivery.body))), *delivery.headers]
    head = [f"POST {delivery.target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields)]
    return "\r\n".join([*head, "", ""]).encode() + delivery.body


@define(eq=False)
class Soak:
    """One run: some nodes on one database, and their provider."""

    name: str
    plan: Plan
    database: str
    nodes_wanted: int
    folder: Path
    provider: WhatsAppApi = field(factory=WhatsAppApi)
    faults: Faults = field(
        factory=lambda: Faults(errors=0.02, throttles=0.005, cuts=0.02, slow=0.02)
    )
    tally: Tally = field(factory=Tally)
    nodes: list[Node] = field(factory=list[Node], init=False)
    expected: dict[str, list[str]] = field(factory=dict[str, list[str]], init=False)
    random: Random = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.random = Random(self.plan.seed)

    async def run(self) -> str:
        """Do it; return the counts in a line.

        Raises:
            AssertionError: Something was lost, answered twice, or out of order.
        """
        began = trio.current_time()
        with listening(self.provider, self.faults) as address:
            log = (self.folder / "servers.log").open("ab")
            file = platform_file(self.folder, self.database, address)
            try:
                for _ in range(self.nodes_wanted):
                    self.nodes.append(Node(file, log))
                    self.nodes[-1].start()
                    await self.nodes[-1].ready()  # the first one migrates
                await self._deliver_all()
                await self._until_answered()
                await self._check()
            finally:
                for node in self.nodes:
                    node.kill()
                log.close()
        self.tally.seconds = trio.current_time() - began
        return self.tally.line(self.name, self.provider, self.faults)

    # --- the deliveries -------------------------------------------------------------------------

    def groups(self) -> list[list[Delivery]]:
        """Return what is delivered, by group of senders, each in its order."""
        originals = round(self.plan.deliveries * (1 - self.plan.duplicates))
        groups: list[list[Delivery]] = []
        count = self.plan.senders // _SENDERS_OF_A_GROUP
        for number in range(count):
            senders = [f"{PREFIX}{number * 2 + place:05}" for place in range(_SENDERS_OF_A_GROUP)]
            share = originals // count + (number < originals % count)
            groups.append([self._delivery(senders) for _ in range(share)])
        return groups

    def _delivery(self, senders: Sequence[str]) -> Delivery:
        size = self.random.randint(2, 4) if self.random.random() < self.plan.batches else 1
        self.tally.batches += size > 1
        self.tally.messages += size
        texts: list[Text] = []
        for _ in range(size):
            sender = self.random.choice(senders)
            mine = self.expected.setdefault(sender, [])
            mine.append(f"{CANARY} {len(mine)}")
            texts.append((sender, f"wamid.{sender}.{len(mine)}", mine[-1]))
        return whatsapp(*texts)

    async def _deliver_all(self) -> None:
        limit = trio.CapacityLimiter(self.plan.connections)
        groups = self.groups()
        self.random.shuffle(groups)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._kill_now_and_then)
            for group in groups:
                nursery.start_soon(self._deliver_group, group, limit)

    async def _deliver_group(self, group: Iterable[Delivery], limit: trio.CapacityLimiter) -> None:
        share = self.plan.duplicates / (1 - self.plan.duplicates)
        async with trio.open_nursery() as nursery:
            for delivery in group:
                repeated = self.random.random() < share
                at_once = repeated and self.random.random() < 0.5
                if at_once:
                    nursery.start_soon(self._deliver, delivery, limit, 0.0)
                await self._deliver(delivery, limit, 0.0)
                if repeated and not at_once:
                    nursery.start_soon(self._deliver, delivery, limit, self.random.random() * 3)
                self.tally.duplicates += repeated

    async def _deliver(self, delivery: Delivery, limit: trio.CapacityLimiter, pause: float) -> None:
        """Deliver until it is taken."""
        await trio.sleep(pause)
        request = request_of(delivery)
        self.tally.deliveries += 1
        while True:
            async with limit:
                with Line(self.random.choice(self.nodes).port) as line:
                    status = await line.exchange(request)
            if status == 200:
                return
            self.tally.redelivered += 1
            self.tally.refused[status] = self.tally.refused.get(status, 0) + 1
            assert status in (0, 503), f"a delivery was refused: {status}"
            await trio.sleep(0.1 + self.random.random() * 0.2)

    async def _kill_now_and_then(self) -> None:
        for _ in range(self.plan.kills):
            await trio.sleep(self.plan.seconds_between_kills * (0.5 + self.random.random()))
            node = self.random.choice(self.nodes)
            await trio.to_thread.run_sync(node.kill)
            self.tally.kills += 1
            node.start()
            await node.ready()

    # --- the outcome ----------------------------------------------------------------------------

    async def _until_answered(self) -> None:
        wanted = sum(map(len, self.expected.values()))
        with trio.move_on_after(_PATIENCE):
            while len(self.provider.seen) < wanted:
                await trio.sleep(0.1)

    async def _check(self) -> None:
        got: dict[str, list[str]] = {}
        for message in self.provider.seen:
            got.setdefault(message.recipient, []).append(message.text)
        lost = {who: set(texts) - set(got.get(who, ())) for who, texts in self.expected.items()}
        assert not any(lost.values()), f"lost: {[(w, len(t)) for w, t in lost.items() if t]}"
        for who, texts in self.expected.items():
            assert sorted(got[who]) == sorted(texts), f"answered twice: {who}"
            assert got[who] == texts, f"out of order: {who}: {got[who]}"
        assert self.provider.refused == [], self.provider.refused[:3]
        await self._at_rest()
        said = (self.folder / "servers.log").read_bytes()
        assert CANARY.encode() not in said
        assert PREFIX.encode() not in said

    async def _at_rest(self) -> None:
        """Wait until nothing is left to do, and look that nothing was given up."""
        with trio.fail_after(60), Line(self.nodes[0].port) as line:
            while True:
                status = await line.exchange(b"GET /channels HTTP/1.1\r\nhost: a\r\n\r\n")
                if status == 200:
                    (told,) = json.loads(line.body)
                    depths: list[dict[str, Any]] = [told["messages"], told["replies"]]
                    assert [depth["dead"] for depth in depths] == [0, 0]
                    if not any(depth["ready"] for depth in depths):
                        return
                await trio.sleep(0.2)
