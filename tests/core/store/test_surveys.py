"""The survey of the nodes of a database, and of its engine."""

from __future__ import annotations

import sqlite3
from typing import Final

import pytest

from legation.store.nodes import Beat, ClusterClock, OtherNode
from legation.store.runs import StartRun
from legation.store.surveys import NodeSurvey, ReadServer, ServerReading, SurveyNodes
from legation.store.units import Dialect

from ...one_database import Database

LEASE_US: Final = 30_000_000
NEW_YEAR_US: Final = 1_767_225_600_000_000
NODE: Final = OtherNode("n", "", (), 0, 5_000_000, "1", "2")


def beat(database: Database, node: str) -> None:
    database.run(
        Beat(
            node, LEASE_US, 7, (), "", session_lock=False, code_version="1", schema_version="2.6.0"
        )
    )


def test_a_new_database_has_no_nodes() -> None:
    survey = Database().run(SurveyNodes())

    assert survey == NodeSurvey(database_us=survey.database_us)


def test_nodes_are_listed_with_the_clock_that_they_beat_by() -> None:
    database = Database()
    beat(database, "a")
    beat(database, "b")
    survey = database.run(SurveyNodes())

    assert [node.name for node in survey.nodes] == ["a", "b"]
    assert survey.database_us >= survey.clock.seen_us > NEW_YEAR_US
    assert survey.orphans == 0


def test_a_node_is_silent_since_its_beat_by_the_clock_of_the_database() -> None:
    clock = ClusterClock(up_us=9_000_000, seen_us=NEW_YEAR_US)
    survey = NodeSurvey(clock, NEW_YEAR_US + 60_000_000, (NODE,))

    assert survey.silent_us(NODE) == 64_000_000
    assert NodeSurvey(clock, NEW_YEAR_US - 60_000_000).silent_us(NODE) == 4_000_000
    assert NodeSurvey().silent_us(NODE) == 0


def test_the_runs_of_nodes_that_are_gone_are_counted() -> None:
    database = Database()
    beat(database, "alive")
    for number, node in enumerate(("alive", "gone", "gone")):
        run_id, session_id = f"r{number}", f"s{number}"
        database.run(StartRun("ada", session_id, run_id, "agent", "desk", "{}", "", node, 1))

    assert database.run(SurveyNodes()).orphans == 2


def test_the_engine_tells_its_version_and_its_clock() -> None:
    reading = Database().run(ReadServer())

    assert reading.version == sqlite3.sqlite_version
    assert reading.database_us > NEW_YEAR_US
    assert (reading.durable, reading.connections) == (True, None)


def test_a_server_tells_how_many_connections_it_has_left() -> None:
    unit = ReadServer().statements(Dialect.POSTGRESQL)
    next(unit)
    with pytest.raises(StopIteration) as end:
        unit.send([("17.2", NEW_YEAR_US, 0, 80)])

    assert end.value.value == ServerReading("17.2", NEW_YEAR_US, durable=False, connections=80)
