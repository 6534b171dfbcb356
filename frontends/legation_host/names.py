"""Names that a process holds by locks on files, so that its end is seen at once.

Each name has a file of its own, which the process keeps locked.  Who looks takes the lock for a
moment, shared with others who look: where that succeeds, nobody holds the name any more.  A file
that is not there says nothing.  It may never have been made here, a container may have another
folder at the same path, and somebody may have tidied up.

A file is locked before it gets its name, so that nobody ever finds one of a living process free.
It stays when its process ends: everybody is to see that, and as often as they like.  Whoever starts
removes those that have been free for an hour.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from legation.values import frozen

from .file_locks import FileLock, LockFolder
from .logs import Write

__all__ = ["NamePlace", "Names", "place_beside", "place_of_user"]

R = TypeVar("R")

NAMES: Final = 500
"""Of so many names does one question find the dead."""

LOOK_SECONDS: Final = 3.0
"""A look at the files is given up after that: the disk may hang."""

STALE_SECONDS: Final = 3600.0
"""A file that nobody has held for so long is removed."""

REFRESH_SECONDS: Final = 600.0
"""So old becomes the time of a file that is held."""

SWEEP: Final = 1_000
"""So many files are removed at a start."""

_TRIES: Final = 20
_AGAIN_SECONDS: Final = 0.005
_PREFIX: Final = "node-"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@frozen
class NamePlace:
    """The place where the processes that use one database hold their names.

    Attributes:
        folder: Whoever shares it sees the locks of the others, but for `kernel`.
        database: Tells its names from those of the other databases in the folder.
        kernel: What tells this running system from every other.  Two of them may share a folder
            over a network, and have each its own locks.
    """

    folder: LockFolder
    database: str = ""
    kernel: str = ""

    def path(self, name: str) -> str:
        """Return the path of the file of `name`, whatever characters it has."""
        key = f"{self.database}\0{name}".encode("utf-8", "surrogatepass")
        return os.path.join(  # noqa: PTH118  paths are text here
            self.folder.path, _PREFIX + hashlib.sha256(key).hexdigest()[:40]
        )

    def identify(self, found: os.stat_result) -> str:
        """Return what two processes have in common where each sees the locks of the other."""
        return f"{self.database}{self.kernel}{found.st_dev:x}-{found.st_ino:x}"


def place_beside(path: str) -> NamePlace:
    """Return the place of the SQLite database at `path`, whose processes are of one machine."""
    real = os.path.realpath(path)
    return NamePlace(LockFolder(f"{real}-locks", like=real))


def place_of_user(database: str) -> NamePlace:
    """Return the place of this user, on this machine, for a database of any machines."""
    try:
        temporary = tempfile.gettempdir()
    except OSError:  # nothing can be written anywhere, as `Names` finds out, too
        temporary = "/tmp"  # noqa: S108  a folder of ours is made in it, and checked
    folder = Path(temporary, f"legation-{os.geteuid()}")
    key = hashlib.sha256(database.encode()).hexdigest()[:16]
    return NamePlace(LockFolder(str(folder)), f"{key}-", f"{_identify_kernel()}-")


def _identify_kernel() -> str:
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except (OSError, ValueError):
        return socket.gethostname()


class Names:
    """The names that this process holds for those that use one database to see.

    Without a place, or where files cannot be locked, it holds none: that is no error, and the end
    of this process shows by its silence.
    """

    def __init__(self, database: str, place: NamePlace | None, write: Write) -> None:
        self._database = database
        self._place = place
        self._log = write
        self._one_at_a_time = anyio.CapacityLimiter(1)
        self._held: dict[str, FileLock] = {}
        self._at = ""
        self._noted = self._closed = False
        self._closing = threading.Lock()

    async def hold(self, name: str) -> str:
        """Hold `name` until `close`, and return the place; empty where that cannot be done.

        To be called again now and then: somebody may have removed the file.
        """
        return await self._look(lambda: self._hold(name), "")

    async def stand_in(self, name: str) -> None:
        """Keep `name` from being found dead until `close`: its process ends, its work does not."""
        await self.hold(_substitute(name))

    async def find_dead(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of the first `NAMES` that were held at our place, and are no more."""
        return await self._look(lambda: self._find_dead(names[:NAMES]), ())

    async def _look(self, look: Callable[[], R], otherwise: R) -> R:
        """Look on a thread, which is left alone when the disk hangs."""
        if self._place is None or self._closed:
            await anyio.lowlevel.checkpoint()
            return otherwise
        with anyio.move_on_after(LOOK_SECONDS):
            return await anyio.to_thread.run_sync(
                look, abandon_on_cancel=True, limiter=self._one_at_a_time
            )
        self._note(TimeoutError(f"the files did not answer within {LOOK_SECONDS} s"))
        return otherwise

    def close(self) -> None:
        """Free every name."""
        with self._closing:
            self._closed = True
            for lock in self._held.values():
                lock.close()
            self._held.clear()

    def _note(self, error: OSError) -> None:
        """Write that nobody will see the end of this process, once until it can be seen again."""
        if not self._noted and not self._closed:
            words = f"{type(error).__name__}: {error}"
            self._log("warning", "name_not_held", {"database": self._database, "error": words})
        self._noted = True

    # From here on: a thread, one at a time but for those that hang.

    def _hold(self, name: str) -> str:
        place = self._place
        if place is None:
            return ""
        path = place.path(name)
        held = self._held.get(name)
        try:
            if held is None or not held.is_at(path):
                self._at = place.identify(place.folder.prepare())
                _sweep(place.folder.path)
                self._keep(name, _take(place.folder, path, name))
            else:
                _refresh(held.fd)
        except OSError as error:
            self._note(error)
            return ""
        self._noted = False
        return self._at

    def _keep(self, name: str, lock: FileLock) -> None:
        with self._closing:
            if self._closed:
                lock.close()
                return
            former = self._held.pop(name, None)
            self._held[name] = lock
        if former is not None:
            former.close()

    def _find_dead(self, names: tuple[str, ...]) -> tuple[str, ...]:
        place = self._place
        if place is None:
            return ()
        return tuple(name for name in names if name not in self._held and _is_dead(place, name))


def _substitute(name: str) -> str:
    """Return the name of who stands in for `name`."""
    return f"{name}+"


def _is_dead(place: NamePlace, name: str) -> bool:
    """Tell whether nobody holds `name`, nor stands in for it.

    Whoever stands in does so before the process ends, so that there is no moment in between.
    """
    return _is_free(place.path(name)) and not _is_held(place.path(_substitute(name)))


def _take(folder: LockFolder, path: str, name: str) -> FileLock:
    """Return the file at `path`, which is ours from now on.

    Raises:
        OSError: Another process has it, or there are no locks here.
    """
    for _ in range(_TRIES):
        lock = _reopen(path) or _make(folder, path, name)
        if lock.try_hold() and lock.is_at(path):
            try:
                lock.check(path)
            except OSError:
                lock.close()
                raise
            return lock
        lock.close()
        time.sleep(_AGAIN_SECONDS)  # for who looks, or who removes it
    raise FileExistsError(f"another process holds the name {name!r}")


def _refresh(fd: int) -> None:
    """Show those who remove what is old that the file is in use."""
    now = time.time()
    if abs(now - os.fstat(fd).st_mtime) > REFRESH_SECONDS:
        os.utime(fd, (now, now))


def _reopen(path: str) -> FileLock | None:
    try:
        return FileLock.open(path)
    except FileNotFoundError:
        return None


def _make(folder: LockFolder, path: str, name: str) -> FileLock:
    """Make the file at `path`, locked before anybody can find it there."""
    passing = f"{path}.{secrets.token_hex(8)}"
    lock = folder.make(passing)
    try:
        lock.try_hold()
        os.write(lock.fd, name.encode("utf-8", "backslashreplace"))  # for people
        Path(passing).rename(path)
    except OSError:
        lock.close()
        Path(passing).unlink(missing_ok=True)
        raise
    return lock


def _is_free(path: str) -> bool:
    """Tell whether there is a file at `path` that nobody holds."""
    return _try_to_share(path) is True


def _is_held(path: str) -> bool:
    """Tell whether there is a file at `path` that somebody holds."""
    return _try_to_share(path) is False


def _try_to_share(path: str) -> bool | None:
    """Return whether the file at `path` could be locked for a moment; None where there is none."""
    try:
        lock = FileLock.open(path)
    except OSError:
        return None
    try:
        shared = lock.try_hold(shared=True)
        return shared if lock.is_at(path) else None
    except OSError:
        return None
    finally:
        lock.close()


def _sweep(folder: str) -> None:
    """Remove the files that nobody has held for long."""
    before = time.time() - STALE_SECONDS
    with suppress(OSError), os.scandir(folder) as entries:
        stale = (entry.path for entry in entries if _is_older(entry, before))
        for path in islice(stale, SWEEP):
            with suppress(OSError):
                _remove(path)


def _is_older(entry: os.DirEntry[str], before: float) -> bool:
    try:
        return (
            entry.name.startswith(_PREFIX) and entry.stat(follow_symlinks=False).st_mtime < before
        )
    except OSError:
        return False


def _remove(path: str) -> None:
    """Remove the file at `path` if nobody holds it."""
    lock = FileLock.open(path)
    try:
        if lock.try_hold() and lock.is_at(path):
            Path(path).unlink()
    finally:
        lock.close()
