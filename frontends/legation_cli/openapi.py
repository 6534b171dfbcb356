"""`legation openapi`: the HTTP surface of a platform as an OpenAPI document."""

from __future__ import annotations

import click

from .failing import sentences
from .json_output import always_json
from .target import complete_platform, load_target

__all__ = ["openapi"]


@click.command(short_help="Print the OpenAPI document of a platform.")
@click.argument(
    "platform",
    required=False,
    metavar="[PLATFORM.TOML | MODULE:ATTRIBUTE]",
    shell_complete=complete_platform,
)
@always_json
def openapi(platform: str | None) -> None:
    """Print the OpenAPI 3.1.0 document that the platform serves at /openapi.json.

    Without a platform, platform.toml of this folder is taken, or else the demonstration.

    \b
    Example:
      legation openapi platform.toml > openapi.json
    """
    with sentences():
        made = load_target(platform, needs_secrets=False)
    click.echo(made.documentation.document.body)
