"""`legation channels`: what waits in each channel, and whether it is set up at its provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from legation.api.handlers.channels import survey

from .ages import describe_age
from .channel_setup import register, verify
from .failing import CannotGoOn, sentences
from .json_output import json_option, print_json
from .target import complete_platform, load_target, require_secrets
from .terminal import show_table

__all__ = ["channels", "show", "table"]

_HEADS: Final = ("channel", "kind", "answered by", "what", "waiting", "in work", "oldest", "dead")


class _Shown(click.Group):
    """The group whose own name, with what no command is called, stands for `show`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `show` in front where no command is named."""
        known = (*self.commands, *ctx.help_option_names)
        return super().parse_args(ctx, args if args and args[0] in known else ["show", *args])


@click.group(cls=_Shown, short_help="Show what waits in channels; set them up at providers.")
def channels() -> None:
    """Show what waits in each channel, and set channels up at their providers.

    `legation channels` is short for `legation channels show`.
    """


@channels.command(short_help="Show what waits in each channel, and dead letters.")
@click.argument(
    "platform",
    required=False,
    metavar="[PLATFORM.TOML | MODULE:ATTRIBUTE]",
    shell_complete=complete_platform,
)
@json_option
def show(platform: str | None, as_json: bool) -> None:
    """Show what waits in each channel: messages to answer, replies to send, dead letters.

    Without a platform, platform.toml of this folder is taken, or else the demonstration.
    Exit code 1 says that something is dead, 2 that a database does not answer.
    `POST /channels/{channel}/messages/{message_id}/retry` tries a dead letter again.
    """
    from .reading import read_beside

    with sentences():
        made = load_target(platform, needs_secrets=False)
        require_secrets(made, "databases.")
        found = read_beside(made.databases, survey(made.registry))
    if as_json:
        print_json(found)
    else:
        _show(found)
    depths = [depth for channel in found for depth in (channel["messages"], channel["replies"])]
    if None in depths:
        raise CannotGoOn("a database does not answer, or has no schema yet")
    held = [channel for channel in found if "held" in channel]
    for channel in () if as_json else held:
        click.echo(_describe_held(channel), err=True)
    if held or any(depth["dead"] for depth in depths):
        raise SystemExit(1)


channels.add_command(verify)
channels.add_command(register)


def _show(channels: Sequence[Mapping[str, Any]]) -> None:
    plain = table(channels)
    if not channels:
        click.echo(plain)
        return
    rows = [row for channel in channels for row in _rows(channel)]
    dead = [number for number, row in enumerate(rows) if _is_dead(row)]
    show_table(_HEADS, rows, plain, _HEADS[4:], dead)


def table(channels: Sequence[Mapping[str, Any]]) -> str:
    """Return the channels as a table for a terminal: two lines each."""
    if not channels:
        return "No channel is configured."
    rows = [row for channel in channels for row in _rows(channel)]
    widths = [max(map(len, column)) for column in zip(_HEADS, *rows, strict=True)]
    lines = [_line(_HEADS, widths).upper()]
    for row in rows:
        line = _line(row, widths)
        lines.append(click.style(line, fg="red") if _is_dead(row) else line)
    return "\n".join(lines)


def _describe_held(channel: Mapping[str, Any]) -> str:
    since, reason = channel["held"]["since"], channel["held"]["reason"]
    name = channel["id"]
    return (
        f"{name} is held since {since}, for its provider refuses the credentials ({reason})."
        f"  Its replies wait; `legation channels verify` says more."
    )


def _is_dead(row: Sequence[str]) -> bool:
    return row[-1] not in {"0", "?"}


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Pad names on the right and numbers on the left."""
    padded = [
        cell.ljust(width) if place < 4 else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()


def _rows(channel: Mapping[str, Any]) -> Sequence[Sequence[str]]:
    answering = channel.get("agent_id") or channel.get("team_id")
    first = (channel["id"], channel["kind"], str(answering))
    return (
        (*first, "messages", *_cells(channel["messages"])),
        ("", "", "", "replies", *_cells(channel["replies"])),
    )


def _cells(depth: Mapping[str, Any] | None) -> tuple[str, str, str, str]:
    if depth is None:
        return ("?", "?", "?", "?")
    numbers = str(depth["ready"]), str(depth["in_work"]), str(depth["dead"])
    return (numbers[0], numbers[1], _age(depth["oldest_seconds"]), numbers[2])


def _age(seconds: int | None) -> str:
    return "-" if seconds is None else describe_age(seconds)
