"""`legation check` and `legation explain`: what a configuration and a token allow."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from legation import Platform
from legation.access.claims import claims_in_use
from legation.access.rights import describe_need
from legation.findings import SEVERITIES, Finding
from legation.hosted.registry import Registry
from legation.http.refusals import Fault
from legation.tools import Tool
from legation.values import frozen

from .failing import sentences
from .json_output import always_json, json_option, print_json
from .outlook import outlook_as_json, print_outlook, read_outlooks
from .target import complete_platform, load_target, require_secrets
from .terminal import show_table

if TYPE_CHECKING:
    from legation.runs.outlook import Outlook

__all__ = ["check", "explain"]

_LONGEST = 1 << 16  # characters; no token has so many


@click.command(short_help="List routes with scopes, tools, and unsafe settings.")
@click.argument(
    "platform",
    required=False,
    metavar="[PLATFORM.TOML | MODULE:ATTRIBUTE]",
    shell_complete=complete_platform,
)
@click.option("--runs", "with_runs", is_flag=True, help="Say which open runs would go on.")
@click.option(
    "--strict", is_flag=True, help="Exit code 1 also where there is advice: of low severity."
)
@json_option
def check(platform: str | None, with_runs: bool, strict: bool, as_json: bool) -> None:
    """List every route with what it needs, every tool, and every setting that is unsafe.

    Nothing is started and nothing is written, so it has its place before every deployment.  A
    scope such as agents:<id>:run is granted for one agent by its id, for all of them as
    agents:run or agents:*:run.

    The claims that tokens are read by are named, with the audience and the issuer that they need.

    Of each channel the path is named at which its provider delivers messages.

    Of each tool is said who has to agree to a call: nobody, or a person; a tool of the client's is
    called by the client.

    Without --runs no database is opened.  With it, the runs that are not over are read from every
    database of the platform, beside whoever serves it.  Each goes on under this configuration; goes
    on and loses a call, as its tool or its member is gone, or takes other arguments; waits, since
    nobody hosts what it was asked of; or ends.  Calls in doubt and changed definitions are named.

    What is unsafe has a severity of medium or high; what would be a second lock is advice, of low.
    A secret of a channel or of a model need not be here; what a server would miss is listed.

    With [prices], each model is named of which no price is known: its runs show no cost.

    Of each database is said what grows in it without a bound: [retention] deletes what is old.

    Without a platform, platform.toml of this folder is taken, or else the demonstration.
    Exit code 1 says that something is unsafe, with --strict also that there is advice, or that not
    every open run would go on whole; 2 that the configuration cannot be served, or a database not
    be read.

    \b
    Examples:
      legation check
      legation check platform.toml --runs
      legation check platform.toml --strict
      legation check platform.toml --json | jq .unsafe
    """
    made, outlooks = _load(platform, with_runs=with_runs)
    report = _describe(made, outlooks)
    if as_json:
        print_json(_as_json(report))
    else:
        _print(report)
    least = SEVERITIES.index("low" if strict else "medium")
    grave = any(SEVERITIES.index(found.severity) >= least for found in report.findings)
    if grave or not all(one.all_go_on for one in outlooks or ()):
        raise SystemExit(1)


def _load(platform: str | None, *, with_runs: bool) -> tuple[Platform, list[Outlook] | None]:
    """Return the platform, and with `with_runs` the outlook of its runs."""
    from legation_host.databases import check_files, check_url

    with sentences():
        made = load_target(platform, needs_secrets=False)
        require_secrets(made, "authorization_config.")
        if with_runs:
            require_secrets(made, "databases.")
        for name, url in made.databases.items():
            check_url(name, url)
        check_files(made.databases)
        return made, read_outlooks(made) if with_runs else None


@frozen
class _Held:
    """A tool, whose it is, and who has to agree to a call of it."""

    of: str
    name: str
    agreement: str


@frozen
class _Hook:
    """A channel, and the path at which its provider delivers messages."""

    name: str
    kind: str
    webhook: str


@frozen
class _Report:
    """The routes, tools and channels of a platform, and the faults of its configuration.

    Attributes:
        routes: The method, the path and the needs of each.
        outlooks: None where runs are not asked for.
        unpriced: None where no prices are configured.
    """

    routes: list[tuple[str, str, str]]
    claims: tuple[tuple[str, str], ...]
    tools: list[_Held]
    channels: list[_Hook]
    outlooks: list[Outlook] | None
    missing: tuple[Fault, ...]
    findings: tuple[Finding, ...]
    growth: tuple[Fault, ...]
    unpriced: tuple[Fault, ...] | None


def _describe(made: Platform, outlooks: list[Outlook] | None) -> _Report:
    config = made.config
    enforced = config.authorization_config if config.authorization else None
    return _Report(
        [
            (route.method, route.template, describe_need(route.need, route.template, enforced))
            for route in made.routes
        ],
        claims_in_use(enforced, config.id) if enforced is not None else (),
        _tools(made.registry),
        _channels(made.registry),
        outlooks,
        made.missing,
        made.find_unsafe(),
        made.find_growth(),
        None if config.prices is None else made.find_unpriced(),
    )


def _channels(registry: Registry) -> list[_Hook]:
    hosted = registry.channels.values()
    return [_Hook(one.id, one.codec.kind, one.webhook) for one in hosted if one.codec.receives]


_MEANING = {
    "none": "called without asking",
    "person": "asks a person first",
    "client": "executed by the client",
}


def _tools(registry: Registry) -> list[_Held]:
    components = (*registry.agents.values(), *registry.teams.values())
    return [
        _Held(f"{component.kind} {component.id}", tool.name, _agreement(tool))
        for component in components
        for tool in component.tools
    ]


def _agreement(tool: Tool) -> str:
    if tool.external_execution:
        return "client"
    return "person" if tool.requires_confirmation else "none"


def _as_json(report: _Report) -> dict[str, object]:
    routes = [{"method": m, "path": p, "needs": n} for m, p, n in report.routes]
    tools = [{"of": t.of, "name": t.name, "agreement": t.agreement} for t in report.tools]
    hooks = [{"id": one.name, "kind": one.kind, "webhook": one.webhook} for one in report.channels]
    known: dict[str, object] = {"routes": routes, "claims": dict(report.claims), "tools": tools}
    known["channels"] = hooks
    if report.outlooks is not None:
        known["runs"] = [outlook_as_json(one) for one in report.outlooks]
    known["missing"] = _faults_as_json(report.missing)
    known["unsafe"] = [found.as_json() for found in report.findings if found.severity != "low"]
    known["advice"] = [found.as_json() for found in report.findings if found.severity == "low"]
    known["grows"] = _faults_as_json(report.growth)
    if report.unpriced is not None:
        known["unpriced"] = _faults_as_json(report.unpriced)
    return known


def _faults_as_json(faults: Sequence[Fault]) -> list[dict[str, str]]:
    return [{"path": fault.path, "message": fault.message} for fault in faults]


def _print(report: _Report) -> None:
    _print_hosted(report)
    for outlook in report.outlooks or ():
        print_outlook(outlook)
    _print_missing(report.missing)
    for fault in report.growth:
        click.echo(f"grows  {fault.path}: {fault.message}")
    for fault in report.unpriced or ():
        click.echo(click.style(f"price  {fault.path}: {fault.message}", fg="yellow"))
    _print_findings(report.findings)


def _print_hosted(report: _Report) -> None:
    """Print the routes, and the claims, tools and channels that there are."""
    wide = max(len(path) for _, path, _ in report.routes)
    _print_rows(("method", "path", "needs"), report.routes, wide)
    _print_rows(("", "claim", "read from"), [("claim", *claim) for claim in report.claims], wide)
    tools = [("tool", f"{t.of}  {t.name}", _MEANING[t.agreement]) for t in report.tools]
    _print_rows(("", "tool", "agreement"), tools, wide)
    hooks = [("channel", f"{one.kind}  {one.name}", one.webhook) for one in report.channels]
    _print_rows(("", "channel", "webhook"), hooks, wide)


def _print_missing(missing: tuple[Fault, ...]) -> None:
    """Print the secrets that a server would need here."""
    for fault in missing:
        click.echo(click.style(f"missing  {fault.path}: {fault.message}", fg="yellow"))


def _print_findings(findings: tuple[Finding, ...]) -> None:
    """Print what is unsafe, the gravest first, and then what would be a second lock."""
    for found in findings:
        word = "advice" if found.severity == "low" else "unsafe"
        text = f"{word}  {found.path}: {found.message}"
        click.echo(click.style(text, fg="yellow" if found.severity == "low" else "red"))
    if all(found.severity == "low" for found in findings):
        click.echo(click.style("Nothing unsafe was found.", fg="green"))


def _print_rows(heads: Sequence[str], rows: Sequence[tuple[str, str, str]], wide: int) -> None:
    """Print rows of three cells and an empty line; nothing where there are none."""
    if rows:
        plain = "\n".join(f"{kind:<6} {name:<{wide}}  {value}" for kind, name, value in rows)
        show_table(heads, rows, f"{plain}\n")


@click.command(short_help="Say whether a token may ask something, and by which scope.")
@click.argument("token")
@click.argument("method")
@click.argument("path")
@click.argument(
    "platform",
    required=False,
    metavar="[PLATFORM.TOML | MODULE:ATTRIBUTE]",
    shell_complete=complete_platform,
)
@click.option("--platform", "option", metavar="PLATFORM", help="The same, as an option.")
@always_json
def explain(token: str, method: str, path: str, platform: str | None, option: str | None) -> None:
    """Say whether TOKEN may ask METHOD PATH of a platform, and by which scope.

    No server is asked: the token is verified with the keys of the platform, as it would do it
    now.  With - for TOKEN it is read from standard input, and in no list of processes.

    \b
    The answer:
      route, needs   where the request leads, and every scope that would be enough
      by             what allows it
      only           the ids that a list is narrowed to
      reason         why not: token, scope, signature, method, or no route
      because        what is wrong with the token
      missing        the narrowest scope that would be enough

    Without a platform, platform.toml of this folder is taken, or else the demonstration.
    Exit code 1 says that the token may not.

    \b
    Examples:
      legation explain "$TOKEN" POST /agents/concierge/runs
      echo "$TOKEN" | legation explain - GET /sessions platform.toml
    """
    if platform is not None and option is not None:
        raise click.UsageError("name the platform once: as the argument, or with --platform")
    with sentences():
        made = load_target(platform or option, needs_secrets=False)
        require_secrets(made, "authorization_config.")
    text = sys.stdin.read(_LONGEST) if token == "-" else token  # noqa: S105 (no password)
    sent = text.strip().encode("utf-8", "surrogateescape")
    decision = made.explain(sent, method.upper(), path, time.time_ns() // 1000)
    print_json(decision)
    if not decision["allowed"]:
        raise SystemExit(1)
