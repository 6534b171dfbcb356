"""The audit trail on its tables: appending entries in pages, and reading pages and old rows.

What two connections of PostgreSQL do to one chain is in `tests/frontends/test_audit_chains`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final, TypeVar

import pytest
from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st

from legation.store.audit import (
    APPEND,
    END,
    LAST,
    AppendAudit,
    Audited,
    ChainEnd,
    Changed,
    OldPlace,
    OldRows,
    ReadOldRows,
    ReadPages,
)
from legation.store.audit_entries import AuditEntry, decode_lines, hash_row
from legation.store.audit_pages import NO_KEYS, Head, KeyRing, Page, SigningKey, seal_page
from legation.store.audit_verify import Intact, Verifier
from legation.store.units import Dialect, Sql, Statement, Statements, Undo, Unit

from ... import one_database
from ...old_audit import put_old_rows

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
KEY: Final = SigningKey("2026", bytes(range(32)))
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

    def pages(self) -> tuple[Page, ...]:
        return self.run(ReadPages("", 0, 100_000))

    def marks(self) -> list[str]:
        return [row[0] for row in self.connection.execute("select node_id from nodes")]


def proven(pages: Iterable[Page], keys: KeyRing = NO_KEYS) -> Intact:
    verifier = Verifier(keys=keys)
    verdict = verifier.take(pages) or verifier.end()
    assert isinstance(verdict, Intact)
    assert verdict.proven
    return verdict


# --- Appending ----------------------------------------------------------------------------------


def test_a_batch_is_a_page_behind_the_one_before() -> None:
    database = Database()
    second, third = evolve(ENTRY, request_id="r2"), evolve(ENTRY, request_id="r3")
    database.run(AppendAudit("n", (ENTRY, second), KEY))
    database.run(AppendAudit("n", (third,), KEY))

    first = seal_page(Head("signed/n", 0, ""), (ENTRY, second), KEY)
    assert database.pages() == (first, seal_page(first.head, (third,), KEY))
    assert proven(database.pages(), KeyRing((KEY,))).signed == 1


def test_without_a_key_the_same_node_writes_another_chain() -> None:
    database = Database()
    for key in (None, KEY, None):
        database.run(AppendAudit("n", (ENTRY,), key))

    assert [page.writer for page in database.pages()] == ["chained/n", "chained/n", "signed/n"]


@pytest.mark.parametrize("size", [1, 2, 255, 256, 257, 600])
def test_a_batch_of_any_size_is_stored_whole_and_in_order(size: int) -> None:
    database = Database()
    entries = tuple(evolve(ENTRY, at_us=at) for at in reversed(range(size)))
    database.run(AppendAudit("n", entries, None))

    pages = database.pages()
    found = [line for page in pages for line in decode_lines(page.data) or ()]
    assert found == list(reversed(entries))
    assert proven(pages).entries == size


def test_a_batch_over_some_time_has_several_pages() -> None:
    database = Database()
    times = (5_000_000, 1_000_000, 2_500_000, 1_999_999)
    database.run(AppendAudit("n", tuple(evolve(ENTRY, at_us=at) for at in times), None))

    spans = [(page.from_us, page.to_us) for page in database.pages()]
    assert spans == [(1_000_000, 1_999_999), (2_500_000, 2_500_000), (5_000_000, 5_000_000)]


def test_a_page_is_filed_by_its_subject_or_by_each_of_several() -> None:
    database = Database()
    nobody, bob = evolve(ENTRY, subject=None), evolve(ENTRY, subject="bob")
    for batch in ((ENTRY, ENTRY), (nobody, ENTRY), (nobody,), (bob, ENTRY, nobody)):
        database.run(AppendAudit("n", batch, None))

    assert database.ask("select last, subject from trail") == [
        (2, "ada"),
        (4, "ada"),
        (5, None),
        (8, None),
    ]
    assert database.ask("select subject, from_us, writer, last from trail_subjects") == [
        ("ada", 1_000_000, "chained/n", 8),
        ("bob", 1_000_000, "chained/n", 8),
    ]


@pytest.mark.parametrize("dialect", Dialect)
def test_a_change_is_two_statements_and_a_batch_of_several_subjects_three(
    dialect: Dialect,
) -> None:
    def count(*entries: AuditEntry) -> int:
        statements = AppendAudit("n", entries, KEY).statements(dialect)
        next(statements)
        statements.send([("signed/n", None, None)])
        return 2 + sum(1 for _ in statements)

    assert count(ENTRY) == 2
    assert count(*(ENTRY,) * 256) == 2
    assert count(*(ENTRY,) * 255, evolve(ENTRY, subject="bob")) == 3


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
    database = Database(only="audit")
    database.run(AppendAudit("n", tuple(entries), KEY))

    pages = database.pages()
    found = [line for page in pages for line in decode_lines(page.data) or ()]
    assert found == sorted(entries, key=lambda entry: entry.at_us)
    assert proven(pages, KeyRing((KEY,))).entries == len(entries)


def test_a_change_and_its_record_are_one_transaction() -> None:
    database = Database()

    assert database.run(Audited(Mark("m"), "n", ENTRY, KEY)) == Changed("something", kept=True)
    assert database.marks() == ["m"]
    assert [page.data for page in database.pages()] == [
        seal_page(Head("signed/n", 0, ""), (ENTRY,), KEY).data
    ]


def test_what_undid_itself_is_not_recorded() -> None:
    database = Database()

    audited = Audited(Mark("m", undone=True), "n", ENTRY, None)
    assert database.run(audited) == Changed("nothing", kept=False)
    assert database.marks() == []
    assert database.pages() == ()


def test_an_audited_unit_writes_and_is_equal_by_value() -> None:
    assert Audited(Mark("m"), "n", ENTRY, KEY).writes
    assert Audited(Mark("m"), "n", ENTRY, KEY) == Audited(Mark("m"), "n", ENTRY, KEY)
    assert Audited(Mark("m"), "n", ENTRY, KEY) != Audited(Mark("o"), "n", ENTRY, KEY)
    assert "secret" not in repr(Audited(Mark("m"), "n", ENTRY, KEY))


# --- Where its writer knows the end --------------------------------------------------------------


def counted(database: Database) -> Callable[[], int]:
    """Return what tells how many statements the database has been asked since the last time."""
    asked: list[str] = []
    database.connection.set_trace_callback(asked.append)

    def count() -> int:
        made = [text for text in asked if text.startswith(("select", "insert"))]
        asked.clear()
        return len(made)

    return count


def test_an_entry_behind_the_known_end_is_one_statement() -> None:
    database, known = Database(), ChainEnd()
    count, costs = counted(database), list[int]()
    for _ in range(3):
        database.run(AppendAudit("n", (ENTRY,), None, known))
        costs.append(count())

    assert costs == [2, 1, 1]
    assert proven(database.pages()).entries == 3
    assert known.head == database.pages()[-1].head


def test_a_batch_looks_for_the_end_and_leaves_it_known() -> None:
    database, known = Database(), ChainEnd()
    times = (1_000_000, 1_100_000, 5_000_000)
    database.run(AppendAudit("n", tuple(evolve(ENTRY, at_us=at) for at in times), None, known))
    count = counted(database)
    database.run(AppendAudit("n", (ENTRY,), None, known))

    assert count() == 1
    assert proven(database.pages()).entries == 4


def test_an_end_that_was_rolled_back_is_looked_for_again() -> None:
    database, known = Database(), ChainEnd()
    database.run(AppendAudit("n", (ENTRY,), None, known))
    database.connection.execute("begin")
    for name in ("lost", "lost too"):
        database.run(AppendAudit("n", (evolve(ENTRY, resource=name),), None, known))
    database.connection.execute("rollback")
    count = counted(database)
    for _ in range(2):
        database.run(AppendAudit("n", (ENTRY,), None, known))

    assert count() == 3 + 1
    assert [page.last for page in database.pages()] == [1, 2, 3]
    assert proven(database.pages()).entries == 3


def test_an_end_that_somebody_else_went_behind_is_looked_for_again() -> None:
    database, known = Database(), ChainEnd()
    for others in (None, ChainEnd(), None, known):
        database.run(AppendAudit("n", (ENTRY,), None, known))
        database.run(AppendAudit("n", (evolve(ENTRY, resource="else"),), None, others))

    assert proven(database.pages()).entries == 8


def test_an_older_database_has_an_older_end() -> None:
    database, known = Database(), ChainEnd()
    for number in range(3):
        database.run(AppendAudit("n", (evolve(ENTRY, at_us=number),), None, known))
    database.connection.execute("delete from trail where last > 1")  # a copy was put back
    for _ in range(2):
        database.run(AppendAudit("n", (ENTRY,), None, known))

    assert [page.last for page in database.pages()] == [1, 2, 3]
    assert proven(database.pages()).entries == 3


def test_each_chain_has_an_end_of_its_own() -> None:
    database, known = Database(), ChainEnd()
    for node, key in (("n", None), ("n", KEY), ("m", None), ("n", None), ("n", None)):
        database.run(AppendAudit(node, (ENTRY,), key, known))

    pages = database.pages()
    assert [(page.writer, page.last) for page in pages] == [
        *(("chained/m", 1), ("chained/n", 1), ("chained/n", 2), ("chained/n", 3)),
        ("signed/n", 1),
    ]
    assert [page.previous for page in pages] == ["", "", pages[1].hash, pages[2].hash, ""]


def test_a_change_is_recorded_behind_the_known_end() -> None:
    database, known = Database(), ChainEnd()
    for name in "abc":
        database.run(Audited(Mark(name, undone=name == "b"), "n", ENTRY, None, known))

    assert database.marks() == ["a", "c"]
    assert proven(database.pages()).entries == 2


def test_on_postgresql_the_end_is_asked_for_each_time() -> None:
    known, asked = ChainEnd(Head("chained/n", 4, "ab")), list[str]()
    work = AppendAudit("n", (ENTRY,), None, known).statements(Dialect.POSTGRESQL)
    asked.append(next(work).sql.text)
    asked.append(work.send([("chained/n/17", 4, "ab")]).sql.text)
    with pytest.raises(StopIteration):
        work.send([])

    assert asked == [END.text, APPEND.text]


@pytest.mark.parametrize("last", [None, 4])
def test_on_postgresql_the_end_of_the_chain_is_asked_for_along_with_the_change(
    last: int | None,
) -> None:
    work = Audited(Mark("m"), "n", ENTRY, KEY).statements(Dialect.POSTGRESQL)
    both = next(work)
    assert isinstance(both, tuple)
    assert [one.sql for one in both] == [MARK, LAST]
    if last is None:  # the writer has no page yet, whose name is known to the server alone
        begun = work.send([[], []])  # type: ignore[list-item]  # of each
        assert isinstance(begun, Statement)
        assert begun.sql is END
        appended = work.send([("signed/n/7", None, None)])
    else:
        appended = work.send([[], [("signed/n/7", last, "ab")]])  # type: ignore[list-item]
    assert isinstance(appended, Statement)
    assert appended.parameters["writer"] == "signed/n/7"
    assert appended.parameters["last"] == (last or 0) + 1
    with pytest.raises(StopIteration) as stop:
        work.send(())
    assert stop.value.value == Changed("something", kept=True)


# --- Reading ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_pages_are_read_chain_after_chain(size: int) -> None:
    database = Database()
    for writer in ("b", "a", "b", "c", "a"):
        database.run(AppendAudit(writer, (ENTRY,), None))
    found: list[Page] = []
    writer, last = "", 0
    while pages := database.run(ReadPages(writer, last, size)):
        found += pages
        writer, last = pages[-1].writer, pages[-1].last

    assert tuple(found) == database.pages()
    assert [(page.writer[-1], page.last) for page in found] == [
        *(("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 1))
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_old_rows_are_read_from_both_tables(size: int) -> None:
    database = Database()
    rows = put_old_rows(database.connection, "w", [ENTRY] * 3)
    kept = put_old_rows(database.connection, "v", [ENTRY] * 3, kept=2)
    kept += put_old_rows(database.connection, "u", [ENTRY] * 2, kept=3)

    found: list[Any] = []
    place: OldPlace | None = OldPlace()
    while place is not None:
        read = database.run(ReadOldRows(place, size))
        found += read.rows
        place = read.following
    assert found == rows + kept
    assert rows[1].hash == hash_row(rows[0].hash, "w", 2, ENTRY)


def test_without_old_rows_two_reads_say_so() -> None:
    database = Database()

    assert database.run(ReadOldRows(OldPlace(), 5)) == OldRows((), OldPlace(kept=1))
    assert database.run(ReadOldRows(OldPlace(kept=1), 5)) == OldRows((), None)
