"""Server-sent events, read back by a parser written from the standard."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.messages import compact_json
from legation.sse import BadEventId, EventId, encode, heartbeat, parse_last_event_id

texts = st.text(st.characters(exclude_categories=["Cs"]))
run_ids = st.from_regex(r"[A-Za-z0-9._~-]{1,128}", fullmatch=True)


def dispatched(stream: str) -> list[tuple[str, str, str]]:
    """Return (last event id, type, data) of each event, as WHATWG HTML section 9.2.6 says."""
    events: list[tuple[str, str, str]] = []
    last_id, kind, data = "", "", ""
    for line in stream.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if line == "" and data:
            events.append((last_id, kind or "message", data.removesuffix("\n")))
        if line == "":
            kind, data = "", ""
        elif field == "event":
            kind = value
        elif field == "data":
            data += value + "\n"
        elif field == "id" and "\0" not in value:
            last_id = value
    return events


def test_the_bytes_of_a_stored_event() -> None:
    event = encode("RunContent", '{"event":"RunContent"}', EventId("r1", 7))

    assert event == b'id: r1:7\nevent: RunContent\ndata: {"event":"RunContent"}\n\n'


def test_an_event_that_is_not_stored_has_no_id() -> None:
    assert encode("Ping", "{}") == b"event: Ping\ndata: {}\n\n"


def test_a_heartbeat_is_a_comment_without_braces() -> None:
    assert heartbeat() == b": heartbeat\n\n"
    assert dispatched(heartbeat().decode()) == []


@given(st.lists(st.tuples(run_ids, st.integers(0, 10**18 - 1), texts), max_size=5))
def test_a_client_reads_what_was_written(sent: list[tuple[str, int, str]]) -> None:
    stream = b"".join(
        encode("RunContent", compact_json({"content": content}), EventId(run_id, seq)) + heartbeat()
        for run_id, seq, content in sent
    )

    events = dispatched(stream.decode())

    assert [(name, json.loads(data)) for _, name, data in events] == [
        ("RunContent", {"content": content}) for _, _, content in sent
    ]
    assert [parse_last_event_id(last_id.encode()) for last_id, _, _ in events] == [
        EventId(run_id, seq) for run_id, seq, _ in sent
    ]


@given(texts)
def test_an_event_is_one_data_line_that_begins_with_one_space(content: str) -> None:
    lines = encode("A", compact_json({"content": content})).split(b"\n")

    assert [line[:6] for line in lines] == [b"event:", b"data: ", b"", b""]


@pytest.mark.parametrize(("name", "data"), [("A\nB", "{}"), ("A", "{\r}"), ("A", "{\n}")])
def test_a_second_line_is_our_own_bug(name: str, data: str) -> None:
    with pytest.raises(ValueError, match="more than one line"):
        encode(name, data)


@pytest.mark.parametrize("value", [None, b""])
def test_a_client_that_begins_has_no_last_event(value: bytes | None) -> None:
    assert parse_last_event_id(value) is None


@pytest.mark.parametrize(
    "value",
    [
        b"r1",
        b"r1:",
        b":1",
        b"r1:-1",
        b"r1:+1",
        b"r1:01",
        b"r1:1 ",
        b"r1:1\n",
        b"r1:%d" % 10**18,
        b"r/1:1",
        b"r1:1:1",
        "r1:٥".encode(),
        b"r" * 129 + b":1",
        b"\xff:1",
    ],
)
def test_an_id_that_was_never_sent_is_refused(value: bytes) -> None:
    assert parse_last_event_id(value) == BadEventId()


@given(st.binary())
def test_any_last_event_id_is_an_id_or_refused(value: bytes) -> None:
    parsed = parse_last_event_id(value)

    assert parsed is None or isinstance(parsed, BadEventId) or str(parsed).encode() == value
