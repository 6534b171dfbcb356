from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

import anyio
import pytest

from legation.effects import Fetch, FetchReply, Unreachable
from legation_host.fetch import Fetcher

from .host_units import BACKENDS, run


@contextmanager
def server(*answers: bytes, hold: threading.Event | None = None) -> Generator[Any]:
    """Answer each connection with the next of `answers` once it has sent a head and its body.

    Yields the URL and the list of what was received.
    """
    received: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for answer in answers:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                received.append(_request(peer))
                if hold is not None:
                    hold.wait(10)
                try:
                    peer.sendall(answer)
                except OSError:
                    pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", received
    finally:
        if hold is not None:
            hold.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def _request(peer: socket.socket) -> bytes:
    peer.settimeout(10)
    data = b""
    while b"\r\n\r\n" not in data:
        more = peer.recv(65536)
        if not more:
            return data
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    while len(body) < length:
        body += peer.recv(65536)
    return head + b"\r\n\r\n" + body


def reply(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    lines = [b"HTTP/1.1 " + status, b"Connection: close", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def fetched(backend: str, *effects: Fetch) -> list[FetchReply | Unreachable]:
    async def main() -> list[FetchReply | Unreachable]:
        fetcher = Fetcher()
        try:
            return [await fetcher.fetch(effect) for effect in effects]
        finally:
            await fetcher.aclose()

    return run(backend, main)


@BACKENDS
def test_a_request_is_sent_as_it_is_and_its_reply_comes_back_whole(backend: str) -> None:
    with server(reply(b"pong", b"X-Thing: a", b"X-Thing: b", b"Content-Length: 4")) as (url, got):
        (answer,) = fetched(
            backend, Fetch("POST", f"{url}/p?q=1", (("Authorization", "Bearer k"),), b"ping")
        )

    assert isinstance(answer, FetchReply)
    assert (answer.status, answer.body) == (200, b"pong")
    assert answer.headers["x-thing"] == "a, b"
    assert got[0].startswith(b"POST /p?q=1 HTTP/1.1\r\n")
    assert b"Authorization: Bearer k\r\n" in got[0]
    assert b"accept-encoding: identity\r\n" in got[0].lower()
    assert got[0].endswith(b"\r\n\r\nping")


@BACKENDS
def test_a_redirect_is_an_answer(backend: str) -> None:
    with server(reply(b"", b"Location: http://127.0.0.1:1/", status=b"302 Found")) as (url, _):
        (answer,) = fetched(backend, Fetch("GET", url))

    assert isinstance(answer, FetchReply)
    assert (answer.status, answer.headers["location"]) == (302, "http://127.0.0.1:1/")


@BACKENDS
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "found while reading"])
def test_a_body_over_the_limit_is_too_large(backend: str, declared: bool) -> None:
    length = (b"Content-Length: 11",) if declared else ()
    with server(reply(b"x" * 11, *length), reply(b"x" * 10, *length[:0])) as (url, _):
        answers = fetched(backend, Fetch("GET", url, max_bytes=10), Fetch("GET", url, max_bytes=10))

    assert answers[0] == Unreachable("too-large")
    assert isinstance(answers[1], FetchReply)


@BACKENDS
def test_the_time_out_is_over_the_whole_exchange(backend: str) -> None:
    hold = threading.Event()
    with server(reply(b"late"), hold=hold) as (url, _):
        (answer,) = fetched(backend, Fetch("GET", url, timeout_seconds=0.2))

    assert answer == Unreachable("timeout")


@contextmanager
def endless() -> Generator[str]:
    """Serve one body that never ends, a byte at a time; yields the URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def drip() -> None:
        with suppress(OSError):
            peer, _ = listener.accept()
            with peer:
                peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while not stop.wait(0.02):
                    peer.sendall(b".")

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        stop.set()
        thread.join(10)
        listener.close()


@BACKENDS
def test_a_body_that_drips_does_not_outlast_the_time_out(backend: str) -> None:
    with endless() as url:
        assert fetched(backend, Fetch("GET", url, timeout_seconds=0.3)) == [Unreachable("timeout")]


@BACKENDS
def test_a_body_without_end_is_read_up_to_the_limit(backend: str) -> None:
    with endless() as url:
        effect = Fetch("GET", url, timeout_seconds=5.0, max_bytes=3)
        assert fetched(backend, effect) == [Unreachable("too-large")]


@BACKENDS
@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"no http\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx",
    ],
    ids=["nothing", "no http", "cut short", "bad chunk", "encoded unasked"],
)
def test_what_is_not_http_is_a_protocol_error(backend: str, answer: bytes) -> None:
    with server(answer) as (url, _):
        assert fetched(backend, Fetch("GET", url)) == [Unreachable("protocol")]


@BACKENDS
@pytest.mark.parametrize(
    "url", ["ftp://127.0.0.1/", "http://", "nothing", "http://127.0.0.1:99999/", "http://\0/"]
)
def test_what_is_not_a_url_is_a_protocol_error(backend: str, url: str) -> None:
    (answer,) = fetched(backend, Fetch("GET", url))

    assert isinstance(answer, Unreachable)
    assert answer.reason in ("protocol", "connect")


@BACKENDS
def test_a_header_that_would_split_the_request_is_refused(backend: str) -> None:
    with server(reply(b"never")) as (url, got):
        (answer,) = fetched(backend, Fetch("GET", url, (("x", "a\r\nevil: 1"),)))

    assert answer == Unreachable("protocol")
    assert not any(b"evil" in request for request in got)


@BACKENDS
def test_nobody_listening_is_a_connect_error(backend: str) -> None:
    assert fetched(backend, Fetch("GET", "http://127.0.0.1:1/")) == [Unreachable("connect")]


@BACKENDS
def test_a_server_that_speaks_no_tls_is_a_tls_error(backend: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(10)
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    answers = fetched(backend, Fetch("GET", f"https://127.0.0.1:{listener.getsockname()[1]}"))
    thread.join(10)
    listener.close()

    assert answers == [Unreachable("tls")]


@BACKENDS
def test_many_at_once_share_one_client(backend: str) -> None:
    count = 20
    with server(*[reply(b"x")] * count) as (url, _):

        async def main() -> None:
            fetcher = Fetcher()
            clients: set[int] = set()

            async def one() -> None:
                answer = await fetcher.fetch(Fetch("GET", url))
                assert isinstance(answer, FetchReply)
                clients.add(id(fetcher._client))

            async with anyio.create_task_group() as tasks:
                for _ in range(count):
                    tasks.start_soon(one)
            await fetcher.aclose()
            assert len(clients) == 1

        run(backend, main)


def test_an_effect_does_not_show_its_headers() -> None:
    assert "hunter2" not in repr(Fetch("GET", "http://x/", (("Authorization", "hunter2"),)))
