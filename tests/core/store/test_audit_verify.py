"""The verifier: pages, signed and not, old rows, heads, prunes, and all that must be found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pytest
from attrs import evolve

from legation.store.audit_entries import PRUNED, Anchor, AuditEntry, Line, OldRow, hash_row
from legation.store.audit_pages import (
    NO_KEYS,
    Head,
    KeyRing,
    Page,
    SigningKey,
    hash_page,
    seal_page,
    writer_name,
)
from legation.store.audit_verify import (
    Broken,
    Doubt,
    Finding,
    Intact,
    Verdict,
    Verifier,
)

ENTRY: Final = AuditEntry(
    1_000_000, "r1", "ada", "k1", "get_agent", "concierge", "allow", "agents:read", 200, "127.0.0.1"
)
KEY: Final = SigningKey("2026", bytes(range(32)))
OLD_KEY: Final = SigningKey("2025", bytes(32))
RING: Final = KeyRing((KEY, OLD_KEY))
EDITED: Final = "it is not as it was written"


def entries(count: int, first: int = 0) -> tuple[AuditEntry, ...]:
    return tuple(evolve(ENTRY, request_id=f"r{number}") for number in range(first, first + count))


def chain(
    name: str, *parts: Sequence[Line], key: SigningKey | None = None, end: Head | None = None
) -> list[Page]:
    """Return the pages of a chain, behind `end` where that is given."""
    end = end or Head(writer_name(name, key), 0, "")
    pages: list[Page] = []
    for part in parts:
        pages.append(seal_page(end, tuple(part), key))
        end = pages[-1].head
    return pages


def three_pages(name: str = "node", key: SigningKey | None = None) -> list[Page]:
    return chain(name, entries(2), entries(1, 2), entries(3, 3), key=key)


def old_rows(writer: str, count: int, first: OldRow | None = None) -> list[OldRow]:
    """Return a chain of old rows, behind `first` where that is given."""
    rows = [] if first is None else [first]
    for entry in entries(count):
        seq, previous = (rows[-1].seq + 1, rows[-1].hash) if rows else (1, "")
        rows.append(OldRow(writer, seq, previous, hash_row(previous, writer, seq, entry), entry))
    return rows if first is None else rows[1:]


def prune_entry(cut: Head, count: int = 2) -> AuditEntry:
    anchor = Anchor(cut.writer, cut.seq, cut.hash, count)
    return evolve(ENTRY, operation=PRUNED, resource=anchor.resource, subject="local:root")


def prune_page(cut: Head, key: SigningKey | None, name: str = "pruner") -> list[Page]:
    return chain(name, (prune_entry(cut),), key=key)


def verify(
    pages: Iterable[Page],
    *,
    rows: Iterable[OldRow] = (),
    heads: Iterable[Head] = (),
    keys: KeyRing = NO_KEYS,
    acknowledged: Iterable[Head] = (),
) -> Verdict:
    verifier = Verifier(heads, keys, acknowledged)
    ordered = sorted(pages, key=lambda page: (page.writer, page.last))
    return verifier.take_rows(rows) or verifier.take(ordered) or verifier.end()


def reseal(page: Page, key: SigningKey | None = None) -> Page:
    """Return `page` with the hash that whoever has `key` computes."""
    return evolve(page, hash=hash_page(page, key))


def proven(verdict: Verdict) -> Intact:
    assert isinstance(verdict, Intact)
    assert verdict.proven
    return verdict


def doubts(verdict: Verdict) -> list[Doubt]:
    assert isinstance(verdict, Intact)
    assert not verdict.proven
    return [finding.doubt for finding in verdict.findings]


# --- Intact -------------------------------------------------------------------------------------


def test_an_empty_trail_is_intact() -> None:
    assert verify(()) == Intact(0, 0, 0, 0, 0, 0, (), (), ())


def test_a_signed_trail_is_proven_by_its_keys() -> None:
    pages = three_pages(key=KEY)
    heads = [page.head for page in pages]

    verdict = proven(verify(pages, keys=RING, heads=heads))
    assert (verdict.entries, verdict.pages, verdict.signed, verdict.chained) == (6, 3, 1, 0)
    assert verdict.heads == (pages[-1].head,)


def test_a_trail_without_keys_is_intact_and_only_chained() -> None:
    verdict = proven(verify([*three_pages("a"), *three_pages("b")]))

    assert (verdict.signed, verdict.chained) == (0, 2)


def test_a_key_is_rotated_within_a_chain() -> None:
    before = chain("node", entries(2), key=OLD_KEY)
    after = chain("node", entries(2, 2), key=KEY, end=before[-1].head)

    assert proven(verify([*before, *after], keys=RING)).signed == 1


def test_pages_may_come_a_few_at_a_time() -> None:
    verifier = Verifier(keys=RING)
    for page in three_pages(key=KEY):
        assert verifier.take((page,)) is None

    assert proven(verifier.end()).pages == 3


# --- Edits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, KEY], ids=["chained", "signed"])
@pytest.mark.parametrize(
    "field", ["last", "count", "from_us", "to_us", "key_id", "root", "previous", "hash", "data"]
)
def test_whatever_is_edited_is_found(field: str, key: SigningKey | None) -> None:
    pages = three_pages(key=key)
    value = getattr(pages[1], field)
    other: Any = value + 1 if isinstance(value, int) else f"{value}0"
    edited = evolve(pages[1], **{field: other})

    verdict = verify([pages[0], edited, pages[2]], keys=RING)
    if isinstance(verdict, Intact):  # nobody knows what is signed with a key that is not known
        assert (field, key) == ("key_id", KEY)
        assert verdict.findings == (Finding(Doubt.UNKNOWN_KEY, pages[1].head, "20260"),)


def test_a_page_that_is_missing_is_found() -> None:
    pages = three_pages(key=KEY)

    assert verify([pages[0], pages[2]], keys=RING) == Broken(
        "signed/node", 6, "entries are missing: it follows number 2"
    )


def test_a_beginning_that_is_missing_is_found() -> None:
    assert verify(three_pages(key=KEY)[1:], keys=RING) == Broken(
        "signed/node", 3, "entries are missing: it follows number 0"
    )


def test_a_beginning_that_follows_something_is_found() -> None:
    page = reseal(evolve(three_pages()[0], previous="00"))

    assert isinstance(verify([page]), Broken)


def test_numbers_below_one_are_found() -> None:
    page = reseal(evolve(three_pages()[0], last=0))

    assert verify([page]) == Broken("chained/node", 0, EDITED)


@pytest.mark.parametrize(
    "lie",
    [{"count": 1, "last": 1}, {"from_us": 0}, {"to_us": 2_000_001}, {"root": "0" * 64}],
    ids=lambda lie: next(iter(lie)),
)
def test_a_page_that_lies_about_its_lines_is_found(lie: dict[str, Any]) -> None:
    page = reseal(evolve(three_pages()[0], **lie))

    assert verify([page]) == Broken("chained/node", page.last, EDITED)


def test_lines_in_another_form_are_found() -> None:
    page = three_pages()[0]
    page = reseal(evolve(page, data=page.data.replace(",", ", ", 1)))

    assert verify([page]) == Broken("chained/node", 2, EDITED)


def test_a_page_that_covers_too_much_time_is_found() -> None:
    late = evolve(ENTRY, at_us=ENTRY.at_us + 1_000_001)

    assert verify(chain("node", (ENTRY, late))) == Broken(
        "chained/node", 2, "it covers more time than a page does"
    )


def test_too_many_entries_of_a_page_are_found() -> None:
    assert verify(chain("node", entries(257))) == Broken("chained/node", 257, EDITED)


# --- Attacks ------------------------------------------------------------------------------------


def test_attack_pages_removed_and_the_chain_recomputed_without_the_key() -> None:
    pages = three_pages(key=KEY)
    forged = evolve(pages[2], last=5, previous=pages[0].hash)

    assert verify([pages[0], reseal(forged)], keys=RING) == Broken("signed/node", 5, EDITED)
    other = SigningKey(KEY.id, b"x" * 32)
    assert verify([pages[0], reseal(forged, other)], keys=RING) == Broken("signed/node", 5, EDITED)


def test_attack_the_whole_chain_written_anew_without_a_key_has_to_be_acknowledged() -> None:
    forged = three_pages("node")

    assert doubts(verify(forged, keys=RING)) == [Doubt.NO_KEY]
    proven(verify(forged, keys=RING, acknowledged=[forged[-1].head]))
    assert doubts(verify(forged, keys=RING, acknowledged=[forged[0].head])) == [Doubt.NO_KEY]


def test_attack_pages_without_a_key_behind_signed_ones() -> None:
    pages = three_pages(key=KEY)
    forged = chain("node", entries(1), end=pages[-1].head)

    assert verify([*pages, *forged], keys=RING) == Broken("signed/node", 7, "it is not signed")


def test_attack_a_chain_without_a_key_begun_before_its_writer_signs() -> None:
    forged = evolve(three_pages("node")[0], writer="signed/node")

    assert verify([reseal(forged)], keys=RING) == Broken("signed/node", 2, "it is not signed")


def test_attack_a_signed_page_in_an_unsigned_chain() -> None:
    page = reseal(evolve(three_pages(key=KEY)[0], writer="chained/node"), KEY)

    assert verify([page], keys=RING) == Broken(
        "chained/node", 2, "it is signed in an unsigned chain"
    )


def test_attack_a_page_signed_with_a_key_of_the_attacker() -> None:
    forged = three_pages(key=SigningKey("mine", b"x" * 32))

    verdict = verify(forged, keys=RING)
    assert isinstance(verdict, Intact)
    assert verdict.findings == (Finding(Doubt.UNKNOWN_KEY, forged[-1].head, "mine"),)
    assert verdict.signed == 0
    proven(verify(forged, keys=RING, acknowledged=[forged[-1].head]))


def test_attack_two_writers_swapped() -> None:
    one, two = three_pages("one", key=KEY), three_pages("two", key=KEY)
    swapped = [
        *(evolve(page, writer="signed/two") for page in one),
        *(evolve(page, writer="signed/one") for page in two),
    ]

    assert verify(swapped, keys=RING) == Broken("signed/one", 2, EDITED)


def test_attack_a_page_moved_to_another_place() -> None:
    pages = three_pages(key=KEY)
    moved = evolve(pages[0], last=5, previous=pages[1].hash)
    after = evolve(pages[2], last=8)

    assert verify([*pages[:2], moved, after], keys=RING) == Broken("signed/node", 5, EDITED)


def test_attack_a_batch_shortened() -> None:
    pages = three_pages(key=KEY)
    short = evolve(pages[0], data=pages[0].data.split("\n")[0], count=1, last=1)

    assert verify([short, *pages[1:]], keys=RING) == Broken("signed/node", 1, EDITED)
    silent = evolve(pages[0], data=pages[0].data.split("\n")[0])
    assert verify([silent, *pages[1:]], keys=RING) == Broken("signed/node", 2, EDITED)


def test_attack_the_end_cut_off_shows_against_a_head() -> None:
    pages = three_pages(key=KEY)

    proven(verify(pages[:2], keys=RING))
    assert verify(pages[:2], keys=RING, heads=[pages[-1].head]) == Broken(
        "signed/node", 6, "what an exported head names is missing"
    )


def test_attack_a_trail_rewritten_shows_against_heads_of_before() -> None:
    pages, forged = three_pages(), chain("node", entries(2, 7), entries(4, 9))

    proven(verify(forged))
    assert verify(forged, heads=[pages[0].head]) == Broken(
        "chained/node", 2, "it is another one than when the head was exported"
    )


def test_attack_an_older_trail_put_back_shows_against_newer_heads() -> None:
    pages = three_pages(key=KEY)

    proven(verify(pages[:1], keys=RING, heads=[pages[0].head]))
    assert isinstance(verify(pages[:1], keys=RING, heads=[pages[1].head]), Broken)


def test_attack_5b_everything_deleted_and_one_prune_forged() -> None:
    head = three_pages(key=KEY)[-1].head
    forged = prune_page(Head(head.writer, 1_000_000_000, "0" * 64), None)

    verdict = verify(forged, keys=RING, heads=[head])
    assert doubts(verdict) == [Doubt.NO_KEY, Doubt.UNSIGNED_PRUNE]
    assert isinstance(verdict, Intact)
    assert verdict.prunes[0].excuses == (head,)


def test_attack_5b_without_any_key_has_to_be_acknowledged() -> None:
    head = three_pages()[-1].head
    forged = prune_page(Head(head.writer, 1_000_000_000, "0" * 64), None)

    assert doubts(verify(forged, heads=[head])) == [Doubt.UNSIGNED_PRUNE]
    proven(verify(forged, heads=[head], acknowledged=[forged[0].head]))


def test_attack_a_prune_forged_for_a_beginning_has_to_be_acknowledged() -> None:
    pages = three_pages(key=KEY)
    forged = prune_page(pages[0].head, None)

    verdict = verify([*pages[1:], *forged], keys=RING, acknowledged=[])
    assert doubts(verdict) == [Doubt.NO_KEY, Doubt.UNSIGNED_PRUNE]


def test_attack_a_signed_prune_of_another_cut_excuses_nothing() -> None:
    pages = three_pages(key=KEY)
    prune = prune_page(pages[0].head, KEY)

    assert isinstance(verify([*pages[2:], *prune], keys=RING), Broken)


def test_attack_a_chain_cut_off_behind_what_was_pruned_shows_against_a_head() -> None:
    pages = three_pages(key=KEY)
    prune = prune_page(pages[0].head, KEY)

    assert isinstance(verify([pages[1], *prune], keys=RING, heads=[pages[2].head]), Broken)


# --- Prunes -------------------------------------------------------------------------------------


def test_a_beginning_that_was_pruned_is_excused_by_a_signed_entry() -> None:
    pages = three_pages(key=KEY)
    prune = prune_page(pages[0].head, KEY)

    verdict = proven(verify([*pages[1:], *prune], keys=RING, heads=[pages[0].head]))
    (found,) = verdict.prunes
    assert (found.by, found.at_us, found.signed) == ("local:root", ENTRY.at_us, True)
    assert found.head == prune[0].head
    assert found.excuses == (pages[0].head, pages[0].head)
    assert verdict.pruned == 2


def test_a_head_before_the_cut_is_excused_and_one_at_the_cut_needs_its_hash() -> None:
    pages = three_pages(key=KEY)
    prune = prune_page(pages[1].head, KEY)
    left = [pages[2], *prune]

    proven(verify(left, keys=RING, heads=[pages[0].head, pages[1].head]))
    other = evolve(pages[1].head, hash="0" * 64)
    assert isinstance(verify(left, keys=RING, heads=[other]), Broken)


def test_a_chain_that_is_wholly_gone_is_excused_by_a_greater_number() -> None:
    pages = three_pages(key=KEY)
    prune = prune_page(pages[2].head, KEY)

    proven(verify(prune, keys=RING, heads=[page.head for page in pages]))
    beyond = Head("signed/node", 7, "0" * 64)
    assert isinstance(verify(prune, keys=RING, heads=[beyond]), Broken)


def test_a_signed_prune_is_taken_before_a_forged_one() -> None:
    pages = three_pages(key=KEY)
    signed, forged = prune_page(pages[0].head, KEY), prune_page(pages[0].head, None)

    verdict = verify([*pages[1:], *signed, *forged], keys=RING)
    assert doubts(verdict) == [Doubt.NO_KEY]


def test_a_prune_signed_with_an_unknown_key_has_to_be_acknowledged() -> None:
    pages = three_pages(key=KEY)
    prune = prune_page(pages[0].head, OLD_KEY)

    verdict = verify([*pages[1:], *prune], keys=KeyRing((KEY,)))
    assert doubts(verdict) == [Doubt.UNKNOWN_KEY, Doubt.UNSIGNED_PRUNE]


def test_a_prune_that_excuses_nothing_is_listed() -> None:
    prune = prune_page(Head("signed/gone", 5, "0" * 64), None)

    verdict = proven(verify(prune))
    assert [one.excuses for one in verdict.prunes] == [()]


def test_a_stub_stands_for_a_chain_of_which_all_was_pruned() -> None:
    pages = three_pages(key=KEY)
    stub = evolve(pages[-1], data="")
    prune = prune_page(stub.head, KEY)
    after = chain("node", entries(1), key=KEY, end=stub.head)

    verdict = proven(verify([stub, *prune], keys=RING, heads=[pages[0].head, stub.head]))
    assert (verdict.entries, verdict.pages) == (1, 1)
    assert stub.head in verdict.heads
    proven(verify([stub, *after, *prune], keys=RING))
    proven(verify([*after, *prune], keys=RING))


def test_attack_a_page_emptied_as_if_it_had_been_pruned() -> None:
    pages = three_pages(key=KEY)

    assert isinstance(verify([evolve(pages[0], data=""), *pages[1:]], keys=RING), Broken)
    assert verify([pages[0], evolve(pages[1], data=""), pages[2]], keys=RING) == Broken(
        "signed/node", 3, EDITED
    )


def test_attack_a_stub_of_another_length_is_found() -> None:
    stub = evolve(three_pages(key=KEY)[-1], data="", count=1)
    prune = prune_page(stub.head, KEY)

    assert verify([stub, *prune], keys=RING) == Broken("signed/node", 6, EDITED)


# --- Old rows -----------------------------------------------------------------------------------


def moved(
    rows: Sequence[OldRow], key: SigningKey | None = KEY, name: str = "moved/w"
) -> list[Page]:
    half = len(rows) // 2
    return chain(name, *filter(None, (rows[:half], rows[half:])), key=key)


def test_rows_that_were_moved_are_verified_as_before() -> None:
    rows = old_rows("w", 5)
    heads = [Head(row.writer, row.seq, row.hash) for row in rows]

    verdict = proven(verify(moved(rows), keys=RING, heads=heads))
    assert (verdict.entries, verdict.old_rows, verdict.pages) == (5, 5, 2)


@pytest.mark.parametrize("cut", range(6))
def test_a_chain_of_which_a_part_was_moved_goes_on_in_its_old_table(cut: int) -> None:
    rows = old_rows("w", 5)
    end = Head("w", 5, rows[-1].hash)

    verdict = proven(verify(moved(rows[:cut]), rows=rows[cut:], keys=RING, heads=[end]))
    assert verdict.old_rows == 5
    assert (end in verdict.heads) == (cut < 5)


def test_a_row_that_is_moved_meanwhile_is_seen_twice() -> None:
    rows = old_rows("w", 5)
    gone = prune_entry(Head("v", 9, "00"))
    last = rows[-1]
    hashed = hash_row(last.hash, "w", 6, gone)
    rows.append(OldRow("w", 6, last.hash, hashed, gone))

    verdict = proven(verify(moved(rows), rows=rows[3:], keys=RING))
    assert len(verdict.prunes) == 1


def test_chains_that_were_moved_in_parts_belong_together() -> None:
    rows = old_rows("w", 6)
    first, second = moved(rows[:3], None), moved(rows[3:], KEY)

    verdict = verify([*first, *second], keys=RING)
    assert doubts(verdict) == [Doubt.NO_KEY]
    backwards = [*moved(rows[:3], KEY), *moved(rows[3:], None)]
    assert doubts(verify(backwards, keys=RING)) == [Doubt.NO_KEY]


def test_an_old_chain_may_have_begun_anew() -> None:
    again = [evolve(row, hash="") for row in old_rows("w", 2)]
    del again
    proven(
        verify([*moved(old_rows("w", 4)), *moved(old_rows("w", 2), KEY, "moved/w~2")], keys=RING)
    )


@pytest.mark.parametrize("field", ["previous", "hash", "seq", "writer"])
def test_an_old_row_that_was_edited_is_found_wherever_it_is(field: str) -> None:
    rows = old_rows("w", 5)
    value = getattr(rows[2], field)
    other: Any = value + 7 if isinstance(value, int) else f"{value}0"
    rows[2] = evolve(rows[2], **{field: other})

    assert isinstance(verify((), rows=rows), Broken)
    assert isinstance(verify(moved(rows), keys=RING), Broken)


def test_an_old_entry_that_was_edited_is_found() -> None:
    rows = old_rows("w", 3)
    rows[1] = evolve(rows[1], entry=evolve(ENTRY, decision="deny"))

    assert verify((), rows=rows) == Broken("w", 2, EDITED)


def test_an_old_row_that_is_missing_is_found() -> None:
    rows = old_rows("w", 5)

    assert isinstance(verify((), rows=[*rows[:2], *rows[3:]]), Broken)
    assert isinstance(verify((), rows=rows[1:]), Broken)
    first = evolve(rows[0], previous="00", hash=hash_row("00", "w", 1, rows[0].entry))
    assert isinstance(verify((), rows=[first]), Broken)


def test_old_rows_that_were_pruned_are_excused_once_acknowledged() -> None:
    rows = old_rows("w", 5)
    cut = Head("w", 2, rows[1].hash)
    prune = prune_entry(cut)
    hashed = hash_row("", "v", 1, prune)
    anchor = OldRow("v", 1, "", hashed, prune)
    head = Head("v", 1, hashed)

    for pages, left in ((), [anchor, *rows[2:]]), (moved([anchor], name="moved/v"), rows[2:]):
        verdict = verify(pages, rows=left, keys=RING, heads=[cut])
        assert doubts(verdict) == [Doubt.UNSIGNED_PRUNE]
        proven(verify(pages, rows=left, keys=RING, heads=[cut], acknowledged=[head]))


def test_attack_a_prune_laundered_by_being_moved_into_a_signed_page() -> None:
    head = three_pages(key=KEY)[-1].head
    forged = prune_entry(Head(head.writer, 1_000_000_000, "0" * 64))
    row = OldRow("x", 1, "", hash_row("", "x", 1, forged), forged)

    verdict = verify(moved([row], name="moved/x"), keys=RING, heads=[head])
    assert doubts(verdict) == [Doubt.UNSIGNED_PRUNE]
