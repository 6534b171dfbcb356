"""`legation channels verify` and `register`: the setup of channels at their providers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from attrs import asdict

from legation.channels.commands import COMMANDS
from legation.channels.setup import Check
from legation.effects import Fetch, Program
from legation.hosted.registry import HostedChannel
from legation.values import frozen

from .failing import CannotGoOn, sentences
from .json_output import json_option, print_json
from .target import complete_platform, load_target

if TYPE_CHECKING:
    from legation import Platform

__all__ = ["ask_outside", "register", "verify"]

R = TypeVar("R")

_URL: Final = re.compile(r"https?://[^\s/?#]+(?:/[^\s?#]*)?")
_MARKS: Final[Mapping[bool | None, tuple[str, str]]] = {
    True: ("ok", "green"),
    False: ("wrong", "red"),
    None: ("see", "yellow"),
}


@frozen
class _Inspected:
    """A channel, the address that its provider has to send to, and what was found."""

    hosted: HostedChannel
    address: str
    checks: tuple[Check, ...]


def _check_url(_: click.Context, __: click.Parameter, url: str | None) -> str:
    """Return the address of the server without a slash at its end, or ""."""
    if url is not None and not _URL.fullmatch(url):
        raise click.BadParameter("expected an address such as https://your-host")
    return (url or "").rstrip("/")


_named: Final = click.argument(
    "names",
    nargs=-1,
    metavar="[PLATFORM.TOML | MODULE:ATTRIBUTE] [CHANNEL]",
    shell_complete=complete_platform,
)


@click.command(short_help="Ask the providers whether the channels are set up right.")
@_named
@click.option("--url", callback=_check_url, help="The public address of the server.")
@json_option
def verify(names: Sequence[str], url: str, as_json: bool) -> None:
    """Ask the provider of each channel, or of CHANNEL, whether it is set up right.

    Credentials, the address of the webhook, permissions, and the last delivery that failed are
    looked at, as far as the provider shows them; for each finding there is a line with what to do.
    Without --url the path of the address alone is compared.

    Without a platform, platform.toml of this folder is taken, or else the demonstration.
    Exit code 1 says that something is wrong.

    \b
    Examples:
      legation channels verify
      legation channels verify platform.toml bot --url https://your-host
    """
    with sentences():
        found = _find(names, lambda hosted: _inspect(hosted, url))
    _report(found, as_json=as_json)


@click.command(short_help="Tell the providers where to send messages.")
@_named
@click.option("--url", required=True, callback=_check_url, help="The public address of the server.")
@json_option
def register(names: Sequence[str], url: str, as_json: bool) -> None:
    """Tell the provider of each channel, or of CHANNEL, where to send messages.

    For Telegram the webhook is set with the secret token, and the commands that it shows to
    people.  Slack and Meta take the address from a person: it is printed, with its place.

    Without a platform, platform.toml of this folder is taken, or else the demonstration.
    Exit code 1 says that a provider did not take the address.

    \b
    Examples:
      legation channels register --url https://your-host
      legation channels register platform.toml bot --url https://your-host
    """
    with sentences():
        found = _find(names, lambda hosted: _register(hosted, url))
    _report(found, as_json=as_json)


def _inspect(hosted: HostedChannel, url: str) -> _Inspected:
    address = f"{url}{hosted.webhook}"
    return _Inspected(hosted, address, ask_outside(hosted.codec.inspect(address)))


def _register(hosted: HostedChannel, url: str) -> _Inspected:
    address = f"{url}{hosted.webhook}"
    others = {word[1:]: f"asks {one.name}"[:256] for word, one in hosted.others.items()}
    commands = {**others, **(COMMANDS if hosted.options.commands else {})}
    return _Inspected(hosted, address, ask_outside(hosted.codec.register(address, commands)))


def _find(
    names: Sequence[str], ask: Callable[[HostedChannel], _Inspected]
) -> tuple[_Inspected, ...]:
    """Ask about the channels that are meant."""
    platform, channel = _split(names)
    made = load_target(platform)
    return tuple(map(ask, _meant(made, channel)))


def _split(names: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the platform and the channel that are named; a channel may stand alone."""
    if len(names) > 2:
        raise click.UsageError("name one platform and one channel at most")
    if len(names) == 2:
        return names[0], names[1]
    if not names:
        return None, None
    is_platform = names[0].endswith(".toml") or ":" in names[0]
    return (names[0], None) if is_platform else (None, names[0])


def _meant(platform: Platform, channel: str | None) -> tuple[HostedChannel, ...]:
    """Return the channels that take messages, or the one of this name."""
    hosted = platform.registry.channels.values()
    taking = {one.id: one for one in hosted if one.codec.receives}
    if channel is None:
        return tuple(taking.values())
    if channel not in taking:
        known = ", ".join(taking) or "none"
        raise CannotGoOn(f"there is no channel {channel!r}; there are: {known}")
    return (taking[channel],)


def ask_outside(program: Program[R]) -> R:
    """Run a program that asks servers of others, and for the time."""
    import anyio  # it takes its time, and most commands do not need it

    return anyio.run(_drive, program)


async def _drive(program: Program[R]) -> R:
    """Drive a program that asks a provider, and for the time."""
    from legation_host.fetch import Fetcher

    fetcher = Fetcher()
    answer: Any = None
    try:
        while True:
            effect = program.send(answer)
            if isinstance(effect, Fetch):
                answer = await fetcher.fetch(effect)
            else:  # it asks for the time
                answer = time.time_ns() // 1_000
    except StopIteration as stop:
        result: R = stop.value
        return result
    finally:
        await fetcher.aclose()


def _report(found: Sequence[_Inspected], *, as_json: bool) -> None:
    if as_json:
        print_json([_summary(one) for one in found])
    else:
        click.echo("\n".join(line for one in found for line in _lines(one)) or _NOTHING)
    if any(check.ok is False for one in found for check in one.checks):
        raise SystemExit(1)


_NOTHING: Final = "No channel is configured."


def _summary(one: _Inspected) -> dict[str, Any]:
    checks = [asdict(check) for check in one.checks]
    return {
        "id": one.hosted.id,
        "kind": one.hosted.codec.kind,
        "address": one.address,
        "checks": checks,
    }


def _lines(one: _Inspected) -> Sequence[str]:
    """Return what was found of a channel, a line each, and below it what to do."""
    lines = [click.style(f"{one.hosted.id} ({one.hosted.codec.kind})  {one.address}", bold=True)]
    if not one.checks:
        lines.append("  there is nobody to ask: compare the address and the secret by hand")
    for check in one.checks:
        mark, hue = _MARKS[check.ok]
        lines.append(f"  {click.style(f'{mark:<6}', fg=hue)} {check.subject}: {check.message}")
        if check.remedy:
            lines.append(f"         {check.remedy}")
    return lines
