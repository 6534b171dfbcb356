"""The file system under a path: its type, its room, and whether it confirms a write."""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Final

from legation.diagnosis.files import Disk, SyncTrial

__all__ = ["find_type", "measure_disk", "time_syncs", "try_write"]

TRIES: Final = 3
_PAGE: Final = b"\0" * 4096
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_MOUNTS: Final = Path("/proc/self/mountinfo")


def measure_disk(path: str) -> Disk | None:
    """Return the room on the file system of `path`, None where that is not told."""
    try:
        told = os.statvfs(path)
    except OSError:
        return None
    size, free = told.f_blocks * told.f_frsize, told.f_bavail * told.f_frsize
    return Disk(size, free, told.f_files, told.f_favail)


def find_type(path: str, mounts: Path = _MOUNTS) -> str:
    """Return the type of the file system of `path`, an absolute one without links.

    It is empty where the system does not tell: `mounts` is as proc(5) describes it.
    """
    try:
        lines = mounts.read_bytes().splitlines()
    except OSError:
        return ""
    best, found = -1, b""
    for line in lines:
        before, _, after = line.partition(b" - ")
        fields = before.split(b" ")
        if len(fields) < 5 or not after:
            continue
        point = _plain(fields[4])
        if _is_under(os.fsencode(path), point) and len(point) >= best:  # what is mounted last
            best, found = len(point), after.split(b" ")[0]
    return found.decode("ascii", "replace")


def _plain(point: bytes) -> bytes:
    """Return a mount point without the escapes of spaces and their like."""
    for octal, plain in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
        point = point.replace(octal, plain)
    return point


def _is_under(path: bytes, point: bytes) -> bool:
    return path == point or path.startswith(point.rstrip(b"/") + b"/")


def try_write(folder: str) -> SyncTrial:
    """Write a page to a file of our own in `folder`, a few times, and delete it."""
    path = os.path.join(folder, f".legation-doctor-{token_hex(8)}")  # noqa: PTH118  text
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        return _refuse(error)
    try:
        return time_syncs(descriptor)
    finally:
        os.close(descriptor)
        with suppress(OSError):
            os.unlink(path)  # noqa: PTH108  as above


def time_syncs(descriptor: int) -> SyncTrial:
    """Write a page a few times, and have the disk confirm each."""
    least = float("inf")
    for _ in range(TRIES):
        began = time.perf_counter()
        try:
            os.write(descriptor, _PAGE)
        except OSError as error:
            return _refuse(error)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno in _FULL:
                return _refuse(error)
            return SyncTrial(unconfirmed=error.strerror or "it failed")
        least = min(least, time.perf_counter() - began)
    return SyncTrial(least)


def _refuse(error: OSError) -> SyncTrial:
    return SyncTrial(unwritable=error.strerror or "it failed", full=error.errno in _FULL)
