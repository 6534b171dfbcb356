"""Databases put in place from the folder of a backup, after the copies were checked."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from attrs import evolve

from legation import Platform
from legation.lifecycle.backup_manifest import SavedDatabase
from legation.migrations.ledger import State, assess_state
from legation.runs.output import iso_time
from legation.store.audit_pages import Head
from legation.store.failures import StoreFailure
from legation.store.units import Dialect
from legation.values import frozen
from legation_host.databases import RunUnit, open_reader, sqlite_path, sqlite_url
from legation_host.errors import HostError
from legation_host.file_locks import FileLock
from legation_host.postgres_backup import (
    drop_aside,
    find_programs,
    keep_aside,
    list_dump,
    look_at_target,
    open_snapshot,
    restore_dump,
    undo_restore,
)
from legation_host.sqlite_backup import (
    check_database,
    check_unused,
    drop_file,
    free_bytes,
    put_in_place,
)

from .backup_folder import check_room, check_same, copy_file
from .backup_trail import Trail, read_state, read_trail
from .failing import CannotGoOn, why
from .terminal import show_progress

__all__ = ["Restore", "Restored"]

_NEW: Final = ".restoring"


@frozen
class Restored:
    """A database that was put in place.

    Attributes:
        aside: Where the database is that was there before; empty where there was none.
        detail: Whether this release serves its schema, in a sentence; empty where it does.
    """

    database: str
    aside: str
    version: str
    detail: str
    trail: Trail

    def with_nothing_aside(self) -> Restored:
        """Return it for a place where nothing is kept."""
        return evolve(self, aside="")


@frozen
class Restore:
    """One database of a backup, and the place that it goes to.

    Attributes:
        heads: Those of the backup, which its trail has to lead through.
        replace: Also where there are tables in the schema of PostgreSQL.
        discard: Delete what was there before, instead of keeping it aside.
    """

    platform: Platform
    folder: Path
    saved: SavedDatabase
    heads: tuple[Head, ...]
    replace: bool
    discard: bool

    @property
    def name(self) -> str:
        """The id of the database."""
        return self.saved.database

    @property
    def url(self) -> str:
        """The URL that it goes to."""
        return self.platform.databases[self.name]

    @property
    def source(self) -> Path:
        """The file in the folder of the backup."""
        return self.folder / self.saved.file.name

    @property
    def target(self) -> Path:
        """The SQLite file, behind every link."""
        return Path(sqlite_path(self.name, self.url)).resolve()

    def check(self) -> None:
        """Find out whether it can be done; change nothing.

        Raises:
            HostError: The place is in use, is not empty, or the programs are missing.
            CannotGoOn: There is not enough space.
        """
        if self.saved.dialect is Dialect.POSTGRESQL:
            list_dump(find_programs(self.name, self.url), self.source)
            look_at_target(self.name, self.url, self.saved.namespace, replace=self.replace)
            return
        parent = self.target.parent
        if not parent.is_dir():
            raise CannotGoOn(f"databases.{self.name}.url: there is no folder {parent}")
        check_unused(self.target)
        check_room(parent, free_bytes(parent), self.saved.file.size)

    def perform(self) -> Restored:
        """Put the database in place.

        Raises:
            HostError: In words for the operator; what was there before is there.
            CannotGoOn: As above, but for a dump whose content differs from the manifest.
        """
        postgres = self.saved.dialect is Dialect.POSTGRESQL
        try:
            return self._restore_dump() if postgres else self._restore_file()
        except StoreFailure as failure:
            raise CannotGoOn(f"{self.source}: cannot be read: {why(failure)}") from None

    # --- SQLite ----------------------------------------------------------------------------------

    def _restore_file(self) -> Restored:
        """Copy the file beside its place, check the copy, and give it the name."""
        path = self.target
        aside = path.with_name(f"{path.name}.before-{_stamp()}")
        with _new_file(path.with_name(f"{path.name}{_NEW}")) as (new, file):
            with show_progress(f"Restoring {self.name!r}") as advance:
                found = copy_file(self.source, file, advance)
                check_same(self.source, found, self.saved.file)
                check_database(new)
            with open_reader(self.name, sqlite_url(new)) as run:
                restored = self._judge(run, str(aside))
            there = put_in_place(new, path, aside)
        if there and self.discard:
            drop_file(aside)
        return restored if there and not self.discard else restored.with_nothing_aside()

    # --- PostgreSQL ------------------------------------------------------------------------------

    def _restore_dump(self) -> Restored:
        """Call `pg_restore` for an empty schema; where it fails, all is as it was."""
        name, url, namespace = self.name, self.url, self.saved.namespace
        aside = f"{namespace[:40]}_before_{_stamp().lower()}"
        there = keep_aside(name, url, namespace, aside)
        try:
            with show_progress(f"Restoring {name!r}") as advance:
                restore_dump(find_programs(name, url), namespace, self.source, advance)
            with open_snapshot(name, url) as snapshot:
                restored = self._judge(snapshot.run, f"schema {aside}")
        except BaseException:
            self._undo_dump(aside if there else None)
            raise
        if there and self.discard:
            drop_aside(name, url, aside)
        return restored if there and not self.discard else restored.with_nothing_aside()

    def _undo_dump(self, aside: str | None) -> None:
        try:
            undo_restore(self.name, self.url, self.saved.namespace, aside)
        except HostError as error:
            if aside is not None:
                raise CannotGoOn(
                    f"{error}; what was there before is the schema {aside}: rename it"
                ) from None
            raise

    # --- Both ------------------------------------------------------------------------------------

    def _judge(self, run: RunUnit, aside: str) -> Restored:
        """Compare the copy with the manifest and the heads.

        Raises:
            CannotGoOn: It is another one than the manifest says.
        """
        state = read_state(self.name, run)
        if str(state.version) != self.saved.version:
            raise CannotGoOn(
                f"{self.source}: its schema is {state.version}, and the manifest says"
                f" {self.saved.version}"
            )
        with show_progress("Verifying the audit trail") as advance:
            trail = read_trail(self.platform, self.name, run, self.heads, advance)
        if trail.intact is False and self.saved.intact:
            raise CannotGoOn(
                f"{self.source}: its audit trail is {trail.reason}: it was intact in the backup"
            )
        return Restored(self.name, aside, str(state.version), self._assess(state), trail)

    def _assess(self, state: State) -> str:
        catalogue = self.platform.registry.catalogue
        found = assess_state(state, catalogue, self.saved.dialect, catalogue.latest)
        return "" if found.may_serve else found.detail


def _stamp() -> str:
    """Return the time for the name of what is kept aside."""
    return iso_time(time.time_ns() // 1_000_000_000 * 1_000_000).replace("-", "").replace(":", "")


@contextmanager
def _new_file(path: Path) -> Generator[tuple[Path, BinaryIO]]:
    """Yield the empty file at `path`, for one restore at a time; it is gone unless it was renamed.

    What a crash has left of one is overwritten.
    """
    try:
        lock = FileLock.open(str(path), make_mode=0o600)
    except FileExistsError:
        lock = FileLock.open(str(path))
    try:
        if not lock.try_hold() or not lock.is_at(str(path)):
            raise CannotGoOn(f"{path}: another restore is under way")
        os.ftruncate(lock.fd, 0)
        try:
            with os.fdopen(lock.fd, "wb", closefd=False) as file:
                yield path, file
        finally:
            if lock.is_at(str(path)):
                path.unlink()
    finally:
        lock.close()
