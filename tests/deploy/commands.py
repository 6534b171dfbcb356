"""Command lines of files in deploy/, read by the real command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from legation_cli import main

__all__ = ["parse"]


def parse(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the parameters of a command of `legation`, without running it.

    Raises:
        click.UsageError: It is no command, or takes no such option.
    """
    name, *rest = arguments
    command = main.get_command(click.Context(main), name)
    if command is None:
        raise click.UsageError(f"no command {name}")
    with command.make_context(name, [*rest]) as context:
        return dict(context.params)
