"""Every command of the command line, and an ordinary way to call it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click
from attrs import field, frozen
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from legation_cli import main

__all__ = ["CALLS", "Call", "every_command", "write_agentos", "write_key"]


@frozen
class Call:
    """An ordinary call of a command.

    Attributes:
        before: The words before the name of the platform.
        after: The words behind it; with `--platform` as the last of `before`, it is an option.
        option: The platform is named by this option, and left out with it.
        takes_platform: The command is about a platform.
        reads: It reads alone, and so creates no file.
        serves: It goes on until it is stopped.
        data: The words of a call that prints data, where it is another one.
    """

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    option: str | None = None
    takes_platform: bool = field(default=True, kw_only=True)
    reads: bool = field(default=True, kw_only=True)
    serves: bool = field(default=False, kw_only=True)
    data: tuple[str, ...] | None = field(default=None, kw_only=True)

    def words(self, platform: str | None) -> tuple[str, ...]:
        """Return what is typed behind the name of the command."""
        if platform is None:
            return (*self.before, *self.after)
        named = (platform,) if self.option is None else (self.option, platform)
        return (*self.before, *named, *self.after)


_KEY = ("--key", "key.pem")

CALLS = {
    "audit export": Call(),
    "audit prune": Call((), ("--before", "2020-01-01"), reads=False),
    "audit refusals": Call(),
    "audit verify": Call(),
    "backup": Call(reads=False),
    "channels register": Call((), ("--url", "https://127.0.0.1")),
    "channels show": Call(),
    "channels verify": Call(),
    "chat": Call(reads=False),
    "check": Call(),
    "console": Call((), (*_KEY, "--no-browser")),
    "dead-letters discard": Call((), ("--all", "--yes"), reads=False),
    "dead-letters list": Call(),
    "dead-letters retry": Call((), ("--all",), reads=False),
    "dead-letters show": Call(("no-such-letter",)),
    "doctor": Call((), ("--offline",)),
    "explain": Call(("none", "GET", "/agents")),
    "import agentos": Call(("sqlite:///agno.db",), reads=False),
    "init": Call(("keys",), takes_platform=False, reads=False),
    "keys new": Call(takes_platform=False, reads=False),
    "keys rotate": Call(
        (), ("--jwks", "jwks.json", "--wait", "1s"), takes_platform=False, reads=False
    ),
    "migrate": Call((), ("main", "--plan")),
    "openapi": Call(),
    "replay": Call(("no-such-run",)),
    "restore": Call(("backups/saved",), reads=False),
    "retention": Call(reads=False),
    "round": Call(reads=False),
    "runs cancel": Call(("no-such-run",), reads=False),
    "runs follow": Call(("no-such-run",)),
    "runs list": Call(),
    "runs show": Call(("no-such-run",)),
    "serve": Call((), ("--port", "0"), reads=False, serves=True, data=("--limits",)),
    "token": Call(_KEY, (), "--platform"),
    "users erase": Call(("nobody",), reads=False),
    "users export": Call(("nobody",)),
}
"""A call of each command, by its words."""


def every_command() -> dict[str, click.Command]:
    """Return the commands that do something, by the words that are typed."""
    return dict(_walk(main, ()))


def _walk(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield " ".join(words), command
        return
    for name, inner in sorted(command.commands.items()):
        yield from _walk(inner, (*words, name))


def write_key(path: Path) -> None:
    """Write a private key that `token` and `console` can sign with."""
    key = rsa.generate_private_key(65537, 2048)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def write_agentos(path: Path) -> None:
    """Write the database of an AgentOS without sessions, which `import agentos` can read."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "create table agno_sessions (session_id, session_type, session_data, created_at)"
        )
