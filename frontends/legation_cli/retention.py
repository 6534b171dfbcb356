"""`legation retention`: delete now what is kept for long enough, or say what that would be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import anyio
import click

from legation.hosted.audit_settings import AUDIT_KEYS

from .failing import CannotGoOn, sentences, why
from .json_output import json_option, print_json
from .target import complete_platform, require_secrets, select_databases
from .terminal import show_progress

if TYPE_CHECKING:
    from legation import Platform

__all__ = ["retention"]

_NOTHING: Final = "no period is set for it in [retention]"


@click.command(short_help="Delete old data now, or say how much there is.")
@click.argument(
    "names",
    nargs=-1,
    metavar="[PLATFORM.TOML | MODULE:ATTRIBUTE] [DATABASE]",
    shell_complete=complete_platform,
)
@click.option("--dry-run", is_flag=True, help="Say how much would go now, and delete nothing.")
@json_option
def retention(names: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Delete what is kept for long enough, by the days of [retention] in the configuration.

    A server does this once a day by itself, and `legation round` does.  Here one sweep is done
    now, in small steps, beside whoever serves the database.  Only what is finished goes: no run
    that waits, is under way or paused, no message or reply that waits, and no session with one.

    What goes with its session or its run is not counted on its own.
    Without DATABASE every database of the platform is swept.
    Without a platform, platform.toml of this folder is taken, or else the demonstration.

    \b
    Examples:
      legation retention --dry-run
      legation retention platform.toml main
      legation retention platform.toml --json | jq '.[].rows'
    """
    with sentences():
        platform, databases = select_databases(names)
        require_secrets(platform, AUDIT_KEYS)
        periods = platform.registry.periods
        chosen = tuple(name for name in databases if periods[name].kinds)
        counts = _count(platform, chosen) if dry_run else _sweep_all(platform, chosen)
    if as_json:
        print_json([_as_json(name, platform, counts, dry_run=dry_run) for name in databases])
        return
    for name in databases:
        said = _describe(counts[name], dry_run=dry_run) if name in counts else _NOTHING
        click.echo(f"{name}: {said}")


def _as_json(
    name: str, platform: Platform, counts: Mapping[str, Mapping[str, int]], *, dry_run: bool
) -> dict[str, Any]:
    periods = platform.registry.periods[name]
    days = {kind.value: periods.days(kind) for kind in periods.kinds}
    rows = {kind.value: counts[name].get(kind.value, 0) for kind in periods.kinds}
    return {"database": name, "dry_run": dry_run, "days": days, "rows": rows}


def _describe(counts: Mapping[str, int], *, dry_run: bool) -> str:
    gone = [f"{kind.replace('_', ' ')} {count}" for kind, count in counts.items() if count]
    if not gone:
        return "nothing is old"
    return f"{'would delete' if dry_run else 'deleted'}: {', '.join(gone)}"


def _count(platform: Platform, databases: tuple[str, ...]) -> dict[str, Mapping[str, int]]:
    """Return how much would go of each database."""
    from legation.store.failures import StoreFailure

    from .reading import read_beside

    found: dict[str, Mapping[str, int]] = {}
    for name in databases:
        urls = {name: platform.databases[name]}
        try:
            with show_progress(f"Counting what is old in {name!r}") as advance:
                program = platform.count_old(name)
                found[name] = read_beside(urls, program, advance=advance)
        except StoreFailure as failure:
            raise CannotGoOn(f"the database {name!r} cannot be read: {why(failure)}") from None
    return found


def _sweep_all(platform: Platform, databases: tuple[str, ...]) -> dict[str, Mapping[str, int]]:
    with show_progress("Deleting what is old"):
        return anyio.run(_sweep, platform, databases)


async def _sweep(platform: Platform, databases: tuple[str, ...]) -> dict[str, Mapping[str, int]]:
    """Return how much went of each database."""
    from legation.store.failures import StoreFailure
    from legation_host import open_host
    from legation_host.databases import find_missing

    for name in databases:
        if (path := find_missing(name, platform.databases[name])) is not None:
            raise CannotGoOn(f"databases.{name}.url: there is no file {path} yet")
    swept: dict[str, Mapping[str, int]] = {}
    async with open_host({name: platform.databases[name] for name in databases}) as host:
        for name in databases:
            try:
                swept[name] = await host.run(platform.sweep(name))
            except StoreFailure as failure:
                raise CannotGoOn(f"the database {name!r} cannot be swept: {why(failure)}") from None
    return swept
