"""The platform that a command is about; where none is named, something to try at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from legation import Agent, Database, Platform, Team

from .failing import CannotGoOn

__all__ = ["check_database", "data_folder", "demonstration", "load_or_demonstrate"]

_DEFAULT_FILE = "platform.toml"


def load_or_demonstrate(target: str | None) -> Platform:
    """Return the platform of `target`, else of `platform.toml`, else the demonstration."""
    from legation_host.loading import load_platform

    if target is None and not Path(_DEFAULT_FILE).exists():
        return demonstration(data_folder(os.environ))
    return load_platform(target or _DEFAULT_FILE, os.environ)


def check_database(platform: Platform, name: str) -> None:
    """Raise `CannotGoOn` where `platform` has no database of this name."""
    if name not in platform.databases:
        known = ", ".join(platform.databases)
        raise CannotGoOn(f"there is no database {name!r}; there are: {known}")


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


def demonstration(folder: Path) -> Platform:
    """Return two agents and a team on the echo model, with a database in `folder`.

    Raises:
        CannotGoOn: The folder cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotGoOn(_unwritable(folder, error.strerror)) from None
    if not os.access(folder, os.W_OK):
        raise CannotGoOn(_unwritable(folder, "Permission denied"))
    return Platform(
        id="demo",
        name="Demonstration",
        databases=[Database("main", f"sqlite:///{quote(str(folder / 'demonstration.db'))}")],
        agents=[
            Agent(
                id="concierge",
                name="Concierge",
                description="Repeats what you send",
                instructions="Answer briefly.",
            ),
            Agent(id="researcher", name="Researcher", description="Repeats what you send, too"),
        ],
        teams=[
            Team(
                id="desk",
                name="Front desk",
                description="A team whose leader repeats what you send",
                members=["concierge", "researcher"],
            )
        ],
    )


def _unwritable(folder: Path, reason: str | None) -> str:
    return f"{folder}: {reason}; set LEGATION_DATA to a folder that can be written to"
