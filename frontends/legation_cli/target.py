"""The platform that a command is about: the one that is named, platform.toml, the demonstration.

Every command that takes a platform goes by the one rule of `find_target`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

from .failing import CannotGoOn

if TYPE_CHECKING:
    from legation import Platform
    from legation.config import PlatformConfig
    from legation_host import Write

__all__ = [
    "check_database",
    "complete_platform",
    "data_folder",
    "find_past",
    "find_target",
    "load_config",
    "load_target",
]

_DEFAULT_FILE: Final = "platform.toml"


def find_target(named: str | None) -> str | None:
    """Return which platform to load: `named`, else platform.toml, else None: the demonstration."""
    if named is None and Path(_DEFAULT_FILE).exists():
        return _DEFAULT_FILE
    return named


def load_target(named: str | None, *, writes: bool = False) -> Platform:
    """Return the platform that `named` leads to by the rule.

    Args:
        named: The path of a TOML file, or `module:attribute`, if one was typed.
        writes: Make the data folder of the demonstration, for a command that writes there.

    Raises:
        HostError: It cannot be loaded.
        CannotGoOn: The data folder of the demonstration cannot be written to.
    """
    from legation_host.loading import load_platform

    target = find_target(named)
    if target is not None:
        return load_platform(target, os.environ)
    # What the demonstration is made of is not loaded for anything else.
    from .demonstration import demonstration

    folder = data_folder(os.environ)
    if writes:
        _make_folder(folder)
    return demonstration(folder)


def load_config(named: str | None) -> PlatformConfig:
    """Return the configuration that `named` leads to by the rule.

    Of a file nothing is imported, and no secret is looked for.

    Raises:
        HostError: It cannot be read.
    """
    from legation_host.loading import read_config

    target = find_target(named)
    if target is None or not target.endswith(".toml"):
        return load_target(named).config
    return read_config(Path(target))


def find_past(target: str | None) -> Callable[[Write], Awaitable[None]] | None:
    """Return the maker of the demonstration's past; None where `target` is anything else."""
    if target is not None:
        return None
    # It loads the host; nothing but a server needs it.
    from .past import make_past

    return partial(make_past, data_folder(os.environ))


def check_database(platform: Platform, name: str) -> None:
    """Raise `CannotGoOn` where `platform` has no database of this name."""
    if name not in platform.databases:
        known = ", ".join(platform.databases)
        raise CannotGoOn(f"there is no database {name!r}; there are: {known}")


def complete_platform(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """Let the shell complete the name of a file."""
    return [CompletionItem(typed, type="file")]


def data_folder(environ: Mapping[str, str]) -> Path:
    """Return where the demonstration keeps its database, by the custom of the system."""
    if explicit := environ.get("LEGATION_DATA"):
        return Path(explicit)
    home = Path(environ.get("HOME") or environ.get("USERPROFILE") or Path.home())
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "legation"
    if os.name == "nt":
        return Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "legation"
    return Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "legation"


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotGoOn(_unwritable(folder, error.strerror)) from None
    if not os.access(folder, os.W_OK):
        raise CannotGoOn(_unwritable(folder, "Permission denied"))


def _unwritable(folder: Path, reason: str | None) -> str:
    return f"{folder}: {reason}; set LEGATION_DATA to a folder that can be written to"
