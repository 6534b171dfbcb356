"""The judgement of what a SQLite database stands on: its file system, its disk, its library."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..findings import Finding, find
from ..values import frozen
from .engines import BugSeverity, judge_bug

__all__ = ["Disk", "SqliteFacts", "SyncTrial", "judge_sqlite"]

FULL_BYTES: Final = 1 << 20
"""A file system that has less is full, for a server as well."""

LOW_BYTES: Final = 1 << 30
LOW_PARTS: Final = 10
"""There is little room where it is less than a GiB, and less than a tenth of all."""

LOW_INODES: Final = 1_000
INODE_PARTS: Final = 100

SLOW_SECONDS: Final = 0.1
"""The quickest of a few writes: ten commits a second are too few for anybody."""

# Names of the kernel (Linux, `mount`).  SQLite keeps its WAL in a memory map that processes share,
# and its locks in the file: sqlite.org/wal.html and sqlite.org/faq.html#q5.
_NETWORK: Final = frozenset(
    """9p afs beegfs ceph cifs fuse.ceph fuse.cephfs fuse.gcsfuse fuse.glusterfs fuse.rclone
    fuse.s3fs fuse.sshfs gfs2 glusterfs lustre ncpfs nfs nfs4 ocfs2 smb3 smbfs""".split()
)
_VOLATILE: Final = frozenset({"ramfs", "tmpfs"})


@frozen
class Disk:
    """A file system: `free` is for those who are not root; `inodes` is 0 where it counts none."""

    size: int
    free: int
    inodes: int = 0
    free_inodes: int = 0


@frozen
class SyncTrial:
    """The trial of a write beside a database: how long it took, or why it failed.

    Attributes:
        seconds: From the write until the disk confirmed it; the least of a few.
        unwritable: Why nothing could be written; empty where it could.
        full: That is because there is no room.
        unconfirmed: Why the disk did not confirm what was written.
    """

    seconds: float = 0.0
    unwritable: str = ""
    full: bool = False
    unconfirmed: str = ""


@frozen
class SqliteFacts:
    """The facts about a SQLite database that are known without opening it.

    Attributes:
        path: Of its file, as it is configured; None for one in memory.
        folder: Of the file, links followed; None where there is none.
        exists: There is a file.
        file_system: Its type, as the kernel calls it; empty where that is not known.
        disk: None where it cannot be known.
        trial: None where nothing was written.
        bug: How grave it is that the library has the WAL-reset bug: `low` where the processes of
            a server keep apart by a lock of their own, else `medium`; None where it has it not.
    """

    path: str | None
    folder: str | None = None
    exists: bool = False
    file_system: str = ""
    disk: Disk | None = None
    trial: SyncTrial | None = None
    bug: BugSeverity | None = None


def judge_sqlite(name: str, facts: SqliteFacts) -> Iterator[Finding]:
    """Yield what is wrong with what the database `name` stands on."""
    where = f"databases.{name}"
    if facts.path is None:
        yield find("database_volatile", where, "is in memory: a restart deletes it")
        return
    if facts.folder is None:
        yield find("database_unusable", where, f"is {facts.path}, whose folder does not exist")
        return
    if not facts.exists:
        yield find("database_missing", where, f"is {facts.path}, which does not exist yet")
    yield from _judge_file_system(where, facts)
    if facts.disk is not None:
        yield from _judge_disk(where, facts.disk)
    if facts.trial is not None:
        yield from _judge_trial(where, facts.trial, facts.folder)
    if facts.bug is not None:
        yield judge_bug(name, facts.bug)


def _judge_file_system(where: str, facts: SqliteFacts) -> Iterator[Finding]:
    kind = facts.file_system
    if kind in _NETWORK:
        message = f"is on a network file system ({kind}), on which SQLite's locks do not hold"
        yield find("network_file_system", where, message)
    elif kind in _VOLATILE:
        yield find("database_volatile", where, f"is on {kind}: a restart of the machine deletes it")


def _judge_disk(where: str, disk: Disk) -> Iterator[Finding]:
    if disk.size and disk.free < FULL_BYTES:
        yield find("disk_full", where, f"has {_size(disk.free)} left on its disk: it is full")
    elif disk.free < LOW_BYTES and disk.free * LOW_PARTS < disk.size:
        message = f"has {_size(disk.free)} of {_size(disk.size)} left on its disk"
        yield find("disk_low", where, message)
    if disk.free_inodes < LOW_INODES and disk.free_inodes * INODE_PARTS < disk.inodes:
        message = f"has {disk.free_inodes} of {disk.inodes} inodes left on its disk"
        yield find("inodes_low", where, message)


def _judge_trial(where: str, trial: SyncTrial, folder: str) -> Iterator[Finding]:
    if trial.full:
        yield find("disk_full", where, f"has no room in {folder} for one more page")
    elif trial.unwritable:
        message = f"is in {folder}, where nothing can be written: {trial.unwritable}"
        yield find("folder_unwritable", where, message)
    elif trial.unconfirmed:
        message = f"is in {folder}, where the disk does not confirm a write: {trial.unconfirmed}"
        yield find("fsync_failed", where, message)
    elif trial.seconds > SLOW_SECONDS:
        message = f"waits {trial.seconds * 1000:.0f} ms for its disk to confirm a write"
        yield find("fsync_slow", where, message)


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.1f} MiB"
