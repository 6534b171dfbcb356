"""The circumstances of a process that serves, as measurements: disks, and findings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from legation import Agent, Database, Platform
from legation.access.posture import Door
from legation.config import PlatformConfig
from legation.http.messages import Request, Response
from legation.store.surveys import ReadServer
from legation_host import open_database
from legation_host.circumstances import disk_gauges, find_circumstances, gauge_findings
from legation_host.hosting import open_platform
from legation_host.observer import QUIET_PAUSE
from legation_host.sqlite import SqliteDatabase

from ..engines import Cluster
from ..pooler import NoPooler, pooled, through
from .host_units import BACKENDS, run

OLD, NEW = (3, 50, 1), (3, 51, 3)


def open_file(path: Path, version: tuple[int, int, int] = NEW) -> SqliteDatabase:
    return SqliteDatabase("main", str(path), version=version)


@BACKENDS
def test_the_room_of_each_file_is_measured_once_it_was_inspected(
    tmp_path: Path, backend: str
) -> None:
    memory = open_database("memory", "sqlite://")
    opened: dict[str, Any] = {"main": open_file(tmp_path / "main.db"), "memory": memory}

    async def main() -> None:
        try:
            assert disk_gauges(opened) == {}
            for database in opened.values():
                await database.inspect()
            found = disk_gauges(opened)
        finally:
            for database in opened.values():
                await database.aclose()
        size, free = found["legation_disk_size_bytes"], found["legation_disk_free_bytes"]
        labels = (("database", "main"),)
        assert size.values.keys() == free.values.keys() == {labels}
        assert size.values[labels] >= free.values[labels] > 0
        assert (size.merge, free.merge) == ("max", "min")

    run(backend, main)


@pytest.mark.parametrize(
    ("version", "locked", "found"),
    [
        (NEW, True, []),
        (OLD, True, [("sqlite_wal_reset_bug", "low")]),
        (OLD, False, [("sqlite_wal_reset_bug", "medium")]),
    ],
)
def test_the_bug_of_sqlite_is_found_with_the_lock_that_is_held(
    tmp_path: Path, version: tuple[int, int, int], locked: bool, found: list[tuple[str, str]]
) -> None:
    if not locked:
        (tmp_path / "main.db-locks").write_text("in the way")
    database = open_file(tmp_path / "main.db", version)
    try:
        assert [(f.code, f.severity) for f in find_circumstances({"main": database})] == found
    finally:
        anyio.run(database.aclose)


@pytest.mark.parametrize(
    ("query", "found"), [("", ["pooler_undeclared"]), ("?pgbouncer=true", [])], ids=str
)
def test_a_pooler_is_found_by_the_first_connection(
    postgres_cluster: Cluster, postgres_database: str, query: str, found: list[str]
) -> None:
    async def main(url: str) -> None:
        database = open_database("main", url)
        try:
            assert list(find_circumstances({"main": database})) == []
            await database.run(ReadServer())
            assert [one.code for one in find_circumstances({"main": database})] == found
        finally:
            await database.aclose()

    try:
        with pooled(postgres_cluster) as port:
            anyio.run(main, through(postgres_database, port, query))
    except NoPooler as reason:
        pytest.skip(str(reason))


def test_findings_are_counted_again_only_where_the_door_is_another() -> None:
    class Watched(Platform):
        judged = 0

        def find_unsafe(self) -> Any:
            self.judged += 1
            return super().find_unsafe()

    platform = Watched(agents=[Agent("desk")])
    count = gauge_findings(platform, {})
    grave = dict(count()["legation_findings"].values)
    assert count()["legation_findings"].values == grave
    platform.door = Door("machine")
    light = count()["legation_findings"].values

    assert grave == {(("finding", "authorization_off"), ("severity", "high")): 1}
    assert light == {(("finding", "authorization_off"), ("severity", "low")): 1}
    assert platform.judged == 2


@BACKENDS
def test_a_scrape_has_the_findings_and_the_disks(tmp_path: Path, backend: str) -> None:
    platform = Platform.from_config(
        PlatformConfig(
            cors_allowed_origins=["http://a.example", "http://b.example"],
            databases=[Database("main", f"sqlite:///{tmp_path}/main.db")],
        )
    )

    async def main() -> None:
        async with open_platform(platform) as host:
            await host.databases["main"].inspect()
            await anyio.sleep(2 * QUIET_PAUSE)
            answer = await host.run(platform.answer(Request("GET", "/metrics/prometheus", ())))
        assert isinstance(answer, Response)
        text = answer.body.decode()
        assert 'legation_findings{finding="origin_plain_http",severity="medium"} 2\n' in text
        assert 'legation_findings{finding="authorization_off",severity="high"} 1\n' in text
        assert 'legation_disk_free_bytes{database="main"} ' in text

    run(backend, main)
