from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from attrs import astuple, evolve
from hypothesis import given
from hypothesis import strategies as st

from legation.migrations.catalogue import Catalogue, Migration, Step
from legation.migrations.ledger import (
    Assessment,
    Corrupt,
    Entry,
    Fit,
    LedgerReading,
    ReadLedger,
    ReadServedLedger,
    State,
    add_entry,
    assess_state,
    create_ledger,
    entries_of,
    find_attempt,
    fold,
    history,
    read_state,
)
from legation.migrations.schema_version import EMPTY, Version
from legation.store.units import Dialect, Rows, Statement, Statements

SQLITE = Dialect.SQLITE
V1, V2, V3 = Version(1), Version(2), Version(3)
CATALOGUE = Catalogue(
    (
        Migration(V1, "one", up=(Step("a"),)),
        Migration(V2, "two", up=(Step("b"),)),
    )
)
SEAL = CATALOGUE.seal(V2, SQLITE)
FIRST = Entry(1, EMPTY, V1, "s1", V1, "ada", "n1", "r1", "a1", 100)
SECOND = Entry(2, V1, V2, "s2", V1, "bob", "n2", "r2", "a2", 200)
BACK = Entry(3, V2, V1, "s1", V1, "ada", "n1", "r3", "a3", 300)


def row(entry: Entry) -> tuple[Any, ...]:
    """Return `entry` as it stands in the table."""
    return tuple(
        str(value) if isinstance(value, Version) else value
        for value in astuple(entry, recurse=False)
    )


def run(statements: Statements[Any], *answers: Rows) -> tuple[list[Statement], Any]:
    """Play `answers`; return what was asked and what came back."""
    asked = [next(statements)]
    for rows in answers[:-1]:
        asked += [statements.send(rows)]
    with pytest.raises(StopIteration) as stop:
        statements.send(answers[-1])
    return asked, stop.value.value


def texts(asked: list[Statement], dialect: Dialect = SQLITE) -> list[str]:
    return [statement.text(dialect) for statement in asked]


# --- folding


def test_the_version_of_a_database_is_the_fold_of_its_ledger() -> None:
    assert fold(()) == State() == State(EMPTY, "", EMPTY, 0)
    assert fold((FIRST,)) == State(V1, "s1", V1, 1)
    assert fold((FIRST, SECOND)) == State(V2, "s2", V1, 2)
    assert fold((FIRST, SECOND, BACK)) == State(V1, "s1", V1, 3)


@pytest.mark.parametrize(
    "entries",
    [
        (SECOND,),
        (FIRST, BACK),
        (FIRST, FIRST),
        (FIRST, evolve(SECOND, seq=3)),
        (FIRST, evolve(SECOND, from_version=V2)),
        (evolve(FIRST, seq=0),),
    ],
)
def test_a_row_that_does_not_follow_is_corrupt(entries: tuple[Entry, ...]) -> None:
    corrupt = fold(entries)

    assert isinstance(corrupt, Corrupt)
    assert corrupt.detail.startswith("The ledger of the schema contradicts itself: row ")


def test_rows_become_entries() -> None:
    assert entries_of([row(FIRST), row(SECOND)]) == (FIRST, SECOND)
    assert entries_of([]) == ()


@pytest.mark.parametrize("column", range(10))
@pytest.mark.parametrize("value", [None, b"1", 1.5, True])
def test_a_value_of_another_type_is_corrupt(column: int, value: object) -> None:
    values = [*row(FIRST)]
    values[column] = value

    assert isinstance(entries_of([tuple(values)]), Corrupt)


@pytest.mark.parametrize("column", ["from_version", "to_version", "serves"])
def test_a_malformed_version_is_corrupt(column: str) -> None:
    values: list[Any] = [*row(FIRST)]
    values[{"from_version": 1, "to_version": 2, "serves": 4}[column]] = "one"

    assert entries_of([tuple(values)]) == Corrupt("row 1 cannot be read")


VALUES = st.none() | st.integers() | st.text(max_size=5) | st.binary(max_size=5) | st.floats()
VERSIONS = st.sampled_from([EMPTY, V1, V2])
ENTRIES = st.builds(
    Entry,
    st.integers(0, 4),
    VERSIONS,
    VERSIONS,
    *[st.just("x")],
    VERSIONS,
    *[st.just("x")] * 4,
    st.integers(0, 9),
)


@given(st.lists(st.tuples(*[VALUES] * 10) | ENTRIES.map(row), max_size=4))
def test_any_rows_are_entries_or_corrupt(rows: Rows) -> None:
    entries = entries_of(rows)

    if not isinstance(entries, Corrupt):
        assert [row(entry) for entry in entries] == rows


@given(st.lists(ENTRIES, max_size=4))
def test_any_entries_are_a_state_or_corrupt(entries: list[Entry]) -> None:
    state = fold(entries)

    if isinstance(state, State):
        assert state.seq == len(entries)
        assert all(b.from_version == a.to_version for a, b in pairwise(entries))


# --- reading and writing


@pytest.mark.parametrize("dialect", list(Dialect), ids=lambda d: d.value)
def test_a_database_without_a_ledger_is_empty_and_stays_untouched(dialect: Dialect) -> None:
    asked, reading = run(ReadLedger().statements(dialect), [])

    assert not ReadLedger.writes
    assert reading == LedgerReading(dialect, (), State())
    assert [text.split()[0] for text in texts(asked, dialect)] == ["select"]


def test_the_ledger_is_read_in_order() -> None:
    rows = [row(FIRST), row(SECOND)]
    asked, reading = run(ReadLedger().statements(SQLITE), [(1,)], rows)

    assert reading == LedgerReading(SQLITE, (FIRST, SECOND), State(V2, "s2", V1, 2))
    assert texts(asked)[1].endswith("from schema_ledger order by seq")


@pytest.mark.parametrize("rows", [[row(FIRST), row(SECOND)], [row(SECOND)], [(None,) * 10]])
def test_where_there_is_a_ledger_one_statement_reads_it(rows: Rows) -> None:
    asked, reading = run(ReadServedLedger().statements(SQLITE), rows)

    assert (len(asked), reading) == (1, run(ReadLedger().statements(SQLITE), [(1,)], rows)[1])
    assert ReadServedLedger.needs_schema and not ReadServedLedger.writes


def test_a_corrupt_ledger_is_a_reading_too() -> None:
    _, unreadable = run(ReadLedger().statements(SQLITE), [(1,)], [(None,) * 10])
    _, broken = run(ReadLedger().statements(SQLITE), [(1,)], [row(SECOND)])

    assert unreadable == LedgerReading(SQLITE, (), Corrupt("row None cannot be read"))
    assert broken == LedgerReading(SQLITE, (SECOND,), Corrupt("row 2 does not follow row 0"))


def test_the_state_is_read_from_a_ledger_that_is_there() -> None:
    assert run(read_state(), [row(FIRST)])[1] == State(V1, "s1", V1, 1)
    assert isinstance(run(read_state(), [(None,) * 10])[1], Corrupt)


def test_an_entry_is_written_as_it_is_read() -> None:
    asked, _ = run(add_entry(FIRST), [])
    (statement,) = asked

    names = statement.sql.names
    assert tuple(statement.parameters[name] for name in names) == row(FIRST)
    columns = "seq, from_version, to_version, seal, serves, actor, node, request_id, attempt, at_us"
    assert names == tuple(columns.split(", "))
    assert f"({columns}) values" in texts(asked)[0]


def test_the_ledger_is_made_only_where_it_is_missing() -> None:
    asked, _ = run(create_ledger(), [])

    assert texts(asked)[0].split()[:6] == [
        "create",
        "table",
        "if",
        "not",
        "exists",
        "schema_ledger",
    ]


def test_an_attempt_finds_its_own_row() -> None:
    asked, found = run(find_attempt("a1"), [(1,)], [row(FIRST)])

    assert found == FIRST
    assert asked[1].parameters == {"attempt": "a1"}
    assert run(find_attempt("a1"), [(1,)], [])[1] is None
    assert run(find_attempt("a1"), [(1,)], [(None,) * 10])[1] is None
    assert run(find_attempt("a1"), [])[1] is None


@pytest.mark.parametrize(
    ("page", "limit", "expected"),
    [
        (1, 2, (BACK, SECOND)),
        (2, 2, (FIRST,)),
        (3, 2, ()),
        (1, 9, (BACK, SECOND, FIRST)),
    ],
)
def test_history_comes_in_pages_with_the_newest_first(
    page: int, limit: int, expected: tuple[Entry, ...]
) -> None:
    assert history((FIRST, SECOND, BACK), page=page, limit=limit) == expected


# --- serving

SERVED = ("The schema is at 2.0.0", "The schema is at 3.0.0, which code for 2.0.0 may serve")


@pytest.mark.parametrize(
    ("state", "fit", "detail"),
    [
        (State(), Fit.EMPTY, "The database is empty; migrate it to 2.0.0"),
        (State(seq=2), Fit.EMPTY, "The database is empty; migrate it to 2.0.0"),
        (
            State(V1, CATALOGUE.seal(V1, SQLITE), V1, 1),
            Fit.BEHIND,
            "The schema is at 1.0.0; migrate it to 2.0.0",
        ),
        (State(V2, SEAL, V1, 1), Fit.CURRENT, "The schema is at 2.0.0"),
        (
            State(V3, "new", V2, 1),
            Fit.AHEAD,
            "The schema is at 3.0.0, which code for 2.0.0 may serve",
        ),
        (
            State(V3, "new", V3, 1),
            Fit.AHEAD,
            "The schema is at 3.0.0, which needs code for 3.0.0 or later",
        ),
        (
            State(V2, "other", V1, 1),
            Fit.DRIFTED,
            "The history of the database up to 2.0.0 is not the one this server knows",
        ),
        (
            State(Version(1, 5), SEAL, V1, 1),
            Fit.DRIFTED,
            "The database is at 1.5.0, a version that this server does not know",
        ),
        (
            Corrupt("row 2 does not follow row 0"),
            Fit.DRIFTED,
            "The ledger of the schema contradicts itself: row 2 does not follow row 0",
        ),
    ],
)
def test_the_ledger_says_whether_this_code_may_serve(
    state: State | Corrupt, fit: Fit, detail: str
) -> None:
    answer = assess_state(state, CATALOGUE, SQLITE, CATALOGUE.latest)

    assert answer == Assessment(fit, answer.may_serve, detail)
    assert answer.may_serve == (detail in SERVED)


def test_older_code_is_judged_by_its_own_version() -> None:
    ahead = State(V3, "new", V2, 1)

    answer = assess_state(ahead, CATALOGUE, SQLITE, V1)

    assert (answer.fit, answer.may_serve) == (Fit.AHEAD, False)
    assert answer.detail == "The schema is at 3.0.0, which needs code for 2.0.0 or later"
