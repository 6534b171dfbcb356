"""The tables of the trail: made where they are missing, and left alone where they are there."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from legation.store.audit_tables import create_trail
from legation.store.units import Dialect

TABLES = {"trail", "trail_kept", "trail_subjects"}


def test_tables_are_made_once_and_rows_stay() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        for _ in range(2):
            for statement in create_trail():
                connection.execute(statement.text(Dialect.SQLITE))
            connection.execute("insert or ignore into trail_subjects values ('ada', 1, 'w', 1)")
        rows = connection.execute("select name from sqlite_master where type = 'table'").fetchall()
        ((count,),) = connection.execute("select count(*) from trail_subjects").fetchall()

    assert {name for (name,) in rows} == TABLES
    assert count == 1


def test_the_tables_are_plain_on_postgresql() -> None:
    texts = [statement.text(Dialect.POSTGRESQL) for statement in create_trail()]

    assert not [text for text in texts if "rowid" in text]
    assert all("if not exists" in text for text in texts)
