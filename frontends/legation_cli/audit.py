"""`legation audit`: prove that the audit trail is as it was written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TextIO

import click

from legation import Platform
from legation.effects import Transact
from legation.resources.audit import verify_trail
from legation.store.audit import Broken, Head, Intact
from legation.store.failures import StoreFailure

from .demonstration import data_folder, demonstration
from .failing import CannotGoOn, sentences

__all__ = ["HeadText", "audit", "verify"]

_DEFAULT_FILE = "platform.toml"


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


@click.group()
def audit() -> None:
    """Look after the audit trail: who did what, row after row, chained by hashes."""


@audit.command()
@click.argument("names", nargs=-1, metavar="[PLATFORM.TOML] [DATABASE]")
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
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for a script.")
def verify(
    names: tuple[str, ...], heads: tuple[Head, ...], heads_file: TextIO | None, as_json: bool
) -> None:
    """Find out whether a row of the audit trail was edited, removed, exchanged or put in.

    Without DATABASE every database of the platform is looked at.  Without a file, platform.toml is
    taken where there is one, and the demonstration otherwise.

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
        platform, databases = _named(names)
        known = _heads(heads, heads_file, databases)
        verdicts = [
            (name, _verify(name, platform.databases[name], known.get(name, ())))
            for name in databases
        ]
    if as_json:
        click.echo(json.dumps([_json(name, verdict) for name, verdict in verdicts], indent=2))
    else:
        for name, verdict in verdicts:
            click.echo(_sentence(name, verdict))
    if any(isinstance(verdict, Broken) for _, verdict in verdicts):
        raise SystemExit(1)


def _named(names: tuple[str, ...]) -> tuple[Platform, tuple[str, ...]]:
    """Return the platform and the ids of its databases that are meant."""
    file: str | None = None
    if names and (names[0].endswith(".toml") or ":" in names[0]):
        file, *names_left = names
        names = tuple(names_left)
    if len(names) > 1:
        raise click.UsageError("name one database at most, after the platform's file")
    platform = _platform(file)
    if names and names[0] not in platform.databases:
        known = ", ".join(platform.databases)
        raise CannotGoOn(f"there is no database {names[0]!r}; there are: {known}")
    return platform, names or tuple(platform.databases)


def _heads(
    heads: tuple[Head, ...], file: TextIO | None, databases: tuple[str, ...]
) -> Mapping[str, tuple[Head, ...]]:
    """Return the heads to look for in each database."""
    if heads and len(databases) > 1:
        raise click.UsageError("name the database that --head is of")
    found = dict.fromkeys(databases, heads)
    try:
        for told in json.load(file) if file else ():
            if told["intact"] and told["database"] in found:
                read = tuple(HeadText().convert(text, None, None) for text in told["heads"])
                found[told["database"]] += read
    except (ValueError, TypeError, KeyError):
        raise CannotGoOn("--heads: not what `legation audit verify --json` prints") from None
    return found


def _platform(file: str | None) -> Platform:
    from legation_host.loading import load_platform

    if file is None and not Path(_DEFAULT_FILE).exists():
        return demonstration(data_folder(os.environ))
    return load_platform(file or _DEFAULT_FILE, os.environ)


def _verify(name: str, url: str, heads: Iterable[Head]) -> Intact | Broken:
    """Read the whole trail of one database, beside whoever serves it."""
    from legation_host.databases import open_reader

    program = verify_trail(name, heads)
    rows: Any = None
    with open_reader(name, url) as read, closing(program):
        while True:
            try:
                effect = program.send(rows)
            except StopIteration as stop:
                verdict: Intact | Broken = stop.value
                return verdict
            if not isinstance(effect, Transact):
                raise NotImplementedError(type(effect))
            try:
                rows = read(effect.unit)
            except StoreFailure as failure:
                kind = type(failure).__name__
                raise CannotGoOn(f"the audit trail of {name!r} cannot be read: {kind}") from None


def _sentence(name: str, verdict: Intact | Broken) -> str:
    if isinstance(verdict, Broken):
        at = f"{name}: broken at number {verdict.seq} of {verdict.writer}"
        return click.style(f"{at}: {verdict.reason}", fg="red")
    chains = len(verdict.heads)
    plural = "" if chains == 1 else "s"
    first = click.style(f"{name}: intact", fg="green")
    return "\n".join(
        (f"{first}, {verdict.count} rows in {chains} chain{plural}", *_indented(verdict.heads))
    )


def _indented(heads: Iterable[Head]) -> tuple[str, ...]:
    return tuple(f"  {head}" for head in heads)


def _json(name: str, verdict: Intact | Broken) -> dict[str, Any]:
    if isinstance(verdict, Broken):
        at = {"writer": verdict.writer, "seq": verdict.seq, "reason": verdict.reason}
        return {"database": name, "intact": False, "broken": at}
    heads = [str(head) for head in verdict.heads]
    return {"database": name, "intact": True, "rows": verdict.count, "heads": heads}
