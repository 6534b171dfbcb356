"""`legation migrate`: bring a database to another version of the schema."""

from __future__ import annotations

import os
from pathlib import Path

import click

from legation import Platform
from legation.effects import Program, ThisNode, Transact
from legation.migrations.catalogue import CATALOGUE
from legation.migrations.ledger import Corrupt, LedgerReading, ReadLedger
from legation.migrations.migrate import Migrated, MigrationOutcome
from legation.migrations.migrate import migrate as migrate_program
from legation.migrations.plan import Plan, plan
from legation.migrations.version import MalformedVersion, Version, parse_version
from legation.store.units import Dialect

from .demonstration import data_folder, demonstration
from .failing import CannotGoOn, sentences

__all__ = ["migrate", "show_plan"]

_DEFAULT_FILE = "platform.toml"


@click.command()
@click.argument("names", nargs=-1, metavar="[PLATFORM.TOML] DATABASE")
@click.option("--to", "to", metavar="VERSION", help="The version to reach; else the newest.")
@click.option("--plan", "plan_only", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--allow-data-loss", is_flag=True, help="Go down also where that discards data.")
def migrate(names: tuple[str, ...], to: str | None, plan_only: bool, allow_data_loss: bool) -> None:
    """Migrate DATABASE, by its id in the configuration, to a version of the schema.

    All of it is done in one transaction, or nothing.  Without a file, platform.toml is taken
    where there is one, and the demonstration's database otherwise.

    \b
    Examples:
      legation migrate main --plan
      legation migrate platform.toml main --to 2.5.0 --allow-data-loss
    """
    import anyio

    with sentences():
        *files, database = names or [""]
        if not database or len(files) > 1:
            raise click.UsageError("name one database, after the platform's file if there is one")
        served = _platform(files[0] if files else None)
        if database not in served.databases:
            known = ", ".join(served.databases)
            raise CannotGoOn(f"there is no database {database!r}; there are: {known}")
        target = _target(to)
        url = served.databases[database]
        outcome = anyio.run(_migrate, database, url, target, plan_only, allow_data_loss)
    if outcome is not None:
        if not isinstance(outcome, Migrated):
            raise CannotGoOn(outcome.detail)
        click.echo(outcome.detail)


def _platform(path: str | None) -> Platform:
    from legation_host.loading import load_platform

    if path is None and not Path(_DEFAULT_FILE).exists():
        return demonstration(data_folder(os.environ))
    return load_platform(path or _DEFAULT_FILE, os.environ)


def _target(text: str | None) -> Version | None:
    if text is None:
        return None
    version = parse_version(text)
    if isinstance(version, MalformedVersion):
        raise CannotGoOn(version.detail)
    return version


async def _migrate(
    name: str, url: str, target: Version | None, plan_only: bool, allow_data_loss: bool
) -> MigrationOutcome | None:
    """Show the plan; then, unless that is all, carry it out."""
    from legation_host import open_host

    async with open_host({name: url}) as host:
        reading = await host.run(_read(name))
        show_plan(reading, target)
        if plan_only:
            return None
        return await host.run(_carry_out(name, target, allow_data_loss))


def _read(name: str) -> Program[LedgerReading]:
    return (yield from Transact(name, ReadLedger()))


def _carry_out(
    name: str, target: Version | None, allow_data_loss: bool
) -> Program[MigrationOutcome]:
    node = yield from ThisNode()
    return (
        yield from migrate_program(
            name,
            CATALOGUE,
            target,
            actor="legation migrate",
            request_id="",
            node=node,
            allow_data_loss=allow_data_loss,
        )
    )


def show_plan(reading: LedgerReading, target: Version | None) -> None:
    """Print where the database stands and each move with what it loses."""
    if isinstance(reading.state, Corrupt):
        raise CannotGoOn(reading.state.detail)
    click.echo(f"Now at {reading.state.version} ({reading.dialect.value}).")
    planned = plan(CATALOGUE, reading.state, target, reading.dialect, allow_data_loss=True)
    if not isinstance(planned, Plan):
        raise CannotGoOn(planned.detail)
    if not planned.moves:
        click.echo(f"Already at {planned.to_version}: nothing to do.")
    for move in planned.moves:
        arrow = "up to" if move.direction.value == "up" else "down from"
        click.echo(f"  {arrow} {move.migration.version}: {move.migration.title}")
        click.echo(f"    {_statements(planned, move, reading.dialect)} statements")
        for loss in move.loses:
            click.echo(click.style(f"    loses {loss}", fg="yellow"))


def _statements(planned: Plan, move: object, dialect: Dialect) -> int:
    return sum(step.move is move for step in planned.steps(dialect))
