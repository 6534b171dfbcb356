"""Slow clients, each against limits short enough to be waited for."""

from __future__ import annotations

import time

import pytest
import trio
from attrs import evolve

from legation_server import DEFAULT, Settings

from .server_kit import ALIVE, Client, serving

QUICK = Settings(
    header_seconds=0.2,
    body_seconds=0.2,
    keep_alive_seconds=0.2,
    write_seconds=0.2,
    linger_seconds=0.2,
)

POST = b"POST /read HTTP/1.1\r\nHost: a\r\n"


async def drip(client: Client, data: bytes, cut: int, seconds: float = 0.02) -> None:
    """Send `data` a piece at a time until the server has had enough."""
    for at in range(0, len(data), cut):
        await client.send(data[at : at + cut])
        await trio.sleep(seconds)


async def end_of(client: Client, data: bytes, cut: int) -> tuple[list[int], float]:
    """Drip `data`; return the statuses that come back and the seconds to the end."""
    began = time.monotonic()
    statuses: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(drip, client, data, cut)
        while (reply := await client.reply()) is not None:
            statuses.append(reply.status)
        took = time.monotonic() - began
        nursery.cancel_scope.cancel()
    return statuses, took


@pytest.mark.parametrize("cut", [1, 20], ids=["by the byte", "by the line"])
async def test_a_head_that_takes_too_long_is_answered_408(cut: int) -> None:
    data = b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: yyyyyyyyyyyyyyy\r\n" * 99
    async with serving(QUICK) as served, served.client() as client:
        statuses, took = await end_of(client, data, cut)

        assert statuses == [408]
        assert 0.2 <= took < 1.0
        assert await served.lives()


async def test_a_second_head_has_the_same_time() -> None:
    patient = evolve(QUICK, keep_alive_seconds=30.0)
    async with serving(patient) as served, served.client() as client:
        await client.get(ALIVE)
        statuses, took = await end_of(client, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 90, 1)

        assert statuses == [408]
        assert 0.2 <= took < 1.0


async def test_a_connection_that_says_nothing_is_closed_in_silence() -> None:
    async with serving(QUICK) as served, served.client() as client:
        began = time.monotonic()

        assert await client.rest() == b""
        assert 0.2 <= time.monotonic() - began < 1.0


async def test_an_idle_connection_is_closed_in_silence() -> None:
    async with serving(QUICK) as served, served.client() as client:
        await client.get(ALIVE)
        began = time.monotonic()

        assert await client.rest() == b""
        assert 0.2 <= time.monotonic() - began < 1.0


@pytest.mark.parametrize(
    "head",
    [POST + b"Content-Length: 500\r\n\r\n", POST + b"Transfer-Encoding: chunked\r\n\r\n1f4\r\n"],
    ids=["length", "chunked"],
)
async def test_a_body_that_takes_too_long_is_answered_408(head: bytes) -> None:
    async with serving(QUICK) as served, served.client() as client:
        await client.send(head)
        statuses, took = await end_of(client, b"x" * 500, 1)

        assert statuses == [408]
        assert 0.2 <= took < 1.0
        assert await served.lives()


async def test_no_body_after_100_is_answered_408() -> None:
    async with serving(QUICK) as served, served.client() as client:
        await client.send(POST + b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        statuses, took = await end_of(client, b"", 1)

        assert statuses == [100, 408]
        assert 0.2 <= took < 1.0


async def test_a_body_earns_time_by_its_size() -> None:
    async with serving(evolve(QUICK, body_rate=100)) as served, served.client() as client:
        await client.send(POST + b"Content-Length: 60\r\n\r\n")
        await drip(client, b"x" * 60, 3)
        reply = await client.reply()

        assert reply is not None and reply.body == b"x" * 60


async def test_a_skipped_body_that_does_not_come_ends_the_connection_in_silence() -> None:
    async with serving(QUICK) as served, served.client() as client:
        reply = await client.get(b"POST /deny HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx")

        assert reply.status == 401
        assert await client.rest() == b""


@pytest.mark.parametrize("target", [b"/large?50000000", b"/flood?500"])
async def test_a_client_that_never_reads_is_dropped(target: bytes) -> None:
    async with serving(QUICK) as served, served.client() as client:
        await client.send(b"GET " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n")
        await served.until_connections(1)
        await served.until_connections(0)

        assert await served.lives()
        assert target[:6] != b"/flood" or served.platform.ended == ["/flood"]


async def test_a_client_that_reads_slowly_gets_everything() -> None:
    settings = evolve(QUICK, write_seconds=2.0)
    async with serving(settings) as served, served.client() as client:
        await client.send(b"GET /large?12000000 HTTP/1.1\r\nHost: a\r\n\r\n")
        began = time.monotonic()
        while len(client.buffer) < 12_000_000:
            read = len(client.buffer)
            while len(client.buffer) < min(read + 2_000_000, 12_000_000):
                assert await client.more()
            await trio.sleep(0.4)
        reply = await client.reply()

        assert reply is not None and len(reply.body) == 12_000_000
        assert time.monotonic() - began > settings.write_seconds


async def test_a_refused_client_that_stays_is_not_waited_for() -> None:
    async with serving(QUICK) as served, served.client() as client:
        await client.get(b"GET / HTTP/9.9\r\n\r\n")
        await served.until_connections(0)


async def test_a_request_may_have_a_limit_of_its_own() -> None:
    async with serving(evolve(QUICK, request_seconds=0.2)) as served:
        async with served.client() as client:
            reply = await client.get(b"GET /wait?30 HTTP/1.1\r\nHost: a\r\n\r\n")

            assert reply.status == 503
            assert await client.rest() == b""
        async with served.client() as client:
            await client.send(b"GET /ticks?25 HTTP/1.1\r\nHost: a\r\n\r\n")
            stream = await client.reply()

            assert stream is not None and len(stream.chunks) == 25


async def test_without_a_limit_a_request_outlasts_every_other_one() -> None:
    async with serving(QUICK) as served, served.client() as client:
        reply = await client.get(b"GET /wait?0.6 HTTP/1.1\r\nHost: a\r\n\r\n")

        assert reply.status == 200


async def test_three_hundred_idle_connections_do_not_hold_up_another() -> None:
    async with serving() as served, trio.open_nursery() as nursery:
        opened = trio.Event()

        async def idle() -> None:
            async with served.client():
                if served.server.connections == 300:
                    opened.set()
                await trio.sleep_forever()

        for _ in range(300):
            nursery.start_soon(idle)
        await served.until_connections(300)
        began = time.monotonic()

        assert await served.lives()
        assert time.monotonic() - began < 1.0
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("name", ["header_seconds", "body_rate", "connections", "header_block"])
def test_a_limit_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Settings(**{name: 0})


def test_deadlines_are_looked_at_four_times_in_the_shortest() -> None:
    assert DEFAULT.sweep_seconds == 1.0
    assert evolve(DEFAULT, write_seconds=0.4).sweep_seconds == pytest.approx(0.1)
    assert evolve(DEFAULT, request_seconds=0.2).sweep_seconds == pytest.approx(0.05)
