"""The guard before h11, without a socket: bytes in, heads and refusals out."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legation.http.refusals import Refusal
from legation_server.guard import Guard
from legation_server.head import RequestHead
from legation_server.settings import DEFAULT, Settings

from .guard_kit import heads

SMALL: Final = Settings(header_line=60, header_block=150, header_fields=4, body=100)

HOST: Final = b"Host: a.example\r\n"


def one(data: bytes, limits: Settings = DEFAULT) -> RequestHead | Refusal:
    """Return the one thing that comes out of `data`."""
    guard = Guard(limits)
    guard.receive(data)
    head = guard.head()
    assert head is not None
    return head


def accepted(data: bytes) -> RequestHead:
    head = one(data)
    assert isinstance(head, RequestHead), head
    return head


def status(data: bytes, limits: Settings = DEFAULT) -> int:
    head = one(data, limits)
    assert isinstance(head, Refusal), head
    return head.status


def get(*fields: bytes, line: bytes = b"GET / HTTP/1.1") -> bytes:
    return b"\r\n".join([line, b"Host: a.example", *fields, b"", b""])


def test_a_plain_head_comes_out_with_lower_case_names() -> None:
    head = accepted(get(b"X-Y: Z", line=b"GET /a?b=%2F HTTP/1.1"))

    assert (head.method, head.target) == ("GET", "/a?b=%2F")
    assert head.headers == ((b"host", b"a.example"), (b"x-y", b"Z"))
    assert head.keep_alive and head.length == 0 and not head.expects and not head.old


@pytest.mark.parametrize(
    ("line", "target", "host"),
    [
        (b"GET http://b.example/x?y HTTP/1.1", "/x?y", b"b.example"),
        (b"GET HTTPS://b.example:81 HTTP/1.1", "/", b"b.example:81"),
        (b"GET http://b.example?x HTTP/1.1", "/?x", b"b.example"),
        (b"GET http://[::1]:8/ HTTP/1.1", "/", b"[::1]:8"),
        (b"OPTIONS * HTTP/1.1", "*", b"a.example"),
        (b"GET //b.example/x HTTP/1.1", "//b.example/x", b"a.example"),
    ],
)
def test_a_target_is_brought_to_origin_form(line: bytes, target: str, host: bytes) -> None:
    head = accepted(get(line=line))

    assert head.target == target
    assert (b"host", host) in head.headers


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"GET / HTTP/2.0", 505),
        (b"GET / HTTP/3.0", 505),
        (b"GET / HTTP/0.9", 505),
        (b"PRI * HTTP/2.0", 505),
        (b"GET / HTTP/1.10", 400),
        (b"GET / http/1.1", 400),
        (b"GET /", 400),
        (b"GET  / HTTP/1.1", 400),
        (b"GET / HTTP/1.1 ", 400),
        (b"GET /a b HTTP/1.1", 400),
        (b"GET /\xc3\xa9 HTTP/1.1", 400),
        (b"GET /#a HTTP/1.1", 400),
        (b"GET a HTTP/1.1", 400),
        (b"GET * HTTP/1.1", 400),
        (b"GET http://u@b.example/ HTTP/1.1", 400),
        (b"GET http:///x HTTP/1.1", 400),
        (b"GET http://b.example/#x HTTP/1.1", 400),
        (b"GET ftp://b.example/ HTTP/1.1", 400),
        (b"GET b.example:80 HTTP/1.1", 400),
        (b"CONNECT b.example:80 HTTP/1.1", 501),
        (b"G@T / HTTP/1.1", 400),
        (b" GET / HTTP/1.1", 400),
    ],
)
def test_a_bad_request_line_is_refused(line: bytes, expected: int) -> None:
    assert status(get(line=line)) == expected


@pytest.mark.parametrize("version", [b"1.1", b"1.2", b"1.9"])
def test_a_later_minor_version_is_taken_for_1_1(version: bytes) -> None:
    head = accepted(get(line=b"GET / HTTP/" + version))

    assert head.keep_alive and not head.old


def test_http_1_0_needs_no_host_and_does_not_keep_alive() -> None:
    head = accepted(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")

    assert head.old and not head.keep_alive


@pytest.mark.parametrize(
    "value",
    [b"a/b", b"x/health?", b"u@a", b"a b", b"[::1", b"a:b", b"a:70000", b"a,b c", b"[::g]"],
)
def test_a_malformed_host_is_refused(value: bytes) -> None:
    assert status(b"GET / HTTP/1.1\r\nHost: " + value + b"\r\n\r\n") == 400


@pytest.mark.parametrize("value", [b"", b"a:", b"A.example:65535", b"[::1]:1", b"%41", b"[v1.x]"])
def test_a_host_may_be_all_that_rfc_3986_lets_it_be(value: bytes) -> None:
    assert (b"host", value) in accepted(b"GET / HTTP/1.1\r\nHost: " + value + b"\r\n\r\n").headers


@pytest.mark.parametrize("fields", [b"", HOST + HOST, HOST + b"host: a.example\r\n"])
def test_host_is_exactly_one(fields: bytes) -> None:
    assert status(b"GET / HTTP/1.1\r\n" + fields + b"\r\n") == 400


def test_a_later_minor_version_needs_a_host_too() -> None:
    assert status(b"GET / HTTP/1.2\r\n\r\n") == 400


@pytest.mark.parametrize(
    "field",
    [
        b"X: a\x01",
        b"X: a\x7f",
        b"X: a\x1b[0m",
        b"X: a\x00",
        b"X: a\rb",
        b"X: a\nY: b",
        b"X: a\r\n b",
        b"X: a\r\n\tb",
        b" X: a",
        b"X : a",
        b"X",
        b": a",
        b"X\xe9: a",
    ],
)
def test_a_bad_field_line_is_refused(field: bytes) -> None:
    assert status(get(field)) == 400


def test_obs_text_and_tabs_in_values_pass() -> None:
    assert (b"x", b"caf\xe9\tau lait") in accepted(get(b"X: caf\xe9\tau lait")).headers


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([b"Content-Length: 3", b"Transfer-Encoding: chunked"], 400),
        ([b"Transfer-Encoding: chunked", b"Content-Length: 0"], 400),
        ([b"Content-Length: 3", b"Content-Length: 3"], 400),
        ([b"Content-Length: 3", b"content-length: 4"], 400),
        ([b"Content-Length: 3, 3"], 400),
        ([b"Content-Length: +3"], 400),
        ([b"Content-Length: -3"], 400),
        ([b"Content-Length: 0x3"], 400),
        ([b"Content-Length: 3 3"], 400),
        ([b"Content-Length:"], 400),
        ([b"Content-Length: 18446744073709551621"], 413),
        ([b"Content-Length: " + b"9" * 5000], 400),
        ([b"Content-Length: 10485761"], 413),
        ([b"Transfer-Encoding: gzip, chunked"], 501),
        ([b"Transfer-Encoding: chunked, chunked"], 501),
        ([b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"], 501),
        ([b"Transfer-Encoding: xchunked"], 501),
        ([b"Transfer-Encoding: identity"], 501),
        ([b"Transfer-Encoding:"], 501),
        ([b"Transfer-Encoding: \x0bchunked"], 400),
        ([b"Transfer-Encoding : chunked"], 400),
        ([b"Transfer-Encoding: chunked;a=b"], 501),
    ],
)
def test_ambiguous_framing_is_refused(fields: list[bytes], expected: int) -> None:
    assert status(get(*fields, line=b"POST / HTTP/1.1")) == expected


def test_transfer_encoding_in_http_1_0_is_refused() -> None:
    fields = get(b"Transfer-Encoding: chunked", line=b"POST / HTTP/1.0")

    assert status(fields) == 400


@pytest.mark.parametrize(
    ("field", "length"),
    [
        (b"Content-Length: 0", 0),
        (b"Content-Length: 007", 7),
        (b"CONTENT-LENGTH:\t12 ", 12),
        (b"Transfer-Encoding: Chunked", None),
    ],
)
def test_framing_is_read(field: bytes, length: int | None) -> None:
    assert accepted(get(field, line=b"POST / HTTP/1.1")).length == length


@pytest.mark.parametrize(
    ("fields", "keep_alive"),
    [
        ([b"Connection: close"], False),
        ([b"Connection: Keep-Alive, CLOSE"], False),
        ([b"Connection: x", b"Connection: close"], False),
        ([b"Connection: keep-alive"], True),
        ([b"Connection: closed"], True),
        ([b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c"], True),
    ],
)
def test_the_connection_ends_when_the_client_says_so(fields: list[bytes], keep_alive: bool) -> None:
    assert accepted(get(*fields)).keep_alive is keep_alive


@pytest.mark.parametrize(
    ("line", "fields", "expects"),
    [
        (b"POST / HTTP/1.1", [b"Content-Length: 1", b"Expect: 100-Continue"], True),
        (b"POST / HTTP/1.1", [b"Content-Length: 0", b"Expect: 100-continue"], False),
        (b"POST / HTTP/1.0", [b"Content-Length: 1", b"Expect: 100-continue"], False),
        (b"POST / HTTP/1.1", [b"Content-Length: 1", b"Expect: a miracle"], False),
    ],
)
def test_100_is_expected_by_a_1_1_client_with_a_body(
    line: bytes, fields: list[bytes], expects: bool
) -> None:
    assert accepted(get(*fields, line=line)).expects is expects


def test_two_empty_lines_before_a_request_pass_and_three_do_not() -> None:
    assert isinstance(one(b"\r\n\r\n" + get()), RequestHead)
    assert status(b"\r\n\r\n\r\n" + get()) == 400


@pytest.mark.parametrize("noise", [b"\x16\x03\x01\x02\x00", b"\x00", b"\n", b" ", b"\rG"])
def test_noise_is_refused_before_any_line_ends(noise: bytes) -> None:
    assert status(noise) == 400


def test_a_lone_line_feed_is_refused_when_it_comes() -> None:
    assert status(b"GET / HTTP/1.1\nHost: a.example\n") == 400


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"GET /" + b"a" * 60, 414),
        (get(line=b"GET /" + b"a" * 60 + b" HTTP/1.1"), 414),
        (get(b"X: " + b"a" * 60), 431),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 60, 431),
        (get(b"X: " + b"a" * 40, b"Y: " + b"a" * 40, b"Z: " + b"a" * 40), 431),
        (get(b"A:", b"B:", b"C:", b"D:"), 431),
    ],
)
def test_every_size_has_a_limit(data: bytes, expected: int) -> None:
    assert status(data, SMALL) == expected


def test_the_limits_are_reached_before_they_are_passed() -> None:
    line = b"GET /" + b"a" * 46 + b" HTTP/1.1"

    assert len(line) == SMALL.header_line
    assert isinstance(one(get(line=line), SMALL), RequestHead)
    assert isinstance(one(get(b"A:", b"B:", b"C:"), SMALL), RequestHead)


def test_limits_hold_for_a_head_that_comes_in_one_piece() -> None:
    assert status(get(b"X: " + b"a" * 70_000)) == 431
    assert status(get(line=b"GET /" + b"a" * 100_000 + b" HTTP/1.1")) == 414
    assert status(get(*[b"X: y"] * 100)) == 431
    assert isinstance(one(get(*[b"X: y"] * 99)), RequestHead)


def test_what_follows_a_head_is_kept_for_its_body() -> None:
    guard = Guard(DEFAULT)
    guard.receive(get(b"Content-Length: 3", line=b"POST / HTTP/1.1") + b"abcGET")

    assert isinstance(guard.head(), RequestHead)
    assert (guard.unread, guard.take(), guard.unread) == (6, b"abcGET", 0)


def test_a_head_is_started_by_its_first_byte() -> None:
    guard = Guard(DEFAULT)
    assert not guard.has_begun and guard.head() is None

    guard.receive(b"\r\n")
    assert guard.head() is None and guard.has_begun

    guard.receive(get())
    assert isinstance(guard.head(), RequestHead) and not guard.has_begun


def test_a_refusal_never_quotes_the_input() -> None:
    head = one(get(b"Secr\xe9t: hunter2"))

    assert isinstance(head, Refusal)
    assert "hunter2" not in head.detail and "Secr" not in head.detail


WORDS: Final = st.sampled_from(
    [
        b"GET ", b"POST ", b"/", b"*", b"http://a/", b" HTTP/1.1", b" HTTP/1.0", b" HTTP/2.0",
        b"\r\n", b"\r\n\r\n", b"\n", b"\r", b" ", b"\t", b"Host: a", b"Host: a b", b"X: y",
        b"Content-Length: 3", b"Transfer-Encoding: chunked", b"Connection: close", b":", b"\x00",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"a" * 30, b"Expect: 100-continue", b"#", b"\xff",
    ]
)  # fmt: skip
INPUT: Final = st.lists(WORDS | st.binary(max_size=5), max_size=14).map(b"".join)


@settings(max_examples=400, deadline=None)
@given(data=INPUT, cut=st.integers(min_value=1, max_value=9), small=st.booleans())
def test_how_the_bytes_are_cut_makes_no_difference(data: bytes, cut: int, small: bool) -> None:
    limits = SMALL if small else DEFAULT

    assert heads(data, limits, cut) == heads(data, limits)


@settings(max_examples=200, deadline=None)
@given(
    fields=st.lists(
        st.tuples(st.from_regex(rb"[A-Za-z-]{1,20}", fullmatch=True), st.binary(max_size=60)),
        max_size=8,
    ),
    cut=st.integers(min_value=1, max_value=50),
)
def test_any_fields_come_out_the_same_whole_and_in_pieces(
    fields: list[tuple[bytes, bytes]], cut: int
) -> None:
    data = get(*[name + b": " + value for name, value in fields])

    assert heads(data, cut=cut) == heads(data)
    assert heads(data, SMALL, cut) == heads(data, SMALL)
