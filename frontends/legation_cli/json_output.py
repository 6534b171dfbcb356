"""JSON on standard output, for a script: every command that prints data can do it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import click

__all__ = ["always_json", "json_option", "print_json"]

_HELP: Final = "Print JSON, for a script."

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

json_option: Final[Decorator] = click.option("--json", "as_json", is_flag=True, help=_HELP)
"""Gives a command the option `--json`, as its argument `as_json`."""

always_json: Final[Decorator] = click.option(
    "--json", is_flag=True, expose_value=False, help="It is JSON in any case."
)
"""Lets a command take the option `--json` that prints nothing else anyway."""


def print_json(value: object) -> None:
    """Print `value` for a script."""
    click.echo(json.dumps(value, indent=2))
