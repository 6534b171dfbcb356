"""RFC 9112 on a real socket: bytes in, answers and the state of the connection out."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final

import pytest
import trio

from legation_host import open_host
from legation_server import Settings, serve

from .server_kit import ALIVE, HIDDEN, Client, Served, Tried, connected, reset, serving

OPEN, CLOSED = True, False


def post(target: bytes, *fields: bytes, body: bytes = b"") -> bytes:
    return b"\r\n".join([b"POST " + target + b" HTTP/1.1", b"Host: a", *fields, b"", body])


def chunked(target: bytes, body: bytes) -> bytes:
    return post(target, b"Transfer-Encoding: chunked", body=body)


# (section, what, bytes, statuses, whether the connection goes on)
TABLE: Final = [
    ("2.2", "one empty line before", b"\r\n" + ALIVE, [200], OPEN),
    ("2.2", "two empty lines before", b"\r\n\r\n" + ALIVE, [200], OPEN),
    ("2.2", "three empty lines before", b"\r\n\r\n\r\n" + ALIVE, [400], CLOSED),
    ("2.2", "bare LF", b"GET / HTTP/1.1\nHost: a\n\n", [400], CLOSED),
    ("2.2", "bare CR", b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", [400], CLOSED),
    (
        "2.2",
        "space before the first field",
        b"GET / HTTP/1.1\r\n X: y\r\nHost: a\r\n\r\n",
        [400],
        CLOSED,
    ),
    ("2.3", "lower case name", b"GET / http/1.1\r\nHost: a\r\n\r\n", [400], CLOSED),
    ("2.3", "HTTP/2.0", b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", [505], CLOSED),
    ("2.3", "HTTP/1.2", b"GET / HTTP/1.2\r\nHost: a\r\n\r\n", [200], OPEN),
    ("2.3", "HTTP/0.9", b"GET /\r\n\r\n", [400], CLOSED),
    ("3", "two requests", ALIVE + ALIVE, [200, 200], OPEN),
    ("3", "twenty requests", ALIVE * 20, [200] * 20, OPEN),
    ("3", "a request line of 9 KiB", b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n", [414], CLOSED),
    ("3.2", "no Host", b"GET / HTTP/1.1\r\n\r\n", [400], CLOSED),
    ("3.2", "two Hosts", b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", [400], CLOSED),
    ("3.2", "bad Host", b"GET / HTTP/1.1\r\nHost: a/health?\r\n\r\n", [400], CLOSED),
    ("3.2.1", "fragment", b"GET /#a HTTP/1.1\r\nHost: a\r\n\r\n", [400], CLOSED),
    ("3.2.2", "absolute", b"GET http://b/x HTTP/1.1\r\nHost: a\r\n\r\n", [200], OPEN),
    ("3.2.3", "CONNECT", b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", [501], CLOSED),
    ("3.2.4", "OPTIONS *", b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", [200], OPEN),
    ("3.2.4", "GET *", b"GET * HTTP/1.1\r\nHost: a\r\n\r\n", [400], CLOSED),
    ("5", "a header of 70 KiB", b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 70000, [431], CLOSED),
    ("5", "2,000 fields", b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 2000, [431], CLOSED),
    ("5.1", "space before the colon", b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", [400], CLOSED),
    ("5.2", "folded", b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", [400], CLOSED),
    ("6.1", "an unknown coding", post(b"/", b"Transfer-Encoding: gzip"), [501], CLOSED),
    (
        "6.1",
        "a coding in 1.0",
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        [400],
        CLOSED,
    ),
    ("6.2", "a body", post(b"/read", b"Content-Length: 3", body=b"abc"), [200], OPEN),
    ("6.2", "a body nobody reads", post(b"/", b"Content-Length: 3", body=b"abc"), [200], OPEN),
    ("6.2", "a huge length", post(b"/", b"Content-Length: 18446744073709551621"), [413], CLOSED),
    ("6.2", "a negative length", post(b"/", b"Content-Length: -1"), [400], CLOSED),
    ("6.3", "no length: no body", post(b"/read") + ALIVE, [200, 200], OPEN),
    ("7.1", "chunks", chunked(b"/read", b"3\r\nabc\r\n0\r\n\r\n"), [200], OPEN),
    (
        "7.1",
        "chunks and a request",
        chunked(b"/read", b"1\r\na\r\n0\r\n\r\n") + ALIVE,
        [200, 200],
        OPEN,
    ),
    (
        "7.1",
        "10,000 chunks",
        chunked(b"/read?10000", b"1\r\na\r\n" * 10000 + b"0\r\n\r\n"),
        [200],
        OPEN,
    ),
    ("7.1", "a huge chunk", chunked(b"/read", b"FFFFFFFFFFFFFFFF\r\n"), [413], CLOSED),
    ("7.1", "a longer size", chunked(b"/read", b"F" * 17 + b"\r\n"), [400], CLOSED),
    ("7.1", "not a size", chunked(b"/read", b"x\r\n"), [400], CLOSED),
    ("7.1", "data over the size", chunked(b"/read", b"1\r\nab\r\n0\r\n\r\n"), [400], CLOSED),
    (
        "7.1",
        "chunks beyond the limit",
        chunked(b"/read?2", b"3\r\nabc\r\n0\r\n\r\n"),
        [413],
        CLOSED,
    ),
    ("7.1", "chunks nobody reads", chunked(b"/", b"3\r\nabc\r\n0\r\n\r\n"), [200], CLOSED),
    (
        "7.1.1",
        "NUL in an extension",
        chunked(b"/read", b"1;a\x00\r\na\r\n0\r\n\r\n"),
        [400],
        CLOSED,
    ),
    ("7.1.2", "trailers", chunked(b"/read", b"1\r\na\r\n0\r\nX: y\r\n\r\n"), [200], OPEN),
    ("9.3", "close", b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", [200], CLOSED),
    (
        "9.3",
        "nothing behind close",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" + HIDDEN,
        [200],
        CLOSED,
    ),
    ("9.3", "HTTP/1.0", b"GET / HTTP/1.0\r\n\r\n", [200], CLOSED),
    (
        "9.3",
        "HTTP/1.0 keep-alive",
        b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        [200],
        CLOSED,
    ),
    (
        "9.9",
        "h2c is not taken up",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        [200],
        OPEN,
    ),
    ("-", "TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", [400], CLOSED),
    ("-", "noise", bytes(range(255, 0, -1)) * 200, [400], CLOSED),
]

SMUGGLED: Final = {
    "CL and TE": post(
        b"/read", b"Content-Length: 5", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"
    ),
    "TE and CL": post(
        b"/read", b"Transfer-Encoding: chunked", b"Content-Length: 5", body=b"0\r\n\r\n"
    ),
    "two lengths": post(b"/read", b"Content-Length: 0", b"Content-Length: 44"),
    "the same length twice": post(b"/read", b"Content-Length: 0", b"Content-Length: 0"),
    "a list of lengths": post(b"/read", b"Content-Length: 0, 0"),
    "a signed length": post(b"/read", b"Content-Length: +0"),
    "TE twice": post(
        b"/read", b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity", body=b"0\r\n\r\n"
    ),
    "TE with a tab": post(b"/read", b"Transfer-Encoding:\x0bchunked", b"Content-Length: 0"),
    "TE hidden by LF": post(b"/read", b"X: y\nTransfer-Encoding: chunked", b"Content-Length: 0"),
    "TE folded": post(b"/read", b"Transfer-Encoding:\r\n chunked", b"Content-Length: 0"),
    "TE with a space": post(b"/read", b"Transfer-Encoding : chunked", b"Content-Length: 0"),
    "CL with a space": post(b"/read", b"Content-Length : 44"),
    "TE in 1.0": chunked(b"/read", b"0\r\n\r\n").replace(b"HTTP/1.1", b"HTTP/1.0"),
    "bare LF chunk": chunked(b"/read", b"0\n\n"),
    "bare CR in an extension": chunked(b"/read", b"0;a\r\r\n\r\n"),
    "LF in an extension": chunked(b"/read", b"1;a\nx\r\na\r\n0\r\n\r\n"),
    "space before the size": chunked(b"/read", b" 0\r\n\r\n"),
    "size in C": chunked(b"/read", b"0x0\r\n\r\n"),
    "a trailer folded": chunked(b"/read", b"0\r\nX: y\r\n z\r\n\r\n"),
    "chunk end missing": chunked(b"/read", b"1\r\na0\r\n\r\n"),
    "NUL in a name": post(b"/read", b"Content-Length\x00: 44"),
    "NUL in a value": post(b"/read", b"Content-Length: 0\x00"),
}


@pytest.mark.parametrize(
    ("section", "what", "data", "statuses", "goes_on"),
    TABLE,
    ids=[f"{section} {what}" for section, what, *_ in TABLE],
)
async def test_rfc_9112(
    section: str, what: str, data: bytes, statuses: list[int], goes_on: bool
) -> None:
    async with serving() as served:
        async with served.client() as client:
            await client.send(data)
            replies = [await client.reply() for _ in statuses]

            assert [reply and reply.status for reply in replies] == statuses
            last = replies[-1]
            assert last is not None
            assert ("connection" in last.headers) is (not goes_on)
            assert await client.is_open() is goes_on
        assert "/hidden" not in [request.target for request in served.platform.asked]
        assert await served.lives()


@pytest.mark.parametrize("data", SMUGGLED.values(), ids=SMUGGLED)
async def test_nothing_is_answered_behind_an_ambiguous_request(data: bytes) -> None:
    async with serving() as served:
        replies = await served.once(data + HIDDEN)

        assert [reply.status for reply in replies] in ([400], [501], [413])
        assert "/hidden" not in [request.target for request in served.platform.asked]
        assert await served.lives()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "BAD_REQUEST"),
        (b"GET / HTTP/2.0\r\n\r\n", "HTTP_VERSION_NOT_SUPPORTED"),
        (b"GET /" + b"a" * 9000, "URI_TOO_LONG"),
        (ALIVE[:-2] + b"X: y\r\n" * 101, "REQUEST_HEADER_FIELDS_TOO_LARGE"),
        (post(b"/", b"Transfer-Encoding: x"), "NOT_IMPLEMENTED"),
        (post(b"/", b"Content-Length: 99999999"), "PAYLOAD_TOO_LARGE"),
    ],
)
async def test_what_the_server_refuses_is_said_in_the_envelope(data: bytes, code: str) -> None:
    async with serving() as served, served.client() as client:
        reply = await client.get(data)

        assert set(reply.json) == {"detail", "error_code"}
        assert reply.json["error_code"] == code
        assert reply.headers["content-type"] == "application/json"
        assert len(reply.headers["x-request-id"]) == 16
        assert "date" in reply.headers and "server" not in reply.headers


async def test_bytes_that_come_one_by_one_make_the_same_requests() -> None:
    data = ALIVE + chunked(b"/read", b"3;a=b\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n") + ALIVE
    async with serving() as served, served.client() as client:
        client.stream.setsockopt(6, 1, 1)  # TCP_NODELAY
        for at in range(len(data)):
            await client.send(data[at : at + 1])
            await trio.lowlevel.checkpoint()
        bodies = [reply.body for _ in range(3) if (reply := await client.reply())]

        assert bodies[1] == b"abcde" and len(bodies) == 3


async def test_a_client_that_closes_its_side_is_still_answered() -> None:
    async with serving() as served:
        assert [reply.status for reply in await served.once(ALIVE + ALIVE)] == [200, 200]
        slow = b"GET /wait?0.05 HTTP/1.1\r\nHost: a\r\n\r\n"
        assert [reply.status for reply in await served.once(slow)] == [200]


async def test_an_incomplete_body_is_refused() -> None:
    async with serving() as served:
        replies = await served.once(post(b"/read", b"Content-Length: 9", body=b"abc"))

        assert [reply.status for reply in replies] == [400]


async def test_an_incomplete_head_is_dropped_in_silence() -> None:
    async with serving() as served:
        assert await served.once(b"GET / HTTP/1.1\r\nHo") == []
        assert await served.once(b"") == []
        assert served.log == []


async def test_head_has_the_headers_of_get_and_no_body() -> None:
    async with serving() as served, served.client() as client:
        got = await client.get(b"GET /headers HTTP/1.1\r\nHost: a\r\n\r\n")
        head = await client.get(b"HEAD /headers HTTP/1.1\r\nHost: a\r\n\r\n", "HEAD")

        assert head.headers["content-length"] == got.headers["content-length"]
        assert await client.is_open()


async def test_a_refusal_of_head_has_no_body_either() -> None:
    data = b"HEAD /read HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"
    async with serving() as served, served.client() as client:
        reply = await client.get(data, "HEAD")

        assert reply.status == 400
        assert await client.rest() == b""


async def test_a_head_of_head_that_is_refused_is_answered_without_a_body() -> None:
    async with serving() as served, served.client() as client:
        reply = await client.get(b"HEAD / HTTP/1.1\r\nHost: a b\r\n\r\n", "HEAD")

        assert reply.status == 400
        assert await client.rest() == b""


# Bodies


async def continued(client: Client, size: int, target: bytes = b"/read") -> int:
    """Send a head that expects 100, and return the first status."""
    await client.send(post(target, b"Content-Length: %d" % size, b"Expect: 100-continue"))
    reply = await client.reply()
    return 0 if reply is None else reply.status


async def test_100_is_sent_when_the_body_is_asked_for() -> None:
    async with serving() as served, served.client() as client:
        assert await continued(client, 3) == 100
        reply = await client.get(b"abc")

        assert (reply.status, reply.body) == (200, b"abc")
        assert await client.is_open()


async def test_no_100_is_sent_for_a_body_that_nobody_asks_for() -> None:
    async with serving() as served, served.client() as client:
        assert await continued(client, 3, b"/deny") == 401
        assert not await client.is_open()


async def test_no_100_is_sent_for_a_body_that_is_too_long() -> None:
    async with serving() as served, served.client() as client:
        assert await continued(client, 1001) == 413


async def test_no_100_is_sent_when_the_body_is_there() -> None:
    async with serving() as served, served.client() as client:
        fields = (b"Content-Length: 3", b"Expect: 100-continue")

        assert (await client.get(post(b"/read", *fields, body=b"abc"))).status == 200


async def test_a_declared_length_over_the_limit_is_refused_unread() -> None:
    async with serving() as served, served.client() as client:
        assert (await client.get(post(b"/read?5", b"Content-Length: 100000"))).status == 413


async def test_an_early_answer_reaches_a_client_that_goes_on_sending() -> None:
    """A socket closed with unread bytes is reset, and the reset may overtake the answer."""
    body = b"x" * 4_000_000
    async with serving() as served, served.client() as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                client.send, post(b"/deny", b"Content-Length: %d" % len(body), body=body)
            )
            reply = await client.reply()

        assert reply is not None and reply.status == 401
        assert reply.headers["connection"] == "close"
        await client.stream.send_eof()
        assert await client.rest() == b""


async def test_a_short_body_that_was_not_asked_for_is_skipped() -> None:
    async with serving() as served, served.client() as client:
        reply = await client.get(post(b"/deny", b"Content-Length: 60000", body=b"x" * 60000))

        assert reply.status == 401 and "connection" not in reply.headers
        assert await client.is_open()


async def test_a_client_that_goes_away_within_its_body_leaves_nothing_behind() -> None:
    async with serving() as served:
        async with served.client() as client:
            await client.send(post(b"/read", b"Content-Length: 9", body=b"abc"))
            await served.until_connections(1)
            await trio.sleep(0.02)
            reset(client)
        await served.until_connections(0)

        assert served.log == []
        assert await served.lives()


async def test_a_body_is_read_once() -> None:
    async with serving() as served, served.client() as client:
        reply = await client.get(post(b"/twice", b"Content-Length: 3", body=b"abc"))

        assert reply.status == 500
        assert served.log[0][2]["error"].startswith("RuntimeError in ")
        assert await client.is_open()


async def test_trailers_are_not_headers() -> None:
    body = b"0\r\nAuthorization: Bearer x\r\n\r\n"
    async with serving() as served, served.client() as client:
        await client.get(chunked(b"/read", body))

        assert served.platform.asked[0].header(b"authorization") is None


# Faults


async def test_an_exception_of_the_platform_is_an_incident_and_the_server_lives() -> None:
    async with serving() as served:
        async with served.client() as client:
            reply = await client.get(b"GET /boom?secret=1 HTTP/1.1\r\nHost: a\r\n\r\n")

            assert reply.status == 500
            assert "business" not in reply.body.decode()
            ((level, event, fields),) = served.log
            assert (level, event, fields["path"]) == ("error", "request_failed", "/boom")
            assert fields["incident"] in reply.json["detail"]
            assert reply.headers["x-request-id"] == fields["incident"]
        assert await served.lives()


async def test_the_platform_is_told_the_address_of_the_client() -> None:
    async with serving() as served, served.client() as client:
        await client.get(ALIVE)

        assert served.platform.asked[0].client == "127.0.0.1"


async def test_a_host_in_the_target_replaces_that_of_the_header() -> None:
    async with serving() as served, served.client() as client:
        reply = await client.get(b"GET http://b:1/headers HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n")

        assert reply.json == [["host", "b:1"], ["x", "y"]]


async def test_two_thousand_requests_on_one_connection() -> None:
    async with serving() as served, served.client() as client:
        for _ in range(20):
            await client.send(ALIVE * 100)
            for _ in range(100):
                reply = await client.reply()
                assert reply is not None and reply.status == 200


async def test_pipelined_requests_let_others_have_a_turn() -> None:
    async with serving() as served, served.client() as busy, served.client() as other:
        await busy.send(ALIVE * 400)
        await other.get(HIDDEN)
        targets = [request.target for request in served.platform.asked]

        assert targets.index("/hidden") < 300


async def test_limits_of_requests_in_flight_answer_503() -> None:
    one = Settings(requests_in_flight=1)
    async with serving(one) as served, served.client() as first, served.client() as second:
        await first.send(b"GET /wait?0.2 HTTP/1.1\r\nHost: a\r\n\r\n")
        await trio.sleep(0.05)
        busy = await second.get(ALIVE)
        answered = await first.reply()

        assert busy.status == 503
        assert busy.headers["retry-after"] == "1"
        assert answered is not None
        assert answered.status == 200
        assert await second.is_open()


async def open_all(served: Served, number: int) -> list[int]:
    """Open `number` connections at once; return the status each is answered."""
    statuses: list[int] = []
    async with trio.open_nursery() as nursery:
        held = trio.Event()

        async def one() -> None:
            async with served.client() as client:
                reply = await client.get(ALIVE)
                statuses.append(reply.status)
                if len(statuses) == number:
                    held.set()
                await held.wait()

        for _ in range(number):
            nursery.start_soon(one)
    return statuses


@asynccontextmanager
async def being_served(served: Served, number: int) -> AsyncGenerator[list[Client]]:
    """Hold `number` connections, each with a stream that is quiet."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(served.client()) for _ in range(number)]
        for client in clients:
            await client.send(b"GET /quiet HTTP/1.1\r\nHost: a\r\n\r\n")
            head = await client.until(b"\r\n\r\n")
            assert head is not None and head.startswith(b"HTTP/1.1 200")
        yield clients


async def test_connections_beyond_the_limit_are_told_so() -> None:
    async with serving(Settings(connections=3)) as served:
        async with being_served(served, 3) as clients:
            assert await open_all(served, 2) == [503, 503]
            assert len(clients) == 3
            await served.until_connections(3)
        await served.until_connections(0)
        assert await served.lives()


async def test_idle_connections_make_room_the_oldest_first() -> None:
    exact = Settings(connections=4, linger_seconds=0.04)
    async with (
        serving(exact) as served,
        being_served(served, 1) as (stream,),
        AsyncExitStack() as s,
    ):
        idle = [await s.enter_async_context(served.client()) for _ in range(3)]
        await trio.sleep(0.1)
        await idle[1].get(ALIVE)  # the youngest from now on: its wait began last
        assert await served.lives()
        assert await idle[0].rest() == b""
        async with served.client() as fourth:
            assert await fourth.is_open()
            assert await served.lives()
            assert await idle[2].rest() == b""
            assert await idle[1].is_open()
        with trio.move_on_after(0.05):
            await stream.more()
            pytest.fail("the stream was ended")


async def test_a_head_that_does_not_come_makes_room_after_those_that_are_idle() -> None:
    async with serving(Settings(connections=2)) as served:
        async with served.client() as slow, served.client() as idle:
            await slow.send(b"GET / HTTP/1.1\r\nHost:")
            await idle.get(ALIVE)
            assert await served.lives()
            assert await idle.rest() == b""
            async with served.client() as another:
                assert await another.is_open()
                assert await served.lives()
                assert await another.rest() == b""
                async with being_served(served, 1):
                    assert await served.lives()
            reply = await slow.reply()

        assert reply is not None and reply.status == 408


async def test_who_was_told_to_go_makes_room_last() -> None:
    patient = Settings(connections=1, linger_seconds=60.0)
    async with serving(patient) as served, served.client() as refused:
        reply = await refused.get(b"nonsense\r\n\r\n")

        assert reply.status == 400
        assert await served.lives()


async def test_a_thousand_idle_connections_keep_nobody_out() -> None:
    async with serving(Settings(connections=200)) as served, AsyncExitStack() as stack:
        for _ in range(300):
            await stack.enter_async_context(served.client())
        for _ in range(50):
            assert await served.lives()

        assert served.server.connections <= 210
        evicted = served.server.gauges()["legation_connections_evicted_total"].values
        assert 100 <= evicted[()] <= 120
        assert served.server.connections >= 190


async def test_a_crowd_beyond_the_limit_is_closed_without_a_word() -> None:
    async with serving(Settings(connections=1, linger_seconds=0.2)) as served:
        async with being_served(served, 1), trio.open_nursery() as nursery:
            ends: list[bytes] = []

            async def silent() -> None:
                async with served.client() as client:
                    ends.append((await client.rest())[:12])

            for _ in range(100):
                nursery.start_soon(silent)
        assert set(ends) == {b"HTTP/1.1 503", b""}
        await served.until_connections(0)
        assert await served.lives()


async def test_loopback_has_no_limit_per_address_on_a_socket_for_both_families_either() -> None:
    """A socket of systemd is one, and IPv4 clients have an address of IPv6 on it."""
    both = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    both.setblocking(False)
    settings = Settings(connections_per_address=1)
    tried = Tried()
    async with open_host() as host, trio.open_nursery() as nursery:
        await nursery.start(partial(serve, tried, host, (both,), settings))
        port = both.getsockname()[1]
        async with connected(port) as first, connected(port) as second:
            assert [(await each.get(ALIVE)).status for each in (first, second)] == [200, 200]
        nursery.cancel_scope.cancel()

    assert {request.client for request in tried.asked} == {"127.0.0.1"}


async def test_loopback_has_no_limit_per_address() -> None:
    async with serving(Settings(connections_per_address=2)) as served:
        assert await open_all(served, 5) == [200] * 5
