"""`legation round`: what waits is done once, for cron and other schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from attrs import asdict

from .failing import sentences
from .json_output import json_option, print_json
from .target import complete_platform, load_target
from .terminal import show_progress

if TYPE_CHECKING:
    from legation import Platform
    from legation.lifecycle.bounded_round import RoundReport

__all__ = ["round_once"]


@click.command("round", short_help="Do once what waits, for cron.")
@click.argument(
    "target",
    required=False,
    metavar="[PLATFORM.TOML | MODULE:ATTRIBUTE]",
    shell_complete=complete_platform,
)
@click.option(
    "--limit",
    default=100,
    show_default=True,
    type=click.IntRange(min=0),
    help="Take up so many messages, runs and waiting replies at most.",
)
@click.option(
    "--seconds",
    default=50.0,
    show_default=True,
    type=click.FloatRange(min=0.0),
    help="For all of it; in the second half nothing new is taken up.",
)
@json_option
def round_once(target: str | None, limit: int, seconds: float, as_json: bool) -> None:
    """Do once what waits and is due now, and end: where no `legation serve` runs.

    Schemas are looked at; replies are sent, runs that nobody executes are executed or ended,
    messages are answered, and what is long done is deleted.  What is still under work when the
    time is over is released.  Rounds may run side by side, and beside servers.

    Without a platform, platform.toml of this folder is taken, or else the demonstration.
    Exit code 1 says that a database failed; the log on standard error says why.

    \b
    Examples:
      legation round platform.toml
      * * * * * cd /srv/mission && legation round platform.toml
    """
    import anyio

    with sentences():
        platform = load_target(target, writes=True)
        with show_progress("Working off what waits", total=seconds):
            report = anyio.run(_go_round, platform, limit, seconds)
    if as_json:
        print_json(asdict(report))
    else:
        click.echo(_describe(report))
    if report.failed:
        raise SystemExit(1)


async def _go_round(platform: Platform, limit: int, seconds: float) -> RoundReport:
    from legation_host import open_log
    from legation_host.hosting import open_platform

    log = open_log(level="warning")
    async with open_platform(platform, log=log, jobs=False, tells=False) as host:
        return await host.run(platform.round(limit, seconds))


def _describe(report: RoundReport) -> str:
    """Return what was done, in a line."""
    from legation.runs.output import iso_time

    parts = [f"messages {report.messages}, replies {report.replies}, runs {report.runs}"]
    if report.released:
        parts.append(f"released {report.released}")
    if report.failed:
        parts.append(f"failed: {', '.join(report.failed)}")
    if report.next_us is not None:
        parts.append(f"next due {iso_time(report.next_us) if report.next_us else 'now'}")
    return "; ".join(parts)
