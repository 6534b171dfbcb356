"""The circumstances of a process that serves, as gauges: its disks, and what is unsafe there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from legation import Platform
from legation.diagnosis.engines import judge_bug, judge_pooler
from legation.findings import Finding
from legation.observability.finding_gauges import count_findings
from legation.observability.prometheus import Labels
from legation.observability.request_log import Gauge, Gauges

from .databases import Database, as_server
from .sqlite import SqliteDatabase

__all__ = ["disk_gauges", "find_circumstances", "gauge_findings"]

_SIZE: Final = "Bytes of the file system on which a SQLite file is."
_FREE: Final = "Bytes that are free there, for users who are not root."


def disk_gauges(databases: Mapping[str, Database]) -> Gauges:
    """Return the room of each SQLite file, as it was inspected last."""
    sizes: dict[Labels, float] = {}
    free: dict[Labels, float] = {}
    for name, database in databases.items():
        if isinstance(database, SqliteDatabase) and database.disk is not None:
            labels = (("database", name),)
            sizes[labels], free[labels] = database.disk
    if not sizes:
        return {}
    return {
        "legation_disk_size_bytes": Gauge("gauge", _SIZE, sizes, "max"),
        "legation_disk_free_bytes": Gauge("gauge", _FREE, free, "min"),
    }


def find_circumstances(databases: Mapping[str, Database]) -> Iterator[Finding]:
    """Yield what an open database shows to be unsafe."""
    for name, database in databases.items():
        if isinstance(database, SqliteDatabase):
            if database.wal_reset_bug is not None:
                yield judge_bug(name, database.wal_reset_bug)
        elif (server := as_server(database)) is not None and server.undeclared_pooler:
            yield judge_pooler(name)


def gauge_findings(platform: Platform, databases: Mapping[str, Database]) -> Callable[[], Gauges]:
    """Return what counts the findings that `platform` and its open databases show now.

    The settings are judged again where another secret was loaded, or requests come in by another
    way: else it is the same.
    """
    judged: tuple[object, tuple[Finding, ...]] = (None, ())

    def count() -> Gauges:
        nonlocal judged
        by = (platform.door, platform.registry.weak)
        if judged[0] != by:
            judged = (by, platform.find_unsafe())
        return count_findings((*judged[1], *find_circumstances(databases)))

    return count
