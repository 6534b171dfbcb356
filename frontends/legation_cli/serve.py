"""`legation serve`: the trio server for a platform."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import click

from .imports import freeze_imports
from .json_output import print_json
from .target import complete_platform, find_past, find_target, load_target
from .terminal import show_table

if TYPE_CHECKING:
    from legation import Platform

__all__ = ["banner", "serve"]


def _list_limits(*, as_json: bool) -> None:
    from attrs import asdict

    from legation_server.settings import DEFAULT

    limits = asdict(DEFAULT)
    if as_json:
        print_json(limits)
        return
    rows = [(name, "no limit" if value is None else str(value)) for name, value in limits.items()]
    plain = "\n".join(f"{name:<24} {value}" for name, value in rows)
    show_table(("limit", "default"), rows, plain, numbers=("default",))


@click.command()
@click.argument(
    "target",
    required=False,
    metavar="[PLATFORM.TOML | MODULE:ATTRIBUTE]",
    shell_complete=complete_platform,
)
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option(
    "--port",
    default=7777,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 takes a free one.",
)
@click.option("--unix", metavar="PATH", help="Listen on a Unix socket instead.")
@click.option(
    "--workers", default=1, type=click.IntRange(1, 64), help="Processes that share the address."
)
@click.option("--certfile", metavar="PATH", help="Serve TLS with this certificate chain (PEM).")
@click.option("--keyfile", metavar="PATH", help="Its key, unless it is in the same file.")
@click.option(
    "--hsts/--no-hsts",
    default=True,
    help="With TLS, tell browsers on other machines to come by TLS alone.",
)
@click.option(
    "--trusted-proxy",
    "proxies",
    metavar="CIDR",
    multiple=True,
    help="Believe this network, or `unix`, about the address of a client; repeatable.",
)
@click.option(
    "--forwarded-header",
    "forwarded",
    default="x-forwarded-for",
    type=click.Choice(["x-forwarded-for", "forwarded"]),
    help="The header in which all of these proxies tell it.",
)
@click.option(
    "--limit",
    "limits",
    metavar="NAME=NUMBER",
    multiple=True,
    help="Change a limit, as in --limit connections=5000; repeatable.",
)
@click.option(
    "--limits",
    "listed",
    is_flag=True,
    help="List the limits with their defaults, and serve nothing.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the limits as JSON, for a script.")
@click.option(
    "--log-format",
    default="auto",
    type=click.Choice(["auto", "text", "json"]),
    help="How log lines look; auto is text on a terminal and JSON elsewhere.",
)
@click.option(
    "--access-log/--no-access-log", default=True, help="One line for each request in the log."
)
@click.option(
    "--traces",
    is_flag=True,
    help="Send OpenTelemetry spans, as the OTEL_… variables say; needs legation[otel].",
)
@click.option(
    "--metrics",
    is_flag=True,
    help="Send OpenTelemetry metrics, as the OTEL_… variables say; needs legation[otel]."
    " Prometheus needs no option.",
)
@click.option(
    "--dev",
    is_flag=True,
    help="Show tracebacks and what models are sent, and start again when a file changes;"
    " needs legation[dev].",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Serve without authorization on an address that others can reach.",
)
def serve(target: str | None, dev: bool, listed: bool, as_json: bool, **options: Any) -> None:
    """Serve a platform over HTTP until SIGTERM or Ctrl-C.

    Without a platform, platform.toml of this folder is taken, or else the demonstration.
    That is the booking desk of a hotel, its kitchen and a team of both.  It needs no key and no
    file of yours, and keeps a SQLite file in your data folder.

    SIGTERM lets requests and streams in flight finish, a second one does not.  SIGHUP reads keys
    and certificate again; with several workers it reads the whole configuration and replaces the
    workers one by one, without losing a request or cutting the stream of a run.  Sockets passed
    by systemd are served in the place of --host and --port.

    \b
    Examples:
      legation serve
      legation serve platform.toml --port 8000
      legation serve my_package.app:platform --workers 4
    """
    if listed:
        _list_limits(as_json=as_json)
        return
    if as_json:
        raise click.UsageError("--json goes with --limits: nothing else here prints data")
    target = find_target(target)
    if dev:
        # What watches is not loaded by a server that nobody develops.
        from .dev import serve_dev

        serve_dev(target, options, partial(_greet, target))
    # The server and what it needs take a tenth of a second to import; the other commands do not
    # need them.
    with freeze_imports():
        from .service import ServeOptions, Service

        prepare = find_past(target)

    load = partial(load_target, target, writes=True)
    greet = partial(_greet, target)
    service = Service(load, ServeOptions(**options), greet, prepare=prepare)
    raise SystemExit(service.run())


def _greet(target: str | None, platform: Platform, url: str) -> None:
    with suppress(OSError):  # a full disk: lines of the log are lost as well, and it serves
        click.echo(banner(platform, url, demo=target is None), err=True)


def banner(platform: Platform, url: str, *, demo: bool) -> str:
    """Return what a person reads when the server is up."""
    registry, config = platform.registry, platform.config
    title = click.style(f"{config.name} is served at {url}", bold=True)
    mode = "on" if config.authorization else "off (whoever reaches this address may do anything)"
    lines = [
        title,
        f"  agents         {', '.join(registry.agents) or 'none'}",
        f"  teams          {', '.join(registry.teams) or 'none'}",
        f"  authorization  {mode}",
        f"  databases      {', '.join(registry.databases)}",
    ]
    if demo:
        lines[-1] += f" ({unquote(platform.databases['main'].removeprefix('sqlite:///'))})"
    if config.console and not url.startswith("unix:"):
        lines.append(f"  console        {url}/console")
    if config.docs and not url.startswith("unix:"):
        lines.append(f"  docs           {url}/docs")
    hooks = [one.webhook for one in registry.channels.values() if one.codec.receives]
    for label, path in zip_longest(("channels",)[: len(hooks)], hooks, fillvalue=""):
        lines.append(f"  {label:<14} {'' if url.startswith('unix:') else url}{path}")
    if demo:
        lines += ["", "Try:", *(f"  {line}" for line in _first_steps(url))]
    lines += ["", "Ctrl-C ends it."]
    return "\n".join(lines)


def _first_steps(url: str) -> tuple[str, ...]:
    if url.startswith("unix:"):
        return (f"curl --unix-socket {url.removeprefix('unix:')} http://localhost/agents",)
    return (
        f"curl {url}/agents",
        f"curl -N {url}/agents/desk/runs -F 'message=Which rooms are free?' -F session_id=first",
        f"curl {url}/sessions/first",
    )
