"""`legation migrate`: bring a database to another version of the schema."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, TypeVar

import click

from legation import Platform
from legation.effects import Program, Sleep, ThisNode, Transact
from legation.migrations.ledger import Corrupt, LedgerReading, ReadLedger, State
from legation.migrations.migrate import Migrated, MigrationOutcome
from legation.migrations.migrate import migrate as migrate_program
from legation.migrations.plan import LosesData, Move, Plan, plan
from legation.migrations.schema_version import MalformedVersion, Version, parse_version
from legation.programs import intercept
from legation.store.failures import StoreFailure, Unavailable, WrongSchema
from legation.store.units import Dialect
from legation.values import frozen

from .failing import CannotGoOn, sentences, why
from .json_output import json_option, print_json
from .target import check_database, complete_platform, load_target
from .terminal import show_progress

__all__ = ["migrate"]

R = TypeVar("R")

_FOREIGN = "the ledger in {name!r} is none of ours: this is the database of something else"


@click.command(short_help="Migrate a database to a version of the schema.")
@click.argument(
    "names",
    nargs=-1,
    metavar="[PLATFORM.TOML | MODULE:ATTRIBUTE] DATABASE",
    shell_complete=complete_platform,
)
@click.option("--to", "to", metavar="VERSION", help="The version to reach; else the newest.")
@click.option("--plan", "plan_only", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--allow-data-loss", is_flag=True, help="Go down also where that discards data.")
@json_option
def migrate(
    names: tuple[str, ...], to: str | None, plan_only: bool, allow_data_loss: bool, as_json: bool
) -> None:
    """Migrate DATABASE, by its id in the configuration, to a version of the schema.

    All of it is done in one transaction, or nothing.  It waits for no lock longer than a fraction
    of a second, so that nobody queues behind it, and tries again for ten seconds.  Nodes that run
    notice within seconds; those of an older release go on where the new schema says that they may.

    Without a platform, platform.toml of this folder is taken, or else the demonstration.
    Exit code 2 says that nothing was changed, and standard error says why.  --plan creates no
    file: where there is none yet, it says so, and the plan begins at 0.0.0.

    \b
    Examples:
      legation migrate main --plan
      legation migrate main
      legation migrate platform.toml main --to 2.5.0 --allow-data-loss
      legation migrate platform.toml main --plan --json | jq .loses
    """
    with sentences():
        *files, database = names or [""]
        if not database or len(files) > 1:
            raise click.UsageError("name one database, after the platform's file if there is one")
        platform = load_target(
            files[0] if files else None, writes=not plan_only, needs_secrets=False
        )
        check_database(platform, database)
        invocation = _Invocation(
            platform, database, _target(to), plan_only, allow_data_loss, as_json
        )
        _migrate(invocation)


@frozen
class _Invocation:
    """One call of the command: the database, its target version and the options."""

    platform: Platform
    database: str
    target: Version | None
    plan_only: bool
    allow_data_loss: bool
    as_json: bool

    @property
    def url(self) -> str:
        """The URL of the database."""
        return self.platform.databases[self.database]

    def say(self, line: str) -> None:
        """Print a line, unless it is JSON that is read."""
        if not self.as_json:
            click.echo(line)


def _target(text: str | None) -> Version | None:
    if text is None:
        return None
    version = parse_version(text)
    if isinstance(version, MalformedVersion):
        raise CannotGoOn(version.detail)
    return version


def _complain(level: str, event: str, fields: Mapping[str, Any]) -> None:
    """Print what a database said when it failed: who types this is who may know."""
    if level == "error" and "error" in fields:
        click.echo(fields["error"], err=True)


def _migrate(invocation: _Invocation) -> None:
    """Show the plan; then, unless that is all, carry it out and print the outcome."""
    import anyio

    reading = _read(invocation)
    way = _plan(invocation, reading)
    _show(invocation, way, reading)
    if invocation.plan_only:
        _print_json(invocation, way, reading.dialect, None)
        return
    with nullcontext() if invocation.as_json else show_progress("Migrating, all or nothing"):
        outcome = anyio.run(_go, invocation)
    if not isinstance(outcome, Migrated):
        raise CannotGoOn(_refusal(outcome))
    invocation.say(outcome.detail)
    _print_json(invocation, way, reading.dialect, outcome)


def _read(invocation: _Invocation) -> LedgerReading:
    """Return where the database stands; where there is no file yet, that is at the beginning."""
    from legation_host.databases import find_missing

    from .reading import read_beside

    name, url = invocation.database, invocation.url
    if find_missing(name, url) is not None:
        return LedgerReading(Dialect.SQLITE, (), State())
    try:
        return read_beside({name: url}, _read_ledger(name), _complain)
    except Unavailable:
        raise CannotGoOn(f"the database {name!r} does not answer") from None
    except WrongSchema:
        raise CannotGoOn(_FOREIGN.format(name=name)) from None
    except StoreFailure as failure:
        raise CannotGoOn(f"the schema of {name!r} cannot be read: {why(failure)}") from None


async def _go(invocation: _Invocation) -> MigrationOutcome | None:
    from legation_host import open_host

    opened = open_host({invocation.database: invocation.url}, log=_complain)
    async with opened as host:
        return await host.run(_announce_wait(invocation, _carry_out(invocation)))


def _read_ledger(name: str) -> Program[LedgerReading]:
    return (yield from Transact(name, ReadLedger()))


def _plan(invocation: _Invocation, reading: LedgerReading) -> Plan:
    """Return the plan, also one that discards data: it is shown before it is refused."""
    if isinstance(reading.state, Corrupt):
        raise CannotGoOn(reading.state.detail)
    catalogue = invocation.platform.registry.catalogue
    way = plan(catalogue, reading.state, invocation.target, reading.dialect, allow_data_loss=True)
    if not isinstance(way, Plan):
        raise CannotGoOn(_refusal(way))
    return way


def _refusal(outcome: Any) -> str:
    """Return the reason of a refusal, in the words of this command."""
    if isinstance(outcome, LosesData):
        losses = "; ".join(outcome.loses)
        return f"going down to {outcome.target} discards {losses}: --allow-data-loss accepts that"
    detail: str = outcome.detail
    return detail


def _show(invocation: _Invocation, way: Plan, reading: LedgerReading) -> None:
    """Print where the database stands and each move with what it loses."""
    from legation_host.databases import find_missing

    path = find_missing(invocation.database, invocation.url) if invocation.plan_only else None
    if path is not None:
        invocation.say(f"There is no file {path} yet.")
    invocation.say(f"Now at {way.from_version} ({reading.dialect.value}).")
    if not way.moves:
        invocation.say(f"Already at {way.to_version}: nothing to do.")
    for move in way.moves:
        arrow = "up to" if move.direction.value == "up" else "down from"
        invocation.say(f"  {arrow} {move.migration.version}: {move.migration.title}")
        invocation.say(f"    {len(_texts(move, reading.dialect))} statements")
        for loss in move.loses:
            invocation.say(click.style(f"    loses {loss}", fg="yellow"))


def _texts(move: Move, dialect: Dialect) -> list[str]:
    statements = (step.statement(dialect) for step in move.steps)
    return [" ".join(s.text(dialect).split()) for s in statements if s is not None]


def _carry_out(invocation: _Invocation) -> Program[MigrationOutcome]:
    node = yield from ThisNode()
    return (
        yield from migrate_program(
            invocation.database,
            invocation.platform.registry.catalogue,
            invocation.target,
            actor="legation migrate",
            request_id="",
            node=node,
            allow_data_loss=invocation.allow_data_loss,
        )
    )


def _announce_wait(invocation: _Invocation, program: Program[R]) -> Program[R]:
    """Run `program`; print once that it waits for a lock, which is when it sleeps."""
    waits = False

    def wait(sleep: Sleep) -> Program[None]:
        nonlocal waits
        if not waits:
            invocation.say("Somebody else holds a lock: waiting, out of everybody's way ...")
        waits = True
        yield from sleep

    return intercept(program, {Sleep: wait})


def _print_json(
    invocation: _Invocation, way: Plan, dialect: Dialect, outcome: Migrated | None
) -> None:
    """Print the plan and its outcome as JSON, where that was asked for.

    Another node may have been faster: then nothing was moved here.
    """
    if not invocation.as_json:
        return
    moves = way.moves if outcome is None else outcome.moves
    summary = {
        "database": invocation.database,
        "engine": dialect.value,
        "from_version": str(way.from_version),
        "to_version": str(way.to_version),
        "moves": [
            {
                "direction": move.direction.value,
                "version": str(move.migration.version),
                "title": move.migration.title,
                "loses": list(move.loses),
                "statements": _texts(move, dialect),
            }
            for move in moves
        ],
        "loses": [loss for move in moves for loss in move.loses],
        "done": outcome is not None,
    }
    print_json(summary)
