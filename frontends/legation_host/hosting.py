"""A host made for a platform: its databases open, its start done, its jobs running."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Final

import anyio
from attrs import asdict

from legation import Platform
from legation_console import read_console

from .assets import read_assets
from .audit import trail_gauges
from .circumstances import disk_gauges, gauge_findings
from .databases import renew_urls
from .hints import hint_gauges
from .host import Host, open_host
from .hub import Hub
from .life import hold, one_life
from .line_files import append_line
from .logs import ShowError, Write, hide_error, quiet
from .observer import Observer
from .pace import NOWHERE, Noted, Pace
from .secret_files import watch_secrets
from .trust_files import TrustFiles

__all__ = ["log_findings", "open_platform"]

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
    tells: bool = True,
) -> AsyncGenerator[Host, None]:
    """Open a host for `platform`; files that judge tokens, or hold secrets, are read again.

    That is whenever they change.

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
        tells: Write the settings that are unsafe to the log; the way in which requests come is
            `Platform.door`.

    Raises:
        HostError: A database cannot be used, in words for the operator.
        LifeMisuse: The platform is open already, or what this returns is entered or left twice.
    """
    with hold(platform), _ask_guard(platform):
        if tells:
            log_findings(platform, log)
        taken = (observer or Observer(), noted or NOWHERE)
        opened = _open_held(platform, log, drain_seconds, *taken, jobs=jobs)
        async with opened as host:
            host.show_error = show_error
            yield host


@contextmanager
def _ask_guard(platform: Platform) -> Generator[None]:
    """Let the guard of the schemas be asked by the host, and wrap no program of the platform."""
    platform.schema_guard.at_host = True
    try:
        yield
    finally:
        platform.schema_guard.at_host = False


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
    urls = platform.databases
    platform.append_heads_by(append_line)
    opened = open_host(urls, log=log, write_audit=platform.write_audit, hub=Hub())
    async with opened as host:
        host.pace = Pace(log, noted)
        host.guard = platform.schema_guard
        trail = partial(trail_gauges, host.trail, platform.registry.default_database)
        observer.sources.append(trail)
        observer.sources.append(partial(disk_gauges, host.databases))
        observer.sources.append(gauge_findings(platform, host.databases))
        if host.hints:
            observer.sources.append(partial(hint_gauges, host.hints))
        await host.run(platform.startup())
        for job in platform.jobs() if jobs else ():
            host.spawn(job)
        files = TrustFiles(platform, log)
        files.look()  # they may have changed since the platform was made
        async with anyio.create_task_group() as watching:
            watching.start_soon(observer.serve, platform, host)
            watching.start_soon(files.watch)
            watching.start_soon(watch_secrets, platform, log, _renew_by(platform, host, urls, log))
            patience = 0.0
            try:
                yield host
                patience = drain_seconds
            finally:
                watching.cancel_scope.cancel()
                await _close(platform, host, patience)
                await observer.end(platform, host)


def _renew_by(
    platform: Platform, host: Host, urls: Mapping[str, str], log: Write
) -> Callable[[], None]:
    """Return what lets the databases of `host` go by the URLs of `platform`; they go by `urls`."""

    def renew() -> None:
        nonlocal urls
        before, urls = urls, platform.databases
        renew_urls(host.databases, before, urls, log)

    return renew


def log_findings(platform: Platform, log: Write) -> None:
    """Write a line for each setting that is unsafe.

    On this machine alone, for which a developer works, what is a little unsafe is left out.
    """
    door = platform.door
    alone = door.reach == "machine" or (door.local_only and not platform.config.authorization)
    for found in platform.find_unsafe():
        if found.severity != "low":
            log("warning", "setting_unsafe", asdict(found))
        elif not alone:
            log("info", "setting_unsafe", asdict(found))


async def _close(platform: Platform, host: Host, patience_seconds: float) -> None:
    """Give back what is held, also while being cancelled, but not for ever."""
    limit = patience_seconds + _LAST_SECONDS
    with anyio.move_on_after(limit, shield=True):
        await host.run(platform.shutdown(patience_seconds))
