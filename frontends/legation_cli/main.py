"""The commands, put together.

Each command imports what it needs when it runs: `legation token` should not pay for a server.
"""

from __future__ import annotations

import os

import click

from legation import __version__

from .audit import audit
from .channels import channels
from .check import check, explain
from .keys import keys
from .migrate import migrate
from .openapi import openapi
from .serve import serve
from .token import token

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="legation")
@click.pass_context
def main(context: click.Context) -> None:
    """Host AI agents and teams behind a REST interface.

    \b
    First steps:
      legation serve                        a demonstration, no key and no file needed
      legation keys new keys                keys of your own, and how to switch authorization on
      legation serve platform.toml          your own agents
      legation check platform.toml          every route with its scope, every unsafe setting
    """
    if os.environ.get("NO_COLOR"):  # no-color.org; what is no terminal has none anyway
        context.color = False


for command in (serve, migrate, token, keys, check, explain, audit, channels, openapi):
    main.add_command(command)
