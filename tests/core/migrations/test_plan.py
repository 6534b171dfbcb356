from __future__ import annotations

from itertools import product

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from legation.migrations.catalogue import CATALOGUE, Catalogue, Migration, Step
from legation.migrations.ledger import State
from legation.migrations.plan import (
    Ahead,
    Direction,
    Drift,
    Irreversible,
    LosesData,
    Move,
    Plan,
    UnknownVersion,
    moves_between,
    plan,
)
from legation.migrations.schema_version import EMPTY, Version
from legation.store.units import Dialect

SQLITE, POSTGRESQL = Dialect.SQLITE, Dialect.POSTGRESQL
V1, V2, V3 = Version(1), Version(2), Version(3)
ONE = Migration(V1, "one", up=(Step("a"), Step("", "a pg")), down=(Step("-a"),), loses=("a",))
TWO = Migration(V2, "two", up=(Step("b"),), down=(Step("-b"),), loses=("b", "c"))
THREE = Migration(V3, "three", up=(Step("d"),))
SMALL = Catalogue((ONE, TWO, THREE))
PAIRS = [(a, b) for a, b in product(CATALOGUE.versions, repeat=2)]


def at(version: Version, catalogue: Catalogue = SMALL, dialect: Dialect = SQLITE) -> State:
    """Return the state of a database that was migrated to `version`."""
    return State(version, catalogue.seal(version, dialect), catalogue.serves(version), 1)


@pytest.mark.parametrize("dialect", list(Dialect), ids=lambda d: d.value)
@pytest.mark.parametrize(("from_", "to"), PAIRS, ids=str)
def test_every_pair_of_versions_has_a_way(from_: Version, to: Version, dialect: Dialect) -> None:
    way = plan(CATALOGUE, at(from_, CATALOGUE, dialect), to, dialect, allow_data_loss=True)

    assert isinstance(way, Plan)
    assert (way.from_version, way.to_version) == (from_, to)
    reached = from_
    for move in way.moves:
        index = CATALOGUE.versions.index(reached)
        if to > from_:
            assert move.direction is Direction.UP
            reached = CATALOGUE.versions[index + 1]
            assert move.migration.version == reached
        else:
            assert move.direction is Direction.DOWN
            assert move.migration.version == reached
            reached = CATALOGUE.versions[index - 1]
    assert reached == to


@pytest.mark.parametrize(("from_", "to"), PAIRS, ids=str)
def test_going_down_is_refused_as_long_as_the_loss_is_not_accepted(
    from_: Version, to: Version
) -> None:
    answer = plan(CATALOGUE, at(from_, CATALOGUE), to, SQLITE)

    assert isinstance(answer, LosesData if to < from_ else Plan)


def test_no_target_means_the_latest() -> None:
    assert plan(SMALL, at(V2), None, SQLITE) == Plan(V2, V3, (Move(Direction.UP, THREE),))
    assert plan(SMALL, at(V3), None, SQLITE) == Plan(V3, V3, ())
    assert plan(Catalogue(()), State(), None, SQLITE) == Plan(EMPTY, EMPTY, ())


def test_the_steps_of_a_plan_are_those_of_the_engine_in_order() -> None:
    up = Plan(EMPTY, V2, moves_between(SMALL, EMPTY, V2))
    down = Plan(V2, EMPTY, moves_between(SMALL, V2, EMPTY))

    def texts(way: Plan, dialect: Dialect) -> list[tuple[int, str]]:
        return [(step.number, step.statement.text(dialect)) for step in way.steps(dialect)]

    assert texts(up, SQLITE) == [(1, "a"), (1, "b")]
    assert texts(up, POSTGRESQL) == [(1, "a"), (2, "a pg"), (1, "b")]
    assert texts(down, SQLITE) == [(1, "-b"), (1, "-a")]


def test_what_is_lost_is_said() -> None:
    refused = LosesData(EMPTY, ("b", "c", "a"))

    assert plan(SMALL, at(V2), EMPTY, SQLITE) == refused
    assert refused.detail == (
        "Going down to 0.0.0 discards b; c; a: allow_data_loss=true accepts that"
    )


def test_a_way_down_that_loses_nothing_needs_no_leave() -> None:
    harmless = Catalogue((evolve(ONE, loses=()),))

    assert isinstance(plan(harmless, at(V1, harmless), EMPTY, SQLITE), Plan)


def test_a_migration_without_a_way_back_is_irreversible() -> None:
    refused = Irreversible(V3, "three")

    assert plan(SMALL, at(V3), V1, SQLITE, allow_data_loss=True) == refused
    assert refused.detail == "Version 3.0.0 (three) cannot be undone"
    assert Move(Direction.DOWN, THREE).steps == ()


@pytest.mark.parametrize("target", [Version(1, 5), Version(9, 9, 9), Version(0, 0, 1)], ids=str)
def test_a_version_that_is_not_in_the_catalogue_is_unknown(target: Version) -> None:
    refused = UnknownVersion(target, (EMPTY, V1, V2, V3))

    assert plan(SMALL, at(V2), target, SQLITE, allow_data_loss=True) == refused
    assert refused.detail == (f"There is no version {target}; known are 0.0.0, 1.0.0, 2.0.0, 3.0.0")


@pytest.mark.parametrize("target", [None, EMPTY, V1, Version(4)], ids=str)
def test_a_database_ahead_of_the_code_is_left_alone(target: Version | None) -> None:
    refused = Ahead(Version(4), V3)
    ahead = State(Version(4), "x", V1, 4)

    assert plan(SMALL, ahead, target, SQLITE, allow_data_loss=True) == refused
    assert refused.detail == "The database is at 4.0.0; this server knows versions up to 3.0.0"


LATE = Migration(Version(1, 5), "late", up=(Step("select 1"),))


@pytest.mark.parametrize(
    "now",
    [
        Catalogue((evolve(ONE, up=(*ONE.up, Step("x"))), TWO, THREE)),
        Catalogue((evolve(ONE, up=ONE.up[:1]), TWO, THREE)),
        Catalogue((ONE, LATE, TWO, THREE)),
        Catalogue((TWO, THREE)),
        Catalogue((ONE, THREE)),
    ],
    ids=["a step added", "a step removed", "inserted below", "removed below", "removed"],
)
def test_an_edited_history_is_drift(now: Catalogue) -> None:
    refused = plan(now, at(V2, dialect=POSTGRESQL), None, POSTGRESQL)

    assert isinstance(refused, Drift)
    assert "2.0.0" in refused.detail


def test_an_edit_above_the_database_is_no_drift() -> None:
    edited = Catalogue((ONE, TWO, evolve(THREE, up=(Step("other"),))))

    assert isinstance(plan(edited, at(V2), None, SQLITE), Plan)


def test_another_line_end_is_no_drift() -> None:
    crlf = tuple(Step(step.text.replace(" ", "\r\n\t")) for step in CATALOGUE.migrations[0].up)
    first = evolve(CATALOGUE.migrations[0], up=crlf)
    catalogue = evolve(CATALOGUE, migrations=(first, *CATALOGUE.migrations[1:]))

    assert catalogue.seal(catalogue.latest, SQLITE) == CATALOGUE.seal(CATALOGUE.latest, SQLITE)


NUMBERS = st.integers(0, 4)
STATES = st.builds(
    State,
    st.builds(Version, NUMBERS, NUMBERS, NUMBERS),
    st.sampled_from(["", "x", *(SMALL.seal(v, SQLITE) for v in SMALL.versions)]),
)


@given(STATES, st.none() | st.builds(Version, NUMBERS, NUMBERS), st.booleans())
def test_planning_is_total(state: State, target: Version | None, allow: bool) -> None:
    answer = plan(SMALL, state, target, SQLITE, allow_data_loss=allow)

    match answer:
        case Plan():
            assert answer.from_version == state.version
            assert answer.to_version == (SMALL.latest if target is None else target)
        case UnknownVersion() | Ahead() | Drift() | LosesData() | Irreversible():
            assert answer.detail
