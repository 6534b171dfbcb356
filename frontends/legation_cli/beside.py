"""Reads and changes that the person at this machine makes beside the servers of a platform."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import anyio

from legation.api.call import resource_of
from legation.effects import Now, Program, ThisNode, Transact
from legation.store.audit import Audited
from legation.store.audit_entries import AuditEntry
from legation.store.units import Unit

from .failing import CannotGoOn
from .local_user import find_local_user

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from legation import Platform
    from legation.runs.retry import Change

__all__ = ["change_beside", "check_schemas", "record_change", "require_files"]

R = TypeVar("R")


def record_change(platform: Platform, operation: str, *ids: str) -> Change:
    """Return how a unit is run: with an audit entry of `operation` on `ids`, by the local user."""
    by, resource = f"local:{find_local_user()}", resource_of(ids)

    def change(database: str, unit: Unit[R]) -> Program[R]:
        now_us, node = (yield from Now()), (yield from ThisNode())
        entry = AuditEntry(
            now_us, "", by, None, operation, resource, "allow", "", 200, client="local"
        )
        key = platform.context.cluster.trail_keys.signing
        return (yield from Transact(database, Audited(unit, node, entry, key))).result

    return change


def check_schemas(platform: Platform, databases: Iterable[str], program: Program[R]) -> Program[R]:
    """Run `program` where each of the databases has the schema of this release.

    Raises:
        StoreFailure: One of them does not answer, or has another.
    """
    for name in databases:
        yield from platform.schema_guard.begin(name, migrate=False)
    return (yield from platform.schema_guard.guard(program))


def change_beside(platform: Platform, databases: Iterable[str], program: Program[R]) -> R:
    """Run a program that changes databases beside whoever serves them, and return its result."""
    databases = tuple(databases)
    require_files(platform, databases)
    return anyio.run(_run, {name: platform.databases[name] for name in databases}, program)


async def _run(urls: Mapping[str, str], program: Program[R]) -> R:
    from legation_host import open_host  # for who makes a change alone

    async with open_host(urls) as host:
        return await host.run(program)


def require_files(platform: Platform, databases: Iterable[str]) -> None:
    """Raise `CannotGoOn` where one of these databases is a file that is not there."""
    # It loads the host.
    from legation_host.databases import find_missing

    for name in databases:
        if (path := find_missing(name, platform.databases[name])) is not None:
            raise CannotGoOn(f"databases.{name}.url: there is no file {path} yet")
