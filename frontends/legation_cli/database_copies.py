"""Copies of databases in the folder of a backup, each of one moment and checked."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Final

from legation import Platform
from legation.lifecycle.backup_manifest import SavedDatabase, file_name
from legation.store.failures import StoreFailure
from legation.store.units import Dialect
from legation.values import frozen
from legation_host.databases import dialect_of, open_reader, sqlite_path, sqlite_url
from legation_host.postgres_backup import dump_database, find_programs, open_snapshot
from legation_host.sqlite_backup import copy_database, free_bytes

from .backup_folder import check_room, measure_file
from .backup_trail import Trail, read_state, read_trail
from .failing import CannotGoOn, why
from .terminal import Advance, show_progress

__all__ = ["Copy", "save_database"]

_DUMP_SHARE: Final = 4
"""A dump is compressed: with less than a quarter of the bytes of its tables it is not tried."""


@frozen
class Copy:
    """A copy of a database, and what was found in its audit trail."""

    saved: SavedDatabase
    trail: Trail


def save_database(platform: Platform, name: str, folder: Path) -> Copy:
    """Copy a database into `folder`, beside whoever serves it.

    Raises:
        HostError: In words for the operator.
        CannotGoOn: There is not enough space, or the database cannot be read.
    """
    at_us = time.time_ns() // 1_000
    sqlite = dialect_of(platform.databases[name]) is Dialect.SQLITE
    copy = _copy_file if sqlite else _dump
    try:
        with show_progress(f"Copying {name!r}") as advance:
            return copy(platform, name, folder, at_us, advance)
    except StoreFailure as failure:
        raise CannotGoOn(f"the database {name!r} cannot be backed up: {why(failure)}") from None


def _copy_file(platform: Platform, name: str, folder: Path, at_us: int, advance: Advance) -> Copy:
    """Copy a SQLite file; what is read of it is read of the copy."""
    target = folder / file_name(name, Dialect.SQLITE)

    def check(size: int) -> None:
        check_room(folder, free_bytes(folder), size)

    copy_database(sqlite_path(name, platform.databases[name]), target, advance, check)
    with open_reader(name, sqlite_url(target)) as run:
        state = read_state(name, run)
        trail = read_trail(platform, name, run, (), advance)
    server = f"SQLite {sqlite3.sqlite_version}"
    file = measure_file(target, advance)
    version = str(state.version)
    saved = SavedDatabase(
        name, Dialect.SQLITE, "", at_us, version, server, file, trail.intact, trail.rows
    )
    return Copy(saved, trail)


def _dump(platform: Platform, name: str, folder: Path, at_us: int, advance: Advance) -> Copy:
    """Call `pg_dump`; what is read beside it is of the same snapshot."""
    url = platform.databases[name]
    target = folder / file_name(name, Dialect.POSTGRESQL)
    programs = find_programs(name, url)
    with open_snapshot(name, url) as snapshot:
        check_room(folder, free_bytes(folder), snapshot.size // _DUMP_SHARE)
        state = read_state(name, snapshot.run)
        dump_database(programs, snapshot, target, advance)
        trail = read_trail(platform, name, snapshot.run, (), advance)
    server = f"PostgreSQL {snapshot.version}"
    file = measure_file(target, advance)
    version, place = str(state.version), snapshot.namespace
    saved = SavedDatabase(
        name, Dialect.POSTGRESQL, place, at_us, version, server, file, trail.intact, trail.rows
    )
    return Copy(saved, trail)
