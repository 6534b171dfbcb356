from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.migrations.catalogue import CATALOGUE, Catalogue, Migration, Step
from legation.migrations.schema_version import EMPTY, Version
from legation.store.units import Dialect, all_sql

DIALECTS = list(Dialect)
CREATE = Step("create table a (x bigint not null, y text default 'one two')")
ONE = Migration(Version(1), "one", up=(CREATE,))
# Of a trigger on SQLite, and of a function on PostgreSQL: statements within the one of the step.
BODY = re.compile(r"\bbegin\b.*?\bend\b|\$\$.*?\$\$", re.DOTALL)
TWO = Migration(Version(2), "two", up=(Step("create table b (x text)"),), serves=Version(1))


def sealed(*steps: Step) -> str:
    """Return the seal of a catalogue with one migration of these steps."""
    catalogue = Catalogue((Migration(Version(1), "one", up=steps),))
    return catalogue.seal(Version(1), Dialect.SQLITE)


# --- steps


def test_a_step_has_one_text_for_both_engines() -> None:
    texts = {d: statement.text(d) for d in DIALECTS if (statement := CREATE.statement(d))}

    assert texts == dict.fromkeys(DIALECTS, CREATE.text)


def test_a_step_may_differ_by_engine() -> None:
    step = Step("a blob", "a bytea")
    texts = {d: statement.text(d) for d in DIALECTS if (statement := step.statement(d))}

    assert texts == {Dialect.SQLITE: "a blob", Dialect.POSTGRESQL: "a bytea"}


def test_an_empty_text_is_nothing_to_do() -> None:
    only_postgresql, only_sqlite = Step("", "a"), Step("a", "")

    assert only_postgresql.statement(Dialect.SQLITE) is None
    assert only_sqlite.statement(Dialect.POSTGRESQL) is None
    assert only_postgresql.statement(Dialect.POSTGRESQL) is not None
    assert only_sqlite.statement(Dialect.SQLITE) is not None


def test_steps_are_values_and_not_among_the_statements_to_prepare() -> None:
    assert Step("a") == Step("a") != Step("b")
    assert not [sql for sql in all_sql() if re.match(r"\s*(create|alter|drop)\b", sql.text)]


# --- seals


@given(st.text("\t\r\n \f", min_size=1), st.text("\t\r\n \f"))
def test_white_space_does_not_count(between: str, around: str) -> None:
    loose = re.sub(r"(?<!one)[ ]", lambda _: between, CREATE.text)
    loose = loose.replace("(", f"{around}({around}")

    assert sealed(Step(around + loose + around)) == sealed(CREATE)


@pytest.mark.parametrize(
    "text",
    [
        "create table a (x bigint not null, y text default 'onetwo')",
        "create table a (x bigint not null, y text default 'one  two')",
        "create table a (x bigint not null, ytext default 'one two')",
        "create table a (x bigint, y text default 'one two')",
        "create table \"a\" (x bigint not null, y text default 'one two')",
        "",
    ],
)
def test_every_other_change_counts(text: str) -> None:
    assert sealed(Step(text)) != sealed(CREATE)


def test_the_order_and_number_of_steps_count() -> None:
    a, b = Step("a"), Step("b")

    assert len({sealed(a, b), sealed(b, a), sealed(a), sealed(a, a, b), sealed(Step("a b"))}) == 5


def test_what_people_read_and_the_way_back_do_not_count() -> None:
    reworded = Migration(Version(1), "uno", (CREATE,), down=(Step("x"),), loses=("all",))

    assert Catalogue((reworded,)).seal(Version(1), Dialect.SQLITE) == sealed(CREATE)


def test_a_seal_covers_everything_below_it_and_nothing_above() -> None:
    both = Catalogue((ONE, TWO))
    late = Catalogue((ONE, Migration(Version(1, 5), "late", up=(Step("c"),)), TWO))

    assert both.seal(Version(1), Dialect.SQLITE) == sealed(CREATE)
    assert late.seal(Version(1), Dialect.SQLITE) == sealed(CREATE)
    assert late.seal(Version(2), Dialect.SQLITE) != both.seal(Version(2), Dialect.SQLITE)
    assert both.seal(EMPTY, Dialect.SQLITE) == ""


def test_each_engine_has_a_seal_of_its_own() -> None:
    catalogue = Catalogue((Migration(Version(1), "one", up=(Step("a blob", "a bytea"),)),))

    assert len({catalogue.seal(Version(1), dialect) for dialect in DIALECTS}) == 2


# --- catalogues


@pytest.mark.parametrize("migrations", [(TWO, ONE), (ONE, ONE), (Migration(EMPTY, "none", ()),)])
def test_versions_must_ascend_from_above_the_empty_database(
    migrations: tuple[Migration, ...],
) -> None:
    with pytest.raises(ValueError, match="does not come after"):
        Catalogue(migrations)


def test_a_catalogue_knows_its_versions() -> None:
    catalogue = Catalogue((ONE, TWO))

    assert catalogue.versions == (EMPTY, Version(1), Version(2))
    assert catalogue.latest == Version(2)
    assert [catalogue.serves(version) for version in catalogue.versions] == [
        EMPTY,
        EMPTY,
        Version(1),
    ]
    assert Catalogue(()).latest == EMPTY


# --- the catalogue of this release


def test_the_labels_of_this_release() -> None:
    assert [str(version) for version in CATALOGUE.versions] == [
        "0.0.0",
        "2.0.0",
        "2.3.0",
        "2.5.0",
        "2.5.6",
        "2.6.0",
        "2.7.0",
        "2.8.0",
        "2.9.0",
        "2.10.0",
        "2.11.0",
        "2.12.0",
        "2.13.0",
        "2.14.0",
    ]


@pytest.mark.parametrize("migration", CATALOGUE.migrations, ids=lambda m: str(m.version))
def test_every_version_of_this_release_can_be_left_and_says_what_that_loses(
    migration: Migration,
) -> None:
    assert migration.title
    assert migration.down
    assert migration.loses
    assert EMPTY < migration.serves <= migration.version


def test_a_published_version_is_never_edited(golden: Callable[[str, str], None]) -> None:
    golden(
        "seals.txt",
        "".join(
            f"{version} {dialect.value} {CATALOGUE.seal(version, dialect)}\n"
            for version in CATALOGUE.versions[1:]
            for dialect in DIALECTS
        ),
    )


def test_no_step_of_this_release_needs_parameters_or_runs_outside_of_a_transaction() -> None:
    for migration in CATALOGUE.migrations:
        for step in (*migration.up, *(migration.down or ())):
            text = BODY.sub("", f"{step.text} {step.postgresql}".lower())
            assert not re.search(r"[:%;]|concurrently|vacuum|pragma", text), text
