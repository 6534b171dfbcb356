"""Joined chunks, read by h11: they are the body that it reads without."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from legation.http.chunk_joining import ChunkJoiner

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-length: 30\r\n\r\n"
INTERIM = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
SWITCH = b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def read(parts: Iterable[bytes]) -> tuple[bytes, int, str]:
    """Return the body that h11 reads of `parts`, in how many events, and what it says at last."""
    parser = h11.Connection(h11.CLIENT)
    parser.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
    parser.send(h11.EndOfMessage())
    body, events = b"", 0
    for part in parts:
        parser.receive_data(part)
        try:
            while (event := parser.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.Data):
                    body, events = body + event.data, events + 1
                elif isinstance(event, h11.EndOfMessage):
                    return body, events, "end"
        except h11.RemoteProtocolError as error:
            return body, events, str(error)
    return body, events, "more"


def join(parts: Sequence[bytes]) -> list[bytes]:
    joiner = ChunkJoiner()
    return [joiner.feed(part) for part in parts]


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    """Return `data` in pieces, none of them empty."""
    at = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[begin:end] for begin, end in pairwise(at)]


pieces = st.one_of(
    st.binary(min_size=1, max_size=40).map(chunk),
    st.sampled_from(
        [
            b"3;a=b\r\nabc\r\n",
            b"3 \r\nabc\r\n",
            b"00A\r\n\r\n0123\r\n\r\n\r\n",
            b"3\r\nabcd\r\n",
            b"3\nabc\r\n",
            b"3\r\nabc\n\n",
            b"\r\n",
            b"g\r\n",
            b"123456789\r\nabc",
            b"2\r\nab\r",
            END,
            b"0\r\nx: y\r\n\r\n",
        ]
    ),
)


@given(
    st.sampled_from([HEAD, INTERIM + HEAD, HEAD.replace(b"\r\n", b"\n"), PLAIN, SWITCH]),
    st.lists(pieces, max_size=12).map(b"".join),
    st.lists(st.integers(0, 1000), max_size=8),
)
@example(HEAD, b"3\r\nabc\r\n" * 2, [len(HEAD) + 1])
@example(HEAD, b"3\r\nabc\r\n" * 3, [len(HEAD) + 1, len(HEAD) + 2, len(HEAD) + 6])
@example(HEAD, b"3\r\nabc\r\n" * 3, [len(HEAD) + 8])
@example(HEAD, b"3\r\nabc\r\n3\r\nabcX\n", [len(HEAD) + 17])
@example(HEAD, b"3;a\r\nabc\r\n" * 2, [len(HEAD) + 1])
def test_the_parser_reads_the_same_as_without(head: bytes, body: bytes, places: list[int]) -> None:
    parts = cut(head + body, places)

    joined = join(parts)

    (said, many, last), (wanted, most, end) = read(joined), read(parts)
    assert (said, last) == (wanted, end)
    assert many <= most
    assert all(joined)  # an empty part would be the end of the connection


def test_what_comes_at_once_is_one_chunk() -> None:
    words = [b"data: %d\n\n" % number for number in range(9)]
    first, second, third = words[:3], words[3:6], words[6:]

    parts = join([HEAD, *(b"".join(map(chunk, some)) for some in (first, second)), *third])

    assert parts == [HEAD, chunk(b"".join(first)), chunk(b"".join(second)), *third]


def test_chunks_behind_the_head_and_behind_one_that_was_begun_are_joined() -> None:
    parts = join(
        [HEAD + chunk(b"a") + chunk(b"b") + b"2\r\nc", b"d\r\n" + chunk(b"e") + chunk(b"f")]
    )

    assert parts == [HEAD + chunk(b"ab") + b"2\r\nc", b"d\r\n" + chunk(b"ef")]


def test_a_part_of_a_chunk_is_not_held_back() -> None:
    whole = chunk(b"abc")
    parts = [HEAD, *(whole[at : at + 1] for at in range(len(whole)))]

    assert join(parts) == parts


@pytest.mark.parametrize(
    "before",
    [PLAIN, SWITCH, b"x" * 70_000, HEAD + END, HEAD + b"1;x=y\r\na\r\n"],
    ids=["no chunks", "another protocol", "no head", "the end", "an extension"],
)
def test_what_cannot_be_followed_passes(before: bytes) -> None:
    joiner = ChunkJoiner()
    behind = chunk(b"a") + chunk(b"b")

    assert joiner.feed(before) == before
    assert joiner.passes
    assert joiner.feed(behind) == behind
