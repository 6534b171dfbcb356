"""`legation import`: sessions and runs of an AgentOS database."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, Final, TypeVar

import anyio
import click

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

from .agentos_source import Source, Tables, open_source
from .failing import CannotGoOn, sentences, why
from .json_output import json_option, print_json
from .local_user import find_local_user
from .target import check_database, complete_platform, load_target, require_secrets
from .terminal import Advance, show_progress

__all__ = ["agentos", "import_data"]

R = TypeVar("R")

_OPERATION: Final = "import.agentos"
_NO_FILE: Final = "databases.{}.url: there is no file {} yet; `legation migrate {}` makes it"
_AGAIN: Final = "not all was imported: {}; repeat it, and it goes on with what is missing"


@click.group("import", short_help="Import the sessions of an AgentOS.")
def import_data() -> None:
    """Import the sessions and runs of another server."""


@import_data.command(short_help="Import the sessions and runs of an AgentOS database.")
@click.argument("url")
@click.argument(
    "platform_name", metavar="[PLATFORM]", required=False, shell_complete=complete_platform
)
@click.option("--database", help="Import all into this one, not each into that of its agent.")
@click.option("--dry-run", is_flag=True, help="Read all of it, and store nothing.")
@click.option("--final", is_flag=True, help="The AgentOS is gone: runs under way have ended.")
@click.option("--user", help="Whose sessions without a user become; nobody's unless given.")
@click.option("--sessions-table", default="agno_sessions", help="`session_table` of its `db`.")
@click.option("--runs-table", help="`runs_table` of its `db`.")
@click.option("--schema", default="ai", help="`db_schema` of its `db`, on PostgreSQL.")
@click.option(
    "--max-session-mib",
    default=64,
    type=click.IntRange(1, 1024),
    help="Sessions with more are left out: one is in memory at a time.",
)
@click.option(
    "--left-out",
    type=click.File("w", encoding="utf-8"),
    help="The file for the whole list of what is left out, as NDJSON.",
)
@json_option
def agentos(
    url: str,
    platform_name: str | None,
    database: str | None,
    left_out: IO[str] | None,
    max_session_mib: int,
    *,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Import the sessions and runs of the AgentOS database at URL, agno 2.5 and 3.

    They keep their ids, users, agents and teams, and go on here.  The other database is read, and
    never written; its AgentOS may serve meanwhile.  Each session comes in small transactions.
    Begun again, after a crash or for what is new there, it imports what is missing.

    A password belongs into PGPASSWORD or ~/.pgpass, not into URL.
    Without a platform, platform.toml of this folder is taken, or else the demonstration.

    \b
    Examples:
      legation import agentos sqlite:///agno.db --dry-run
      legation import agentos postgresql://agno@db.internal/agno platform.toml
      legation import agentos sqlite:///agno.db --final --left-out left-out.ndjson --json
    """
    names = ("sessions_table", "runs_table", "schema")
    tables = Tables(*(options.pop(name) for name in names))
    with sentences():
        platform = load_target(platform_name, needs_secrets=False)
        for name in platform.registry.databases if database is None else (database,):
            check_database(platform, name)
        require_secrets(platform, AUDIT_KEYS)
        with open_source(url, tables, max_session_mib << 20) as source:
            work = _Import(platform, source, Options(**options), database, left_out)
            report = _look(work) if dry_run else anyio.run(_store, work)
    if as_json:
        print_json({"dry_run": dry_run, **report.describe()})
    else:
        click.echo(_describe(report.describe(), dry_run=dry_run))


@frozen
class _Import:
    """What is imported from where, and to where.

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
    from .reading import read_beside

    try:
        with show_progress("Reading sessions") as advance:
            return read_beside(work.urls, work.look(), advance=advance)
    except StoreFailure as failure:
        raise CannotGoOn(f"the database cannot be read: {why(failure)}") from None


async def _store(work: _Import) -> Report:
    from legation_host import open_host
    from legation_host.databases import find_missing

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


def _describe(report: Mapping[str, Any], *, dry_run: bool) -> str:
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
