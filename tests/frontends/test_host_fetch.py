from __future__ import annotations

import gc
import socket
import ssl
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import anyio
import anyio.to_thread
import pytest

from legation.effects import (
    CloseStream,
    Fetch,
    FetchReply,
    NextChunk,
    OpenStream,
    Program,
    Sleep,
    Streaming,
    Unreachable,
)
from legation_host import open_host
from legation_host.fetch import CONNECTIONS, Fetcher
from legation_host.held_reads import HeldStream

from .host_units import BACKENDS, run
from .test_tls import write_pair


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
def test_a_cookie_is_not_sent_back(backend: str) -> None:
    with server(reply(b"", b"Set-Cookie: a=1; Path=/"), reply(b"")) as (url, seen):
        fetched(backend, Fetch("GET", url), Fetch("GET", url))

    assert len(seen) == 2
    assert all(b"cookie:" not in request.lower() for request in seen)


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


# --- bodies that are read as they come


class Awaited(threading.Event):
    """An event that a server waits for."""


class Peer:
    """A server that streams as it is told, and counts its connections.

    Each request is answered with the head and then whatever `script` says: bytes to send, seconds
    to wait, None to break the connection, an event to set or to wait for.
    """

    def __init__(
        self, *script: bytes | float | threading.Event | None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.script = script
        self.tls = tls
        self.accepted = 0
        self.open = 0
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                peer, _ = self._listener.accept()
                with self._lock:
                    self.accepted += 1
                    self.open += 1
                self._threads.append(
                    threading.Thread(target=self._answer, args=(peer,), daemon=True)
                )
                self._threads[-1].start()

    def _answer(self, peer: socket.socket) -> None:
        if self.tls is not None:
            peer = self.tls.wrap_socket(peer, server_side=True)
        with peer, suppress(OSError):
            if _request(peer):
                peer.settimeout(None)
                self._play(peer)
                while self.script[-1] is not None and peer.recv(1024):
                    self._play(peer)  # another request over the same connection
        with self._lock:
            self.open -= 1

    def _play(self, peer: socket.socket) -> None:
        for step in self.script:
            if isinstance(step, bytes):
                peer.sendall(step)
            elif step is None:
                return
            elif isinstance(step, Awaited):
                step.wait(10)
            elif isinstance(step, threading.Event):
                step.set()
            else:
                self._wait(peer, step)

    def _wait(self, peer: socket.socket, seconds: float) -> None:
        """Wait, but not longer than the client is there."""
        peer.settimeout(seconds)
        with suppress(TimeoutError):
            peer.recv(1)
        peer.settimeout(None)

    def all_closed(self) -> bool:
        """Tell whether every connection is closed soon."""
        deadline = time.monotonic() + 5
        while self.open and time.monotonic() < deadline:
            time.sleep(0.005)
        return self.open == 0


HEAD = b"HTTP/1.1 200 OK\r\nX-Thing: a\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def streamed(backend: str, program: Program[Any]) -> Any:
    async def main() -> Any:
        async with open_host() as host:
            return await host.run(program)

    return run(backend, main)


def opening(url: str, *effects: Any, seconds: float = 5.0) -> Program[list[Any]]:
    """Open a stream, ask for `effects`, and return what came back."""
    got: list[Any] = [(yield from OpenStream("POST", url, (), b"ping", seconds))]
    for effect in effects:
        got.append((yield from effect))
    return got


NEXT = NextChunk(1, 5.0)


@BACKENDS
def test_a_body_is_read_as_it_comes(backend: str) -> None:
    with Peer(HEAD, chunk(b"one"), 0.1, chunk(b"two"), 0.1, END, None) as peer:
        head, *chunks = streamed(backend, opening(peer.url, NEXT, NEXT, NEXT, NEXT, CloseStream(1)))
        assert peer.all_closed()

    assert isinstance(head, Streaming)
    assert (head.stream, head.status, head.headers["x-thing"]) == (1, 200, "a")
    assert chunks == [b"one", b"two", b"", b"", None]


@BACKENDS
@pytest.mark.parametrize("way", ["plain", "tls", "proxy"])
def test_what_comes_while_a_program_rests_is_one_answer(
    backend: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, sent = Awaited(), threading.Event()
    words = [b"%d " % number for number in range(40)]
    context = None
    if way == "tls":
        pair = write_pair(tmp_path)
        monkeypatch.setenv("SSL_CERT_FILE", str(pair.certfile))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certfile, pair.keyfile)
    reads: list[int] = []
    read = HeldStream.read

    async def counted(self: HeldStream, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        reads.append(max_bytes)
        return await read(self, max_bytes, timeout)

    monkeypatch.setattr(HeldStream, "read", counted)

    def program(url: str) -> Program[list[Any]]:
        yield from OpenStream("GET", url)
        got: list[Any] = [(yield from NextChunk(1, 10.0))]
        heard.set()
        while not sent.is_set():
            yield from Sleep(0.01)
        while got[-1]:
            got.append((yield from NextChunk(1, 10.0, 0.05)))
        return got

    burst = map(chunk, words)
    with Peer(HEAD, chunk(b"first "), heard, *burst, sent, END, tls=context) as peer:
        url = peer.url
        if way == "tls":
            url = url.replace("http://127.0.0.1", "https://localhost")
        if way == "proxy":
            monkeypatch.setenv("HTTP_PROXY", peer.url)
            url = "http://nowhere.invalid/"
        got = streamed(backend, program(url))

    assert b"".join(got) == b"first " + b"".join(words)
    if way == "proxy":
        assert not reads  # that connection is the client's own
    else:
        assert got == [b"first ", b"".join(words), b""]
    if way == "plain":
        assert len(reads) < 8


@BACKENDS
def test_a_connection_whose_body_was_read_is_used_again(backend: str) -> None:
    def program() -> Program[list[Any]]:
        got: list[Any] = []
        for stream in range(1, 4):
            yield from OpenStream("GET", peer.url)
            got.append((yield from NextChunk(stream, 5.0)))
            got.append((yield from NextChunk(stream, 5.0)))
        return got

    with Peer(HEAD, chunk(b"x"), 0.02, END) as peer:
        assert streamed(backend, program()) == [b"x", b""] * 3
        assert peer.accepted == 1


@BACKENDS
def test_a_body_that_stalls_is_a_time_out_and_closes_the_connection(backend: str) -> None:
    with Peer(HEAD, chunk(b"one"), 20.0) as peer:
        program = opening(peer.url, NEXT, NextChunk(1, 0.05), NEXT)
        assert streamed(backend, program)[1:] == [b"one", Unreachable("timeout"), b""]
        assert peer.all_closed()


@BACKENDS
def test_a_body_that_breaks_off_is_a_protocol_error(backend: str) -> None:
    with Peer(HEAD, chunk(b"one"), 0.05, None) as peer:
        program = opening(peer.url, NEXT, NEXT, NEXT)
        assert streamed(backend, program)[1:] == [b"one", Unreachable("protocol"), b""]


@BACKENDS
def test_a_head_that_does_not_come_is_a_time_out(backend: str) -> None:
    with Peer(20.0) as peer:
        assert streamed(backend, opening(peer.url, seconds=0.1)) == [Unreachable("timeout")]
        assert peer.all_closed()


@BACKENDS
def test_a_redirect_is_not_followed_and_what_is_encoded_unasked_is_refused(backend: str) -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    zipped = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\nx"
    with Peer(moved, None) as peer:
        head, last = streamed(backend, opening(peer.url, NEXT))
        assert (head.status, last) == (302, b"")
    with Peer(zipped, 20.0) as peer:
        assert streamed(backend, opening(peer.url)) == [Unreachable("protocol")]
        assert peer.all_closed()


@BACKENDS
@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "http://127.0.0.1:99999/", "http://\0/"])
def test_what_is_not_a_url_opens_nothing(backend: str, url: str) -> None:
    (answer,) = streamed(backend, opening(url))

    assert answer in (Unreachable("protocol"), Unreachable("connect"))


@BACKENDS
@pytest.mark.parametrize("way", ["cancelled", "left", "closed", "failed", "timed out"])
@pytest.mark.parametrize("state", ["not read", "half read", "being read"])
def test_however_a_program_ends_its_connection_is_closed(
    backend: str, state: str, way: str
) -> None:
    def program() -> Program[None]:
        yield from OpenStream("GET", peer.url)
        if state != "not read":
            yield from NEXT
        if way == "closed":
            yield from CloseStream(1)
        if way == "failed":
            raise ZeroDivisionError
        if state == "being read":
            yield from NextChunk(1, 0.05 if way == "timed out" else 60)
        if way == "cancelled":
            yield from Sleep(60)

    async def main() -> None:
        async with open_host() as host:
            with anyio.move_on_after(0.2):
                try:
                    await host.run(program())
                except ZeroDivisionError:
                    assert way == "failed"
            # The host is still open: it is the program's end that closes.
            assert await anyio.to_thread.run_sync(peer.all_closed)

    # Two chunks are there at once, so that one is always left in the buffer.
    with Peer(HEAD + chunk(b"one") + chunk(b"two"), 30.0) as peer:
        run(backend, main)
    gc.collect()


@BACKENDS
def test_whoever_finds_every_connection_in_use_waits_no_longer_than_it_said(backend: str) -> None:
    async def main() -> None:
        async with open_host() as host:
            opened = 0
            full = anyio.Event()

            def hold() -> Program[None]:
                nonlocal opened
                yield from OpenStream("GET", peer.url, timeout_seconds=20.0)
                opened += 1
                if opened == CONNECTIONS:
                    full.set()
                yield from Sleep(60)

            async with anyio.create_task_group() as tasks:
                for _ in range(CONNECTIONS):
                    tasks.start_soon(host.run, hold())
                await full.wait()
                assert peer.open == CONNECTIONS
                before = anyio.current_time()
                late = await host.run(opening(peer.url, seconds=0.1))
                fetched = await host.run(asked(Fetch("GET", peer.url, timeout_seconds=0.1)))
                assert [*late, fetched] == [Unreachable("timeout")] * 2
                assert anyio.current_time() - before < 3
                tasks.cancel_scope.cancel()
            assert await anyio.to_thread.run_sync(peer.all_closed)
            (head, *_) = await host.run(opening(peer.url))
            assert isinstance(head, Streaming)

    with Peer(HEAD, 30.0) as peer:
        run(backend, main)


def asked(effect: Any) -> Program[Any]:
    return (yield effect)
