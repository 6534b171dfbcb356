"""Entries of the audit trail and their lines: one line for each entry, and no other."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from attrs import astuple, evolve
from hypothesis import given
from hypothesis import strategies as st

from legation.store.audit_entries import (
    PRUNED,
    Anchor,
    AuditEntry,
    Line,
    OldRow,
    decode_lines,
    encode_line,
    entry_of,
    hash_row,
)

ENTRY: Final = AuditEntry(
    1_000_000, "r1", "ada", "k1", "get_agent", "concierge", "allow", "agents:read", 200, "127.0.0.1"
)
ROW: Final = OldRow("node/7", 3, "00", "11", ENTRY)
LINE: Final = (
    '[1000000,"r1","ada","k1","get_agent","concierge","allow","agents:read",200,"127.0.0.1"]'
)

text = st.text()
entries = st.builds(
    AuditEntry,
    st.integers(),
    text,
    st.none() | text,
    st.none() | text,
    text,
    text,
    text,
    text,
    st.integers(),
    text,
)
lines = entries | st.builds(OldRow, text, st.integers(), text, text, entries)


def test_a_line_is_compact_json_and_ends_with_the_place_of_a_row_that_was_moved() -> None:
    assert encode_line(ENTRY) == LINE
    assert encode_line(ROW) == f'{LINE[:-1]},"node/7",3,"00","11"]'
    assert encode_line(evolve(ENTRY, subject=None, resource="é\n")).isascii()


@given(st.lists(lines, min_size=1, max_size=4))
def test_what_is_encoded_is_decoded(some: list[Line]) -> None:
    data = "\n".join(map(encode_line, some))

    assert data.isascii()
    assert decode_lines(data) == tuple(some)


@given(entries)
def test_a_line_is_what_the_encoder_of_json_writes(entry: AuditEntry) -> None:
    whole = json.dumps(astuple(entry), separators=(",", ":"))

    assert [encode_line(entry), encode_line(evolve(entry, at_us=entry.at_us + 1))] == [
        whole,
        whole.replace(str(entry.at_us), str(entry.at_us + 1), 1),
    ]


@given(st.text() | st.recursive(st.none() | st.integers() | text, st.lists).map(json.dumps))
def test_whatever_a_text_is_it_is_lines_or_none(some: str) -> None:
    lines = decode_lines(some)

    assert lines is None or "\n".join(map(encode_line, lines)) == some


@pytest.mark.parametrize(
    "altered",
    [
        LINE.replace(",", ", "),
        f" {LINE}",
        LINE.replace("ada", "\\u0061da"),
        LINE.replace("1000000", "1000000.0"),
        LINE.replace("1000000", "1e6"),
        LINE.replace("1000000", "true"),
        LINE.replace("200", '"200"'),
        LINE.replace('"r1"', "null"),
        LINE.replace('"ada"', "1"),
        LINE.replace('"ada"', '"é"'),
        f"{LINE[:-1]},1]",
        f'{LINE[:-1]},"w",1,"p"]',
        f'{LINE[:-1]},"w","1","p","h"]',
        f'{LINE[:-1]},"w",1,"p","h",0]',
        f"{LINE},{LINE}",
        LINE[:-1],
        "",
        "{}",
        "null",
        "[]",
        "[" * 100_000,
        f"[{'9' * 5_000}]",
        "[NaN]",
    ],
)
def test_what_is_no_line_of_ours_is_none(altered: str) -> None:
    assert decode_lines(altered) is None
    assert decode_lines(f"{LINE}\n{altered}") is None


def test_lines_end_with_a_line_feed_alone() -> None:
    assert decode_lines(f"{LINE}\n{LINE}") == (ENTRY, ENTRY)
    assert decode_lines("[1\n2]") is None


def test_a_line_has_an_entry() -> None:
    assert entry_of(ENTRY) == entry_of(ROW) == ENTRY


def test_the_hash_of_an_old_row_is_the_one_that_was_stored() -> None:
    # As code for 2.11.0 computed it.
    assert (
        hash_row("", "node", 1, ENTRY)
        == "c399274cbd965b717cf284b90865bcbcf007f7cd101c813aa5ea968629f02efb"
    )


@given(text, st.integers(0, 10**18), st.integers(0, 10**18))
def test_an_anchor_is_read_as_it_was_written(writer: str, seq: int, count: int) -> None:
    anchor = Anchor(writer, seq, "00", count)

    assert Anchor.of(evolve(ENTRY, operation=PRUNED, resource=anchor.resource)) == anchor


@pytest.mark.parametrize(
    "resource",
    [
        "",
        "n",
        "n/1/h",
        "n/1/h/1/1",
        "n/x/h/1",
        "n/1/h/x",
        "n/-1/h/1",
        "n/1/h/٣",
        f"n/1/h/{'9' * 20}",
    ],
)
def test_what_is_no_anchor_is_none(resource: str) -> None:
    assert Anchor.of(evolve(ENTRY, operation=PRUNED, resource=resource)) is None


def test_an_entry_of_another_operation_is_no_anchor() -> None:
    values: dict[str, Any] = {"resource": Anchor("n", 1, "h", 1).resource}

    assert Anchor.of(evolve(ENTRY, **values)) is None
