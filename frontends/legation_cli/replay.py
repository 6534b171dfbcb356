"""`legation replay`: the recording of a run, as a file that a test replays."""

from __future__ import annotations

import click

from legation import Platform
from legation.access.decide import owner_of
from legation.effects import Program, Transact
from legation.replay.building import NotRecordable, encode_lines, fetch_recording
from legation.replay.redaction import BadPath, check_paths, redact
from legation.store.failures import StoreFailure
from legation.store.run_reads import FetchRun

from .failing import CannotGoOn, sentences, why
from .json_output import always_json
from .target import check_database, complete_platform, load_target, require_secrets

__all__ = ["replay"]


@click.command(short_help="Print the recording of a run, for a test that replays it.")
@click.argument("run_id", metavar="RUN")
@click.argument(
    "platform",
    required=False,
    metavar="[PLATFORM.TOML | MODULE:ATTRIBUTE]",
    shell_complete=complete_platform,
)
@click.option("--database", help="Look in this database alone, not in all of the platform.")
@click.option(
    "--redact",
    "paths",
    multiple=True,
    metavar="PATH",
    help="A path of values that give way to placeholders, as arguments.card.  May be repeated.",
)
@click.option("--user", help="The run has to be of this user.")
@always_json
def replay(
    run_id: str,
    platform: str | None,
    database: str | None,
    paths: tuple[str, ...],
    user: str | None,
) -> None:
    """Print the recording of a run: all that it asked of the world and was answered.

    The run is read from its database, beside whoever serves it.  The same run gives the same bytes
    as GET /agents/ID/runs/RUN/replay.  It has to be over, or wait for a person.
    Without a platform, platform.toml of this folder is taken, or else the demonstration.

    The file holds the message, the history, and what tools were given and returned.  --redact takes
    values out, everywhere they occur: a path begins with user, session_id, input, state, history,
    document, arguments, decision, outcome, error or output, and * stands for every member.

    Exit code 1 says that there is no such run, or no recording of it.

    \b
    Examples:
      legation replay 019b76da-0000-7000-8000-000000000001 > booking.run.jsonl
      legation replay RUN platform.toml --redact arguments.card --redact input.message
    """
    with sentences():
        made = load_target(platform, needs_secrets=False)
        if database is None:
            require_secrets(made, "databases.")
        else:
            check_database(made, database)
        if (bad := check_paths(paths)) is not None:
            raise CannotGoOn(f"--redact: {bad.detail}")
        names = made.databases if database is None else (database,)
        lines = _read(made, tuple(names), _record(made, tuple(names), run_id, paths, user))
    if isinstance(lines, str):
        click.echo(f"Error: {lines}", err=True)
        raise SystemExit(1)
    for line in lines:
        click.echo(line, nl=False)


def _record(
    platform: Platform,
    databases: tuple[str, ...],
    run_id: str,
    paths: tuple[str, ...],
    user: str | None,
) -> Program[tuple[bytes, ...] | str]:
    """Return the lines of the recording, or a sentence that says why there are none."""
    owner = None if user is None else owner_of(user)
    for name in databases:
        row = yield from Transact(name, FetchRun(run_id, owner, any_owner=owner is None))
        if row is None:
            continue
        hosted = platform.registry.components(row.kind).get(row.component_id)
        history_runs = 0 if hosted is None else hosted.history_runs
        recording = yield from fetch_recording(name, row, history_runs)
        if isinstance(recording, NotRecordable):
            return recording.detail
        redacted = redact(recording, paths)
        if isinstance(redacted, BadPath):
            raise AssertionError(redacted.detail)  # the paths are checked, and work has no bound
        lines = encode_lines(redacted)
        return lines.detail if isinstance(lines, NotRecordable) else lines
    whose = "" if user is None else f" of {user!r}"
    return f"there is no run {run_id!r}{whose} in {', '.join(databases)}"


def _read(
    platform: Platform, databases: tuple[str, ...], program: Program[tuple[bytes, ...] | str]
) -> tuple[bytes, ...] | str:
    # It loads the host, which `--help` should not pay for.
    from .reading import read_beside

    try:
        return read_beside({name: platform.databases[name] for name in databases}, program)
    except StoreFailure as failure:
        raise CannotGoOn(f"the run cannot be read: {why(failure)}") from None
