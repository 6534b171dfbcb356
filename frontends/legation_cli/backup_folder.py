"""The folder of a backup: it gets its name when all of it is on the disk, and is never changed.

Until then it is a hidden folder beside its place, without a manifest.  A crash leaves such a one,
which the next backup to the same place removes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final

from legation.lifecycle.backup_manifest import (
    MANIFEST,
    MAX_MANIFEST,
    Manifest,
    SavedFile,
    find_old,
    folder_name,
    read_manifest,
    write_manifest,
)
from legation_host.file_locks import FileLock
from legation_host.sqlite_backup import sync_folder

from .failing import CannotGoOn

__all__ = [
    "check_files",
    "check_room",
    "check_same",
    "copy_file",
    "describe_size",
    "finish_folder",
    "measure_file",
    "new_folder",
    "read_folder",
    "remove_old",
    "write_file",
]

_PARTIAL: Final = ".partial-"
_LOCK: Final = ".legation-backup.lock"
_CHUNK: Final = 1 << 20
_SPARE: Final = 16 << 20
"""Bytes beside the files themselves: the manifest, the heads, and what a file system needs."""


@contextmanager
def new_folder(parent: Path, platform: str, at_us: int) -> Generator[tuple[Path, Path]]:
    """Yield a hidden folder to fill, and the path that it has when the block has ended.

    Where the block fails it is removed.  One backup at a time goes to `parent`, which is made where
    it is missing.

    Raises:
        CannotGoOn: There is such a folder already, or another backup is under way.
    """
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = _lock(parent)
    try:
        name = folder_name(platform, at_us)
        final, partial = parent / name, parent / f"{_PARTIAL}{name}"
        if os.path.lexists(final):
            raise CannotGoOn(f"{final}: it is there already, and a backup overwrites nothing")
        for left in parent.glob(f"{_PARTIAL}*"):
            shutil.rmtree(left)
        partial.mkdir(mode=0o700)
        try:
            yield partial, final
            sync_folder(partial)
            partial.rename(final)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        sync_folder(parent)
    finally:
        lock.close()


def _lock(parent: Path) -> FileLock:
    path = str(parent / _LOCK)
    try:
        lock = FileLock.open(path, make_mode=0o600)
    except FileExistsError:
        lock = FileLock.open(path)
    try:
        if lock.try_hold():
            return lock
    except OSError:
        pass  # this file system has no locks: two backups in one second would be told by the name
    else:
        lock.close()
        raise CannotGoOn(f"{parent}: another backup is under way there")
    return lock


def write_file(folder: Path, name: str, value: object) -> SavedFile:
    """Write `value` as JSON to a new file; it is on the disk then."""
    text = json.dumps(value, indent=2).encode() + b"\n"
    descriptor = os.open(folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    return SavedFile(name, len(text), sha256(text).hexdigest())


def finish_folder(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, the last of the files."""
    write_file(folder, MANIFEST, write_manifest(manifest))


def measure_file(path: Path, advance: Callable[[], object]) -> SavedFile:
    """Return the size and the hash of a file."""
    digest, size = sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            advance()
    return SavedFile(path.name, size, digest.hexdigest())


def copy_file(source: Path, target: BinaryIO, advance: Callable[[], object]) -> SavedFile:
    """Copy a file to an open one, and return the size and the hash of what was copied."""
    digest, size = sha256(), 0
    with source.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            target.write(chunk)
            size += len(chunk)
            advance()
    target.flush()
    os.fsync(target.fileno())
    return SavedFile(source.name, size, digest.hexdigest())


def remove_old(parent: Path, platform: str, keep: int) -> list[str]:
    """Remove the oldest backups of `platform` beyond `keep`; return their names.

    Each loses its name first, so that one that is half gone is not taken for a backup.
    """
    names = [path.name for path in parent.iterdir() if (path / MANIFEST).is_file()]
    old = find_old(platform, names, keep)
    for name in old:
        hidden = parent / f"{_PARTIAL}{name}"
        (parent / name).rename(hidden)
        shutil.rmtree(hidden)
    return list(old)


# --- Read ----------------------------------------------------------------------------------------


def read_folder(folder: Path) -> Manifest:
    """Return the manifest of the backup in `folder`.

    Raises:
        CannotGoOn: There is none, or it is not as it was written.
    """
    path = folder / MANIFEST
    try:
        with path.open("rb") as file:
            text = file.read(MAX_MANIFEST + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise CannotGoOn(f"{folder}: is no backup: it has no {MANIFEST}") from None
    manifest = read_manifest(text) if len(text) <= MAX_MANIFEST else None
    if not isinstance(manifest, Manifest):
        raise CannotGoOn(f"{path}: {'it is too long' if manifest is None else manifest.detail}")
    return manifest


def check_files(folder: Path, files: Iterable[SavedFile], advance: Callable[[], object]) -> None:
    """Raise `CannotGoOn` where a file is not the one that the manifest names."""
    for file in files:
        path = folder / file.name
        if path.is_symlink() or not path.is_file():
            raise CannotGoOn(f"{path}: it is missing, and the manifest names it")
        if path.stat().st_size != file.size:
            raise CannotGoOn(f"{path}: it has not the {file.size} bytes of the backup")
        check_same(path, measure_file(path, advance), file)


def check_same(path: Path, found: SavedFile, file: SavedFile) -> None:
    """Raise `CannotGoOn` where `found`, read from `path`, is not `file`."""
    if found != file:
        raise CannotGoOn(f"{path}: it is not the file of the backup: its SHA-256 differs")


# --- Room ----------------------------------------------------------------------------------------


def check_room(folder: Path, free: int, size: int) -> None:
    """Raise `CannotGoOn` where `free` bytes in `folder` are too few for `size` more."""
    if free < size + _SPARE:
        needed, there = describe_size(size + _SPARE), describe_size(free)
        raise CannotGoOn(f"{folder}: there is not enough space: {needed} needed, {there} free")


def describe_size(size: int) -> str:
    """Return a number of bytes for people."""
    amount = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
