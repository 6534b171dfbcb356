"""`legation audit export`, and the verification of such an export without its database."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from legation.api.handlers.audit_export import export_trail
from legation.api.moments import MOMENT_FAULT, read_moment
from legation.hosted.audit_settings import AUDIT_KEYS, KEY_BYTES
from legation.hosted.secret_sources import SecretReader, SecretSources
from legation.store.audit_export import MAX_LINE, Exported, ExportVerdict, ExportVerifier
from legation.store.audit_pages import Head, KeyRing, SigningKey
from legation.store.failures import StoreFailure

from .failing import CannotGoOn, sentences, why
from .target import check_database, complete_platform, load_target, require_secrets
from .terminal import show_progress

__all__ = ["KeyFile", "MomentText", "export", "verify_export"]

_PRIVATE: Final = 0o600
_EVERY: Final = 100
"""The lines after which progress counts a unit: a page has up to 256 rows."""


class MomentText(click.ParamType[int]):
    """A moment: seconds since the epoch, a day, or a time with Z or an offset."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """Return its microseconds since the epoch."""
        found = value if isinstance(value, int) else read_moment(str(value))
        if found is None:
            self.fail(f"{value!r} {MOMENT_FAULT.partition(';')[0]}", param, ctx)
        return found


class KeyFile(click.ParamType[SigningKey]):
    """A key of the audit trail, as ID=FILE."""

    name = "id=file"

    def convert(self, value: Any, param: Any, ctx: Any) -> SigningKey:
        """Return the key; no message has a part of it."""
        if isinstance(value, SigningKey):
            return value
        name, mark, path = str(value).partition("=")
        if not (name and mark and path):
            self.fail("write it as ID=FILE: the id of the key, and the file with its secret")
        # The host is loaded where a file is read.
        from legation_host.secret_files import read_secret_files

        faults: list[str] = []
        sources = SecretSources(files=read_secret_files((path,)))
        reader = SecretReader(sources, lambda _, message: faults.append(message))
        secret = (reader.read("key", None, path, least=0) or "").encode()
        if not faults and len(secret) < KEY_BYTES:
            faults.append(f"has less than {KEY_BYTES} bytes")
        if faults:
            self.fail(f"{path}: {faults[0]}", param, ctx)
        return SigningKey(name, secret)


@click.command(short_help="Write the audit trail to a file that is verified anywhere.")
@click.argument(
    "names",
    nargs=-1,
    metavar="[PLATFORM.TOML | MODULE:ATTRIBUTE] [DATABASE]",
    shell_complete=complete_platform,
)
@click.option("--output", type=click.Path(dir_okay=False), help="The file; else standard output.")
@click.option("--since", type=MomentText(), help="Not before: a day, a time, or seconds.")
@click.option("--until", type=MomentText(), help="Before: a day, a time, or seconds.")
def export(
    names: tuple[str, ...], output: str | None, since: int | None, until: int | None
) -> None:
    """Write the audit trail of a database as lines of JSON, for `legation audit verify --export`.

    Each line is a page of the trail with its rows, its hash and its signature.  The last line has
    the heads of all chains, and is signed with the first key of [[audit.keys]].  So the export is
    verified on another machine, with the key and without the database.

    DATABASE is needed where there are several.  With --since or --until whole pages of that time
    are exported.  Servers may go on meanwhile.  The file is readable for its owner alone, and is
    not there before it is whole.

    Without a platform, platform.toml of this folder is taken, or else the demonstration.

    \b
    Examples:
      legation audit export --output trail.ndjson
      legation audit export platform.toml main --since 2026-01-01 --until 2026-02-01 | gzip > jan.gz
    """
    with sentences():
        name, url, platform, key = _find(names)
        with _open_output(output) as write:
            exported = _export(name, url, export_trail(platform, name, key, since, until), write)
    rows = f"{exported.entries} row{'' if exported.entries == 1 else 's'}"
    chains = f"{exported.chains} chain{'' if exported.chains == 1 else 's'}"
    said = f"{name}: {rows} in {chains} exported"
    click.echo(said, err=output is None)


def _find(names: tuple[str, ...]) -> tuple[str, str, str, SigningKey | None]:
    """Return the id and the URL of the database, the id of the platform, and the key."""
    named = bool(names) and (names[0].endswith(".toml") or ":" in names[0])
    left = names[1:] if named else names
    if len(left) > 1:
        raise click.UsageError("name one database at most, after the platform's file")
    platform = load_target(names[0] if named else None, needs_secrets=False)
    known = tuple(platform.registry.databases)
    if not left and len(known) > 1:
        raise click.UsageError(f"name the database; there are: {', '.join(known)}")
    name = next(iter(left or known))
    check_database(platform, name)
    require_secrets(platform, AUDIT_KEYS)
    key = platform.registry.audit.keys.signing
    return name, platform.databases[name], platform.config.id, key


def _export(name: str, url: str, lines: Any, write: Callable[[bytes], object]) -> Exported:
    from .reading import read_beside

    what = f"the audit trail of {name!r}"
    try:
        with show_progress(f"Exporting {what}") as advance:
            exported: Exported = read_beside({name: url}, lines, advance=advance, emit=write)
    except StoreFailure as failure:
        raise CannotGoOn(f"{what} cannot be exported: {why(failure)}") from None
    return exported


@contextmanager
def _open_output(path: str | None) -> Generator[Callable[[bytes], object]]:
    """Yield what takes the lines; a file gets its name when it is whole."""
    if path is None:
        yield sys.stdout.buffer.write
        sys.stdout.buffer.flush()
        return
    part = f"{path}.part"
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE)
        with os.fdopen(descriptor, "wb") as file:
            yield file.write
        Path(part).replace(path)
    except OSError as error:
        raise CannotGoOn(f"{path}: {error.strerror}") from None
    finally:
        Path(part).unlink(missing_ok=True)


def verify_export(
    path: str, keys: KeyRing, heads: Iterable[Head], acknowledged: Iterable[Head]
) -> ExportVerdict:
    """Return the verdict on the export at `path`; one line of it is in memory at a time."""
    verifier = ExportVerifier(heads, keys, acknowledged)
    progress = show_progress("Verifying the export, in hundreds of pages")
    with click.open_file(path, "rb") as file, progress as advance:
        while line := file.readline(MAX_LINE + 1):
            wrong = verifier.take(line)
            if wrong is not None:
                return wrong
            if verifier.lines % _EVERY == 0:
                advance()
    return verifier.end()
