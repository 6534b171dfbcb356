from __future__ import annotations

import json
import re
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.observability.tracing import Trace, read_note, read_trace, with_note

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
SPAN: Final = "b7ad6b7169203331"
PARENT: Final = f"00-{TRACE}-{SPAN}-01".encode()
HEX: Final = st.text("0123456789abcdef")


def read(parent: bytes, *states: bytes) -> Trace | None:
    return read_trace([parent], states)


def test_a_trace_is_read_and_handed_on() -> None:
    trace = read(PARENT, b"vendor=1,other@x=two")

    assert trace is not None
    assert trace == Trace(TRACE, SPAN, sampled=True, state="vendor=1,other@x=two")
    assert trace.headers() == (
        ("traceparent", PARENT.decode()),
        ("tracestate", "vendor=1,other@x=two"),
    )
    assert Trace(TRACE, SPAN, sampled=False).headers() == (
        ("traceparent", f"00-{TRACE}-{SPAN}-00"),
    )


@pytest.mark.parametrize(
    "parent",
    [
        b"",
        f"00-{TRACE}-{SPAN}".encode(),
        f"00-{TRACE}-{SPAN}-01-more".encode(),  # version 00 has four fields
        f"00-{TRACE}-{SPAN}-01-".encode(),
        f"ff-{TRACE}-{SPAN}-01".encode(),
        f"0-{TRACE}-{SPAN}-01".encode(),
        f"01-{TRACE}-{SPAN}-01more".encode(),
        f"00-{'0' * 32}-{SPAN}-01".encode(),
        f"00-{TRACE}-{'0' * 16}-01".encode(),
        f"00-{TRACE.upper()}-{SPAN}-01".encode(),
        f"00-{TRACE}-{SPAN.upper()}-01".encode(),
        f"00-{TRACE}0-{SPAN}-01".encode(),
        f"00-{TRACE}-{SPAN}0-01".encode(),
        f"00-{TRACE}-{SPAN}-1".encode(),
        f"00-{TRACE}-{SPAN}-0g".encode(),
        f"00_{TRACE}_{SPAN}_01".encode(),
        f"00-{TRACE}-{SPAN}-01\n".encode(),
    ],
)
def test_what_is_no_traceparent_is_as_if_absent(parent: bytes) -> None:
    assert read(parent) is None


def test_none_and_two_are_as_if_absent() -> None:
    assert read_trace([], []) is None
    assert read_trace([PARENT, PARENT], []) is None


@pytest.mark.parametrize("version", ["01", "cc", "fe"])
@pytest.mark.parametrize("more", ["", "-", "-whatever comes"])
def test_a_later_version_is_read_as_far_as_it_is_known(version: str, more: str) -> None:
    trace = read(f"{version}-{TRACE}-{SPAN}-01{more}".encode())

    assert trace is not None
    assert trace == Trace(TRACE, SPAN)
    assert trace.headers()[0][1].startswith("00-")


@pytest.mark.parametrize(
    ("flags", "sampled"), [("00", False), ("01", True), ("fe", False), ("ff", True)]
)
def test_only_the_last_flag_is_understood_and_handed_on(flags: str, sampled: bool) -> None:
    trace = read(f"00-{TRACE}-{SPAN}-{flags}".encode())

    assert trace is not None
    assert trace.sampled is sampled
    assert trace.headers()[0][1].endswith("-01" if sampled else "-00")


def test_space_around_the_value_is_no_part_of_it() -> None:
    assert read(b" \t" + PARENT + b" ") == Trace(TRACE, SPAN)


def test_the_state_of_several_lines_is_one_list() -> None:
    trace = read(PARENT, b"a=1 ,, b=2", b"", b"c=3")

    assert trace is not None
    assert trace.state == "a=1,b=2,c=3"


@pytest.mark.parametrize(
    "state",
    [
        b"a",
        b"a=",
        b"=1",
        b"A=1",
        b"a=1=2",
        b"a=\xc3\xa9",
        b"a=1,a=2",
        b"1a=1",
        b"a@1=1",
        b"a@b@c=1",
        b"a=" + b"x" * 257,
        b"a" * 257 + b"=1",
        b"a=" + b"x" * 256 + b",b=" + b"x" * 256,
        b",".join(b"k%d=1" % number for number in range(33)),
    ],
)
def test_a_state_that_cannot_be_read_is_dropped_alone(state: bytes) -> None:
    assert read(PARENT, state) == Trace(TRACE, SPAN)


def test_thirty_two_members_are_not_too_many() -> None:
    state = b",".join(b"k%d=1" % number for number in range(32))
    trace = read(PARENT, state)

    assert trace is not None
    assert trace.state == state.decode()


@given(st.binary(max_size=80), st.lists(st.binary(max_size=80), max_size=3))
def test_any_bytes_have_an_answer(parent: bytes, states: list[bytes]) -> None:
    for sent in (parent, PARENT):
        trace = read_trace([sent], states)
        if trace is not None:
            assert re.fullmatch("[0-9a-f]{32}", trace.trace_id)
            assert re.fullmatch("[ -~]*", trace.state)


@given(HEX.filter(any), HEX.filter(any), st.booleans())
def test_what_is_handed_on_is_read_again_as_the_same(one: str, other: str, sampled: bool) -> None:
    trace = Trace(f"{one:1>32.32}", f"{other:1>16.16}", sampled)
    headers = dict(trace.headers())

    if int(trace.trace_id, 16) and int(trace.span_id, 16):
        assert read(headers["traceparent"].encode()) == trace


# --- On what is stored --------------------------------------------------------------------------

TRACES: Final = st.builds(
    Trace,
    st.text("0123456789abcdef", min_size=32, max_size=32).filter(
        lambda digits: set(digits) != {"0"}
    ),
    st.text("0123456789abcdef", min_size=16, max_size=16).filter(
        lambda digits: set(digits) != {"0"}
    ),
    st.booleans(),
    st.sampled_from(["", "vendor=1", 'odd={"a":[}\\,other=2']),
)
OBJECTS: Final = st.dictionaries(
    st.text(min_size=1).filter(lambda name: name != "trace"), st.text()
)


@given(TRACES, TRACES, OBJECTS)
def test_a_note_is_read_again_and_another_takes_its_place(
    first: Trace, second: Trace, members: dict[str, str]
) -> None:
    text = json.dumps(members)
    once = with_note(text, first)

    assert read_note(once) == first
    assert with_note(with_note(text, second), first) == once
    told = json.loads(once)
    assert (next(iter(told)), told.pop("trace")) == ("trace", dict(first.headers()))
    assert told == members


@given(TRACES, OBJECTS)
def test_a_note_stays_where_the_object_is_changed_and_written_again(
    trace: Trace, members: dict[str, str]
) -> None:
    kept = {**json.loads(with_note(json.dumps(members), trace)), "turn": 1}

    assert read_note(json.dumps(kept, separators=(",", ":"))) == trace


@pytest.mark.parametrize(
    "text",
    ["{}", '{"a":1}', '{"trace":1}', '{"trace":{},"a":1}', '{"trace":{"traceparent":[1]},"a":1}'],
)
def test_what_is_no_note_of_ours_is_none(text: str) -> None:
    trace = Trace(TRACE, SPAN)

    assert read_note(text) is None
    assert read_note(with_note(text, trace)) == trace
