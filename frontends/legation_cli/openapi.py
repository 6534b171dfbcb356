"""`legation openapi`: the HTTP surface of a platform as an OpenAPI document."""

from __future__ import annotations

import os

import click

from legation_host.loading import load_platform

from .failing import sentences

__all__ = ["openapi"]


@click.command(short_help="Print the OpenAPI document of a platform.")
@click.argument("platform", default="platform.toml", metavar="[PLATFORM.TOML | MODULE:ATTRIBUTE]")
def openapi(platform: str) -> None:
    """Print the OpenAPI 3.1.0 document that the platform serves at /openapi.json.

    \b
    Example:
      legation openapi platform.toml > openapi.json
    """
    with sentences():
        made = load_platform(platform, os.environ)
    click.echo(made.documentation.document.body)
