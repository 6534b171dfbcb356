"""`legation check` and `legation explain`: what a configuration and a token allow."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import click
from attrs import frozen

from legation.access.claims import claims_in_use
from legation.access.posture import Finding, posture
from legation.access.rights import describe_need
from legation.hosted.registry import Registry
from legation.tools import Tool

from .failing import sentences
from .json_output import always_json, json_option, print_json
from .target import complete_platform, load_target
from .terminal import show_table

__all__ = ["check", "explain"]

_LONGEST = 1 << 16  # characters; no token has so many


@click.command(short_help="List routes with scopes, tools, and unsafe settings.")
@click.argument(
    "platform",
    required=False,
    metavar="[PLATFORM.TOML | MODULE:ATTRIBUTE]",
    shell_complete=complete_platform,
)
@json_option
def check(platform: str | None, as_json: bool) -> None:
    """List every route with what it needs, every tool, and every setting that is unsafe.

    Nothing is started and no database is opened, so it has its place before every deployment.  A
    scope such as agents:<id>:run is granted for one agent by its id, for all of them as
    agents:run or agents:*:run.

    The claims that tokens are read by are named, with the audience and the issuer that they need.

    Of each tool is said who has to agree to a call: nobody, or a person; a tool of the client's is
    called by the client.

    Without a platform, platform.toml of this folder is taken, or else the demonstration.
    Exit code 1 says that something is unsafe, 2 that the configuration cannot be served.

    \b
    Examples:
      legation check
      legation check platform.toml --json | jq .unsafe
    """
    from legation_host.databases import check_files, check_url

    with sentences():
        made = load_target(platform)
        for name, url in made.databases.items():
            check_url(name, url)
        check_files(made.databases)
    config = made.config
    findings = posture(config)
    enforced = config.authorization_config if config.authorization else None
    tools = _tools(made.registry)
    routes = [
        (route.method, route.template, describe_need(route.need, route.template, enforced))
        for route in made.routes
    ]
    claims = claims_in_use(config.authorization_config, config.id) if config.authorization else ()
    if as_json:
        listed = [{"method": m, "path": p, "needs": n} for m, p, n in routes]
        unsafe = [{"path": f.path, "message": f.message} for f in findings]
        held = [{"of": t.of, "name": t.name, "agreement": t.agreement} for t in tools]
        said = {"routes": listed, "claims": dict(claims), "tools": held, "unsafe": unsafe}
        print_json(said)
    else:
        _print(routes, claims, tools, findings)
    if findings:
        raise SystemExit(1)


@frozen
class _Held:
    """A tool, whose it is, and who has to agree to a call of it."""

    of: str
    name: str
    agreement: str


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


def _print(
    routes: list[tuple[str, str, str]],
    claims: tuple[tuple[str, str], ...],
    tools: list[_Held],
    findings: tuple[Finding, ...],
) -> None:
    wide = max(len(path) for _, path, _ in routes)
    _print_rows(("method", "path", "needs"), routes, wide)
    _print_rows(("", "claim", "read from"), [("claim", *claim) for claim in claims], wide)
    held = [("tool", f"{t.of}  {t.name}", _MEANING[t.agreement]) for t in tools]
    _print_rows(("", "tool", "agreement"), held, wide)
    for finding in findings:
        click.echo(click.style(f"unsafe  {finding.path}: {finding.message}", fg="red"))
    if not findings:
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
        made = load_target(platform or option)
    text = sys.stdin.read(_LONGEST) if token == "-" else token  # noqa: S105 (no password)
    sent = text.strip().encode("utf-8", "surrogateescape")
    decision = made.explain(sent, method.upper(), path, time.time_ns() // 1000)
    print_json(decision)
    if not decision["allowed"]:
        raise SystemExit(1)
