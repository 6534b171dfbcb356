"""The connection of a chat, to servers that say anything: canned bytes behind a real socket."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pytest

from legation_cli import chat_link
from legation_cli.chat_actions import Call, Ended, Event, Lost, Reply
from legation_cli.chat_link import Link, open_link

SSE: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\r\n"
ONE: Final = b'id: r:1\nevent: RunStarted\ndata: {"run_id":"r"}\n\n'
TWO: Final = b'event: RunContent\ndata: {"content":"x"}\n\n'
GET: Final = Call("GET", "/agents")


def response(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body)


def _read_request(client: socket.socket) -> bytes:
    """Return a request with its body, which has a length if there is one."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += client.recv(1 << 16)
    found = re.search(rb"content-length: (\d+)", data.lower())
    body = data.index(b"\r\n\r\n") + 4
    while found is not None and len(data) - body < int(found[1]):
        data += client.recv(1 << 16)
    return data


@contextmanager
def linked(*answers: bytes, token: str = "") -> Generator[tuple[Link, list[bytes]]]:
    """Yield a link to a server that gives `answers`, one a connection, and what it was sent."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for answer in answers:
                client, _ = listener.accept()
                with client:
                    asked.append(_read_request(client))
                    client.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with open_link(url, token, local=True) as link:
            yield link, asked
        thread.join(10)


def test_events_come_with_their_ids_and_then_the_end() -> None:
    with linked(SSE + b": heartbeat\n\n" + ONE + TWO + b"event: cut\ndata: {") as (link, _):
        assert link.open(GET) is None
        assert [link.next() for _ in range(4)] == [
            Event("RunStarted", {"run_id": "r"}, "r:1"),
            Event("RunContent", {"content": "x"}),
            Ended(),
            Ended(),
        ]


def test_stream_that_is_cut_within_a_chunk_has_ended() -> None:
    chunked = SSE.replace(b"\r\n\r\n", b"\r\ntransfer-encoding: chunked\r\n\r\n")
    with linked(chunked + b"%x\r\n%s\r\n" % (len(ONE), ONE) + b"ff\r\ndata") as (link, _):
        assert link.open(GET) is None
        assert [link.next(), link.next()] == [Event("RunStarted", {"run_id": "r"}, "r:1"), Ended()]


@pytest.mark.parametrize("data", [b"[]", b"nonsense", b"[" * 100_000, b"\xff"])
def test_data_that_is_no_object_counts_as_an_empty_one(data: bytes) -> None:
    with linked(SSE + b"event: a\ndata: " + data + b"\n\n") as (link, _):
        assert link.open(GET) is None
        assert link.next() == Event("a", {})


def test_event_without_an_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_link, "_LONGEST_EVENT", 1000)
    with linked(SSE + b"data: " + b"x" * 1_000_000) as (link, _):
        assert link.open(GET) is None
        assert link.next() == Ended()


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (response(200, b'[{"id":"a"}]'), Reply(200, [{"id": "a"}])),
        (response(403, b'{"detail":"No"}'), Reply(403, {"detail": "No"})),
        (response(500, b"<html>"), Reply(500)),
        (b"", Lost("the connection broke (RemoteProtocolError)")),
        (b"nonsense\r\n\r\n", Lost("the connection broke (RemoteProtocolError)")),
        (response(200, b"[]")[:-1], Lost("the connection broke (RemoteProtocolError)")),
    ],
)
def test_response_is_whole_or_lost(answer: bytes, found: object) -> None:
    with linked(answer) as (link, _):
        assert link.send(GET) == found


def test_body_that_is_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_link, "_LONGEST_BODY", 10)
    with linked(response(200, b'"' + b"x" * 100 + b'"')) as (link, _):
        assert link.send(GET) == Reply(200)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (response(404, b'{"detail":"No"}'), Reply(404, {"detail": "No"})),
        (response(200, b"<html>"), Lost("what answers there is no Legation", final=True)),
        (response(302, b""), Lost("what answers there is no Legation", final=True)),
        (b"", Lost("the connection broke (RemoteProtocolError)")),
    ],
)
def test_stream_is_opened_or_refused(answer: bytes, found: object) -> None:
    with linked(answer) as (link, _):
        assert link.open(GET) == found
        assert link.next() == Ended()


def test_nobody_at_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with open_link(url, "", local=True) as link:
        assert link.send(GET) == link.open(GET) == Lost("the server cannot be reached")


def test_silence_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_link, "_SILENCE_SECONDS", 0.05)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        open_link(f"http://127.0.0.1:{listener.getsockname()[1]}", "", local=True) as link,
    ):
        assert link.send(GET) == Lost("the server does not answer")


@pytest.mark.parametrize(
    ("call", "token", "lines", "body"),
    [
        (Call("GET", "/x", {"user_id": "a b"}), "", [b"GET /x?user_id=a+b HTTP/1.1"], b""),
        (
            Call("POST", "/x", {"message": "ü&"}, "k-1"),
            "T",
            [b"POST /x HTTP/1.1", b"Idempotency-Key: k-1", b"Authorization: Bearer T"],
            b"message=%C3%BC%26",
        ),
        (Call("GET", "/x", after="r:7"), "", [b"Last-Event-ID: r:7"], b""),
    ],
)
def test_requests_as_they_are_sent(
    call: Call, token: str, lines: Sequence[bytes], body: bytes
) -> None:
    with linked(response(200, b"[]"), token=token) as (link, asked):
        link.send(call)
    head, _, rest = asked[0].partition(b"\r\n\r\n")
    sent = head.split(b"\r\n")

    assert [line for line in lines if line not in sent] == []
    assert any(line.startswith(b"Authorization") for line in sent) == bool(token)
    assert rest == body


def test_stream_is_closed_for_the_next_one() -> None:
    with linked(SSE + ONE + ONE, SSE + TWO) as (link, _):
        assert link.open(GET) is None
        assert link.next() == Event("RunStarted", {"run_id": "r"}, "r:1")
        assert link.open(GET) is None
        assert link.next() == Event("RunContent", {"content": "x"})


def test_proxy_of_the_environment_is_not_for_this_machine(monkeypatch: Any) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    with linked(response(200, b"[]")) as (link, _):
        assert link.send(GET) == Reply(200, [])
