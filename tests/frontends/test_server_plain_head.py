"""Heads that are read without h11: to the same that h11 reads, or not at all."""

from __future__ import annotations

from typing import Final

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legation_server.plain_head import PlainHead, read_plain_head

HOST: Final = b"Host: a.example:8000"


def head_of(*lines: bytes, first: bytes = b"GET /agents HTTP/1.1") -> bytes:
    return b"\r\n".join([first, *lines, b"", b""])


def read_by_h11(raw: bytes) -> PlainHead:
    """Return what h11 reads; a version is 1.1, and there is one host."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(raw)
    request = connection.next_event()
    assert isinstance(request, h11.Request)
    assert request.http_version == b"1.1"
    headers = tuple(request.headers)
    assert [name for name, _ in headers].count(b"host") == 1
    return request.method.decode(), request.target.decode(), headers


LINES: Final = st.sampled_from(
    [
        HOST,
        b"host:a",
        b"HOST:   b  ",
        b"Host:",
        b"Host : a",
        b"Content-Length: 3",
        b"content-length:3 ",
        b"Content-Length: 3, 3",
        b"Content-Length: +3",
        b"Content-Length: 0x3",
        b"Content-Length: \xb2",
        b"Content-Length: " + b"1" * 19,
        b"Content-Length: " + b"1" * 21,
        b"Content-Length:",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: 5",
        b"Expect: 100-continue",
        b"Connection: close",
        b"Upgrade: h2c",
        b"Authorization: Bearer a.b.c==",
        b"X-Name: a: b",
        b"X-Name:",
        b"X-Name: \xff\x80",
        b"X Name: a",
        b"X-\xc4: a",
        b"X-[Name]: a",
        b": a",
        b"no colon",
        b"x" * 65 + b": a",
    ]
)
NAMES: Final = st.from_regex(rb"[ -~\x80-\xff]{0,12}", fullmatch=True)
VALUES: Final = st.from_regex(rb"[ -~\x80-\xff]{0,20}", fullmatch=True)


def odd_line(name: bytes, value: bytes) -> bytes:
    return name.strip() + b":" + value


def first_line(target: bytes) -> bytes:
    return b"GET /" + target + b" HTTP/1.1"


FIRST: Final = st.sampled_from(
    [
        b"GET / HTTP/1.1",
        b"POST /a?b=%20&c#d HTTP/1.1",
        b"POST /a?b=%20&c HTTP/1.1",
        b"get / HTTP/1.1",
        b"GET  / HTTP/1.1",
        b"GET / HTTP/1.1 ",
        b"GET / HTTP/1.0",
        b"GET / HTTP/1.2",
        b"GET / HTTP/2.0",
        b"GET / http/1.1",
        b"GET /\xe4 HTTP/1.1",
        b"GET http://a/ HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"CONNECT / HTTP/1.1",
        b"GET / a HTTP/1.1",
        b"GET /",
    ]
) | st.builds(first_line, VALUES)


@settings(max_examples=600, deadline=None)
@given(
    first=FIRST,
    lines=st.lists(LINES | st.builds(odd_line, NAMES, VALUES), max_size=6),
    hosts=st.integers(0, 1),
)
def test_what_is_read_is_what_h11_reads(first: bytes, lines: list[bytes], hosts: int) -> None:
    raw = head_of(*[HOST] * hosts, *lines, first=first)

    read = read_plain_head(raw)

    assert read is None or read == read_by_h11(raw)


@pytest.mark.parametrize(
    "raw",
    [
        head_of(HOST),
        head_of(HOST, b"Content-Length: 12", first=b"POST /agents/a/runs HTTP/1.1"),
        head_of(HOST, b"User-Agent: curl/8.5.0", b"Accept: */*", b"Connection: keep-alive"),
        head_of(b'sec-ch-ua: "A";v="1"', HOST, b"cookie: a=b; c=d", b"x-request-id: 0192"),
        head_of(HOST, b"X-Empty:", b"X-Twice: 1", b"X-Twice: 2", b"Upgrade-Insecure-Requests: 1"),
    ],
)
def test_ordinary_heads_are_read(raw: bytes) -> None:
    assert read_plain_head(raw) == read_by_h11(raw)


@pytest.mark.parametrize(
    "raw",
    [
        head_of(),
        head_of(HOST, HOST),
        head_of(HOST, b"Content-Length: 1", b"Content-Length: 1"),
        head_of(HOST, b"Content-Length: 1, 1"),
        head_of(HOST, b"Content-Length: -1"),
        head_of(HOST, b"Content-Length: " + b"9" * 19),
        head_of(HOST, b"Transfer-Encoding: chunked"),
        head_of(HOST, b"Expect: 100-continue"),
        head_of(HOST, b"X-Name : a"),
        head_of(HOST, b"X-Name"),
        head_of(HOST, b": a"),
        head_of(HOST, b"x" * 65 + b": a"),
        head_of(HOST, first=b"GET / HTTP/1.0"),
        head_of(HOST, first=b"GET http://a/ HTTP/1.1"),
        head_of(HOST, first=b"GET /#a HTTP/1.1"),
        head_of(HOST, first=b"GET"),
    ],
)
def test_what_may_be_understood_in_two_ways_is_left_to_h11(raw: bytes) -> None:
    assert read_plain_head(raw) is None
