"""Where bodies end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legation.http.refusals import Refusal
from legation_server.framing import ChunkedBody, LengthBody


def decode(data: bytes, limit: int = 1 << 20, cut: int = 0) -> tuple[bytes, bytes] | int | None:
    """Return the body and what follows it, the status of a refusal, or None when unfinished."""
    framing, body = ChunkedBody(limit), b""
    pieces = [data] if not cut else [data[i : i + cut] for i in range(0, len(data), cut)]
    for number, piece in enumerate(pieces):
        taken = framing.receive(piece)
        if isinstance(taken, Refusal):
            return taken.status
        body += taken[0]
        if framing.done:
            return body, taken[1] + b"".join(pieces[number + 1 :])
    return None


def test_a_length_body_ends_after_its_length() -> None:
    framing = LengthBody(5)

    assert framing.receive(b"abc") == (b"abc", b"") and not framing.done
    assert framing.receive(b"defg") == (b"de", b"fg") and framing.done


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (b"3\r\nabc\r\n0\r\n\r\n", b"abc"),
        (b"0\r\n\r\n", b""),
        (b"00003\r\nabc\r\n000\r\n\r\n", b"abc"),
        (b"A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n", b"0123456789" * 2),
        (b"3;a\r\nabc\r\n0;b=c\r\n\r\n", b"abc"),
        (b'3 ; a = "x;\\"\r\nabc\r\n0\r\n\r\n'.replace(b'\\"', b'\\""'), b"abc"),
        (b"3\r\nabc\r\n0\r\nContent-Length: 7\r\nX: y\r\n\r\n", b"abc"),
        (b"2\r\n\r\n\r\n0\r\n\r\n", b"\r\n"),
    ],
)
def test_a_chunked_body_is_decoded(data: bytes, body: bytes) -> None:
    assert decode(data + b"GET") == (body, b"GET")


@pytest.mark.parametrize(
    "data",
    [
        b"3\nabc\r\n0\r\n\r\n",
        b"3\r\nabc\n0\r\n\r\n",
        b"3\r\nabcX0\r\n\r\n\n",
        b"3\r\nabcd\r\n0\r\n\r\n",
        b"g\r\n",
        b"\r\n",
        b" 3\r\n",
        b"3 \r\n",
        b"-3\r\n",
        b"+3\r\n",
        b"0x3\r\n",
        b"3_0\r\n",
        b"\xd9\xa3\r\n",
        b"3;\r\n",
        b"3;a=\r\n",
        b'3;a="\r\n',
        b"3;a\x00\r\n",
        b"3;a\rb\r\n",
        b"3;" + b"a" * 300 + b"\r\n",
        b"3" * 300,
        b"0" * 17 + b"\r\n",
        b"F" * 17 + b"\r\n",
        b"0\r\nX\r\n\r\n",
        b"0\r\nX : y\r\n\r\n",
        b"0\r\n folded\r\n\r\n",
        b"0\r\nX: y\x00\r\n\r\n",
        b"0\r\nX: y\n\r\n",
        b"0\r\n" + b"X: y\r\n" * 3000,
        (b"1;" + b"a" * 200 + b"\r\nx\r\n") * 60,
    ],
)
def test_a_malformed_chunk_is_refused(data: bytes) -> None:
    assert decode(data) == 400


@pytest.mark.parametrize("size", [b"b", b"FFFFFFFFFFFFFFFF"])
def test_a_chunk_beyond_the_limit_is_refused_by_its_size_alone(size: bytes) -> None:
    assert decode(size + b"\r\n", limit=10) == 413


def test_chunks_are_counted_together() -> None:
    assert decode(b"6\r\nabcdef\r\n5\r\n", limit=10) == 413
    assert decode(b"6\r\nabcdef\r\n4\r\nghij\r\n0\r\n\r\n", limit=10) == (b"abcdefghij", b"")


PARTS = st.sampled_from(
    [b"3\r\nabc\r\n", b"0\r\n", b"\r\n", b"1;a=b\r\nx\r\n", b"X: y\r\n", b"\n", b"\r", b"f", b";"]
)


@settings(max_examples=300, deadline=None)
@given(
    data=st.lists(PARTS | st.binary(max_size=3), max_size=10).map(b"".join),
    cut=st.integers(min_value=1, max_value=7),
)
def test_how_the_bytes_are_cut_makes_no_difference(data: bytes, cut: int) -> None:
    assert decode(data, limit=20, cut=cut) == decode(data, limit=20)


@settings(deadline=None)
@given(
    pieces=st.lists(st.binary(min_size=1, max_size=40), max_size=10),
    cut=st.integers(min_value=1, max_value=30),
)
def test_what_is_framed_comes_out(pieces: list[bytes], cut: int) -> None:
    framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)

    assert decode(framed + b"0\r\n\r\nrest", cut=cut) == (b"".join(pieces), b"rest")
