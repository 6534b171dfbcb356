"""The kinds of channels, ours and those of an application, and the settings that each takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from attrs import NOTHING, fields, has

from .. import channels
from ..channels import Codec
from ..config import AnyChannel, Channel
from ..values import frozen
from .channel_options import ChannelOptions
from .secret_sources import SecretReader

__all__ = ["Setting", "find_kinds", "read_settings", "settings_of"]

Say: TypeAlias = Callable[[str, str], None]
"""Takes the path of a fault, and the sentence."""

_KIND: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}", re.ASCII)
_OPTIONS: Final = tuple(a.name for a in fields(ChannelOptions))
_OF_ALL: Final = ("id", "kind", "agent", "team", "agents", "apology", *_OPTIONS, "settings")
_FLAT: Final = tuple(a.name for a in fields(Channel) if a.name not in _OF_ALL)
"""The settings of our own kinds; those of others stand below `settings`."""
_PREFIXES: Final = {"bot_token": "1:"}
"""How a secret begins whose form is checked: a bot of Telegram has a number."""


@frozen
class Setting:
    """A setting that a kind takes: the field of its codec, and its key in a configuration.

    A secret has another key, for the file that holds it.
    """

    name: str
    key: str
    file_key: str
    secret: bool
    required: bool


def settings_of(made: type[Codec]) -> tuple[Setting, ...]:
    """Return what a channel of the kind `made` is set by; a field that is not shown is a secret."""
    kind: Any = made
    return tuple(
        Setting(
            a.name,
            a.name if a.repr else f"{a.name}_env",
            "" if a.repr else f"{a.name}_file",
            not a.repr,
            a.default is NOTHING,
        )
        for a in fields(kind)
        if a.init and a.name != "name"
    )


def find_kinds(added: Iterable[type[Codec]], say: Say) -> dict[str, type[Codec]]:
    """Return every kind by its name, ours first; of what is `added`, those without a fault."""
    kinds = dict(channels.CHANNEL_KINDS)
    for index, made in enumerate(added):
        if (why := _kind_fault(made, kinds)) is not None:
            say(f"channel_kinds[{index}]", why)
        else:
            kinds[made.kind] = made
    return kinds


def _kind_fault(made: Any, known: Mapping[str, type[Codec]]) -> str | None:
    """Return what is wrong with `made` as a kind of channels, beside those that are `known`."""
    if not (isinstance(made, type) and issubclass(made, Codec) and has(made)):
        return "expected a frozen class of attrs, made from Codec"
    kind: Any = made
    if missing := sorted(getattr(made, "__abstractmethods__", ())):
        return f"{made.__name__} has no {', '.join(missing)}"
    names = {a.name for a in fields(kind) if a.init}
    if unknown := sorted({"name", *kind.sender} - names):
        return f"{made.__name__} has no field {', '.join(unknown)}"
    name, limit = getattr(made, "kind", None), getattr(made, "text_limit", None)
    if not isinstance(name, str) or not _KIND.fullmatch(name):
        return f"{made.__name__} has no kind: [a-z][a-z0-9_-]{{0,63}}"
    if not isinstance(limit, int) or limit < 1:
        return f"{made.__name__} has no text_limit of at least 1"
    return f"there is a kind {name!r} already" if name in known else None


def read_settings(
    channel: AnyChannel, made: type[Codec], secrets: SecretReader
) -> dict[str, Any] | None:
    """Return what the codec of `channel` is made with, secrets looked up; None with faults."""
    below: Mapping[str, Any] = getattr(channel, "settings", None) or {}
    flat = {key: getattr(channel, key, None) for key in _FLAT}
    given = {**below, **{key: value for key, value in flat.items() if value is not None}}
    found: dict[str, Any] = {"name": channel.id}
    whole = True

    def place(key: str) -> str:
        beside = key in _FLAT and key not in below
        return f"channels.{channel.id}.{key if beside else f'settings.{key}'}"

    for wanted in settings_of(made):
        value, file = given.pop(wanted.key, None), given.pop(wanted.file_key, None)
        named = wanted.key if file is None else wanted.file_key
        if value is None and file is None:
            if wanted.required:
                whole = False
                secrets.say(place(wanted.key), "missing")
            continue
        if wanted.secret:
            path = place(named).removesuffix("_file").removesuffix("_env")
            value = secrets.read(path, value, file, prefix=_PREFIXES.get(wanted.name, ""))
            whole = whole and value is not None
        found[wanted.name] = value
    for key in sorted(given):
        whole = False
        secrets.say(place(key), f"is not allowed together with the kind {made.kind}")
    return found if whole else None
