"""The strict reader of server-sent events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.http.sse import EventId, encode, heartbeat
from legation_testing import NotAnEventStream, ServerSentEvent, parse_events


def test_events_are_read_in_order_and_comments_left_out() -> None:
    body = heartbeat() + b'id: r:1\nevent: RunStarted\ndata: {"a":1}\n\nevent: X\ndata: \n\n'

    assert parse_events(body) == (
        ServerSentEvent("RunStarted", '{"a":1}', "r:1"),
        ServerSentEvent("X", ""),
    )


def test_data_are_decoded_as_json() -> None:
    assert ServerSentEvent("X", '{"a":1}').json() == {"a": 1}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"event: X\ndata: 1\n", "ends within an event"),
        (b"event: X\ndata: 1", "the last line has no end"),
        (b"event: X\n\n", "no `data: `"),
        (b"data: 1\n\n", "no `event: `"),
        (b"event: X\ndata: 1\ndata: 2\n\n", "line 3: a second `data: `"),
        (b"event: X\nevent: Y\ndata: 2\n\n", "line 2: a second `event: `"),
        (b"event:X\ndata: 1\n\n", "line 1: not `event: `"),
        (b"retry: 1\nevent: X\ndata: 1\n\n", "line 1: not `event: `"),
        (b"event: X\r\ndata: 1\r\n\r\n", "line 1: a carriage return"),
        (b": {}\n\n", "line 1: a brace in a comment"),
        (b"event: \xff\ndata: 1\n\n", "not UTF-8"),
    ],
)
def test_what_breaks_the_format_is_named(body: bytes, reason: str) -> None:
    with pytest.raises(NotAnEventStream, match=reason):
        parse_events(body)


@given(st.binary(max_size=60) | st.text("event: data\n:id{}", max_size=60).map(str.encode))
def test_any_bytes_are_events_or_refused(body: bytes) -> None:
    try:
        events = parse_events(body)
    except NotAnEventStream:
        return
    assert all(isinstance(event, ServerSentEvent) for event in events)


_LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=20)


@given(st.lists(st.tuples(_LINE, _LINE, st.none() | st.integers(1, 9))))
def test_what_the_core_writes_is_read_back(events: list[tuple[str, str, int | None]]) -> None:
    ids = [None if seq is None else EventId("r", seq) for _, _, seq in events]
    body = b"".join(encode(n, d, i) for (n, d, _), i in zip(events, ids, strict=True))

    assert parse_events(body) == tuple(
        ServerSentEvent(n, d, None if i is None else str(i))
        for (n, d, _), i in zip(events, ids, strict=True)
    )
