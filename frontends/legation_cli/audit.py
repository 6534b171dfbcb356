"""`legation audit`: prove the audit trail, prune what is old, show who is refused."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO, TypeVar

import anyio
import click
from attrs import asdict

from legation import Platform
from legation.api.handlers.audit import prune_trail, verify_trail
from legation.api.handlers.refusals import add_up_refusals
from legation.effects import Program
from legation.hosted.audit_settings import AUDIT_KEYS
from legation.shares.subjects import network_of
from legation.store.audit_export import ExportVerdict
from legation.store.audit_pages import Head, KeyRing, SigningKey
from legation.store.audit_verify import Verdict
from legation.store.failures import StoreFailure

from .audit_export import KeyFile, export, verify_export
from .audit_verdicts import HeadText, describe_verdict, is_proven, verdict_as_json
from .failing import CannotGoOn, sentences, why
from .json_output import json_option, print_json
from .local_user import find_local_user
from .target import complete_platform, require_secrets, select_databases
from .terminal import show_progress, show_table

__all__ = ["audit", "collect_heads", "prune", "refusals", "verify"]

R = TypeVar("R")


@click.group(short_help="Look after the audit trail: who did what.")
def audit() -> None:
    """Look after the audit trail: who did what, row after row, chained by hashes."""


@audit.command(short_help="Find out whether a row was edited, removed or put in.")
@click.argument(
    "names",
    nargs=-1,
    metavar="[PLATFORM.TOML | MODULE:ATTRIBUTE] [DATABASE]",
    shell_complete=complete_platform,
)
@click.option(
    "--head",
    "heads",
    multiple=True,
    type=HeadText(),
    help="A head printed earlier; the trail must still lead through it.  May be repeated.",
)
@click.option(
    "--heads",
    "heads_file",
    type=click.File(),
    help="A file of heads: of this command with --json, or a heads_file.  - is standard input.",
)
@click.option(
    "--acknowledge",
    "acknowledged",
    multiple=True,
    type=HeadText(),
    help="A head that was printed with what is not proven, once you know why.  May be repeated.",
)
@click.option(
    "--export",
    "exported",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="An export of `legation audit export`, instead of a platform.  - is standard input.",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    type=KeyFile(),
    help="With --export: a key as ID=FILE, as [[audit.keys]] names both.  May be repeated.",
)
@json_option
def verify(
    names: tuple[str, ...],
    heads: tuple[Head, ...],
    heads_file: TextIO | None,
    acknowledged: tuple[Head, ...],
    exported: str | None,
    keys: tuple[SigningKey, ...],
    as_json: bool,
) -> None:
    """Find out whether a row of the audit trail was edited, removed, exchanged or put in.

    Without DATABASE every database of the platform is looked at.
    Without a platform, platform.toml of this folder is taken, or else the demonstration.

    What is printed are the heads, the end of each chain.  Keep them where whoever could write to
    the database cannot: rows cut off the end of a chain show against a head kept elsewhere, and in
    no other way; so does a chain written anew where no key signs it.

    What only a person can judge is printed with the option that acknowledges it: a prune or a
    chain that is not signed, and a key that is not known.

    Exit code 1 says that the trail is broken or not proven, 2 that it could not be read.

    \b
    Examples:
      legation audit verify
      legation audit verify --json > heads.json        and a week later:
      legation audit verify --heads heads.json
      legation audit verify platform.toml main --head "$HEAD" --acknowledge "$PRUNE"
      legation audit verify --export trail.ndjson --key 2026=audit.key
    """
    if exported is None and keys:
        raise click.UsageError("--key goes with --export; a platform has its own keys")
    if exported is not None and (names or heads_file):
        raise click.UsageError("--export goes without a platform and --heads")
    verdicts: list[tuple[str, ExportVerdict]]
    with sentences():
        if exported is not None:
            ring = KeyRing(keys)
            verdicts = [(exported, verify_export(exported, ring, heads, acknowledged))]
        else:
            verdicts = _verify_all(names, heads, heads_file, acknowledged)
    if as_json:
        print_json([verdict_as_json(name, verdict) for name, verdict in verdicts])
    else:
        for name, verdict in verdicts:
            click.echo(describe_verdict(name, verdict))
    if not all(is_proven(verdict) for _, verdict in verdicts):
        raise SystemExit(1)


@audit.command()
@click.argument(
    "names",
    nargs=-1,
    metavar="[PLATFORM.TOML | MODULE:ATTRIBUTE] [DATABASE]",
    shell_complete=complete_platform,
)
@click.option(
    "--before",
    required=True,
    type=click.DateTime(("%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ")),
    help="The day, or the moment, in UTC before which rows are old.",
)
@json_option
def prune(names: tuple[str, ...], before: datetime, as_json: bool) -> None:
    """Delete old rows of the audit trail; what is left is still proven.

    Whole pages go from the beginning of each chain.  Where a chain was cut, who did it and how many
    rows went is an entry of the trail itself (operation audit.prune), and `legation audit verify`
    goes by it.  Without DATABASE the trail of every database is pruned.
    Without a platform, platform.toml of this folder is taken, or else the demonstration.

    Verify before you prune, for what is gone proves nothing; and export the heads anew
    afterwards, as those of rows that went are no longer looked at.  Servers may go on meanwhile.

    \b
    Examples:
      legation audit prune --before 2026-01-01
      legation audit prune platform.toml main --before 2026-01-01T12:00:00Z
    """
    with sentences():
        platform, databases = select_databases(names)
        moment = before.replace(tzinfo=UTC)
        if moment > datetime.now(UTC):
            raise CannotGoOn("--before lies in the future: nothing is that old")
        with show_progress("Pruning the audit trail"):
            counts = anyio.run(_prune, platform, databases, int(moment.timestamp()) * 1_000_000)
    if as_json:
        print_json([{"database": name, "pruned": count} for name, count in counts])
        return
    for name, count in counts:
        click.echo(f"{name}: {count} row{'' if count == 1 else 's'} pruned")


@audit.command(short_help="Show who was refused again and again, and nobody knows who it is.")
@click.argument(
    "names",
    nargs=-1,
    metavar="[PLATFORM.TOML | MODULE:ATTRIBUTE] [DATABASE]",
    shell_complete=complete_platform,
)
@click.option(
    "--since",
    type=click.DateTime(("%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ")),
    help="The day, or the moment, in UTC from which on to count; a day ago unless given.",
)
@click.option("--client", help="Of this address alone, or of its network.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="So many lines, the greatest counts first.",
)
@json_option
def refusals(
    names: tuple[str, ...], since: datetime | None, client: str | None, limit: int, as_json: bool
) -> None:
    """Show how often requests were refused of which nobody knows who asked.

    They are no part of the audit trail: they are counted by minute, client (of IPv6 the first 64
    bits), route and status, once a minute is over.  Here the minutes are added up.  The client
    `others` stands for all that had no row of their own, because there were too many.

    Without a platform, platform.toml of this folder is taken, or else the demonstration.

    \b
    Examples:
      legation audit refusals
      legation audit refusals --since 2026-01-01 --json
      legation audit refusals platform.toml main --client 192.0.2.1
    """
    with sentences():
        platform, databases = select_databases(names)
        name = databases[0]
        start = datetime.now(UTC) - timedelta(days=1) if since is None else since
        minute = int(start.replace(tzinfo=UTC).timestamp()) // 60
        only = None if client is None else network_of(client.removesuffix("/64"))
        counted = _read(
            name,
            platform.databases[name],
            add_up_refusals(name, minute, only),
            f"the counts of refusals in {name!r}",
        )
    if as_json:
        print_json([asdict(one) for one in counted[:limit]])
        return
    if not counted:
        click.echo(f"{name}: nothing was refused")
        return
    rows = [(str(one.count), str(one.status or ""), one.client, one.route) for one in counted]
    lines = [f"{count:>10}  {status:>3}  {by}  {route}" for count, status, by, route in rows]
    heads = ("count", "status", "client", "route")
    show_table(heads, rows[:limit], "\n".join(lines[:limit]), numbers=heads[:2])


async def _prune(
    platform: Platform, databases: tuple[str, ...], before_us: int
) -> list[tuple[str, int]]:
    """Return how many rows went from the trail of each database."""
    from legation_host import open_host
    from legation_host.databases import find_missing

    for name in databases:
        if (path := find_missing(name, platform.databases[name])) is not None:
            raise CannotGoOn(f"databases.{name}.url: there is no file {path} yet")
    counts: list[tuple[str, int]] = []
    async with open_host({name: platform.databases[name] for name in databases}) as host:
        for name in databases:
            try:
                count = await host.run(_prune_as_user(platform, name, before_us))
            except StoreFailure as failure:
                sentence = f"the audit trail of {name!r} cannot be pruned: {why(failure)}"
                raise CannotGoOn(sentence) from None
            counts.append((name, count))
    return counts


def _prune_as_user(platform: Platform, name: str, before_us: int) -> Program[int]:
    return prune_trail(name, before_us, f"local:{find_local_user()}", _keys(platform))


def _keys(platform: Platform) -> KeyRing:
    require_secrets(platform, AUDIT_KEYS)
    return platform.context.cluster.trail_keys


def collect_heads(
    heads: tuple[Head, ...], file: TextIO | None, databases: tuple[str, ...]
) -> Mapping[str, tuple[Head, ...]]:
    """Return the heads to look for in each database."""
    if heads and len(databases) > 1:
        raise click.UsageError("name the database that --head is of")
    found = dict.fromkeys(databases, heads)
    try:
        for verdict in _read_said(file.read()) if file else ():
            if verdict.get("intact", True) and verdict["database"] in found:
                read = tuple(HeadText().convert(text, None, None) for text in verdict["heads"])
                found[verdict["database"]] += read
    except (ValueError, TypeError, KeyError, AttributeError):
        sentence = "--heads: not what `legation audit verify --json` prints, nor a heads_file"
        raise CannotGoOn(sentence) from None
    return found


def _read_said(text: str) -> list[Any]:
    """Return the objects in a file of heads: an array of them, or one on each line.

    A line that was broken off, as the disk was full, is passed over: what it has is in the next.

    Raises:
        ValueError: There is none.
    """
    found: list[Any] = []
    with suppress(ValueError):
        said = json.loads(text)
        found += said if isinstance(said, list) else [said]
        return found
    for line in text.splitlines():
        with suppress(ValueError):
            found.append(json.loads(line))
    if not found:
        raise ValueError("no line of it is JSON")
    return found


def _verify_all(
    names: tuple[str, ...],
    heads: tuple[Head, ...],
    heads_file: TextIO | None,
    acknowledged: tuple[Head, ...],
) -> list[tuple[str, ExportVerdict]]:
    """Return the verdict on each database that `names` selects."""
    platform, databases = select_databases(names)
    known = collect_heads(heads, heads_file, databases)
    return [
        (name, _verify(platform, name, known.get(name, ()), acknowledged)) for name in databases
    ]


def _verify(
    platform: Platform, name: str, heads: Iterable[Head], acknowledged: Iterable[Head]
) -> Verdict:
    """Read the whole trail of one database, beside whoever serves it."""
    program = verify_trail(name, heads, _keys(platform), acknowledged)
    return _read(name, platform.databases[name], program, f"the audit trail of {name!r}")


def _read(name: str, url: str, program: Program[R], what: str) -> R:
    """Run a program that reads one database alone, beside whoever serves it."""
    from .reading import read_beside

    try:
        with show_progress(f"Reading {what}") as advance:
            return read_beside({name: url}, program, advance=advance)
    except StoreFailure as failure:
        raise CannotGoOn(f"{what} cannot be read: {why(failure)}") from None


audit.add_command(export)
