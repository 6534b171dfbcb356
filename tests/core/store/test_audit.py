"""The audit trail on the tables that the catalogue builds: appending, paging, and proof.

What two connections of PostgreSQL do to one chain is in `tests/frontends/test_audit_chains`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, ClassVar, Final, TypeVar

import pytest
from attrs import asdict, evolve, fields, frozen
from hypothesis import given
from hypothesis import strategies as st

from legation.store.audit import (
    AppendAudit,
    Audited,
    AuditEntry,
    AuditRow,
    Broken,
    Changed,
    Head,
    Intact,
    ListAudit,
    Place,
    ReadChain,
    hash_row,
)
from legation.store.units import Dialect, Sql, Statements, Undo, Unit

from ... import one_database
from ...audit_chain import verify_chain

R = TypeVar("R")

ENTRY: Final = AuditEntry(
    at_us=1_000_000,
    request_id="r1",
    subject="ada",
    key_id="k1",
    operation="get_agent",
    resource="concierge",
    decision="allow",
    scope="agents:read",
    status=200,
    client="127.0.0.1",
)
EVERYTHING: Final[dict[str, Any]] = {"since_us": 0, "until_us": 1 << 60}
MARK: Final = Sql(
    "insert into nodes (node_id, started_us, beat_us, code_version, schema_version)"
    " values (:name, 0, 0, '', '')",
    registered=False,
)


@frozen
class Mark(Unit[str]):
    """A change: a row of another table, or none."""

    writes: ClassVar[bool] = True

    name: str
    undone: bool = False

    def statements(self, dialect: Dialect) -> Statements[str | Undo[str]]:
        yield MARK(name=self.name)
        return Undo("nothing") if self.undone else "something"


class Database(one_database.Database):
    """With its trail, and the marks that changes left."""

    def trail(self) -> tuple[AuditRow, ...]:
        return self.run(ReadChain("", 0, 100_000))

    def marks(self) -> list[str]:
        return [row[0] for row in self.connection.execute("select node_id from nodes")]


def trail_of(writers: Sequence[str], size: int) -> tuple[AuditRow, ...]:
    """Return a trail of `size` rows for each of `writers`."""
    database = Database()
    for number in range(size):
        for writer in writers:
            entry = evolve(ENTRY, at_us=number, request_id=f"{writer} {number}")
            database.run(AppendAudit(writer, (entry,)))
    return database.trail()


# --- Appending ----------------------------------------------------------------------------------


def test_rows_of_a_writer_are_numbered_and_chained() -> None:
    database = Database()
    second, third = evolve(ENTRY, request_id="r2"), evolve(ENTRY, request_id="r3")
    database.run(AppendAudit("n", (ENTRY, second)))
    database.run(AppendAudit("n", (third,)))

    first_hash = hash_row("", "n", 1, ENTRY)
    second_hash = hash_row(first_hash, "n", 2, second)
    assert database.trail() == (
        AuditRow("n", 1, "", first_hash, ENTRY),
        AuditRow("n", 2, first_hash, second_hash, second),
        AuditRow("n", 3, second_hash, hash_row(second_hash, "n", 3, third), third),
    )


@pytest.mark.parametrize("size", [1, 3, 4, 15, 16, 63, 64, 65, 128, 149])
def test_a_batch_of_any_size_is_stored_whole_and_in_order(size: int) -> None:
    database = Database()
    database.run(AppendAudit("n", tuple(evolve(ENTRY, at_us=at) for at in range(size))))
    rows = database.trail()

    assert [(row.seq, row.entry.at_us) for row in rows] == [(at + 1, at) for at in range(size)]
    assert isinstance(verify_chain(rows), Intact)


def test_a_batch_is_a_few_statements_on_sqlite_and_one_on_postgresql() -> None:
    sizes: dict[Dialect, int] = {}
    for dialect in Dialect:
        statements = AppendAudit("n", (ENTRY,) * 256).statements(dialect)
        next(statements)
        statements.send([("n", None, None)])
        sizes[dialect] = 1 + sum(1 for _ in statements)
    assert sizes == {Dialect.SQLITE: 4, Dialect.POSTGRESQL: 1}


def test_the_hash_is_the_documented_one() -> None:
    entry = AuditEntry(1, "r", None, "k", "op", "é", "deny", "s", 403, "c")

    content = '["ff", "n", 7, 1, "r", null, "k", "op", "\\u00e9", "deny", "s", 403, "c"]'
    assert hash_row("ff", "n", 7, entry) == hashlib.sha256(content.encode()).hexdigest()


TEXTS: Final = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
ENTRIES: Final = st.builds(
    AuditEntry,
    at_us=st.integers(0, 1 << 60),
    request_id=TEXTS,
    subject=st.none() | TEXTS,
    key_id=st.none() | TEXTS,
    operation=TEXTS,
    resource=TEXTS,
    decision=TEXTS,
    scope=TEXTS,
    status=st.integers(0, 999),
    client=TEXTS,
)


@given(st.lists(ENTRIES, min_size=1, max_size=5))
def test_any_text_comes_back_as_it_was_and_the_chain_holds(entries: list[AuditEntry]) -> None:
    database = Database()
    database.run(AppendAudit("n", tuple(entries)))

    rows = database.trail()
    assert [row.entry for row in rows] == entries
    assert verify_chain(rows) == Intact(len(rows), (Head("n", len(rows), rows[-1].hash),))


def test_a_change_and_its_record_are_one_transaction() -> None:
    database = Database()

    assert database.run(Audited(Mark("m"), "n", ENTRY)) == Changed("something", kept=True)
    assert database.marks() == ["m"]
    assert [row.entry for row in database.trail()] == [ENTRY]


def test_what_undid_itself_is_not_recorded() -> None:
    database = Database()

    audited = Audited(Mark("m", undone=True), "n", ENTRY)
    assert database.run(audited) == Changed("nothing", kept=False)
    assert database.marks() == []
    assert database.trail() == ()


def test_an_audited_unit_writes_and_is_equal_by_value() -> None:
    assert Audited(Mark("m"), "n", ENTRY).writes
    assert Audited(Mark("m"), "n", ENTRY) == Audited(Mark("m"), "n", ENTRY)
    assert Audited(Mark("m"), "n", ENTRY) != Audited(Mark("o"), "n", ENTRY)


# --- Paging -------------------------------------------------------------------------------------


def pages(database: Database, between: Callable[[], None], **query: Any) -> list[AuditRow]:
    """Read page after page, doing something else in between, and return all rows."""
    newest_first = query["newest_first"]
    place = Place(1 << 60 if newest_first else 0)
    found: list[AuditRow] = []
    while True:
        rows = database.run(ListAudit(place=place, **{**EVERYTHING, **query}))
        found += rows
        if len(rows) < query["size"]:
            return found
        place = Place(rows[-1].entry.at_us, rows[-1].writer, rows[-1].seq)
        between()


@pytest.mark.parametrize("newest_first", [True, False], ids=["newest first", "oldest first"])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_pages_are_disjoint_and_complete_while_others_append(size: int, newest_first: bool) -> None:
    database, chance = Database(), Random(size)

    def append() -> None:
        entry = evolve(ENTRY, at_us=chance.randrange(4))
        database.run(AppendAudit(chance.choice("abc"), (entry,)))

    for _ in range(20):
        append()
    before = set(database.trail())
    budget = iter(range(40))
    found = pages(
        database,
        lambda: append() if next(budget, None) is not None else None,
        newest_first=newest_first,
        size=size,
    )

    assert len(found) == len(set(found))
    assert before <= set(found) <= set(database.trail())
    order = [(row.entry.at_us, row.writer, row.seq) for row in found]
    assert order == sorted(order, reverse=newest_first)


FILTERS: Final = st.fixed_dictionaries(
    {},
    optional={
        "subject": st.sampled_from(["ada", "bob"]),
        "operation": st.sampled_from(["get", "run"]),
        "resource": st.sampled_from(["a", "a/b", "a_", "%"]),
        "decision": st.sampled_from(["allow", "deny"]),
        "since_us": st.integers(0, 4),
        "until_us": st.integers(0, 4),
    },
)
FEW: Final = st.builds(
    AuditEntry,
    at_us=st.integers(0, 3),
    request_id=st.just("r"),
    subject=st.sampled_from([None, "ada", "bob"]),
    key_id=st.none(),
    operation=st.sampled_from(["get", "run"]),
    resource=st.sampled_from(["", "a", "a/b", "a/b/c", "ab", "a_/b", "%"]),
    decision=st.sampled_from(["allow", "deny"]),
    scope=st.just(""),
    status=st.just(200),
    client=st.just(""),
)


@given(st.lists(FEW, max_size=12), FILTERS, st.booleans())
def test_filters_find_what_they_say(
    entries: list[AuditEntry], filters: dict[str, Any], newest_first: bool
) -> None:
    database = Database()
    if entries:
        database.run(AppendAudit("n", tuple(entries)))

    found = pages(database, lambda: None, newest_first=newest_first, size=5, **filters)
    assert sorted(row.seq for row in found) == [
        seq for seq, entry in enumerate(entries, 1) if wanted(entry, **{**EVERYTHING, **filters})
    ]


def wanted(entry: AuditEntry, since_us: int, until_us: int, **filters: str) -> bool:
    for name, value in filters.items():
        held = getattr(entry, name)
        beneath = name == "resource" and held.startswith(f"{value}/")
        if held != value and not beneath:
            return False
    return since_us <= entry.at_us < until_us


@pytest.mark.parametrize(
    ("filters", "index"),
    [({}, "audit_at"), ({"subject": "ada"}, "audit_subject_at")],
    ids=["all", "of a subject"],
)
def test_a_page_is_found_by_an_index(filters: dict[str, Any], index: str) -> None:
    database = Database()
    place = Place(5, "n", 1)
    unit = ListAudit(place=place, newest_first=True, size=5, **EVERYTHING, **filters)
    statement = next(unit.statements(Dialect.SQLITE))
    text = f"explain query plan {statement.text(Dialect.SQLITE)}"
    rows = database.connection.execute(text, dict(statement.parameters)).fetchall()
    assert any(index in row[-1] and "SEARCH" in row[-1] for row in rows), rows


# --- Verifying ----------------------------------------------------------------------------------


def test_an_empty_trail_is_intact() -> None:
    assert verify_chain(()) == Intact(0, ())


def test_an_intact_trail_has_a_head_for_each_chain() -> None:
    rows = trail_of(("a", "b"), 3)

    heads = (Head("a", 3, rows[2].hash), Head("b", 3, rows[5].hash))
    assert verify_chain(rows) == Intact(6, heads)
    assert str(heads[0]) == f"a:3:{rows[2].hash}"
    assert verify_chain(rows, heads) == Intact(6, heads)


CHANGES: Final[dict[str, Callable[[Any], Any]]] = {
    **{
        attribute.name: (
            (lambda value: value + 1)
            if str(attribute.type) == "int"
            else (lambda value: None if value == "gone" else f"{value or ''}!")
        )
        for attribute in fields(AuditEntry)
    },
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_field_of_an_entry_is_under_the_hash(name: str) -> None:
    (row,) = trail_of("a", 1)
    entry = evolve(row.entry, **{name: CHANGES[name](getattr(row.entry, name))})

    assert entry != row.entry
    assert verify_chain((evolve(row, entry=entry),)) == Broken(
        "a", 1, "it is not as it was written"
    )


@pytest.mark.parametrize("name", ["writer", "seq", "previous", "hash"])
def test_every_link_of_a_row_is_checked(name: str) -> None:
    rows = trail_of("a", 3)
    value: Any = {"writer": "b", "seq": 7}.get(name, "0" * 64)

    changed = (rows[0], evolve(rows[1], **{name: value}), rows[2])
    assert isinstance(verify_chain(changed), Broken)


def test_an_end_that_was_cut_off_shows_against_an_exported_head() -> None:
    rows = trail_of("a", 3)
    head = Head("a", 3, rows[2].hash)

    assert isinstance(verify_chain(rows[:2]), Intact)
    missing = Broken("a", 3, "the row of an exported head is missing")
    assert verify_chain(rows[:2], (head,)) == missing
    assert verify_chain((), (head,)) == missing


def test_a_chain_written_anew_shows_against_an_exported_head() -> None:
    rows = trail_of("a", 3)
    database = Database()
    database.run(AppendAudit("a", (evolve(ENTRY, status=403), *(row.entry for row in rows[1:]))))
    forged = database.trail()

    assert isinstance(verify_chain(forged), Intact)
    other = "it is another one than when the head was exported"
    assert verify_chain(forged, (Head("a", 2, rows[1].hash),)) == Broken("a", 2, other)


def test_a_head_from_earlier_is_led_through() -> None:
    rows = trail_of("a", 5)

    assert isinstance(verify_chain(rows, (Head("a", 2, rows[1].hash),)), Intact)


def edited(rows: tuple[AuditRow, ...], chance: Random) -> tuple[str, tuple[AuditRow, ...]]:
    """Return `rows` with one row edited, removed before the end, exchanged or put in."""
    kind = chance.choice(["edit", "edit and hash anew", "remove", "exchange", "insert", "double"])
    at = chance.randrange(len(rows))
    row = rows[at]
    if kind.startswith("edit"):
        name = chance.choice(sorted(asdict(row.entry)))
        entry = evolve(row.entry, **{name: CHANGES[name](getattr(row.entry, name))})
        at = chance.randrange(len(rows) - 1) if "anew" in kind else at
        row = evolve(rows[at], entry=entry)
        if "anew" in kind:
            row = evolve(row, hash=hash_row(row.previous, row.writer, row.seq, entry))
        return kind, (*rows[:at], row, *rows[at + 1 :])
    before_the_end = chance.randrange(len(rows) - 1)
    if kind == "remove":
        length = chance.randrange(1, len(rows) - before_the_end)
        return kind, (*rows[:before_the_end], *rows[before_the_end + length :])
    if kind == "exchange":
        other = rows[before_the_end + 1]
        first = evolve(rows[before_the_end], entry=other.entry)
        second = evolve(other, entry=rows[before_the_end].entry)
        return kind, (*rows[:before_the_end], first, second, *rows[before_the_end + 2 :])
    if kind == "double":
        return kind, (*rows[: at + 1], row, *rows[at + 1 :])
    entry = evolve(row.entry, request_id="forged")
    forged = AuditRow(row.writer, row.seq, row.previous, "", entry)
    forged = evolve(forged, hash=hash_row(row.previous, row.writer, row.seq, entry))
    return kind, (*rows[:at], forged, *rows[at:])


def test_a_thousand_edits_are_found(figures: Callable[[str], None]) -> None:
    rows, chance = trail_of("a", 30), Random(3)
    kinds: dict[str, int] = {}
    for _ in range(1000):
        kind, changed = edited(rows, chance)
        assert isinstance(verify_chain(changed), Broken), kind
        kinds[kind] = kinds.get(kind, 0) + 1

    assert len(kinds) == 6
    counted = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    figures(f"audit: 1,000 random edits of a chain of 30 rows, 1,000 found ({counted})")
