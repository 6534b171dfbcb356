"""Streamed answers on a real socket."""

from __future__ import annotations

import pytest
import trio

from legation_server import Settings
from legation_server.wire import Wire

from .server_kit import ALIVE, serving
from .server_kit import reset as reset_connection


def get(target: str, method: str = "GET", version: str = "1.1") -> bytes:
    return f"{method} {target} HTTP/{version}\r\nHost: a\r\n\r\n".encode()


async def test_what_is_emitted_together_is_one_chunk() -> None:
    async with serving() as served, served.client() as client:
        reply = await client.get(get("/events?3"))

        assert reply.chunks == (b"data: 0\n\ndata: 1\n\ndata: 2\n\n",)
        assert reply.headers["transfer-encoding"] == "chunked"
        assert "content-length" not in reply.headers
        assert await client.is_open()


async def test_what_is_emitted_apart_comes_apart_and_at_once() -> None:
    async with serving() as served, served.client() as client:
        reply = await client.get(get("/ticks?3"))

        assert reply.chunks == (b"data: 0\n\n", b"data: 1\n\n", b"data: 2\n\n")


async def test_the_head_does_not_wait_for_the_first_piece() -> None:
    async with serving() as served, served.client() as client:
        await client.send(get("/quiet"))

        assert (await client.until(b"\r\n\r\n") or b"").startswith(b"HTTP/1.1 200 OK\r\n")


async def test_a_1_0_client_gets_no_chunks_and_the_end_of_the_connection() -> None:
    async with serving() as served, served.client() as client:
        reply = await client.get(get("/events?2", version="1.0"))

        assert reply.headers["connection"] == "close"
        assert "transfer-encoding" not in reply.headers
        assert reply.body == b"data: 0\n\ndata: 1\n\n"


async def test_head_starts_no_stream() -> None:
    async with serving() as served, served.client() as client:
        await client.get(get("/events", "HEAD"), "HEAD")

        assert await client.is_open()
        assert served.platform.ended == []


async def test_a_request_behind_a_stream_is_answered_after_it() -> None:
    async with serving() as served, served.client() as client:
        await client.send(get("/ticks?3") + ALIVE)
        stream, alive = await client.reply(), await client.reply()

        assert stream is not None and len(stream.chunks) == 3
        assert alive is not None and alive.json["path"] == "/alive"


@pytest.mark.parametrize(
    ("target", "first", "later"),
    [
        ("/events?2", b"\r\n12\r\ndata: 0\n\ndata: 1\n\n\r\n0\r\n\r\n", []),
        ("/ticks?2", b"\r\n9\r\ndata: 0\n\n\r\n", [b"9\r\ndata: 1\n\n\r\n", b"0\r\n\r\n"]),
        ("/quiet", b"\r\n\r\n", []),
    ],
)
async def test_a_head_is_sent_with_the_first_piece_and_the_last_chunk_with_the_last_one(
    monkeypatch: pytest.MonkeyPatch, target: str, first: bytes, later: list[bytes]
) -> None:
    sent: list[bytes] = []
    give = Wire.give

    def keep(wire: Wire, data: bytes) -> memoryview | None:
        sent.append(data)
        return give(wire, data)

    monkeypatch.setattr(Wire, "give", keep)
    async with serving() as served, served.client() as client:
        await client.send(get(target))
        if target == "/quiet":
            await client.until(b"\r\n\r\n")
        else:
            await client.reply()

    assert sent[0].startswith(b"HTTP/1.1 200 OK\r\n")
    assert sent[0].endswith(first)
    assert sent[1:] == later


@pytest.mark.parametrize("how", ["close", "half-close", "reset"])
async def test_a_client_that_goes_away_ends_a_quiet_stream(how: str) -> None:
    async with serving() as served:
        async with served.client() as client:
            await client.send(get("/quiet"))
            await client.until(b"\r\n\r\n")
            if how == "half-close":
                await client.stream.send_eof()
                assert await client.rest() == b""
            elif how == "reset":
                reset_connection(client)
        await served.until_connections(0)

        assert served.platform.ended == ["/quiet"]
        assert served.log == []
        assert await served.lives()


async def test_a_client_that_goes_away_ends_a_busy_stream() -> None:
    async with serving() as served:
        async with served.client() as client:
            await client.send(get("/flood?100000"))
            await client.more()
        await served.until_connections(0)

        assert served.platform.ended == ["/flood"]
        assert served.log == []


async def test_a_client_that_talks_much_during_a_stream_is_read_within_bounds() -> None:
    async with serving(Settings(linger_seconds=0.1)) as served, served.client() as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, get("/ticks?10") + ALIVE[:-2] + b"x" * 20_000_000)
            stream, refused = await client.reply(), await client.reply()
            nursery.cancel_scope.cancel()

        assert stream is not None and len(stream.chunks) == 10
        assert refused is not None and refused.status == 431


async def test_a_stream_that_fails_is_cut_and_the_server_lives() -> None:
    async with serving() as served:
        async with served.client() as client:
            await client.send(get("/broken"))
            await client.until(b"\r\n\r\n")

            assert await client.chunk() == b"begun"
            assert await client.chunk() is None
            ((level, event, fields),) = served.log
            assert (level, event, fields["path"]) == ("error", "request_failed", "/broken")
        assert await served.lives()


async def test_a_stream_that_fails_before_anything_is_sent_is_cut_behind_its_head() -> None:
    async with serving() as served:
        async with served.client() as client:
            await client.send(get("/stillborn"))

            head = await client.until(b"\r\n\r\n") or b""
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert await client.rest() == b""
            ((level, event, fields),) = served.log
            assert (level, event, fields["path"]) == ("error", "request_failed", "/stillborn")
        assert await served.lives()


async def test_a_stream_that_its_program_leaves_unfinished_has_no_last_chunk() -> None:
    async with serving() as served:
        async with served.client() as client:
            await client.send(get("/part?2"))
            await client.until(b"\r\n\r\n")

            assert await client.chunk() == b"data: 0\n\ndata: 1\n\n"
            assert await client.chunk() is None
        assert served.log == []
        assert await served.lives()


async def test_without_chunks_a_stream_that_is_left_unfinished_ends_with_a_reset() -> None:
    async with serving() as served:
        async with served.client() as client:
            await client.send(get("/part?2", version="1.0"))
            with trio.fail_after(5), pytest.raises(trio.BrokenResourceError):
                while await client.stream.receive_some():
                    pass
        assert served.log == []
        assert await served.lives()


async def test_a_stream_under_an_unread_body_ends_the_connection() -> None:
    data = b"POST /events HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n"
    async with serving() as served, served.client() as client:
        reply = await client.get(data + b"0123456789" + ALIVE)

        assert reply.headers["connection"] == "close"
        assert len(reply.chunks) == 1
        await client.stream.send_eof()
        assert await client.rest() == b""


async def test_streams_do_not_count_as_requests_in_flight() -> None:
    async with serving(Settings(requests_in_flight=1)) as served, served.client() as client:
        await client.send(get("/quiet"))
        await client.until(b"\r\n\r\n")

        assert await served.lives()
