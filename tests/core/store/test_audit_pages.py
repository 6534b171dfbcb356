"""Pages: their Merkle root, their hash with a key and without, and how entries are split."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any, Final

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from legation.store.audit_entries import AuditEntry, OldRow, decode_lines, encode_line
from legation.store.audit_pages import (
    MAX_ENTRIES,
    NO_KEYS,
    SPAN_US,
    Head,
    KeyRing,
    Page,
    SigningKey,
    compute_root,
    hash_page,
    parse_head,
    seal_page,
    split_lines,
    writer_name,
)

ENTRY: Final = AuditEntry(
    1_000_000, "r1", "ada", "k1", "get_agent", "concierge", "allow", "agents:read", 200, "127.0.0.1"
)
KEY: Final = SigningKey("2026", b"0123456789abcdef0123456789abcdef")
LATER: Final = evolve(ENTRY, at_us=1_500_000)
START: Final = Head("signed/node", 0, "")


def merkle_tree_hash(lines: list[bytes]) -> bytes:
    """Compute the root as RFC 6962 section 2.1 defines it."""
    if len(lines) == 1:
        return hashlib.sha256(b"\0" + lines[0]).digest()
    k = 1
    while k * 2 < len(lines):
        k *= 2
    return hashlib.sha256(
        b"\1" + merkle_tree_hash(lines[:k]) + merkle_tree_hash(lines[k:])
    ).digest()


@given(st.lists(st.text(alphabet="ab", max_size=3), min_size=1, max_size=40))
def test_the_root_is_that_of_rfc_6962(lines: list[str]) -> None:
    assert compute_root(lines) == merkle_tree_hash([one.encode() for one in lines]).hex()


def test_a_page_has_the_place_and_the_times_of_its_entries() -> None:
    page = seal_page(Head("signed/node", 4, "ab"), (LATER, ENTRY), KEY)

    assert (page.first, page.last, page.count) == (5, 6, 2)
    assert (page.from_us, page.to_us) == (1_000_000, 1_500_000)
    assert (page.writer, page.previous, page.key_id) == ("signed/node", "ab", "2026")
    assert decode_lines(page.data) == (LATER, ENTRY)
    assert page.head == Head("signed/node", 6, page.hash)
    assert not page.is_stub
    assert evolve(page, data="").is_stub


def test_the_hash_is_an_hmac_over_the_place_and_the_root() -> None:
    page = seal_page(START, (ENTRY,), KEY)
    content = ["", "signed/node", 1, 1, 1_000_000, 1_000_000, "2026", page.root]
    text = json.dumps(content, separators=(",", ":")).encode()

    assert page.root == hashlib.sha256(b"\0" + encode_line(ENTRY).encode()).hexdigest()
    assert page.hash == hmac.new(KEY.secret, text, "sha256").hexdigest() == hash_page(page, KEY)


def test_without_a_key_the_hash_is_plain() -> None:
    page = seal_page(Head("chained/node", 0, ""), (ENTRY,), None)
    content = ["", "chained/node", 1, 1, 1_000_000, 1_000_000, "", page.root]
    text = json.dumps(content, separators=(",", ":")).encode()

    assert page.hash == hashlib.sha256(text).hexdigest() == hash_page(page, None)


@pytest.mark.parametrize(
    "edited",
    [
        {"writer": "signed/other"},
        {"last": 2},
        {"count": 2},
        {"from_us": 0},
        {"to_us": 2},
        {"key_id": "2025"},
        {"root": "00"},
        {"previous": "00"},
    ],
    ids=lambda edited: next(iter(edited)),
)
def test_the_hash_covers_each_field(edited: dict[str, Any]) -> None:
    page = seal_page(START, (ENTRY,), KEY)

    assert hash_page(evolve(page, **edited), KEY) != page.hash


def test_another_secret_gives_another_hash() -> None:
    page = seal_page(START, (ENTRY,), KEY)

    assert hash_page(page, evolve(KEY, secret=bytes(32))) != page.hash


def test_the_first_key_signs_and_all_are_found() -> None:
    old = SigningKey("2025", bytes(32))
    ring = KeyRing((KEY, old))

    assert ring.signing == KEY
    assert ring.find("2025") == old
    assert ring.find("2024") is None
    assert NO_KEYS.signing is None


def test_no_secret_is_shown() -> None:
    assert "0123456789" not in repr(KeyRing((KEY,)))


def test_a_signed_chain_has_another_name_than_one_without_a_key() -> None:
    assert writer_name("node/7", KEY) == "signed/node/7"
    assert writer_name("node/7", None) == "chained/node/7"


@given(st.lists(st.integers(0, 4 * SPAN_US), max_size=30))
def test_a_part_covers_a_second_at_most_and_nothing_is_left_out(times: list[int]) -> None:
    entries = [evolve(ENTRY, at_us=at_us) for at_us in times]
    parts = list(split_lines(entries))

    assert [one for part in parts for one in part] == entries
    for part in parts:
        found = [one.at_us for one in part if isinstance(one, AuditEntry)]
        assert max(found) - min(found) <= SPAN_US


def test_a_part_has_a_bounded_number_of_entries() -> None:
    parts = list(split_lines([ENTRY] * (2 * MAX_ENTRIES + 1)))

    assert [len(part) for part in parts] == [MAX_ENTRIES, MAX_ENTRIES, 1]


def test_rows_that_are_moved_are_sealed_as_entries_are() -> None:
    row = OldRow("node", 1, "", "11", ENTRY)
    page: Page = seal_page(START, (row,), KEY)

    assert list(split_lines((row,))) == [(row,)]
    assert decode_lines(page.data) == (row,)
    assert page.from_us == ENTRY.at_us


@given(st.text(min_size=1), st.integers(0, 10**19 - 1))
def test_a_head_is_read_as_it_is_written(writer: str, seq: int) -> None:
    head = Head(writer, seq, "0" * 64)

    assert parse_head(str(head)) == head


@pytest.mark.parametrize(
    "text",
    [
        *("", "a:1", f":1:{'0' * 64}", f"a:x:{'0' * 64}", f"a:-1:{'0' * 64}", f"a:1:{'0' * 63}"),
        *(f"a:{'9' * 20}:{'0' * 64}", f"a:٣:{'0' * 64}"),
    ],
)
def test_what_is_no_head_is_none(text: str) -> None:
    assert parse_head(text) is None
