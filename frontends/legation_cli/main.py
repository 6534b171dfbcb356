"""The commands, put together.

Each is imported when it is typed, and imports what it needs when it runs: `legation token` should
not pay for a server, and a server not for the other commands.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

import click

from legation import __version__

from .failing import CannotGoOn
from .imports import freeze_imports

__all__ = ["main"]

_HOMES: Final = {
    "audit": "audit",
    "backup": "backup",
    "channels": "channels",
    "chat": "chat",
    "check": "check",
    "console": "console",
    "dead-letters": "dead_letters",
    "doctor": "doctor",
    "explain": "check",
    "import": "import_agentos:import_data",
    "init": "init",
    "keys": "keys",
    "migrate": "migrate",
    "openapi": "openapi",
    "replay": "replay",
    "restore": "restore",
    "retention": "retention",
    "round": "round:round_once",
    "runs": "runs",
    "serve": "serve",
    "token": "token",
    "users": "users",
}
"""The module of each command, and its name there where that is another one."""


class _Late(Mapping[str, click.Command]):
    """The commands by their names.  One is imported when it is asked for: a server needs one."""

    def __getitem__(self, name: str) -> click.Command:
        """Import the command `name`."""
        module, _, attribute = _HOMES[name].partition(":")
        with freeze_imports():
            found = import_module(f".{module}", __package__)
        command: click.Command = getattr(found, attribute or name.replace("-", "_"))
        return command

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(_HOMES)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(_HOMES)


class _Commands(click.Group):
    """The commands.  An error of the system is a sentence for the operator, like any other."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was typed.

        Raises:
            CannotGoOn: The system refused something, such as to write to a full disk.
        """
        try:
            return super().invoke(ctx)
        except OSError as error:
            if error.errno == errno.EPIPE:  # nobody reads on: click ends it
                raise
            where = f"{error.filename}: " if error.filename else ""
            raise CannotGoOn(f"{where}{error.strerror or error}") from None


@click.group(
    cls=_Commands,
    commands=cast(MutableMapping[str, click.Command], _Late()),
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
)
@click.version_option(__version__, prog_name="legation")
@click.pass_context
def main(context: click.Context) -> None:
    """Host AI agents and teams behind a REST interface.

    \b
    First steps:
      legation serve                        a demonstration, no key and no file needed
      legation init shop                    a small project of your own, with an agent and a test
      legation keys new keys                keys of your own, and how to switch authorization on
      legation chat                         talk to an agent in the terminal
      legation serve platform.toml          your own agents; the file may be left out
      legation console                      the console of a running server, in a browser
      legation check platform.toml          every route with its scope, every unsafe setting
    """
    if sys.stdin is None:  # it was closed
        empty = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 (the context closes it)
        sys.stdin = context.with_resource(empty)
    if os.environ.get("NO_COLOR"):  # no-color.org; what is no terminal has none anyway
        context.color = False
