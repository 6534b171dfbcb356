"""`legation restore`: put databases in place from a backup, and prove that they are whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from legation.hosted.audit_settings import AUDIT_KEYS

from .failing import CannotGoOn, sentences
from .json_output import json_option, print_json
from .target import complete_platform, require_secrets, select_databases
from .terminal import show_progress

if TYPE_CHECKING:
    from legation import Platform
    from legation.lifecycle.backup_manifest import Manifest

    from .database_restores import Restore, Restored

__all__ = ["restore"]

_ADVICE: Final = (
    "Everything newer than the backup is gone.  So, before you start the servers:",
    "  * Providers may deliver messages again, and these are answered again.",
    "  * Newer idempotency keys are unknown: a request that is sent again is done again.",
    "  * Tokens are revoked by revocations_file, which is no part of a backup: keep the newest.",
    "  * Users who were erased after the backup are stored again: erase them again.",
    "  * Runs that were under way at the backup continue as soon as a server has started.",
    "  * Newer heads of the audit trail are not found any more: begin a new heads_file.",
)


@click.command(short_help="Restore databases from a backup.")
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument(
    "names",
    nargs=-1,
    metavar="[PLATFORM.TOML | MODULE:ATTRIBUTE] [DATABASE]...",
    shell_complete=complete_platform,
)
@click.option("--check", "check_only", is_flag=True, help="Verify the backup, and restore nothing.")
@click.option(
    "--replace", is_flag=True, help="On PostgreSQL: move a schema that is not empty aside."
)
@click.option(
    "--discard", is_flag=True, help="Delete what was there before, once the restore is done."
)
@json_option
def restore(
    folder: Path,
    names: tuple[str, ...],
    check_only: bool,
    replace: bool,
    discard: bool,
    as_json: bool,
) -> None:
    """Restore the databases of the platform from the backup in FOLDER.

    Stop every server first.  The manifest and the SHA-256 of each file are verified, the copy is
    read as a whole, and its audit trail has to lead through the heads of the backup.  Only then is
    a SQLite file put in place, in one step.  The old file is kept beside it, unless --discard.
    PostgreSQL is restored by `pg_restore`, in one transaction, into an empty database.  With
    --replace the schema that is there is renamed, and kept.

    Keep a backup where nobody else can write: a dump is run with the rights of the database's
    user.  Without DATABASE every database of the platform is restored.
    Without a platform, platform.toml of this folder is taken, or else the demonstration.
    Exit code 2 says what stands in the way.

    \b
    Examples:
      legation restore backups/front-office-20260101T020000Z --check
      legation restore backups/front-office-20260101T020000Z platform.toml
      legation restore backups/front-office-20260101T020000Z platform.toml main --replace --json
    """
    with sentences():
        platform, databases = select_databases(names, several=True)
        require_secrets(platform, AUDIT_KEYS)
        manifest, steps = _prepare(folder, platform, databases, replace=replace, discard=discard)
        if not check_only:
            for step in steps:
                step.check()
        restored = [] if check_only else _perform(steps)
    if as_json:
        print_json(_as_json(folder, manifest, restored))
    else:
        _print(folder, manifest, restored)


def _prepare(
    folder: Path,
    platform: Platform,
    names: tuple[str, ...],
    *,
    replace: bool,
    discard: bool,
) -> tuple[Manifest, list[Restore]]:
    """Verify the backup; return its manifest, and what is to be done for each database."""
    from legation.lifecycle.backup_manifest import HEADS, find_obstacle
    from legation_host.databases import dialect_of

    from .audit import collect_heads
    from .backup_folder import check_files, read_folder
    from .database_restores import Restore

    manifest = read_folder(folder)
    saved = {one.database: one for one in manifest.databases}
    engines = {name: dialect_of(url) for name, url in platform.databases.items()}
    obstacle = find_obstacle(manifest, platform.config.id, names, engines)
    if obstacle is not None:
        raise CannotGoOn(f"{folder}: {obstacle}")
    with show_progress("Verifying the backup") as advance:
        check_files(folder, (manifest.heads, *(saved[name].file for name in names)), advance)
    with (folder / HEADS).open(encoding="utf-8") as file:
        heads = collect_heads((), file, names)
    steps = [
        Restore(platform, folder, saved[name], heads[name], replace, discard) for name in names
    ]
    return manifest, steps


def _perform(steps: list[Restore]) -> list[Restored]:
    restored: list[Restored] = []
    for step in steps:
        try:
            restored.append(step.perform())
        except BaseException:
            if restored:
                done = ", ".join(one.database for one in restored)
                click.echo(f"restored before this: {done}", err=True)
            raise
    return restored


def _as_json(folder: Path, manifest: Manifest, restored: list[Restored]) -> dict[str, Any]:
    return {
        "folder": str(folder),
        "platform": manifest.platform,
        "release": manifest.release,
        "databases": [
            {
                "database": one.database,
                "aside": one.aside or None,
                "schema": one.version,
                "detail": one.detail,
                "trail": one.trail.as_json,
            }
            for one in restored
        ],
    }


def _print(folder: Path, manifest: Manifest, restored: list[Restored]) -> None:
    from legation.runs.output import iso_time

    saved = {one.database: one for one in manifest.databases}
    if not restored:
        click.echo(f"{folder}: every file is as it was written by release {manifest.release}")
        return
    for one in restored:
        moment = iso_time(saved[one.database].at_us)
        click.echo(f"{one.database}: restored as of {moment}, schema {one.version}")
        click.echo(f"  {one.trail.describe()}")
        if one.aside:
            click.echo(f"  what was there before: {one.aside}")
        if one.detail:
            click.echo(click.style(f"  {one.detail}", fg="yellow"))
    if len(restored) > 1:
        click.echo("The databases are of one moment each, and not of the same one.")
    for line in _ADVICE:
        click.echo(line)
