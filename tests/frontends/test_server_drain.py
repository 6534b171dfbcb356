"""The end of a worker: nothing that was asked goes unanswered."""

from __future__ import annotations

import socket
import time

import pytest
import trio
from attrs import evolve

from legation_server import Settings

from .server_kit import ALIVE, PATIENCE, Client, Served, serving

QUICK = Settings(grace_seconds=0.2, drain_seconds=2.0, linger_seconds=0.2)


def get(target: str) -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode()


async def drained(served: Served) -> float:
    """Wait for the end of the server; return the seconds it took."""
    began = time.monotonic()
    with trio.fail_after(PATIENCE):
        await served.done.wait()
    return time.monotonic() - began


async def test_a_server_without_connections_ends_at_once() -> None:
    async with serving(QUICK) as served:
        served.server.drain()
        served.server.drain()

        assert await drained(served) < 0.2
        with pytest.raises(OSError, match="connect"):
            await trio.open_tcp_stream("127.0.0.1", served.port)


async def test_a_request_in_flight_is_answered_and_its_connection_ended() -> None:
    async with serving(QUICK) as served, served.client() as client:
        await client.send(get("/wait?0.3"))
        await trio.sleep(0.05)
        served.server.drain()
        reply = await client.reply()

        assert reply is not None
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        assert await client.rest() == b""
        assert await drained(served) < 1.0


async def test_the_next_request_of_an_idle_client_is_answered() -> None:
    async with serving(QUICK) as served, served.client() as client:
        await client.get(ALIVE)
        served.server.drain()
        await trio.sleep(0.1)
        reply = await client.get(ALIVE)

        assert reply.headers["connection"] == "close"


async def test_an_idle_connection_is_ended_after_the_grace() -> None:
    async with serving(QUICK) as served, served.client() as client:
        await client.get(ALIVE)
        served.server.drain()

        assert await client.rest() == b""
        assert 0.15 < await drained(served) + 0.2 < 1.0


async def test_a_connection_accepted_before_the_drain_has_its_first_request_answered() -> None:
    async with serving(QUICK) as served, served.client() as client:
        served.server.drain()
        await trio.sleep(0.1)

        assert (await client.get(ALIVE)).status == 200


async def test_what_waits_to_be_accepted_is_accepted_and_answered() -> None:
    """Closing a listening socket resets what the kernel has queued on it."""
    async with serving(QUICK) as served:
        async with trio.open_nursery() as nursery:
            statuses: list[int] = []

            async def ask() -> None:
                async with served.client() as client:
                    statuses.append((await client.get(ALIVE)).status)

            for _ in range(40):
                nursery.start_soon(ask)
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            served.server.drain()
        assert statuses == [200] * 40


@pytest.mark.parametrize("turns", range(6))
async def test_an_acceptor_on_its_way_does_not_find_a_closed_listener(turns: int) -> None:
    """The acceptors have left before the listeners are closed, whatever was scheduled."""
    async with serving(QUICK) as served, served.client() as old:
        await old.get(ALIVE)
        with socket.socket() as knock:
            knock.connect(("127.0.0.1", served.port))
            for _ in range(turns):
                await trio.lowlevel.checkpoint()
            served.server.drain()
            await trio.sleep(0.05)
        assert (await old.get(ALIVE)).status == 200
        assert served.log == []


async def stream(client: Client, target: str) -> bool:
    """Read a stream; tell whether it came to its last chunk."""
    await client.send(get(target))
    await client.until(b"\r\n\r\n")
    while chunk := await client.chunk():
        pass
    return chunk == b""


@pytest.mark.parametrize("target", ["/ticks", "/download"])
async def test_a_stream_comes_to_its_own_end(target: str) -> None:
    async with serving(QUICK) as served, served.client() as client:
        async with trio.open_nursery() as nursery:
            got: list[int] = []

            async def read() -> None:
                reply = await client.get(get(f"{target}?30"))
                got.append(len(reply.chunks))

            nursery.start_soon(read)
            await trio.sleep(0.05)
            served.server.drain()
        assert got == [30]
        assert await client.rest() == b""


@pytest.mark.parametrize("target", ["/ticks", "/download"])
async def test_what_is_left_at_the_deadline_is_cut(target: str) -> None:
    async with serving(evolve(QUICK, drain_seconds=0.5)) as served, served.client() as client:
        async with trio.open_nursery() as nursery:
            ended: list[bool] = []

            async def read() -> None:
                ended.append(await stream(client, f"{target}?10000"))

            nursery.start_soon(read)
            await trio.sleep(0.05)
            served.server.drain()
        assert ended == [False]
        assert served.platform.ended == [target]
        assert [event for _, event, _ in served.log] == ["drain_incomplete"]


async def test_without_chunks_what_is_left_at_the_deadline_is_reset() -> None:
    """The end of the connection would be that of the body (RFC 9112 section 6.3)."""
    async with serving(evolve(QUICK, drain_seconds=0.3)) as served, served.client() as client:
        await client.send(b"GET /ticks?10000 HTTP/1.0\r\n\r\n")
        await client.until(b"\r\n\r\n")
        served.server.drain()

        with trio.fail_after(PATIENCE), pytest.raises(trio.BrokenResourceError):
            while await client.stream.receive_some():
                pass


async def test_no_request_can_come_any_more_when_the_server_has_ended() -> None:
    async with serving(QUICK) as served, served.client() as client:
        await client.get(ALIVE)
        served.server.drain()
        await trio.sleep(0.05)
        assert not served.server.has_ended

        await drained(served)
        assert served.server.has_ended


async def test_cancelling_the_server_closes_every_program() -> None:
    async with serving() as served, served.client() as client:
        await client.send(get("/quiet"))
        await client.until(b"\r\n\r\n")
        served.nursery.cancel_scope.cancel()

        await trio.lowlevel.cancel_shielded_checkpoint()
    assert served.platform.ended == ["/quiet"]
