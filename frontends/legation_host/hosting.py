"""A host made for a platform: its databases open, its start done, its jobs running."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import anyio

from legation import Platform
from legation_console import read_console

from .assets import read_assets
from .hints import hint_gauges
from .host import Host, open_host
from .hub import Hub
from .life import hold, one_life
from .logs import ShowError, Write, hide_error, quiet
from .observer import Observer
from .pace import NOWHERE, Noted, Pace

__all__ = ["open_platform", "take_keys"]

_LOOK_SECONDS: Final = 1.0
_LAST_SECONDS: Final = 3.0
"""For what is left to be given back: a database that does not answer keeps its leases."""


@one_life("the platform")
async def open_platform(
    platform: Platform,
    *,
    log: Write = quiet,
    show_error: ShowError = hide_error,
    drain_seconds: float = 0.0,
    observer: Observer | None = None,
    noted: Noted | None = None,
    jobs: bool = True,
) -> AsyncGenerator[Host, None]:
    """Open a host for `platform`; the JWKS file is read again whenever it changes.

    On leaving, what is under work has `drain_seconds` to come to its end, and the rest is given
    back; when an error or a cancellation is the reason, it is given back at once.

    Args:
        platform: Belongs to this host alone, until that is closed.
        log: Takes the operator's lines.
        show_error: Takes what was raised for them, whose text may hold what users sent.
        drain_seconds: For what is under work when the block is left.
        observer: Takes the request log and the spans; without one there are gauges alone.
        noted: Where the steps of runs are noted for a process that watches this one.
        jobs: Start the jobs; a process that is frozen between requests runs `Platform.round`.

    Raises:
        HostError: A database cannot be used, in words for the operator.
        LifeMisuse: The platform is open already, or what this returns is entered or left twice.
    """
    with hold(platform):
        taken = (observer or Observer(), noted or NOWHERE)
        opened = _open_held(platform, log, drain_seconds, *taken, jobs=jobs)
        async with opened as host:
            host.show_error = show_error
            yield host


@asynccontextmanager
async def _open_held(
    platform: Platform,
    log: Write,
    drain_seconds: float,
    observer: Observer,
    noted: Noted,
    *,
    jobs: bool,
) -> AsyncGenerator[Host, None]:
    """Open a host for a platform that no other host has."""
    observer.begin(platform)
    platform.load_assets(read_assets())
    platform.load_console(read_console())
    opened = open_host(platform.databases, log=log, write_audit=platform.write_audit, hub=Hub())
    async with opened as host:
        host.pace = Pace(log, noted)
        if host.hints:
            observer.sources.append(partial(hint_gauges, host.hints))
        await host.run(platform.startup())
        for job in platform.jobs() if jobs else ():
            host.spawn(job)
        path = platform.config.authorization_config.jwks_file
        async with anyio.create_task_group() as watching:
            watching.start_soon(observer.serve, platform, host)
            if path is not None and platform.config.authorization:
                watching.start_soon(_watch, platform, path, log)
            patience = 0.0
            try:
                yield host
                patience = drain_seconds
            finally:
                watching.cancel_scope.cancel()
                await _close(platform, host, patience)
                await observer.end(platform, host)


async def _close(platform: Platform, host: Host, patience_seconds: float) -> None:
    """Give back what is held, also while being cancelled, but not for ever."""
    limit = patience_seconds + _LAST_SECONDS
    with anyio.move_on_after(limit, shield=True):
        await host.run(platform.shutdown(patience_seconds))


async def _watch(platform: Platform, path: str, log: Write) -> None:
    """Load the keys anew when the file is another one; a broken file keeps the old keys.

    The first look is at once: the file may have changed since `platform` was made.
    """
    seen: tuple[int, int, int] | None = (0, 0, 0)
    while True:
        now = await anyio.to_thread.run_sync(_stamp, path)
        if now == seen:
            await anyio.sleep(_LOOK_SECONDS)
            continue
        seen = now
        try:
            jwks = await anyio.Path(path).read_bytes()
        except OSError as error:
            platform.load_jwks(None, _now_us())
            log("error", "keys_reload_failed", {"reason": error.strerror or "unreadable"})
            continue
        take_keys(platform, jwks, path, log)


def take_keys(platform: Platform, jwks: bytes, path: str, log: Write) -> None:
    """Give `platform` the keys that were read from `path`; broken ones change nothing."""
    before = platform.keys_generation
    faults = platform.load_jwks(jwks, _now_us())
    if faults:
        reasons = "; ".join(f"{fault.path}: {fault.message}" for fault in faults)
        log("error", "keys_reload_failed", {"reason": reasons})
    elif platform.keys_generation != before:
        log("info", "keys_reloaded", {"path": path})


def _now_us() -> int:
    return time.time_ns() // 1_000


def _stamp(path: str) -> tuple[int, int, int] | None:
    """Return what changes when the file does; None when it is not there."""
    try:
        found = os.stat(path)  # noqa: PTH116  one call for three facts
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
