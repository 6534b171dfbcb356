"""The export of a trail: it is verified without its database, and every edit of it is found."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Iterable
from typing import Any, Final

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from legation.store.audit_entries import (
    PRUNED,
    Anchor,
    AuditEntry,
    OldRow,
    encode_json,
    encode_line,
    hash_row,
)
from legation.store.audit_export import (
    BadLine,
    Exported,
    ExportVerdict,
    ExportVerifier,
    ExportWriter,
)
from legation.store.audit_pages import (
    NO_KEYS,
    Head,
    KeyRing,
    Page,
    SigningKey,
    compute_root,
    hash_page,
    seal_page,
    writer_name,
)
from legation.store.audit_verify import Broken, Doubt, Intact

ENTRY: Final = AuditEntry(
    1_767_225_600_000_001,
    "r1",
    "ada",
    None,
    "get_agent",
    'concierge/"é"',
    "allow",
    "agents:read",
    200,
    "127.0.0.1",
)
KEY: Final = SigningKey("2026", bytes(range(32)))
OTHER: Final = SigningKey("2025", bytes(32))
RING: Final = KeyRing((KEY, OTHER))
NOW: Final = 1_767_225_700_000_000


def entries(count: int, first: int = 0) -> tuple[AuditEntry, ...]:
    return tuple(evolve(ENTRY, request_id=f"r{number}") for number in range(first, first + count))


def chain(name: str, *sizes: int, key: SigningKey | None = KEY) -> list[Page]:
    end, pages = Head(writer_name(name, key), 0, ""), list[Page]()
    for size in sizes:
        pages.append(seal_page(end, entries(size, end.seq), key))
        end = pages[-1].head
    return pages


def old_rows(writer: str, count: int) -> list[OldRow]:
    rows, previous = list[OldRow](), ""
    for seq, entry in enumerate(entries(count), 1):
        hashed = hash_row(previous, writer, seq, entry)
        rows.append(OldRow(writer, seq, previous, hashed, entry))
        previous = hashed
    return rows


PAGES: Final = [*chain("a", 2, 1, 3), *chain("b/7", 1, 4)]


def export(
    pages: Iterable[Page] = PAGES,
    key: SigningKey | None = KEY,
    rows: Iterable[OldRow] = (),
    **part: int,
) -> list[bytes]:
    writer = ExportWriter(key)
    return [
        writer.begin("front", "main", NOW, **part),
        *map(writer.write_row, rows),
        *map(writer.write_page, pages),
        writer.end(),
    ]


def verify(
    lines: Iterable[bytes],
    keys: KeyRing = RING,
    heads: Iterable[Head] = (),
    acknowledged: Iterable[Head] = (),
) -> ExportVerdict:
    verifier = ExportVerifier(heads, keys, acknowledged)
    for line in lines:
        if (wrong := verifier.take(line)) is not None:
            return wrong
    return verifier.end()


def proven(verdict: ExportVerdict) -> Intact:
    assert isinstance(verdict, Intact)
    assert verdict.proven
    return verdict


# --- intact --------------------------------------------------------------------------------------


def test_an_export_is_verified_with_the_key_alone() -> None:
    verdict = proven(verify(export()))

    assert (verdict.entries, verdict.pages, verdict.signed) == (11, 5, 2)
    assert [head.seq for head in verdict.heads] == [6, 5]


def test_the_lines_are_what_the_page_on_formats_says() -> None:
    page = chain("a", 1)[0]
    first, second, last = (json.loads(line) for line in export([page]))

    assert first == {
        "kind": "trail",
        "format": 1,
        "platform": "front",
        "database": "main",
        "at": "2026-01-01T00:01:40.000000Z",
        "since": None,
        "until": None,
    }
    (row,) = second.pop("rows")
    assert row == {
        "at_us": ENTRY.at_us,
        "request_id": "r0",
        "subject": "ada",
        "key_id": None,
        "operation": "get_agent",
        "resource": 'concierge/"é"',
        "decision": "allow",
        "scope": "agents:read",
        "status": 200,
        "client": "127.0.0.1",
    }
    assert second == {
        "kind": "page",
        "writer": "signed/a",
        "last": 1,
        "count": 1,
        "from": "2026-01-01T00:00:00.000001Z",
        "to": "2026-01-01T00:00:00.000001Z",
        "key": "2026",
        "root": page.root,
        "previous": "",
        "hash": page.hash,
    }
    assert (last["kind"], last["heads"], last["rows"], last["pages"], last["key"]) == (
        "heads",
        [str(page.head)],
        1,
        1,
        "2026",
    )
    digest = hashlib.sha256(export([page])[0].rstrip(b"\n")).hexdigest()
    said = encode_json(["heads", digest, last["heads"], 1, 1, "2026"]).encode()
    assert last["hash"] == hmac.digest(KEY.secret, said, "sha256").hex()


def test_whoever_exports_knows_how_much_that_is() -> None:
    writer = ExportWriter()
    writer.write_row(old_rows("n", 1)[0])
    for page in PAGES:
        writer.write_page(page)

    assert writer.exported == Exported(entries=12, pages=5, chains=3)


def test_a_trail_that_is_only_chained_is_exported_as_such() -> None:
    lines = export(chain("a", 2, 3, key=None), key=None)

    assert proven(verify(lines, NO_KEYS)).chained == 1


def test_an_empty_trail_has_an_export() -> None:
    assert proven(verify(export([]))) == Intact(0, 0, 0, 0, 0, 0, (), (), ())


def test_an_older_key_still_verifies() -> None:
    assert proven(verify(export(chain("a", 2, key=OTHER)))).signed == 1


def test_rows_of_before_are_exported_moved_or_not() -> None:
    old = old_rows("n:1", 4)
    moved = seal_page(Head("signed/mover", 0, ""), tuple(old[:2]), KEY)
    lines = export([moved], rows=old[2:])

    verdict = proven(verify(lines, heads=[Head("n:1", 1, old[0].hash)]))
    assert (verdict.entries, verdict.old_rows) == (4, 4)
    assert b'"kind":"row","writer":"n:1","seq":3,' in lines[1]


def test_a_chain_that_was_pruned_to_its_last_seal_is_exported_so() -> None:
    stub = evolve(chain("a", 2, 3)[-1], data="")
    anchor = Anchor(stub.writer, stub.last, stub.hash, 5)
    entry = evolve(ENTRY, operation=PRUNED, resource=anchor.resource)
    lines = export([stub, seal_page(Head("signed/p", 0, ""), (entry,), KEY)])

    assert b'"rows":[]' in lines[1]
    verdict = proven(verify(lines))
    assert (verdict.entries, verdict.pruned) == (1, 5)
    assert json.loads(lines[-1])["rows"] == 1


def test_heads_of_before_are_looked_for() -> None:
    known = [page.head for page in PAGES]
    assert proven(verify(export(), heads=known)).pages == 5
    gone = Head("signed/a", 9, "f" * 64)

    assert verify(export(), heads=[gone]) == Broken(
        "signed/a", 9, "what an exported head names is missing"
    )


def test_without_the_key_the_signatures_are_not_proven() -> None:
    verdict = verify(export(), NO_KEYS)

    assert isinstance(verdict, Intact)
    assert [one.doubt for one in verdict.findings] == [Doubt.UNKNOWN_KEY, Doubt.UNKNOWN_KEY]
    judged = [one.head for one in verdict.findings]
    assert proven(verify(export(), NO_KEYS, acknowledged=judged)).signed == 0


def test_a_part_of_a_trail_may_lack_beginnings() -> None:
    lines = export([PAGES[1], PAGES[4]], since_us=NOW - 1, until_us=NOW)

    assert proven(verify(lines)).entries == 5
    assert json.loads(lines[0])["since"] == "2026-01-01T00:01:39.999999Z"
    assert proven(verify(export([PAGES[1]], since_us=NOW))).entries == 1
    assert proven(verify(export([PAGES[1]], until_us=NOW))).entries == 1


# --- edits ---------------------------------------------------------------------------------------


def edited(number: int, change: Callable[[dict[str, Any]], object]) -> list[bytes]:
    """Return an export whose line `number` says something else, as JSON of the same form."""
    lines = export()
    read = json.loads(lines[number])
    change(read)
    lines[number] = encode_json(read).encode() + b"\n"
    return lines


NO_LINE: Final = "it is no line of an export"
EDITED: Final = "it is not as it was exported"
MORE: Final = "a chain or a part of one is missing, or there is one too many"
CUT: Final = "the line of heads is missing: the export is cut off"


def test_a_line_that_was_removed_is_found() -> None:
    lines = export()
    for number in range(len(lines)):
        assert not isinstance(verify([*lines[:number], *lines[number + 1 :]]), Intact)


def test_a_chain_that_was_removed_is_found() -> None:
    lines = export()
    assert verify([*lines[:4], lines[-1]]) == BadLine(5, MORE)
    assert verify([lines[0], *lines[4:]]) == BadLine(4, MORE)


def test_an_end_of_a_chain_that_was_removed_is_found() -> None:
    lines = export()

    assert verify([*lines[:5], lines[-1]]) == BadLine(6, MORE)


def test_the_line_of_heads_that_was_removed_is_found() -> None:
    lines = export()
    assert verify(lines[:-1]) == BadLine(7, CUT)
    assert verify([]) == BadLine(1, CUT)


def test_the_line_of_heads_that_was_written_anew_is_found() -> None:
    forged = ExportWriter(None)
    forged.begin("front", "main", NOW)
    lines = [*export()[:4], *[forged.write_page(page) for page in PAGES[:3]][:0]]
    for page in PAGES[:3]:
        forged.write_page(page)
    assert verify([*lines, forged.end()]) == BadLine(5, "the line of heads is not signed")

    stranger = evolve(KEY, id="mine")
    other = ExportWriter(stranger)
    other.begin("front", "main", NOW)
    for page in PAGES[:3]:
        other.write_page(page)
    assert verify([*lines, other.end()]) == BadLine(
        5, "the line of heads is signed with a key that was not given"
    )
    guessed = ExportWriter(evolve(KEY, secret=bytes(32)))
    guessed.begin("front", "main", NOW)
    for page in PAGES[:3]:
        guessed.write_page(page)
    assert verify([*lines, guessed.end()]) == BadLine(5, EDITED)


def test_an_export_of_another_database_is_not_taken_for_this_one() -> None:
    lines = edited(0, lambda read: read.update(database="second"))

    assert verify(lines) == BadLine(7, EDITED)


def test_a_whole_export_is_not_taken_for_a_part() -> None:
    lines = edited(0, lambda read: read.update(since="2026-01-01T00:00:00.000000Z"))

    assert verify([lines[0], *lines[2:]]) == BadLine(6, MORE)


@pytest.mark.parametrize("name", [*json.loads(export()[1])["rows"][0]])
def test_a_row_that_was_edited_is_found(name: str) -> None:
    def change(read: dict[str, Any]) -> None:
        row = read["rows"][1]
        row[name] = row[name] + 1 if isinstance(row[name], int) else "eve"

    assert verify(edited(1, change)) == Broken("signed/a", 2, "it is not as it was written")


@pytest.mark.parametrize("name", ["writer", "last", "count", "from", "to", "key", "root", "hash"])
def test_a_page_that_was_edited_is_found(name: str) -> None:
    def change(read: dict[str, Any]) -> None:
        value = read[name]
        read[name] = value + 1 if isinstance(value, int) else f"{value[:-2]}7{value[-1:]}"

    verdict = verify(edited(2, change))
    # A key that nobody knows is a finding.
    assert not (isinstance(verdict, Intact) and verdict.proven)


def test_a_page_that_was_moved_is_found() -> None:
    lines = export()
    for one, other in ((1, 2), (2, 3), (3, 5), (1, 5)):
        moved = [*lines]
        moved[one], moved[other] = moved[other], moved[one]
        assert isinstance(verify(moved), Broken)


def test_two_chains_that_were_exchanged_are_found() -> None:
    lines = export()

    assert verify([lines[0], *lines[4:6], *lines[1:4], lines[-1]]) == BadLine(7, MORE)


def test_a_line_that_was_added_is_found() -> None:
    lines = export()
    assert verify([*lines, lines[-1]]) == BadLine(8, "nothing comes behind the line of heads")
    added = ExportWriter(KEY).write_page(chain("c", 1, key=None)[0])
    assert verify([*lines[:-1], added, lines[-1]]) == BadLine(8, MORE)


def test_a_row_that_was_not_moved_and_was_edited_is_found() -> None:
    lines = export(rows=old_rows("n:1", 3))
    read = json.loads(lines[2])
    edited_row = encode_json({**read, "decision": "deny"}).encode()
    assert verify([*lines[:2], edited_row, *lines[3:]]) == Broken(
        "n:1", 2, "it is not as it was written"
    )
    behind = [*lines[:3], lines[4], lines[3], *lines[5:]]
    assert verify(behind) == BadLine(5, EDITED)


# --- one text for each line ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "old", "new"),
    [
        (1, b'"kind":', b' "kind":'),
        (1, b'"subject":"ada"', b'"subject":"eve","subject":"ada"'),
        (1, b'"subject":"ada"', b'"subject":"\\u0061da"'),
        (1, b'"status":200', b'"status":200.0'),
        (1, b'"status":200', b'"status":true'),
        (1, b'"status":200', b'"status":[200]'),
        (1, b'"status":200,', b""),
        (1, b'"status":200', b'"status":200,"more":1'),
        (1, b'"rows":[{', b'"rows":[7,{'),
        (1, b'"rows":[{', b'"rows":[null,{'),
        (1, b'"rows":[{', b'"rows":[["at_us"],{'),
        (1, b'"rows":[', b'"rows":7,"lines":['),
        (1, b'"last":2', b'"last":true'),
        (1, b'"writer":"', b'"more":1,"writer":"'),
        (1, b'"from":"2026-01-01T', b'"from":"2026-01-01 '),
        (1, b'"from":"2026-01-01T00:00:00.000001Z"', b'"from":"2026-01-01"'),
        (1, b'"from":"2026-01-01T00:00:00.000001Z"', b'"from":"\\u0663"'),
        (1, b'"from":"2026-01-01T00:00:00.000001Z"', b'"from":"noon"'),
        (6, b'"rows":11', b'"rows":11.0'),
        (6, b'"key":"2026"', b'"key":2026'),
        (6, b'"hash":"', b'"hash":7,"more":"'),
    ],
    ids=str,
)
def test_another_text_for_the_same_is_refused(number: int, old: bytes, new: bytes) -> None:
    lines = export()
    assert old in lines[number]
    lines[number] = lines[number].replace(old, new, 1)

    wrong = verify(lines)
    assert isinstance(wrong, BadLine)
    assert wrong.number == number + 1


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"null",
        b"[1]",
        b'"trail"',
        b'{"kind":7}',
        b'{"kind":"trail"}',
        b'{"kind":"row"}',
        b'{"kind":"row","writer":[]}',
        b'{"kind":"other"}',
        '{"kind":"é"}'.encode(),
        b"\xff",
        b"[" * 100_000,
        b'{"kind":' + b"9" * 5000 + b"}",
    ],
    ids=lambda line: repr(line[:20]),
)
def test_what_is_no_line_of_an_export_is_said_with_its_number(line: bytes) -> None:
    first, *rest = export()

    assert verify([first, line, *rest]).number == 2  # type: ignore[union-attr]
    assert verify([line, first, *rest]).number == 1  # type: ignore[union-attr]


def test_a_first_line_of_a_newer_form_is_refused() -> None:
    assert verify(edited(0, lambda read: read.update(format=2))) == BadLine(
        1, "it has a newer form, which this version does not know"
    )
    assert verify(export()[1:]) == BadLine(1, "an export begins with another line")


# --- what somebody has written into the database ------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        "no JSON",
        "[1]",
        '"abcdefghij"',
        "[" * 5000,
        "",
        encode_line(ENTRY).replace("200", "2e2"),
        encode_line(ENTRY).replace("200", '{"a":1}'),
        f" {encode_line(ENTRY)}",
        f"{encode_line(ENTRY)}\n",
    ],
    ids=["text", "short", "string", "deep", "empty", "float", "object", "space", "two"],
)
def test_what_is_broken_in_the_database_is_broken_in_its_export(data: str) -> None:
    page = chain("a", 1, key=None)[0]
    forged = evolve(page, data=data, root=compute_root(data.split("\n")))
    forged = evolve(forged, hash=hash_page(forged, None))

    verdict = verify(export([forged], key=None), NO_KEYS)

    assert isinstance(verdict, Broken | BadLine)


def test_a_time_that_no_calendar_has_is_exported_too() -> None:
    page = evolve(chain("a", 1)[0], from_us=-(10**18), to_us=10**18)
    lines = export([page])

    assert b'"from":"-1000000000000000000","to":"1000000000000000000"' in lines[1]
    assert isinstance(verify(lines), Broken)


# --- properties ----------------------------------------------------------------------------------

TEXTS: Final = st.text(max_size=6)
ENTRIES: Final = st.builds(
    AuditEntry,
    at_us=st.integers(0, 900_000),
    request_id=TEXTS,
    subject=st.none() | TEXTS,
    key_id=st.none() | TEXTS,
    operation=TEXTS,
    resource=TEXTS,
    decision=TEXTS,
    scope=TEXTS,
    status=st.integers(0, 599),
    client=TEXTS,
)


@given(st.lists(st.lists(ENTRIES, min_size=1, max_size=3), max_size=3))
def test_every_trail_is_verified_in_its_export(parts: list[list[AuditEntry]]) -> None:
    end, pages = Head("signed/n", 0, ""), list[Page]()
    for part in parts:
        pages.append(seal_page(end, tuple(part), KEY))
        end = pages[-1].head

    assert proven(verify(export(pages))).entries == sum(map(len, parts))


@settings(max_examples=300)
@given(st.data())
def test_any_byte_that_is_changed_is_found(data: st.DataObject) -> None:
    whole = b"".join(export())
    place = data.draw(st.integers(0, len(whole) - 2))  # the last line feed may be missing
    byte = data.draw(st.binary(min_size=0, max_size=2))
    changed = whole[:place] + byte + whole[place + 1 :]
    if changed == whole:
        return

    verdict = verify(changed.splitlines(keepends=True))
    assert not (isinstance(verdict, Intact) and verdict.proven)


@given(st.lists(st.binary(max_size=40)))
def test_any_lines_have_a_verdict(lines: list[bytes]) -> None:
    assert isinstance(verify([export()[0], *lines]), BadLine)
