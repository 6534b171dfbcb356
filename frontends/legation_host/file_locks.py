"""Locks on files, by `flock`: the kernel frees them when a process ends, however it does.

They say nothing about process ids, so that they hold between containers, whose ids are of different
namespaces, and after an id was used again.

A lock belongs to the description of an open file, and a process that is forked has the descriptions
of its parent: it would go on to hold what a parent that was killed has held.  So a child closes
them, as far as Python forks it; a program that it executes never gets them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import Final

from attrs import field

from legation.values import define, frozen

__all__ = ["FileLock", "LockFolder"]

_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NEW: Final = os.O_CREAT | os.O_EXCL
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_ROOT: Final = 0

_opened: Final[set[FileLock]] = set()


@define(eq=False)
class FileLock:
    """An open file that can be locked; open until `close`, or until this process is forked."""

    fd: int
    _closed: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        _opened.add(self)

    @classmethod
    def open(cls, path: str, *, make_mode: int | None = None) -> FileLock:
        """Open the file at `path`, or make one with this mode where there must be none.

        Raises:
            OSError: That cannot be done, or it is no file.
        """
        if make_mode is None:
            opened = cls(os.open(path, _FLAGS))
        else:
            opened = cls(os.open(path, _FLAGS | _NEW, make_mode))
        if not stat.S_ISREG(os.fstat(opened.fd).st_mode):
            opened.close()
            raise OSError(errno.EINVAL, "not a file", path)
        return opened

    def try_hold(self, *, shared: bool = False) -> bool:
        """Take the lock unless somebody has it, and tell whether it is ours; wait for nobody.

        Raises:
            OSError: This file system has no locks.
        """
        try:
            fcntl.flock(self.fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def free(self) -> None:
        """Free the lock."""
        fcntl.flock(self.fd, fcntl.LOCK_UN)

    def check(self, path: str) -> None:
        """Raise `OSError` where the lock, which is held, does not hold off who opens `path`."""
        other = FileLock.open(path)
        try:
            if other.try_hold(shared=True):
                raise OSError(errno.ENOLCK, "locks hold nobody off here", path)
        finally:
            other.close()

    def is_at(self, path: str) -> bool:
        """Tell whether `path` leads to the file that is open here."""
        try:
            return os.path.samestat(os.lstat(path), os.fstat(self.fd))
        except OSError:
            return False

    def close(self) -> None:
        """Close the file, and free its lock with it."""
        if not self._closed:
            self._closed = True
            _opened.discard(self)
            os.close(self.fd)


def _close_all() -> None:
    """Close what a child has inherited; the locks stay those of its parent."""
    for opened in tuple(_opened):
        opened.close()


os.register_at_fork(after_in_child=_close_all)


@frozen
class LockFolder:
    """A folder for files to lock, made when it is first needed.

    Attributes:
        like: A file with the owner, the group and the mode that folder and files are to have, as
            SQLite gives them to its WAL.  Without one they are this user's alone.
    """

    path: str
    like: str | None = None

    def prepare(self) -> os.stat_result:
        """Make the folder unless it is there, and return its state.

        Raises:
            OSError: It cannot be made, or others than those who may could put files into it.
        """
        like = self._model()
        user = os.geteuid()
        folder = Path(self.path)
        try:
            folder.mkdir(0o700)
        except FileExistsError:
            pass
        else:
            if like is not None:
                _give(self.path, like)
                folder.chmod(like.st_mode & 0o666 | (like.st_mode & 0o444) >> 2)
        found = folder.lstat()
        owners = {user} if like is None else {user, like.st_uid, _ROOT}
        allowed = 0 if like is None else like.st_mode
        if not stat.S_ISDIR(found.st_mode):
            raise OSError(errno.ENOTDIR, "not a folder", self.path)
        if found.st_uid not in owners or found.st_mode & _WRITABLE_BY_OTHERS & ~allowed:
            raise OSError(errno.EPERM, "a folder that others may write to", self.path)
        return found

    def make(self, path: str) -> FileLock:
        """Make a file in it, where there must be none.

        Raises:
            OSError: It cannot be made.
        """
        like = self._model()
        made = FileLock.open(path, make_mode=0o600)
        if like is not None:
            _give(path, like)
            os.fchmod(made.fd, like.st_mode & 0o666)
        return made

    def _model(self) -> os.stat_result | None:
        return None if self.like is None else Path(self.like).stat()


def _give(path: str, like: os.stat_result) -> None:
    """Give what root has made at `path` to the owner of what it belongs to."""
    if os.geteuid() == _ROOT:
        os.chown(path, like.st_uid, like.st_gid, follow_symlinks=False)
