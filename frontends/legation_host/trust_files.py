"""The watch over the files that tokens are judged by: the keys, and the revocations.

A file is looked at every second and read when it may be another one.  What becomes of it then is
for the platform to decide; see `legation.access.trust_files`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import anyio

from legation import Platform
from legation.http.refusals import Fault
from legation.values import define, frozen

from .loading import read_trusted
from .logs import Write
from .stamps import LOOK_SECONDS, Stamp, stamp_file

__all__ = ["TrustFiles", "reload_files"]

_FRESH_NS: Final = 2_000_000_000
"""A file that was written so lately may change once more without another time on it."""

Load: TypeAlias = Callable[[bytes | None, int, str], tuple[Fault, ...]]


@frozen
class _Reading:
    """The result of a look at a file: the content, or why there is none."""

    content: bytes | None
    reason: str = ""


@define
class _Watched:
    """A file: where it is, who takes its content, and how it looked when it was read last."""

    path: str
    load: Load
    seen: Stamp | None = None

    def read(self, *, again: bool) -> _Reading | None:
        """Read the file where it may be another one, or `again` in any case.

        One that cannot be read is tried each time: it may come back looking as it did.
        """
        try:
            stamp = stamp_file(self.path)
            if stamp == self.seen and not again:
                return None
            content = read_trusted(self.path)
        except OSError as error:
            self.seen = None
            return _Reading(None, (error.strerror or "cannot be read").lower())
        self.seen = stamp if time.time_ns() - stamp[0] > _FRESH_NS else None
        return _Reading(content)


class TrustFiles:
    """The files of one platform."""

    def __init__(self, platform: Platform, log: Write) -> None:
        """Watch what the configuration names; where authorization is off that is nothing."""
        config = platform.config.authorization_config
        named = (
            (config.jwks_file, platform.load_jwks),
            (config.revocations_file, platform.load_revocations),
        )
        self._platform = platform
        self._log = log
        self._watched = tuple(
            _Watched(path, load)
            for path, load in named
            if path is not None and platform.config.authorization
        )

    def look(self, *, again: bool = False) -> None:
        """Look at each file once, and write to the log what has become of it."""
        self._take(self._read(again=again))

    async def watch(self) -> None:
        """Look at the files for ever; a file system that hangs holds nobody else up."""
        while self._watched:
            self._take(await anyio.to_thread.run_sync(self._read))
            await anyio.sleep(LOOK_SECONDS)

    def _read(self, *, again: bool = False) -> list[_Reading | None]:
        return [watched.read(again=again) for watched in self._watched]

    def _take(self, readings: Iterable[_Reading | None]) -> None:
        """Hand on what was read, where requests are answered: keys are replaced between two."""
        now_us = time.time_ns() // 1_000
        for watched, reading in zip(self._watched, readings, strict=True):
            if reading is not None:
                watched.load(reading.content, now_us, reading.reason)
        for effect in self._platform.report_files(now_us):
            self._log(effect.level, effect.event, dict(effect.fields))


def reload_files(platform: Platform, log: Write) -> None:
    """Read the files again, whether they have changed or not."""
    TrustFiles(platform, log).look(again=True)
