"""Whatever bytes come, the answers are those that are documented, and nothing is left behind.

`LEGATION_FUZZ_SECONDS` says for how long the noise lasts, and `LEGATION_FUZZ_SEED` repeats a run:
the seed stands in the name of the test.
"""

from __future__ import annotations

import gc
import os
import random
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
import trio

from legation_server import Settings
from legation_server.connection import Connection
from legation_server.stream import ResponseStream
from legation_server.wire import Wire

from .server_kit import ALIVE, PATIENCE, Client, Served, Tried, reset, serving

SECONDS: Final = float(os.environ.get("LEGATION_FUZZ_SECONDS", "5"))


def _seed() -> int:
    """Return the seed that was asked for; in CI always the same, elsewhere a new one."""
    if asked := os.environ.get("LEGATION_FUZZ_SEED"):
        return int(asked)
    return 1 if os.environ.get("CI") else random.SystemRandom().getrandbits(32)


SEED: Final = _seed()

AT_ONCE: Final = 16

DOCUMENTED: Final = frozenset({200, 400, 401, 408, 413, 414, 431, 500, 501, 503, 505})
"""500 is the answer of `/boom`, whose program fails."""

OURS: Final = frozenset({"ZeroDivisionError", "ValueError"})
"""What the programs of these tests raise: on demand, and for a number that is none."""

SETTINGS: Final = Settings(
    header_seconds=1.0,
    body_seconds=1.0,
    keep_alive_seconds=1.0,
    write_seconds=1.0,
    linger_seconds=0.2,
    connections=5000,
)

SEEDS: Final = (
    ALIVE,
    ALIVE * 3,
    b"GET /headers HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nX-B: 2\r\n\r\n",
    b"POST /read?100 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /read HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"POST /read HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;a=b\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\nx: y\r\n\r\n" + ALIVE,
    b"POST /read HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
    b"GET http://a/alive?q HTTP/1.1\r\nHost: a\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    b"HEAD /events HTTP/1.0\r\n\r\n",
    b"GET /events?3 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"GET /ticks?2 HTTP/1.1\r\nHost: a\r\n\r\n" + ALIVE,
    b"GET /boom HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /deny HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /download?2 HTTP/1.1\r\nHost: a\r\n\r\n",
)

TOKENS: Final = (
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b":",
    b"Content-Length: 3\r\n",
    b"Content-Length: -1\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip\r\n",
    b"Host: a\r\n",
    b"Connection: close\r\n",
    b"HTTP/1.1",
    b"HTTP/2.0",
    b"\xff\xfe",
    b"0\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"A" * 9000,
    b"X: y\r\n" * 150,
)


def mutate(choose: random.Random, data: bytes) -> bytes:
    """Return `data` with a few pieces cut, doubled, replaced or put in."""
    for _ in range(choose.randrange(1, 6)):
        at = choose.randrange(len(data) + 1)
        upto = min(len(data), at + choose.randrange(1, 12))
        match choose.randrange(5):
            case 0:
                data = data[:at] + data[upto:]
            case 1:
                data = data[:at] + choose.choice(TOKENS) + data[at:]
            case 2:
                data = data[:at] + choose.randbytes(upto - at) + data[upto:]
            case 3:
                data = data[:at] + data[at:upto] * 2 + data[upto:]
            case _:
                data = data[:at] + choose.choice(SEEDS) + data[at:]
    return data


def noise(choose: random.Random) -> bytes:
    """Return what one client sends."""
    if choose.random() < 0.15:
        return choose.randbytes(choose.randrange(1, 2000))
    data = b"".join(choose.choices(SEEDS, k=choose.randrange(1, 4)))
    return data if choose.random() < 0.1 else mutate(choose, data)


STATUS: Final = re.compile(rb"HTTP/1\.1 (\d{3}) ")


async def exchange(served: Served, choose: random.Random, seen: set[int]) -> None:
    """Send noise in pieces; read what comes, or leave."""
    data = noise(choose)
    async with served.client() as client:
        cuts = sorted(choose.randrange(len(data) + 1) for _ in range(choose.randrange(3)))
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            await client.send(data[start:end])
            if choose.random() < 0.3:
                await trio.lowlevel.checkpoint()
        match choose.randrange(8):
            case 0:
                reset(client)
                return
            case 1:
                return
            case _:
                await half_close(client)
        received = await client.rest()
        check(received, data)
        seen.update(int(status) for status in STATUS.findall(received))


async def half_close(client: Client) -> None:
    try:
        await client.stream.send_eof()
    except trio.BrokenResourceError:
        pass


def check(received: bytes, data: bytes) -> None:
    """Check that what came is a documented answer, and that there are not more than requests."""
    if not received:
        return
    first = STATUS.match(received)
    assert first is not None, (data, received[:200])
    assert int(first[1]) in DOCUMENTED | {100}, (data, received[:200])
    assert b"Traceback" not in received
    assert b'File "' not in received


def sockets() -> int:
    """Return how many sockets this process has."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            count += str(descriptor.readlink()).startswith("socket:")
        except OSError:
            continue
    return count


def tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="sockets are counted by /proc")
@pytest.mark.parametrize("seed", [SEED], ids=["drawn"])  # an id that every process agrees on
async def test_noise_gets_documented_answers_and_leaves_nothing(
    seed: int, figures: Callable[[str], None]
) -> None:
    choose = random.Random(seed)
    seen: set[int] = set()
    sent = 0
    async with serving(SETTINGS) as served:
        await served.lives()
        await served.until_connections(0)
        before = (sockets(), tasks())
        due = time.monotonic() + SECONDS
        while time.monotonic() < due:
            async with trio.open_nursery() as nursery:
                for _ in range(AT_ONCE):
                    nursery.start_soon(exchange, served, random.Random(choose.random()), seen)
            sent += AT_ONCE
        await served.until_connections(0)

        assert (sockets(), tasks()) == before
        assert await served.lives()
        assert {event for _, event, _ in served.log} <= {"request_failed"}
        assert {fields["error"].split(" ")[0] for _, _, fields in served.log} <= OURS
    assert seen <= DOCUMENTED | {100}
    assert {200, 400} <= seen
    figures(f"{sent:,} mutated requests, answered with {sorted(seen)}")


ROOT: Final = Path(__file__).parent.parent.parent
STREAMS: Final = int(os.environ.get("LEGATION_STREAMS", "150"))
"""At once.  Two descriptors each; a thousand on demand."""


def blocks() -> int:
    """Return how many blocks of memory Python's objects take; garbage is none.

    What the process holds of the system says less: other tests have left it full of holes.
    """
    gc.collect()
    return sys.getallocatedblocks()


def kept() -> int:
    """Return how much of connections is still in memory."""
    return sum(isinstance(thing, (Connection, Wire, ResponseStream)) for thing in gc.get_objects())


async def follow(served: Served, choose: random.Random) -> None:
    """Follow a stream for a while, then leave in one of several ways."""
    async with served.client() as client:
        await client.send(b"GET /ticks?100000 HTTP/1.1\r\nHost: a\r\n\r\n")
        await client.until(b"\r\n\r\n")
        with trio.move_on_after(choose.uniform(0.5, 1.0)):
            while await client.chunk():
                pass
        match choose.randrange(3):
            case 0:
                reset(client)
            case 1:
                await half_close(client)
            case _:
                pass


async def crowd(served: Served, choose: random.Random) -> int:
    """Follow many streams, and return how many blocks of memory there were at most."""
    most = 0

    async def sample() -> None:
        nonlocal most
        while served.server.connections or not most:
            most = max(most, sys.getallocatedblocks())
            await trio.sleep(0.02)

    async with trio.open_nursery() as nursery:
        for _ in range(STREAMS):
            nursery.start_soon(follow, served, choose)
        await trio.sleep(0.1)
        nursery.start_soon(sample)
    return most


async def left_at_random() -> None:
    """Let crowds come and go, and say what is left of them."""
    choose = random.Random(SEED)
    platform = Tried()
    settings = Settings(connections=STREAMS + 10, linger_seconds=0.2)
    async with serving(settings, platform) as served:
        await crowd(served, choose)  # the pools of the allocator are as large as they get
        await served.until_connections(0)
        memory = blocks()
        before = (sockets(), tasks(), kept())
        open_streams = 0
        for _ in range(2):
            open_streams = await crowd(served, choose) - memory
            await served.until_connections(0)
        platform.asked.clear()
        grown = blocks() - memory
        after = (sockets(), tasks(), kept())

        assert after == before
        assert kept() <= 2  # the sweeper has the last one it looked at until its next round
        assert grown < open_streams // 4, (grown, open_streams)  # those of two crowds are gone
        assert len(platform.ended) == 3 * STREAMS
        assert served.log == []
    sys.stdout.write(
        f"{3 * STREAMS:,} streams left at random, memory grew by {grown} blocks;"
        f" {STREAMS} that are open take {open_streams}"
    )


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="sockets are counted by /proc")
def test_memory_returns_after_many_streams_left_at_random(figures: Callable[[str], None]) -> None:
    """In a process of its own: what other tests have begun may still grow in this one."""
    line = "import trio; from tests.frontends.test_fuzz_server import left_at_random as left"
    told = subprocess.run(
        [sys.executable, "-c", f"{line}; trio.run(left)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    figures(told.stdout.strip())


async def test_a_server_survives_a_client_for_every_prefix_of_a_request() -> None:
    """A request cut at every byte is answered with 400 or with nothing."""
    whole = SEEDS[5]
    async with serving(SETTINGS) as served:
        with trio.fail_after(4 * PATIENCE):
            for end in range(len(whole)):
                for reply in await served.once(whole[:end]):
                    assert reply.status in (200, 400)
        await served.until_connections(0)

        assert served.log == []
        assert await served.lives()


def test_sockets_are_counted() -> None:
    before = sockets()
    with socket.socket():
        assert sockets() == before + 1
    assert sockets() == before
