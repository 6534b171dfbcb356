"""`legation serve`: the trio server for a platform."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from ipaddress import ip_address
from typing import Any

import click

from legation import Platform
from legation_host.host import Host

from .demonstration import data_folder, demonstration
from .failing import CannotGoOn, sentences

__all__ = ["banner", "serve"]


@click.command()
@click.argument("platform", required=False, metavar="[PLATFORM.TOML | MODULE:ATTRIBUTE]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=7777,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--log-format",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "text", "json"]),
    help="How log lines look; auto is text on a terminal and JSON elsewhere.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Serve without authorization on an address that others can reach.",
)
def serve(platform: str | None, host: str, port: int, log_format: str, insecure: bool) -> None:
    """Serve a platform over HTTP until SIGTERM or Ctrl-C.

    Without an argument it hosts a demonstration: two agents and a team that repeat what they are
    told, with a SQLite file in your data folder.  No key and no file is needed.

    \b
    Examples:
      legation serve
      legation serve platform.toml --port 8000
      legation serve my_package.app:platform
    """
    # The server and what it needs take a tenth of a second to import; the other commands do not
    # need them.
    from legation_host.loading import load_platform
    from legation_host.logs import open_log
    from legation_server import ListenError, open_listeners, run

    with sentences():
        if platform is None:
            made = demonstration(data_folder(os.environ))
        else:
            made = load_platform(platform, os.environ)
        _refuse_open_door(made, host, insecure)
        log = open_log(log_format)
        try:
            listeners = open_listeners(host, port)
        except ListenError as error:
            raise CannotGoOn(str(error)) from None
        address, bound = listeners[0].getsockname()[:2]
        url = f"http://{_bracketed(address)}:{bound}"

        def host_for(served: Platform) -> AbstractAsyncContextManager[Host]:
            from legation_host.hosting import open_platform

            return open_platform(served, log=log)

        def greet(_: Any) -> None:
            click.echo(banner(made, url, demo=platform is None), err=True)

        run(lambda: made, host_for, listeners, log=log, started=greet)


def _refuse_open_door(platform: Platform, host: str, insecure: bool) -> None:
    """Refuse to serve without authorization where others can reach it, unless told to."""
    if platform.config.authorization or insecure or _is_loopback(host):
        return
    raise CannotGoOn(
        f"authorization is off, and {host} can be reached by others: switch it on"
        " (`legation keys new` shows how), or say --insecure"
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


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
        lines += ["", "Try:", *(f"  {line}" for line in _first_steps(url))]
    lines += ["", "Ctrl-C ends it."]
    return "\n".join(lines)


def _first_steps(url: str) -> tuple[str, ...]:
    return (
        f"curl {url}/agents",
        f"curl -N {url}/agents/concierge/runs -F 'message=Hello there' -F session_id=first",
        f"curl {url}/sessions/first",
    )
