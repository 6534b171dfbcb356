"""The open runs of `legation check --runs`: which of them go on under a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from .failing import CannotGoOn, why
from .terminal import show_progress

if TYPE_CHECKING:
    from legation import Platform
    from legation.runs.outlook import Finding, Outlook

__all__ = ["outlook_as_json", "print_outlook", "read_outlooks"]

_WORDS: Final = {
    "goes_on": ("goes on", "go on"),
    "loses_call": ("loses a call", "lose a call"),
    "waits": ("waits", "wait"),
    "ends": ("ends", "end"),
}
_COLOURS: Final = {"loses_call": "yellow", "waits": "yellow", "ends": "red"}


def read_outlooks(platform: Platform) -> list[Outlook]:
    """Return the outlook of the open runs of each database; one without a file has none.

    Raises:
        HostError: A database cannot be opened.
        CannotGoOn: One does not answer, or is that of something else.
    """
    # The core of the runs is not loaded for a check without them.
    from legation.runs.outlook import Outlook, read_outlook
    from legation.store.failures import StoreFailure
    from legation_host.databases import find_missing

    from .reading import read_beside

    outlooks: list[Outlook] = []
    for name, url in platform.databases.items():
        if find_missing(name, url) is not None:
            outlooks.append(Outlook(name))
            continue
        try:
            with show_progress(f"Reading the open runs of {name!r}") as advance:
                program = read_outlook(platform.registry, name)
                outlooks.append(read_beside({name: url}, program, advance=advance))
        except StoreFailure as failure:
            sentence = f"the open runs of {name!r} cannot be read: {why(failure)}"
            raise CannotGoOn(sentence) from None
    return outlooks


def outlook_as_json(outlook: Outlook) -> dict[str, Any]:
    """Return the outlook of one database, for a script."""
    return {
        "database": outlook.database,
        "unserved": outlook.unserved,
        "open": outlook.runs,
        "outcomes": {outcome.value: count for outcome, count in outlook.outcomes.items()},
        "findings": [_finding_as_json(finding) for finding in outlook.findings],
        "more": outlook.more,
    }


def _finding_as_json(finding: Finding) -> Mapping[str, Any]:
    return {
        "outcome": finding.outcome.value,
        "code": finding.code,
        "component": finding.component,
        "detail": finding.detail,
        "runs": finding.runs,
        "examples": [
            {
                "run_id": one.run_id,
                "session_id": one.session_id,
                "status": one.status,
                "place": one.place or None,
            }
            for one in finding.examples
        ],
    }


def print_outlook(outlook: Outlook) -> None:
    """Print what becomes of the open runs of one database, the worst first."""
    if outlook.unserved is not None:
        sentence = f"runs    {outlook.database}: not read, for it would not be served:"
        click.echo(click.style(f"{sentence} {outlook.unserved}", fg="red"))
        return
    for finding in outlook.findings:
        _print_finding(outlook.database, finding)
    if outlook.more:
        click.echo(f"runs    {outlook.database}: and {outlook.more} more")
    runs, counts = outlook.runs, outlook.outcomes.items()
    told = [f"{count} {_WORDS[one.value][count != 1]}" for one, count in counts if count]
    summary = f"{runs} open run{'' if runs == 1 else 's'}{': ' if told else ''}{', '.join(told)}"
    colour = "green" if outlook.all_go_on else "red"
    click.echo(click.style(f"runs    {outlook.database}: {summary}", fg=colour))


def _print_finding(database: str, finding: Finding) -> None:
    count, outcome = finding.runs, finding.outcome.value
    head = f"{count} run{'' if count == 1 else 's'} of {finding.component}"
    line = f"runs    {database}: {head} {_WORDS[outcome][count != 1]}: {finding.detail}"
    click.echo(click.style(line, fg=_COLOURS.get(outcome)))
    named = [f"{one.run_id}{f' at {one.place}' * bool(one.place)}" for one in finding.examples]
    more = ", ..." if count > len(named) else ""
    click.echo(f"        {', '.join(named)}{more}")
