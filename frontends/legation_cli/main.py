"""The commands, put together.

Each command imports what it needs when it runs: `legation token` should not pay for a server.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import click

from legation import __version__

from .audit import audit
from .backup import backup
from .channels import channels
from .chat import chat
from .check import check, explain
from .console import console
from .dead_letters import dead_letters
from .doctor import doctor
from .failing import CannotGoOn
from .import_agentos import import_data
from .init import init
from .keys import keys
from .migrate import migrate
from .openapi import openapi
from .replay import replay
from .restore import restore
from .retention import retention
from .round import round_once
from .runs import runs
from .serve import serve
from .token import token
from .users import users

__all__ = ["main"]


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


for command in (
    serve,
    init,
    chat,
    console,
    migrate,
    round_once,
    token,
    keys,
    check,
    explain,
    doctor,
    audit,
    backup,
    restore,
    channels,
    dead_letters,
    openapi,
    replay,
    retention,
    runs,
    users,
    import_data,
):
    main.add_command(command)
