"""`legation audit`: prove the audit trail, prune what is old, show who is refused."""

from __future__ import annotations

import getpass
import json
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO, TypeVar

import anyio
import click
from attrs import asdict

from legation import Platform
from legation.api.handlers.audit import prune_trail, verify_trail
from legation.api.handlers.refusals import add_up_refusals
from legation.effects import Program
from legation.shares.subjects import network_of
from legation.store.audit import Broken, Head, Intact
from legation.store.failures import StoreFailure

from .failing import CannotGoOn, sentences, why
from .json_output import json_option, print_json
from .target import check_database, complete_platform, load_target
from .terminal import show_progress, show_table

__all__ = ["HeadText", "audit", "prune", "refusals", "verify"]

R = TypeVar("R")


class HeadText(click.ParamType[Head]):
    """A head as `legation audit verify` prints it: writer, number and hash, between colons."""

    name = "head"

    def convert(self, value: Any, param: Any, ctx: Any) -> Head:
        """Return the head that `value` names."""
        writer, _, rest = str(value).rpartition(":")[0].rpartition(":")
        hashed = str(value).rpartition(":")[2]
        if not (writer and rest.isascii() and rest.isdigit() and len(hashed) == 64):
            self.fail(f"{value!r} is no head; write it as it was printed", param, ctx)
        return Head(writer, int(rest), hashed)


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
    help="A file of heads: what this command printed with --json.  - is standard input.",
)
@json_option
def verify(
    names: tuple[str, ...], heads: tuple[Head, ...], heads_file: TextIO | None, as_json: bool
) -> None:
    """Find out whether a row of the audit trail was edited, removed, exchanged or put in.

    Without DATABASE every database of the platform is looked at.
    Without a platform, platform.toml of this folder is taken, or else the demonstration.

    What is printed are the heads, the last row of each chain.  Keep them where whoever could
    write to the database cannot: rows cut off the end of a chain, and a chain written anew, show
    against a head kept elsewhere, and in no other way.

    Exit code 1 says that the trail is broken, 2 that it could not be read.

    \b
    Examples:
      legation audit verify
      legation audit verify --json > heads.json        and a week later:
      legation audit verify --heads heads.json
      legation audit verify platform.toml main --head "$HEAD"
    """
    with sentences():
        platform, databases = _select(names)
        known = _heads(heads, heads_file, databases)
        verdicts = [
            (name, _verify(name, platform.databases[name], known.get(name, ())))
            for name in databases
        ]
    if as_json:
        print_json([_json(name, verdict) for name, verdict in verdicts])
    else:
        for name, verdict in verdicts:
            click.echo(_sentence(name, verdict))
    if any(isinstance(verdict, Broken) for _, verdict in verdicts):
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

    Rows go from the beginning of each chain.  Where a chain was cut, who did it and how many rows
    went is an entry of the trail itself (operation audit.prune), and `legation audit verify` goes
    by it.  Without DATABASE the trail of every database is pruned.
    Without a platform, platform.toml of this folder is taken, or else the demonstration.

    Verify before you prune, for what is gone proves nothing; and export the heads anew
    afterwards, as those of rows that went are no longer looked at.  Servers may go on meanwhile.

    \b
    Examples:
      legation audit prune --before 2026-01-01
      legation audit prune platform.toml main --before 2026-01-01T12:00:00Z
    """
    with sentences():
        platform, databases = _select(names)
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
        platform, databases = _select(names)
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
                count = await host.run(prune_trail(name, before_us, f"local:{_user()}"))
            except StoreFailure as failure:
                sentence = f"the audit trail of {name!r} cannot be pruned: {why(failure)}"
                raise CannotGoOn(sentence) from None
            counts.append((name, count))
    return counts


def _user() -> str:
    """Return the name of who types this, as far as the system knows it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _select(names: tuple[str, ...]) -> tuple[Platform, tuple[str, ...]]:
    """Return the platform and the ids of those of its databases that `names` selects."""
    file: str | None = None
    if names and (names[0].endswith(".toml") or ":" in names[0]):
        file, *names_left = names
        names = tuple(names_left)
    if len(names) > 1:
        raise click.UsageError("name one database at most, after the platform's file")
    platform = load_target(file)
    for name in names:
        check_database(platform, name)
    return platform, names or tuple(platform.databases)


def _heads(
    heads: tuple[Head, ...], file: TextIO | None, databases: tuple[str, ...]
) -> Mapping[str, tuple[Head, ...]]:
    """Return the heads to look for in each database."""
    if heads and len(databases) > 1:
        raise click.UsageError("name the database that --head is of")
    found = dict.fromkeys(databases, heads)
    try:
        for verdict in json.load(file) if file else ():
            if verdict["intact"] and verdict["database"] in found:
                read = tuple(HeadText().convert(text, None, None) for text in verdict["heads"])
                found[verdict["database"]] += read
    except (ValueError, TypeError, KeyError):
        raise CannotGoOn("--heads: not what `legation audit verify --json` prints") from None
    return found


def _verify(name: str, url: str, heads: Iterable[Head]) -> Intact | Broken:
    """Read the whole trail of one database, beside whoever serves it."""
    return _read(name, url, verify_trail(name, heads), f"the audit trail of {name!r}")


def _read(name: str, url: str, program: Program[R], what: str) -> R:
    """Run a program that reads one database alone, beside whoever serves it."""
    from .reading import read_beside

    try:
        with show_progress(f"Reading {what}") as advance:
            return read_beside({name: url}, program, advance=advance)
    except StoreFailure as failure:
        raise CannotGoOn(f"{what} cannot be read: {why(failure)}") from None


def _sentence(name: str, verdict: Intact | Broken) -> str:
    if isinstance(verdict, Broken):
        at = f"{name}: broken at number {verdict.seq} of {verdict.writer}"
        return click.style(f"{at}: {verdict.reason}", fg="red")
    chains = len(verdict.heads)
    plural = "" if chains == 1 else "s"
    first = click.style(f"{name}: intact", fg="green")
    return "\n".join(
        (
            f"{first}, {verdict.count} rows in {chains} chain{plural}{_mention_pruned(verdict)}",
            *_indent(verdict.heads),
        )
    )


def _mention_pruned(verdict: Intact) -> str:
    return f", and {verdict.pruned} pruned" if verdict.pruned else ""


def _indent(heads: Iterable[Head]) -> tuple[str, ...]:
    return tuple(f"  {head}" for head in heads)


def _json(name: str, verdict: Intact | Broken) -> dict[str, Any]:
    if isinstance(verdict, Broken):
        at = {"writer": verdict.writer, "seq": verdict.seq, "reason": verdict.reason}
        return {"database": name, "intact": False, "broken": at}
    heads = [str(head) for head in verdict.heads]
    counts = {"rows": verdict.count, "pruned": verdict.pruned}
    return {"database": name, "intact": True, **counts, "heads": heads}
