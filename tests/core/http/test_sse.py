"""Server-sent events, read back by a parser written from the standard."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.http.messages import compact_json
from legation.http.sse import (
    BadEventId,
    Decoder,
    EventId,
    ForeignEvent,
    encode,
    encode_departure,
    encode_stored,
    encode_token_end,
    heartbeat,
    parse_last_event_id,
)

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


@given(st.lists(st.tuples(st.integers(1, 1 << 40), st.text(), st.text())), run_ids)
def test_stored_events_together_have_the_bytes_of_each(
    events: list[tuple[int, str, str]], run_id: str
) -> None:
    events = [(seq, compact_json(name), compact_json(data)) for seq, name, data in events]
    apart = [encode(name, data, EventId(run_id, seq)) for seq, name, data in events]

    assert encode_stored(run_id, events) == b"".join(apart)


@pytest.mark.parametrize("wrong", [(1, "a\nb", "{}"), (1, "a", "{}\n"), (1, "a", "{\r}")])
def test_no_stored_event_has_a_line_break(wrong: tuple[int, str, str]) -> None:
    with pytest.raises(ValueError, match="more than one line in an event of the run 'r1'"):
        encode_stored("r1", [(2, "a", "{}"), wrong])


def test_an_event_that_is_not_stored_has_no_id() -> None:
    assert encode("Ping", "{}") == b"event: Ping\ndata: {}\n\n"


def test_the_last_words_of_a_stream_are_no_event_to_any_client() -> None:
    words = encode_departure("/agents/sloth/runs/r1/events", EventId("r1", 7))

    assert words == (
        b": this server ends; go on with GET /agents/sloth/runs/r1/events"
        b" and Last-Event-ID r1:7\n\n"
    )
    assert dispatched(words.decode()) == []
    assert Decoder().feed(words) == []
    assert not {*b"{}"} & {*words}
    assert not any(line.startswith(b"data") for line in words.splitlines())


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


def read(*pieces: bytes) -> list[ForeignEvent]:
    decoder = Decoder()
    return [event for piece in pieces for event in decoder.feed(piece)]


def test_what_others_send_is_read_as_the_standard_says() -> None:
    stream = (
        b"\xef\xbb\xbf: a comment\n\n"
        b"event: ping\ndata: 1\ndata:2\ndata\nid: 7\nretry: 5\nfoo: bar\n\n"
        b"event: dropped\n\n"
        b"data:  two spaces: and a colon\n\n"
        b"data\n\n"
        b"data: \xff\n\n"
        b"data: without an end\n"
    )

    assert read(stream) == [
        ForeignEvent("ping", "1\n2\n", "7"),
        ForeignEvent("", " two spaces: and a colon"),
        ForeignEvent("", ""),
        ForeignEvent("", "\ufffd"),
    ]


def test_an_event_without_an_id_has_not_that_of_the_event_before() -> None:
    assert read(b"id: r1:1\ndata: a\n\n", b"data: b\n\n", b"id: r1:2\n\n", b"data: c\n\n") == [
        ForeignEvent("", "a", "r1:1"),
        ForeignEvent("", "b"),
        ForeignEvent("", "c"),
    ]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_a_line_ends_in_any_of_three_ways(end: bytes) -> None:
    stream = end.join([b"event: a", b"data: 1", b"data: 2", b"", b"data: 3", b"", b""])
    expected = [ForeignEvent("a", "1\n2"), ForeignEvent("", "3")]

    assert read(stream) == expected
    assert read(*(bytes([byte]) for byte in stream)) == expected


@given(st.data(), st.lists(st.sampled_from([*b"data: \r\nevnt:x\xef\xbb\xbf"]), max_size=60))
def test_it_does_not_matter_how_a_stream_is_cut(data: st.DataObject, characters: list[int]) -> None:
    stream = bytes(characters)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    bounds = [0, *cuts, len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(bounds)]

    events = read(*pieces)

    assert events == read(stream)
    text = stream.decode("utf-8", "replace").removeprefix("\ufeff")
    assert [(e.name or "message", e.data) for e in events] == [
        (kind, told) for _, kind, told in dispatched_by_list(text)
    ]


def dispatched_by_list(stream: str) -> list[tuple[str, str, str]]:
    """As `dispatched`, with an event whose data is an empty line, as the standard has it."""
    events: list[tuple[str, str, str]] = []
    kind, data = "", list[str]()
    lines = stream.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for line in lines[:-1]:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if line == "" and data:
            events.append(("", kind or "message", "\n".join(data)))
        if line == "":
            kind, data = "", []
        elif field == "event":
            kind = value
        elif field == "data":
            data.append(value)
    return events


def test_a_long_line_in_small_pieces_costs_no_more_than_its_length() -> None:
    line = b"data: " + b"x" * 300_000 + b"\n\n"

    assert read(*(line[at : at + 3] for at in range(0, len(line), 3))) == [
        ForeignEvent("", "x" * 300_000)
    ]


def test_the_end_of_a_token_is_an_event_without_an_id() -> None:
    whole = encode_token_end("Token has expired", "UNAUTHENTICATED", "/x", EventId("r", 7))
    assert whole == (
        b"event: token_expired\n"
        b'data: {"event":"token_expired","detail":"Token has expired",'
        b'"error_code":"UNAUTHENTICATED","path":"/x","last_event_id":"r:7"}\n\n'
    )
    assert b"last_event_id" not in encode_token_end("a", "b", "/x")
