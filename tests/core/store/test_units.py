from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from typing import Any

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from legation.store.audit import APPEND, APPEND_BEHIND
from legation.store.pauses import ANY_PAUSES
from legation.store.run_rows import FEW_EVENTS, MANY_EVENTS
from legation.store.runs import OPEN_SESSION, OPEN_SESSION_OF_ANY
from legation.store.session_pages import ANY_MEASURE, ANY_READ
from legation.store.steps import FEW_STEPS, MANY_STEPS, STORED_STEPS
from legation.store.units import (
    Dialect,
    Numbered,
    ReadUnit,
    Sql,
    Statement,
    Statements,
    Undo,
    Unit,
    Work,
    all_sql,
    along,
    text_array,
)

ASK = Sql("select :a, '%', 'x'", "select :a::text, '%', 'x'", registered=False)
SAME = Sql("select :a", registered=False)


def test_a_statement_has_a_text_for_each_engine() -> None:
    asked = ASK(a=1)

    assert asked == Statement(ASK, {"a": 1})
    assert asked.text(Dialect.SQLITE) == "select :a, '%', 'x'"
    assert asked.text(Dialect.POSTGRESQL) == "select %(a)s::text, '%%', 'x'"
    assert SAME(a=1).text(Dialect.POSTGRESQL) == "select %(a)s"


def test_a_statement_has_a_text_for_sqlite_with_the_numbers_of_its_names() -> None:
    sql = Sql("select :b, ':', :ab, :a, :b, '12:30'", registered=False)

    assert sql.names == ("b", "ab", "a")
    assert sql.numbered == "select ?1, ':', ?2, ?3, ?1, '12:30'"
    with closing(sqlite3.connect(":memory:")) as connection:
        rows = connection.execute(sql.numbered, (1, 2, 3)).fetchall()
        assert rows == [(1, ":", 2, 3, 1, "12:30")]


def test_the_text_for_an_engine_is_made_when_it_is_asked_for() -> None:
    sql = Sql("select :a", registered=False)

    assert made_by_now(sql) == set()
    assert sql.numbered == "select ?1"
    assert made_by_now(sql) == {"numbered", "names"}
    assert sql.numbered is sql.numbered


def made_by_now(sql: Sql) -> set[str]:
    """Return what there is by now of the fields that are made late."""
    late = ("names", "numbered", "psycopg_text")
    found: set[str] = set()
    for name in late:
        with suppress(AttributeError):
            vars(Sql)[name].__get__(sql, Sql)
            found.add(name)
    return found


def test_a_statement_has_no_other_attributes() -> None:
    with pytest.raises(AttributeError, match="'Sql' object has no attribute 'texts'"):
        _ = getattr(SAME, "texts")  # noqa: B009 (a checker refuses it otherwise)


@frozen
class Place:
    b: int
    a: int
    c: int = 3


def test_a_statement_takes_the_parameters_that_it_names_from_the_fields_of_a_value() -> None:
    sql = Sql("select :a, :b, :a", "select :a::text, :b, :a", registered=False)

    asked = sql.of(Place(b=2, a=1))

    assert asked == Statement(sql, {"a": 1, "b": 2})
    assert tuple(asked.parameters) == sql.names == ("a", "b")
    assert sql.of(Place(b=2, a=1), a=7) == Statement(sql, {"a": 7, "b": 2})
    with pytest.raises(AttributeError, match="'d'"):
        Sql("select :d", registered=False).of(Place(b=2, a=1))


@pytest.mark.parametrize(
    "names", [(), ("a",), ("a", "b"), ("b", "a")], ids=lambda names: "".join(names) or "none"
)
def test_however_many_fields_are_parameters_they_are_found(names: tuple[str, ...]) -> None:
    sql = Sql(f"select {', '.join(f':{name}' for name in names)}", registered=False)
    expected = Statement(sql, {name: {"a": 1, "b": 2}[name] for name in names})

    for statement in (sql.of(Place(b=2, a=1)), sql.of(Place(b=2, a=8), a=1)):
        assert statement == expected


def test_what_is_given_and_no_parameter_is_left_out() -> None:
    sql = Sql("select :a, :b", registered=False)

    for _ in range(2):  # the second time it is known what is read
        assert sql.of(Place(b=2, a=1), b=7, c=8) == Statement(sql, {"a": 1, "b": 7})
    assert sql.of(Place(b=2, a=1), c=8) == Statement(sql, {"a": 1, "b": 2})


def test_every_statement_of_the_core_names_the_same_parameters_for_each_engine() -> None:
    # These have rows in another form for each engine, and take their parameters one by one.
    events, steps = (
        {*FEW_EVENTS.values(), MANY_EVENTS},
        {*FEW_STEPS.values(), MANY_STEPS, STORED_STEPS},
    )
    # These look around on SQLite alone.
    looking = {OPEN_SESSION, OPEN_SESSION_OF_ANY}
    by_hand = {APPEND, APPEND_BEHIND, *events, *steps, ANY_MEASURE, ANY_READ, ANY_PAUSES, *looking}
    for sql in set(all_sql()) - by_hand:
        other = Sql(sql.postgresql or sql.text, registered=False)
        assert set(sql.names) == set(other.names), sql.text


@pytest.mark.parametrize(
    ("text", "psycopg"),
    [
        ("a = :a and b = :b_c", "a = %(a)s and b = %(b_c)s"),
        ("x::bigint = :a", "x::bigint = %(a)s"),
        ("12:30", "12:30"),
        ("like 'a%'", "like 'a%%'"),
        (":A", ":A"),
        ("(:a)", "(%(a)s)"),
    ],
)
def test_only_parameters_are_rewritten(text: str, psycopg: str) -> None:
    assert Sql(text, registered=False).psycopg_text == psycopg


@given(st.text(alphabet="ab:%_ '1"))
def test_every_percent_is_one_of_ours_or_doubled(text: str) -> None:
    rewritten = Sql(text, registered=False).psycopg_text
    parameters = rewritten.count("%(")

    assert rewritten.count("%") == parameters + 2 * text.count("%")


def test_a_statement_of_the_core_registers_itself_and_one_of_a_test_does_not() -> None:
    assert ASK not in all_sql()
    mine = Sql("select 1")
    assert tuple(all_sql())[-1] is mine
    from legation.store import units

    units._REGISTERED.remove(mine)


def test_numbered_parameters_are_taken_by_sqlite_as_a_row_and_by_name() -> None:
    parameters = Numbered(("a", None, 3))
    assert parameters == {"1": "a", "2": None, "3": 3} == dict(parameters)
    with closing(sqlite3.connect(":memory:")) as connection:
        for given_as in (parameters.row, dict(parameters)):
            rows = connection.execute("select ?3, ?1, ?2, ?1", given_as).fetchall()
            assert rows == [(3, "a", None, "a")]


def test_sql_is_compared_by_identity() -> None:
    assert Sql("select 1", registered=False) != Sql("select 1", registered=False)


@pytest.mark.parametrize(
    ("sql", "silent"),
    [
        (Sql("insert into a values (:b)", registered=False), True),
        (Sql("update a set b = :b", registered=False), True),
        (Sql("delete from a", registered=False), True),
        (Sql("delete from a returning b", registered=False), False),
        (Sql("delete from a", "delete from a RETURNING b", registered=False), False),
        (Sql("select :b", registered=False), False),
        (Sql("select :b", "select f(:b)", registered=False, unread=True), True),
    ],
)
def test_a_statement_is_silent_where_nobody_looks_at_its_rows(sql: Sql, silent: bool) -> None:
    assert sql.silent is silent


def asked_for(work: Work[Any], *answers: Any) -> tuple[list[Any], Any]:
    """Return what `work` yields, and its result."""
    asked: list[Any] = [next(work)]
    with pytest.raises(StopIteration) as stop:
        for rows in answers:
            asked.append(work.send(rows))
    return asked, stop.value.value


def yield_each(*asked: Any) -> Work[list[Any]]:
    found: list[Any] = []
    for one in asked:
        found.append((yield one))
    return found


@pytest.mark.parametrize(
    ("asked", "answers", "together", "found"),
    [
        ((SAME(a=1), SAME(a=2)), ([[1], [9]], [2]), (SAME(a=1), SAME(a=9)), [[1], [2]]),
        (
            ((SAME(a=1), SAME(a=2)), SAME(a=3)),
            ([[1], [2], [9]], [3]),
            (SAME(a=1), SAME(a=2), SAME(a=9)),
            [[[1], [2]], [3]],
        ),
    ],
)
def test_a_statement_goes_along_with_the_first_of_a_unit(
    asked: Any, answers: Any, together: Any, found: Any
) -> None:
    made, result = asked_for(along(yield_each(*asked), SAME(a=9)), *answers)

    assert made == [together, *asked[1:]]
    assert result == (found, [9])


def test_a_statement_goes_alone_where_the_unit_has_none() -> None:
    made, result = asked_for(along(yield_each(), SAME(a=9)), [(9,)])

    assert (made, result) == ([SAME(a=9)], ([], [(9,)]))


def test_a_unit_that_ends_early_ends_what_goes_along() -> None:
    inner = yield_each(SAME(a=1))
    work = along(inner, SAME(a=9))
    next(work)
    work.close()

    with pytest.raises(StopIteration):
        next(inner)


@frozen
class Double(Unit[int]):
    number: int

    def statements(self, dialect: Dialect) -> Statements[int | Undo[int]]:
        rows = yield SAME(a=self.number)
        return rows[0][0] * 2 if self.number else Undo(0)


@pytest.mark.parametrize(("number", "result"), [(4, 8), (0, Undo(0))])
def test_a_unit_is_a_value_that_starts_anew(number: int, result: object) -> None:
    unit = Double(number)
    assert unit == Double(number)
    assert unit.writes
    assert unit.needs_schema
    assert not unit.exclusive
    with closing(sqlite3.connect(":memory:")) as connection:
        for _ in range(2):
            statements = unit.statements(Dialect.SQLITE)
            statement = next(statements)
            row = connection.execute(statement.text(Dialect.SQLITE), dict(statement.parameters))
            with pytest.raises(StopIteration) as stop:
                statements.send(row.fetchall())
            assert stop.value.value == result


def test_a_unit_that_reads_writes_nothing() -> None:
    assert not ReadUnit.writes
    assert issubclass(ReadUnit, Unit)


def test_a_unit_without_statements_is_a_bug() -> None:
    class Idle(Unit[int]):
        """Says what it is, and not what it does."""

    with pytest.raises(TypeError, match="statements"):
        Idle()  # type: ignore[abstract]  # pyright: ignore[reportAbstractUsage]


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [(Dialect.SQLITE, '["a", "b"]'), (Dialect.POSTGRESQL, ["a", "b"])],
    ids=["sqlite", "postgresql"],
)
def test_a_list_of_texts_is_an_array_or_json(dialect: Dialect, expected: object) -> None:
    assert text_array(dialect, ("a", "b")) == expected
    assert text_array(dialect, None) is None
