from __future__ import annotations

import h11
import pytest

from legation.http.messages import Response, Streamed
from legation_server.render import (
    LAST_CHUNK,
    DateClock,
    chunk,
    response_bytes,
    stream_head,
)

DATE = b"Sun, 06 Nov 1994 08:49:37 GMT"
LENGTH = (b"content-length", b"5")


def parse(data: bytes, method: str = "GET") -> tuple[int, dict[bytes, bytes], bytes]:
    """Return what a client understands: status, headers, body; nothing is left over."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("host", "a")]))
    client.send(h11.EndOfMessage())
    client.receive_data(data)
    response = client.next_event()
    assert isinstance(response, h11.Response)
    body = b""
    while isinstance(event := client.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert client.trailing_data == (b"", False)
    return response.status_code, dict(response.headers), body


def test_the_bytes_of_a_response() -> None:
    response = Response(200, ((b"content-type", b"text/plain"), LENGTH), b"hello")

    assert response_bytes(response, "GET", DATE, close=False) == (
        b"HTTP/1.1 200 OK\r\n"
        b"date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
        b"content-type: text/plain\r\n"
        b"content-length: 5\r\n"
        b"\r\n"
        b"hello"
    )


@pytest.mark.parametrize("status", [200, 201, 202, 404, 418, 431, 500, 599])
@pytest.mark.parametrize("close", [True, False])
def test_a_client_understands_every_status(status: int, close: bool) -> None:
    data = response_bytes(Response(status, (LENGTH,), b"hello"), "GET", DATE, close=close)

    seen, headers, body = parse(data)
    assert (seen, body) == (status, b"hello")
    assert (headers.get(b"connection") == b"close") is close
    assert headers[b"date"] == DATE


@pytest.mark.parametrize(
    "lie",
    [
        (b"content-length", b"99"),
        (b"transfer-encoding", b"chunked"),
        (b"connection", b"keep-alive"),
        (b"date", b"yesterday"),
    ],
)
def test_framing_is_not_taken_from_the_response(lie: tuple[bytes, bytes]) -> None:
    response = Response(200, (lie, (b"x", b"y")), b"hello")

    status, headers, body = parse(response_bytes(response, "GET", DATE, close=False))
    assert (status, body) == (200, b"hello")
    assert headers == {b"date": DATE, b"x": b"y", b"content-length": b"5"}


def test_head_says_the_length_of_get_and_sends_nothing() -> None:
    data = response_bytes(Response(200, (LENGTH,), b"hello"), "HEAD", DATE, close=False)

    status, headers, body = parse(data, "HEAD")
    assert (status, headers[b"content-length"], body) == (200, b"5", b"")


def test_204_has_no_length_and_304_keeps_the_one_it_has() -> None:
    gone = parse(response_bytes(Response(204, (LENGTH,), b"hello"), "GET", DATE, close=False))
    same = parse(response_bytes(Response(304, (LENGTH,), b"hello"), "GET", DATE, close=False))

    assert gone == (204, {b"date": DATE}, b"")
    assert same == (304, {b"date": DATE, b"content-length": b"5"}, b"")


def test_an_empty_response_says_that_it_is_empty() -> None:
    assert b"content-length: 0\r\n" in response_bytes(Response(200, ()), "GET", DATE, close=False)


def test_a_stream_is_framed_in_chunks() -> None:
    answer = Streamed(200, ((b"content-type", b"text/event-stream"), LENGTH), iter(()))  # type: ignore[arg-type]
    data = stream_head(answer, DATE, chunked=True, close=False)
    data += chunk(b"x" * 300) + chunk(b"y", LAST_CHUNK)

    _, headers, body = parse(data)
    assert body == b"x" * 300 + b"y"
    assert headers[b"transfer-encoding"] == b"chunked"
    assert b"content-length" not in headers


def test_the_date_changes_with_the_second() -> None:
    clock = DateClock()
    clock.tick(784111777.9)
    first = clock.date
    clock.tick(784111777.0)
    second = clock.date
    clock.tick(784111778.0)

    assert (first, clock.date) == (DATE, b"Sun, 06 Nov 1994 08:49:38 GMT")
    assert second is first
