"""`legation chat`: a conversation with an agent or a team, in the terminal."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import click

from legation.values import frozen

from .failing import CannotGoOn
from .target import complete_platform

if TYPE_CHECKING:
    from .chat_talk import Kind

__all__ = ["chat"]

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


def _check_text(_: click.Context, parameter: click.Parameter, text: str | None) -> str:
    """Return what was typed, or ""; it is not printed where it cannot be meant."""
    typed = (text or "").strip()
    if not typed.isprintable() or (parameter.name == "token" and not typed.isascii()):
        raise click.BadParameter("it has characters that none has")
    return typed


@click.command(short_help="Talk to an agent in the terminal.")
@click.argument(
    "place",
    required=False,
    metavar="[URL | PLATFORM.TOML | MODULE:ATTRIBUTE]",
    shell_complete=complete_platform,
)
@click.option("--agent", metavar="ID", help="The agent to talk to.")
@click.option("--team", metavar="ID", help="The team to talk to.")
@click.option("--session", metavar="ID", callback=_check_text, help="The session to go on with.")
@click.option(
    "--user", metavar="ID", callback=_check_text, help="Who you are, where authorization is off."
)
@click.option(
    "--token",
    callback=_check_text,
    envvar="LEGATION_TOKEN",
    show_envvar=True,
    help="The token to show to the server.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the events as JSON, one in a line, for a script."
)
def chat(
    place: str | None,
    agent: str | None,
    team: str | None,
    session: str,
    user: str,
    token: str,
    *,
    as_json: bool,
) -> None:
    """Talk to an agent or a team: its answers as they come, its tools, and your approvals.

    With the URL of a server, that is a client of it.  Otherwise a platform is served on this
    machine, as `legation serve` does, as long as the chat lasts.
    Without a platform, platform.toml of this folder is taken, or else the demonstration.

    Ctrl-C cancels the run, and ends the chat when it comes again; /help lists the commands.
    A stream that breaks is opened again where it was.

    A pipe is read line by line: each line is a message, or the answer to a question.  Answers go to
    standard output, everything else to standard error.  Exit code 1 says that a run failed, was
    cancelled or waits for an answer; 2 that a message was refused or there is no server.

    \b
    Examples:
      legation chat
      legation chat --agent desk --session first
      LEGATION_TOKEN=... legation chat https://agents.example.com
      echo "Which rooms are free?" | legation chat --agent desk
    """
    from .chat_link import open_link
    from .chat_talk import Options, converse
    from .chat_terminal import Terminal

    component = _find_component(agent, team)
    interactive = sys.stdin.isatty()
    with _find_server(place, token) as server:
        options = Options(
            server.url,
            component,
            session,
            user,
            key=secrets.token_urlsafe(12),
            interactive=interactive,
            as_json=as_json,
            console=server.console,
        )
        with open_link(server.url, token, local=server.local) as link:
            code = Terminal(link, server.find_end, interactive).hold(converse(options))
    raise SystemExit(code)


@frozen
class _Server:
    """The server of a chat: where it is, and how it ended if it is the chat's own."""

    url: str
    local: bool
    console: bool
    find_end: Callable[[], str | None]


@contextmanager
def _find_server(place: str | None, token: str) -> Generator[_Server]:
    """Yield the server at `place`, if that is a URL; else one that is served meanwhile."""
    if place is not None and "://" in place:
        url = _check_url(place, token)
        yield _Server(url, _is_local(url), console=False, find_end=_no_end)
        return
    from .chat_server import serve_for_chat

    with serve_for_chat(place) as served:
        yield _Server(served.url, local=True, console=served.console, find_end=served.find_end)


def _no_end() -> None:
    """Know nothing of the end of a server that others run."""


def _check_url(url: str, token: str) -> str:
    """Return `url` without a slash at its end.

    Raises:
        CannotGoOn: It is no address, or a token would go to another machine without TLS.
    """
    if not _is_address(url):
        raise CannotGoOn(f"{url}: expected an address such as https://agents.example.com")
    if token and not url.lower().startswith("https:") and not _is_local(url):
        raise CannotGoOn(f"{url}: a token is for https:// alone, unless it is this machine")
    return url.rstrip("/")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return named and parts.scheme in ("http", "https") and not (parts.query or parts.fragment)


def _is_local(url: str) -> bool:
    return urlsplit(url).hostname in _LOOPBACK


def _find_component(agent: str | None, team: str | None) -> tuple[Kind, str] | None:
    """Return the agent or the team that was named, if one was.

    Raises:
        UsageError: Both were, or the name is no id.
    """
    if agent is not None and team is not None:
        raise click.UsageError("name an agent or a team, not both")
    name = agent if team is None else team
    if name is None:
        return None
    from .chat_talk import ID

    if not ID.fullmatch(name):
        raise click.UsageError(f"{name!r} is no id of an agent or a team")
    return ("agent" if team is None else "team", name)
