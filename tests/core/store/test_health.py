from __future__ import annotations

import sqlite3

import pytest

from legation.store.failures import (
    Busy,
    CommitLost,
    Conflict,
    DatabaseFull,
    FileReplaced,
    StoreFailure,
    Unavailable,
)
from legation.store.health import (
    CONDITIONS,
    REASONS,
    WRITE_SECONDS,
    Condition,
    Inspection,
    Notice,
    ProbeWrite,
    advance,
    notice_failure,
    notice_of,
)
from legation.store.units import Dialect
from legation_host.sqlite_connection import run_unit

CAUSES = {
    Condition.FULL: Notice.REFUSED,
    Condition.SILENT: Notice.NO_ANSWER,
    Condition.UNREACHABLE: Notice.NO_CONNECTION,
    Condition.REPLACED: Notice.OTHER_FILE,
}


def test_every_pair_of_a_condition_and_a_notice_has_an_answer() -> None:
    assert set(CONDITIONS) == set(Condition)
    for condition in Condition:
        for notice in Notice:
            assert isinstance(advance(condition, notice), Condition)


@pytest.mark.parametrize("before", list(Condition), ids=lambda one: one.value)
@pytest.mark.parametrize("after", list(CAUSES), ids=lambda one: one.value)
def test_trouble_is_what_it_was_last_and_a_lost_file_stays_lost(
    before: Condition, after: Condition
) -> None:
    lost = before is Condition.REPLACED
    assert advance(before, CAUSES[after]) is (Condition.REPLACED if lost else after)


def test_an_answer_heals_what_reading_can_tell_of() -> None:
    healed = {one for one in Condition if advance(one, Notice.ANSWERED) is Condition.WORKING}

    assert healed == {Condition.WORKING, Condition.SILENT, Condition.UNREACHABLE}
    assert advance(Condition.FULL, Notice.STORED) is Condition.WORKING


def test_every_condition_but_the_good_one_has_its_sentence() -> None:
    assert set(REASONS) == set(Condition) - {Condition.WORKING}


@pytest.mark.parametrize(
    ("inspection", "notice"),
    [
        (Inspection(), None),
        (Inspection(waiting_seconds=WRITE_SECONDS), None),
        (Inspection(waiting_seconds=WRITE_SECONDS + 1), Notice.NO_ANSWER),
        (Inspection(room=False), Notice.REFUSED),
        (Inspection(replaced=True, room=False, waiting_seconds=99), Notice.OTHER_FILE),
    ],
    ids=["well", "slow", "stuck", "full", "replaced"],
)
def test_an_inspection_says_the_worst_of_it(inspection: Inspection, notice: Notice | None) -> None:
    assert notice_of(inspection) is notice


@pytest.mark.parametrize(
    ("trouble", "notice"),
    [
        (FileReplaced(), Notice.OTHER_FILE),
        (DatabaseFull(), Notice.REFUSED),
        (Unavailable(), Notice.NO_CONNECTION),
        (Busy(), None),
        (Conflict(), None),
        (CommitLost(), None),
    ],
    ids=repr,
)
def test_a_failure_of_the_database_is_told_from_one_of_the_unit(
    trouble: StoreFailure, notice: Notice | None
) -> None:
    assert notice_failure(trouble) is notice


def test_a_probe_writes_and_changes_nothing() -> None:
    with sqlite3.connect(":memory:", isolation_level=None) as connection:
        connection.execute("pragma user_version = 7")
        run_unit(connection, ProbeWrite())

        assert connection.execute("pragma user_version").fetchone() == (7,)
    connection.close()


def test_a_probe_of_postgresql_takes_a_transaction_of_its_own() -> None:
    statements = ProbeWrite().statements(Dialect.POSTGRESQL)

    assert next(statements).text(Dialect.POSTGRESQL) == "select txid_current()"
    with pytest.raises(StopIteration):
        statements.send([(1,)])
