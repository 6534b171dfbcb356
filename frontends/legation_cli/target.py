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
    "require_secrets",
    "select_databases",
]

_DEFAULT_FILE: Final = "platform.toml"


def find_target(named: str | None) -> str | None:
    """Return which platform to load: `named`, else platform.toml, else None: the demonstration."""
    if named is None and Path(_DEFAULT_FILE).exists():
        return _DEFAULT_FILE
    return named


def load_target(named: str | None, *, writes: bool = False, needs_secrets: bool = True) -> Platform:
    """Return the platform that `named` leads to by the rule.

    Args:
        named: The path of a TOML file, or `module:attribute`, if one was typed.
        writes: Make the data folder of the demonstration, for a command that writes there.
        needs_secrets: Whether a secret that is not there is an error: not for a command that uses
            none.

    Raises:
        HostError: It cannot be loaded.
        CannotGoOn: The data folder of the demonstration cannot be written to.
    """
    from legation_host.loading import load_platform

    target = find_target(named)
    if target is not None:
        return load_platform(target, os.environ, needs_secrets=needs_secrets)
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
    """Raise `CannotGoOn` where `platform` has no database of this name, or no URL of it."""
    if name not in platform.registry.databases:
        known = ", ".join(platform.registry.databases)
        raise CannotGoOn(f"there is no database {name!r}; there are: {known}")
    if name not in platform.databases:
        require_secrets(platform, f"databases.{name}.")


def select_databases(
    names: tuple[str, ...], *, several: bool = False
) -> tuple[Platform, tuple[str, ...]]:
    """Return the platform and the ids of those of its databases that `names` selects.

    One may be named at most, unless `several` may.
    """
    file: str | None = None
    if names and (names[0].endswith(".toml") or ":" in names[0]):
        file, *names_left = names
        names = tuple(names_left)
    if len(names) > 1 and not several:
        raise click.UsageError("name one database at most, after the platform's file")
    platform = load_target(file, needs_secrets=False)
    names = tuple(dict.fromkeys(names)) or tuple(platform.registry.databases)
    for name in names:
        check_database(platform, name)
    return platform, names


def require_secrets(platform: Platform, path: str) -> None:
    """Raise `CannotGoOn` where a secret is missing whose path begins with `path`."""
    if wanting := [one for one in platform.missing if one.path.startswith(path)]:
        lines = "\n".join(f"  {one.path}: {one.message}" for one in wanting)
        raise CannotGoOn(f"the platform cannot be used for this:\n{lines}")


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
