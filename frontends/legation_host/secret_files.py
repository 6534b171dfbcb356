"""The reader of files that hold secrets: of Docker, of Kubernetes, of systemd, or of anybody.

A mounted secret is a file, often behind a link that is moved when the secret is replaced.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import anyio

from legation import Platform
from legation.hosted.secret_sources import MAX_SECRET_BYTES, NoSecret

from .logs import Write
from .stamps import LOOK_SECONDS, Stamp, stamp_file

__all__ = ["SecretFiles", "open_regular", "read_secret_files", "watch_secrets"]

# A FIFO that nobody writes to would be waited for; a device has no end.
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def read_secret_files(paths: Iterable[str]) -> dict[str, bytes | NoSecret]:
    """Return what each file holds, or why it cannot be read; at most a byte more than is allowed.

    Args:
        paths: As the configuration names them; relative ones to the working directory.
    """
    return {path: _read(path) for path in paths}


def _read(path: str) -> bytes | NoSecret:
    try:
        with open(path, "rb", opener=open_regular) as file:
            return file.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        return NoSecret(f"the file cannot be read: {error.strerror or error}")
    except ValueError as error:  # a null byte
        return NoSecret(f"the file cannot be read: {error}")


def open_regular(path: str, _: int = os.O_RDONLY) -> int:
    """Open a file that cannot keep us waiting, to read it: an `opener` of `open`.

    Raises:
        OSError: It cannot be opened, or is no file.
    """
    descriptor = os.open(path, _FLAGS)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a file")


class SecretFiles:
    """The files of secrets of one platform, and how they looked when they were read last."""

    def __init__(
        self, platform: Platform, log: Write, renew: Callable[[], object] = lambda: None
    ) -> None:
        """Watch what the configuration names; `renew` is called when there are other secrets."""
        self._platform = platform
        self._log = log
        self._renew = renew
        self._seen: tuple[Stamp | None, ...] = ()

    def look(self) -> None:
        """Load the secrets anew where the files are others; broken ones keep the old secrets."""
        if (files := self.read()) is not None:
            self.take(files)

    def read(self) -> Mapping[str, bytes | NoSecret] | None:
        """Return what the files hold; None where they look as they did."""
        paths = self._platform.secret_paths
        now = tuple(map(_stamp, paths))
        if now == self._seen:
            return None
        self._seen = now
        return read_secret_files(paths)

    def take(self, files: Mapping[str, bytes | NoSecret]) -> None:
        """Hand on what was read, and write to the log what has become of it."""
        if self._platform.knows_secrets(files):
            return
        if faults := self._platform.load_secrets(files):
            reasons = "; ".join(f"{fault.path}: {fault.message}" for fault in faults)
            self._log("error", "secrets_reload_failed", {"reason": reasons})
        else:
            self._log("info", "secrets_reloaded", {"files": len(files)})
            self._renew()


async def watch_secrets(platform: Platform, log: Write, renew: Callable[[], object]) -> None:
    """Look at the files of secrets for ever; a file system that hangs holds nobody else up.

    The first look is at once: a file may have changed since `platform` was made.
    """
    watched = SecretFiles(platform, log, renew)
    while platform.secret_paths:
        files = await anyio.to_thread.run_sync(watched.read)
        if files is not None:
            watched.take(files)
        await anyio.sleep(LOOK_SECONDS)


def _stamp(path: str) -> Stamp | None:
    """Return what changes when the file does; None when it is not there."""
    try:
        return stamp_file(path)
    except OSError:
        return None
