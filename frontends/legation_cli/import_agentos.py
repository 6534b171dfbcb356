"""`legation import`: sessions and runs of an AgentOS database."""

from __future__ import annotations

from typing import IO, Any

import click

from .failing import sentences
from .json_output import json_option, print_json
from .target import complete_platform

__all__ = ["agentos", "import_data"]


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
    # It loads the host, and what only an import needs.
    from .agentos_import import describe, import_sessions

    names = ("sessions_table", "runs_table", "schema")
    tables = {name.removesuffix("_table"): options.pop(name) for name in names}
    with sentences():
        report = import_sessions(
            (url, max_session_mib << 20, tables),
            (platform_name, database),
            options,
            left_out,
            dry_run=dry_run,
        )
    if as_json:
        print_json({"dry_run": dry_run, **report.describe()})
    else:
        click.echo(describe(report.describe(), dry_run=dry_run))
