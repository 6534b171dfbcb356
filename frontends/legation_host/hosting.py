"""A host made for a platform: its databases open, its start done, its jobs running."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import anyio

from legation import Platform

from .assets import read_assets
from .host import Host, open_host
from .units import Write, quiet

__all__ = ["open_platform", "take_keys"]

_LOOK_SECONDS: Final = 1.0


@asynccontextmanager
async def open_platform(platform: Platform, *, log: Write = quiet) -> AsyncGenerator[Host, None]:
    """Open a host for `platform`; the JWKS file is read again whenever it changes.

    Raises:
        HostError: A database cannot be used, in words for the operator.
    """
    platform.manual.bring(await anyio.to_thread.run_sync(read_assets))
    opened = open_host(platform.databases, log=log, write_audit=platform.write_audit)
    async with opened as host:
        await host.run(platform.startup())
        for job in platform.jobs():
            host.spawn(job)
        path = platform.config.authorization_config.jwks_file
        async with anyio.create_task_group() as watching:
            if path is not None and platform.config.authorization:
                watching.start_soon(_watch, platform, path, log)
            yield host
            watching.cancel_scope.cancel()


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
            log("error", "keys not reloaded", {"reason": error.strerror or "unreadable"})
            continue
        take_keys(platform, jwks, path, log)


def take_keys(platform: Platform, jwks: bytes, path: str, log: Write) -> None:
    """Give `platform` the keys that were read from `path`; broken ones change nothing."""
    before = platform.keys_generation
    faults = platform.load_jwks(jwks)
    if faults:
        reasons = "; ".join(f"{fault.path}: {fault.message}" for fault in faults)
        log("error", "keys not reloaded", {"reason": reasons})
    elif platform.keys_generation != before:
        log("info", "keys reloaded", {"path": path})


def _stamp(path: str) -> tuple[int, int, int] | None:
    """Return what changes when the file does; None when it is not there."""
    try:
        found = os.stat(path)  # noqa: PTH116  one call for three facts
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
