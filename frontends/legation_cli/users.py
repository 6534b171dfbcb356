"""`legation users`: erase a person, or export all that is stored of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO

import click

from legation import Platform
from legation.effects import Now, Program
from legation.erasure.erase import count_person, erase_person
from legation.erasure.export import export_person
from legation.erasure.people import is_reserved
from legation.erasure.receipt import Receipt, write_receipt
from legation.hosted.audit_settings import AUDIT_KEYS
from legation.store.failures import StoreFailure

from .beside import change_beside, record_change
from .failing import CannotGoOn, sentences, why
from .json_output import json_option, print_json
from .local_user import find_local_user
from .target import check_database, complete_platform, load_target, require_secrets
from .terminal import show_progress

__all__ = ["erase", "export", "users"]


@click.group(short_help="Erase a person, or export all that is stored of one.")
def users() -> None:
    """Erase a person, or export all that is stored of one, in every database of the platform."""


@users.command(short_help="Delete all that is stored of a user.")
@click.argument("user")
@click.argument(
    "platform_name", metavar="[PLATFORM]", required=False, shell_complete=complete_platform
)
@click.option("--dry-run", is_flag=True, help="Count what is stored, and delete nothing.")
@json_option
def erase(user: str, platform_name: str | None, dry_run: bool, as_json: bool) -> None:
    """Delete all that is stored of USER: the `sub` of its tokens, or `iss#sub` of a second issuer.

    Sessions with their runs, messages and replies of channels, kept answers and counters go from
    every database, in small transactions.  Servers may go on meanwhile.  Begun again after a crash,
    it deletes what is left.  Revoke the tokens of the user first.

    With --json the receipt is printed, as `DELETE /users/{user_id}` returns it.
    Without a platform, platform.toml of this folder is taken, or else the demonstration.

    \b
    Examples:
      legation users erase ada --dry-run
      legation users erase "https://id.example.com#ada" platform.toml --json > receipt.json
    """
    with sentences():
        platform = _load(user, platform_name)
        require_secrets(platform, AUDIT_KEYS)
        with show_progress("Counting" if dry_run else "Erasing"):
            receipt = _erase(platform, user, dry_run=dry_run)
    written = write_receipt(receipt, platform.context.cluster.trail_keys.signing)
    if as_json:
        print_json(written)
        return
    for name, counts in written["databases"].items():
        click.echo(f"{name}: {_sum_up(counts)}{' would be deleted' if dry_run else ' deleted'}")


@users.command(short_help="Write all that is stored of a user, as NDJSON.")
@click.argument("user")
@click.argument(
    "platform_name", metavar="[PLATFORM]", required=False, shell_complete=complete_platform
)
@click.option(
    "--output",
    type=click.File("wb"),
    default="-",
    help="The file to write; standard output unless given.",
)
def export(user: str, platform_name: str | None, output: BinaryIO) -> None:
    """Write all that is stored of USER as NDJSON, as `GET /users/{user_id}/export` does.

    A line is a row of a table; the last line has the number of rows of each.  An export without it
    is incomplete, and ends with exit code 2.
    Without a platform, platform.toml of this folder is taken, or else the demonstration.

    \b
    Examples:
      legation users export ada > ada.ndjson
      legation users export ada platform.toml --output ada.ndjson
    """
    with sentences():
        platform = _load(user, platform_name)
        whole = _export(platform, user, output)
    if not whole:
        raise CannotGoOn("a database failed, and the export is incomplete")


def _load(user: str, name: str | None) -> Platform:
    """Return the platform, all of whose databases are known."""
    if is_reserved(user):
        raise CannotGoOn(f"{user!r} is no user: an owner that begins with ~ is the platform's own")
    platform = load_target(name, needs_secrets=False)
    for database in platform.registry.databases:
        check_database(platform, database)
    return platform


def _erase(platform: Platform, user: str, *, dry_run: bool) -> Receipt:
    try:
        program = _receipt(platform, user, dry_run=dry_run)
        return change_beside(platform, platform.databases, program)
    except StoreFailure as failure:
        raise CannotGoOn(f"not all was done: {why(failure)}; repeat it") from None


def _receipt(platform: Platform, user: str, *, dry_run: bool) -> Program[Receipt]:
    now_us, by = (yield from Now()), f"local:{find_local_user()}"
    if dry_run:
        counts = yield from count_person(platform.context, user)
    else:
        change = record_change(platform, "users.erase", user)
        counts = yield from erase_person(platform.context, user, change)
    return Receipt(user, by, "", now_us, dry_run, counts)


def _export(platform: Platform, user: str, output: BinaryIO) -> bool:
    """Read beside whoever serves the databases; tell whether all of it was written."""
    # It loads the host.
    from .reading import read_beside

    program = export_person(platform.registry, user)
    return read_beside(platform.databases, program, emit=output.write) is None


def _sum_up(counts: Mapping[str, int]) -> str:
    named = [
        f"{count} {kind[:-1] if count == 1 else kind}" for kind, count in counts.items() if count
    ]
    return ", ".join(named) or "nothing"
