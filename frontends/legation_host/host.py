"""The host: the resources of a process, opened and closed as one, which run its programs."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final, TypeVar

import anyio
from anyio.abc import TaskGroup
from attrs import field

from legation.effects import Job, Program
from legation.store.audit_entries import AuditEntry
from legation.values import define

from .audit import Trail, WriteAudit
from .databases import Database, Databases, check_files, open_database
from .drive import BodySource, Sink, drive, spawn
from .entropy import unpredictable
from .fetch import Fetcher
from .functions import FUNCTION_THREADS, Functions
from .hints import hints_of
from .hub import Hub
from .life import Act, Life, one_life
from .logs import Write, quiet
from .native import find_native
from .pace import Pace
from .resources import Resources

__all__ = ["Host", "open_host", "system_clock", "system_node"]

R = TypeVar("R")

EXPIRY_SECONDS: Final = 1.0
"""Between two looks for what is overdue."""


def system_clock() -> int:
    """Return the wall clock in microseconds since the epoch, UTC."""
    return time.time_ns() // 1_000


def system_node() -> str:
    """Return a name that no other process has or will have."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(6)}"


def _begin_life() -> Life:
    life = Life("the host")
    life.move(Act.OPEN)
    return life


@define(eq=False)
class Host(Resources):
    """Performs the effects of programs.  Made by `open_host`; belongs to one event loop."""

    life: Life = field(factory=_begin_life)

    async def run(
        self, program: Program[R], *, body: BodySource | None = None, sink: Sink | None = None
    ) -> R:
        """Run `program` to its end and return its result.

        Args:
            program: Closed before this returns, however it ends.
            body: Answers `ReadBody`; without one the body is empty.
            sink: Takes what the program emits; what it raises ends the program.

        Raises:
            LifeMisuse: This host is over, or lives in another event loop.
            Misuse: The program asked for what this host does not have.
            Exception: What the program, `body` or `sink` raised.
        """
        life = self.life
        try:  # as `Life.move` does, without a call for every request; a host ends with its loop
            here = life.lives and life.find_mark() == life.mark
        except RuntimeError:
            here = False
        if not here:
            program.close()
            life.move(Act.ASK)
        return await drive(self, program, body, sink)

    def spawn(self, job: Job) -> None:
        """Start `job` beside everything else; it ends at the latest when the host closes.

        Raises:
            LifeMisuse: This host is over, or lives in another event loop.
        """
        self.life.move(Act.ASK)
        spawn(self, job)


@one_life("the host")
async def open_host(
    databases: Mapping[str, str] | None = None,
    *,
    clock: Callable[[], int] = system_clock,
    entropy: Callable[[int], bytes] = unpredictable,
    node: str | None = None,
    log: Write = quiet,
    write_audit: WriteAudit | None = None,
    function_threads: int = FUNCTION_THREADS,
    hub: Hub | None = None,
) -> AsyncGenerator[Host, None]:
    """Open a host, in the running event loop, of trio or of asyncio.

    On leaving, jobs are cancelled, the audit trail is written out, and databases are closed.

    Args:
        databases: The URL of each, by the name programs use.
        clock: Microseconds since the epoch, UTC.
        entropy: As many unpredictable bytes as asked for.
        node: The name of this process; unique per start unless given.
        log: Takes each line, see `logs.open_log`.
        write_audit: The program that stores a batch of entries; without one they are logged.
        function_threads: So many functions of the user's run in threads at one time.
        hub: Where programs wait for each other, and for those of other nodes of a database as far
            as these can be heard; without one, for each other alone.

    Raises:
        HostError: A database cannot be used, in words for the operator.
        LifeMisuse: What this returns is entered or left a second time.
    """
    failed: Exception | None = None
    async with AsyncExitStack() as ending, AsyncExitStack() as stack:
        opened = _open_databases(databases or {}, log, stack)
        fetcher = Fetcher()
        stack.push_async_callback(fetcher.aclose)
        trail = Trail(log)
        stack.push_async_callback(trail.aclose)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(_expire, tuple(opened.values()), name="deadlines")
        native = find_native()
        start = native.find_start(tasks)
        host = Host(
            databases=opened,
            clock=clock,
            entropy=entropy,
            node=node or system_node(),
            write=log,
            fetcher=fetcher,
            functions=Functions(start, function_threads),
            trail=trail,
            tasks=tasks,
            start=start,
            native=native,
        )
        ending.callback(host.life.move, Act.END)
        host.pace = Pace(log)
        if write_audit is not None:
            trail.store = _make_store(host, write_audit)
            tasks.start_soon(trail.serve, name="audit trail")
        if hub is not None:
            _listen(host, hub, tasks)
        try:
            yield host
        except Exception as error:  # noqa: BLE001 (raised below, as it came)
            failed = error
        finally:
            tasks.cancel_scope.cancel()
    if failed is not None:
        raise failed


def _open_databases(urls: Mapping[str, str], log: Write, stack: AsyncExitStack) -> Databases:
    """Open each database; `stack` closes them."""
    opened = Databases()
    check_files(urls)
    for name, url in urls.items():
        opened[name] = open_database(name, url, log)
        stack.push_async_callback(opened[name].aclose)
    return opened


async def _expire(databases: Sequence[Database]) -> None:
    """End what has been under way in a database for too long."""
    while databases:
        await anyio.sleep(EXPIRY_SECONDS)
        for database in databases:
            database.expire(time.monotonic())


def _listen(host: Host, hub: Hub, tasks: TaskGroup) -> None:
    """Let programs wait in `hub`, and other nodes be heard there."""
    host.hub = hub
    hub.native = host.native
    host.hints = hints_of(host.databases.values(), host.node, hub, host.write)
    for one in host.hints.values():
        tasks.start_soon(one.serve, name="hints")


def _make_store(
    host: Host, write_audit: WriteAudit
) -> Callable[[tuple[AuditEntry, ...]], Awaitable[None]]:
    async def store(batch: tuple[AuditEntry, ...]) -> None:
        await host.run(write_audit(batch))

    return store
