"""The import of an AgentOS database: session after session, from there to here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, Final, TypeVar

import anyio

from legation import Platform
from legation.access.decide import name_of
from legation.agentos.program import import_session, look_up_session
from legation.agentos.report import Imported, LeftOut, Report
from legation.agentos.sessions import ForeignSession, Options, SessionPlan, read_session
from legation.api.call import resource_of, with_owner
from legation.effects import Now, Program, ThisNode, Transact
from legation.hosted.audit_settings import AUDIT_KEYS
from legation.store.audit import Audited
from legation.store.audit_entries import AuditEntry
from legation.store.failures import StoreFailure
from legation.store.units import Unit
from legation.values import frozen
from legation_host import open_host
from legation_host.databases import find_missing

from .agentos_source import Source, Tables, open_source
from .failing import CannotGoOn, why
from .local_user import find_local_user
from .reading import read_beside
from .target import check_database, load_target, require_secrets
from .terminal import Advance, show_progress

__all__ = ["describe", "import_sessions"]

R = TypeVar("R")

_OPERATION: Final = "import.agentos"
_NO_FILE: Final = "databases.{}.url: there is no file {} yet; `legation migrate {}` makes it"
_AGAIN: Final = "not all was imported: {}; repeat it, and it goes on with what is missing"


def import_sessions(
    source: tuple[str, int, Mapping[str, Any]],
    target: tuple[str | None, str | None],
    options: Mapping[str, Any],
    left_out: IO[str] | None,
    *,
    dry_run: bool,
) -> Report:
    """Import all sessions, or only look at them; return what came in.

    Args:
        source: The URL of the other database, the most bytes of a session, the names of `Tables`.
        target: The name of the platform, and that of the database for all; None: the usual ones.
        options: The fields of `Options`.
        left_out: Takes a line for each thing that is left out.
        dry_run: Store nothing.

    Raises:
        CannotGoOn: One of the databases cannot be used.
        HostError: As `CannotGoOn`.
    """
    url, most, tables = source
    platform_name, database = target
    platform = load_target(platform_name, needs_secrets=False)
    for name in platform.registry.databases if database is None else (database,):
        check_database(platform, name)
    require_secrets(platform, AUDIT_KEYS)
    with open_source(url, Tables(**tables), most) as opened:
        work = _Import(platform, opened, Options(**options), database, left_out)
        return _look(work) if dry_run else anyio.run(_store, work)


@frozen
class _Import:
    """An import: its source, its options, and the databases that it goes to.

    Attributes:
        database: Where all of it goes; None: each session to the database of its agent or team.
    """

    platform: Platform
    source: Source
    options: Options
    database: str | None
    left_out: IO[str] | None

    @property
    def urls(self) -> dict[str, str]:
        """The databases that sessions can go to."""
        urls = self.platform.databases
        return dict(urls) if self.database is None else {self.database: urls[self.database]}

    def look(self) -> Program[Report]:
        """Return what an import would do now."""
        return (yield from self._each(look_up_session, _count_nothing))

    def store(self, advance: Advance) -> Program[Report]:
        """Import all sessions, one after the other; `advance` counts them."""
        subject, key = f"local:{find_local_user()}", self.platform.context.cluster.trail_keys

        def import_one(database: str, plan: SessionPlan) -> Program[Imported]:
            resource = resource_of((plan.session.session_id,))
            if plan.session.owner:
                resource = with_owner(resource, name_of(plan.session.owner))

            def change(name: str, unit: Unit[R]) -> Program[R]:
                now_us, node = (yield from Now()), (yield from ThisNode())
                entry = AuditEntry(
                    now_us, "", subject, None, _OPERATION, resource, "allow", "", 200, "local"
                )
                audited = Audited(unit, node, entry, key.signing)
                return (yield from Transact(name, audited)).result

            return (yield from import_session(database, plan, change))

        return (yield from self._each(import_one, advance))

    def _each(
        self, act: Callable[[str, SessionPlan], Program[Imported]], advance: Advance
    ) -> Program[Report]:
        report = Report()
        for stored in self.source.sessions():
            plan = self._read(stored)
            if isinstance(plan, LeftOut):
                outcome, hosted = Imported(left_out=(plan,)), True
            else:
                database, hosted = self._place(plan)
                outcome = yield from act(database, plan)
            report.add(outcome, hosted=hosted)
            self._list(outcome.left_out)
            advance()
        report.tables.update(self.source.count_others())
        return report

    def _read(self, stored: ForeignSession | LeftOut) -> SessionPlan | LeftOut:
        return stored if isinstance(stored, LeftOut) else read_session(stored, self.options)

    def _place(self, plan: SessionPlan) -> tuple[str, bool]:
        """Return where a session belongs, and whether its agent or team is hosted."""
        registry, session = self.platform.registry, plan.session
        hosted = registry.components(session.kind).get(session.component_id)
        if self.database is not None:
            return self.database, hosted is not None
        return (registry.default_database if hosted is None else hosted.database), bool(hosted)

    def _list(self, left_out: tuple[LeftOut, ...]) -> None:
        if self.left_out is not None:
            self.left_out.writelines(f"{json.dumps(one.describe())}\n" for one in left_out)


def _count_nothing() -> None:
    """Count no session: whoever reads beside counts the units."""


def _look(work: _Import) -> Report:
    try:
        with show_progress("Reading sessions") as advance:
            return read_beside(work.urls, work.look(), advance=advance)
    except StoreFailure as failure:
        raise CannotGoOn(f"the database cannot be read: {why(failure)}") from None


async def _store(work: _Import) -> Report:
    for name, url in work.urls.items():
        if (path := find_missing(name, url)) is not None:
            raise CannotGoOn(_NO_FILE.format(name, path, name))
    async with open_host(work.urls) as host:
        try:
            with show_progress("Importing sessions") as advance:
                return await host.run(work.store(advance))
        except StoreFailure as failure:
            raise CannotGoOn(_AGAIN.format(why(failure))) from None


# --- The report --------------------------------------------------------------------------------


def describe(report: Mapping[str, Any], *, dry_run: bool) -> str:
    """Return the report as text."""
    return "\n".join(_lines(report, dry_run=dry_run))


def _lines(report: Mapping[str, Any], *, dry_run: bool) -> Iterator[str]:
    yield "{}: {}, {} of them new; {} with {} and {}".format(
        "would import" if dry_run else "imported",
        _count(report["sessions"], "session"),
        report["new_sessions"],
        _count(report["runs"], "new run"),
        _count(report["messages"], "message"),
        _count(report["files"], "file"),
    )
    if report["runs_known"]:
        yield f"  here before: {_count(report['runs_known'], 'run')}"
    if report["sessions_without_user"]:
        yield f"  without a user: {_count(report['sessions_without_user'], 'session')}"
    for component, count in report["unhosted"].items():
        yield f"  not hosted here: {component}, {_count(count, 'session')}"
    for one in report["left_out"].values():
        yield f"  left out: {one['what']}: {one['count']} ({', '.join(one['first'])})"
    for table, count in report["tables"].items():
        yield f"  not imported: {table}, {_count(count, 'row')}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
