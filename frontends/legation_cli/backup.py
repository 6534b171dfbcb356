"""`legation backup`: copy the databases beside whoever serves them, with the heads of the trail."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from legation import __version__
from legation.hosted.audit_settings import AUDIT_KEYS

from .failing import CannotGoOn, sentences
from .json_output import json_option, print_json
from .target import complete_platform, require_secrets, select_databases

if TYPE_CHECKING:
    from legation import Platform
    from legation.lifecycle.backup_manifest import Manifest

    from .backup_trail import Trail

__all__ = ["backup"]


@click.command(short_help="Back up the databases, while servers go on.")
@click.argument(
    "names",
    nargs=-1,
    metavar="[PLATFORM.TOML | MODULE:ATTRIBUTE] [DATABASE]...",
    shell_complete=complete_platform,
)
@click.option(
    "--output",
    default="backups",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder that gets a folder for this backup.",
)
@click.option(
    "--keep",
    type=click.IntRange(1),
    help="Remove the oldest backups of this platform in it, so that so many are left.",
)
@json_option
def backup(names: tuple[str, ...], output: Path, keep: int | None, as_json: bool) -> None:
    """Back up the databases of the platform, while its servers go on.

    Everything that was acknowledged before a database's copy began is in it.  A SQLite file is
    copied in small steps, and the copy is checked.  For PostgreSQL `pg_dump` is called.  The audit
    trail of each copy is verified, and its heads are written beside it: heads.json is for
    `legation audit verify --heads`.

    The folder has its name once all of it is on the disk.  Nothing is overwritten.  Copies of two
    databases are of two moments.  Keys, secrets, platform.toml and your own modules are not in
    it: save them elsewhere.

    Without DATABASE every database of the platform is copied.
    Without a platform, platform.toml of this folder is taken, or else the demonstration.
    Exit code 1 says that the backup is made, and that an audit trail in it is broken.

    \b
    Examples:
      legation backup
      legation backup platform.toml --output /var/backups/legation --keep 14
      legation backup platform.toml main --json | jq -r .folder
    """
    with sentences():
        platform, databases = select_databases(names, several=True)
        require_secrets(platform, AUDIT_KEYS)
        _check_files(platform, databases)
        folder, manifest, trails = _make(platform, databases, output)
        removed = _remove_old(output, platform, keep)
    if as_json:
        print_json(_as_json(folder, manifest, removed))
    else:
        _print(folder, manifest, trails, removed)
    if any(one.intact is False for one in manifest.databases):
        raise SystemExit(1)


def _check_files(platform: Platform, databases: tuple[str, ...]) -> None:
    """Refuse a database in memory, and a file that is not there yet."""
    from legation_host.databases import find_missing, in_memory

    for name in databases:
        url = platform.databases[name]
        if in_memory(url):
            raise CannotGoOn(f"databases.{name}.url: it is in memory, and gone with its server")
        if (path := find_missing(name, url)) is not None:
            raise CannotGoOn(f"databases.{name}.url: there is no file {path} yet")


def _make(
    platform: Platform, databases: tuple[str, ...], output: Path
) -> tuple[Path, Manifest, list[Trail]]:
    """Make the backup; return its folder, its manifest and what was found in each trail."""
    from legation.lifecycle.backup_manifest import HEADS, Manifest

    from .backup_folder import finish_folder, new_folder, write_file
    from .database_copies import save_database

    now_us = time.time_ns() // 1_000
    with new_folder(output, platform.config.id, now_us) as (partial, final):
        copies = [save_database(platform, name, partial) for name in databases]
        trails = [copy.trail for copy in copies]
        heads = write_file(partial, HEADS, [trail.as_json for trail in trails])
        saved = tuple(copy.saved for copy in copies)
        manifest = Manifest(platform.config.id, __version__, now_us, heads, saved)
        finish_folder(partial, manifest)
    return final, manifest, trails


def _remove_old(output: Path, platform: Platform, keep: int | None) -> list[str]:
    from .backup_folder import remove_old

    return [] if keep is None else remove_old(output, platform.config.id, keep)


def _as_json(folder: Path, manifest: Manifest, removed: list[str]) -> dict[str, Any]:
    from legation.lifecycle.backup_manifest import write_manifest

    return {"folder": str(folder), "removed": removed, **write_manifest(manifest)}


def _print(folder: Path, manifest: Manifest, trails: list[Trail], removed: list[str]) -> None:
    from .backup_folder import describe_size

    for one, trail in zip(manifest.databases, trails, strict=True):
        size = describe_size(one.file.size)
        click.echo(f"{one.database}: {size}, schema {one.version}, {one.server}")
        click.echo(f"  {trail.describe()}")
    for name in removed:
        click.echo(f"removed {name}")
    if len(manifest.databases) > 1:
        click.echo("The copies are of one moment each, and not of the same one.")
    click.echo(f"Backup: {folder}")
