"""Connections whose next read waits until somebody wants it, on a real socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from attrs import define, field

from legation_host.held_reads import HeldStream

from .host_units import run

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@define(eq=False)
class Slow:
    """The client's own stream, which says what it was asked for."""

    asked: list[str] = field(factory=list[str])

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        await anyio.lowlevel.checkpoint()
        self.asked.append(f"read {max_bytes} {timeout}")
        return b"waited for"

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        await anyio.lowlevel.checkpoint()
        self.asked.append(f"write {len(buffer)} {timeout}")

    async def start_tls(self, *_: object) -> Slow:
        await anyio.lowlevel.checkpoint()
        self.asked.append("start_tls")
        return self

    async def aclose(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.asked.append("aclose")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def held(slow: Slow, ours: socket.socket, **options: Any) -> HeldStream:
    """Return a stream over `slow` whose reads somebody wants at once."""
    stream: Any = slow
    made = HeldStream(stream, fd=ours.fileno(), **options)
    made.hold = anyio.lowlevel.checkpoint
    return made


def test_a_held_read_takes_from_the_socket_what_is_there(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    slow = Slow()

    async def main() -> list[bytes]:
        stream = held(slow, ours)
        theirs.sendall(b"x" * 7)
        got = [await stream.read(4), await stream.read(4)]
        assert stream.empty
        got.append(await stream.read(4, 2.0))
        theirs.close()
        return [*got, await stream.read(4)]

    assert run("trio", main) == [b"xxxx", b"xxx", b"waited for", b""]
    assert slow.asked == ["read 4 2.0"]  # for what was not there yet


def test_a_read_that_nobody_holds_is_the_client_s_own(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    slow = Slow()

    async def main() -> bytes:
        stream = held(slow, ours)
        stream.hold = None
        theirs.sendall(b"there")
        return await stream.read(4)

    assert run("trio", main) == b"waited for"


@pytest.mark.parametrize("end", ["aclose", "start_tls"])
def test_a_socket_that_is_given_up_is_not_read(
    pair: tuple[socket.socket, socket.socket], end: str
) -> None:
    ours, theirs = pair
    slow = Slow()

    async def main() -> bytes:
        stream = held(slow, ours)
        theirs.sendall(b"of somebody else")
        ending: Any = getattr(stream, end)
        await ending(*([None] if end == "start_tls" else []))
        return await stream.read(4)

    assert run("trio", main) == b"waited for"
    assert slow.asked == [end, "read 4 None"]


def test_chunks_of_one_read_are_one_and_a_request_begins_with_a_head(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    chunks = b"1\r\na\r\n" * 3

    async def main() -> list[bytes]:
        stream, got = held(Slow(), ours), list[bytes]()
        for _ in range(2):
            await stream.write(b"GET / HTTP/1.1\r\n\r\n")
            theirs.sendall(HEAD)
            got.append(await stream.read(1000))
            theirs.sendall(chunks)
            got.append(await stream.read(1000))
        return got

    assert run("trio", main) == [HEAD, b"3\r\naaa\r\n"] * 2
