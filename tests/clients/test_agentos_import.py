"""A database that AgentOS 2.5.6 wrote, and its import, read by its own client: what differs."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from ..engines import Cluster
from ..frontends.cluster_kit import NIGHTLY
from .agentos_differences import DIFFERENCES
from .agentos_import_kit import (
    compare,
    import_and_read,
    open_database,
    read_reference,
    write_sessions,
)

pytest.importorskip("agno", reason="the client of AgentOS is installed by nox -s agentos-client")
pytest.importorskip("agno.os")

# agno leaves its connections to the collector.
OPTIONS: Final = (
    "ignore::ResourceWarning",
    "ignore::DeprecationWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)
pytestmark = [pytest.mark.filterwarnings(option) for option in OPTIONS]

SESSIONS: Final = 1_000 if NIGHTLY else 16


def test_its_client_reads_the_same_from_both_but_for_these_differences(tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path}/agno.db"
    database = open_database(source)
    write_sessions(database, SESSIONS)
    theirs = read_reference(database)
    ours = import_and_read(tmp_path, source, f"sqlite:///{tmp_path}/main.db")

    assert len(theirs) == SESSIONS
    assert sorted(compare(theirs, ours)) == sorted(DIFFERENCES)


def test_so_it_does_on_postgresql(tmp_path: Path, postgres_cluster: Cluster) -> None:
    with postgres_cluster.new_database() as source, postgres_cluster.new_database() as target:
        database = open_database(source)
        write_sessions(database, 8)
        theirs = read_reference(database)
        ours = import_and_read(tmp_path, source, target)
        database.db_engine.dispose()

    assert len(theirs) == 8
    assert compare(theirs, ours) <= DIFFERENCES.keys()
