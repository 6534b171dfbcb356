"""The demonstration: something to try at once."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from legation import Agent, Database, Platform, Team

__all__ = ["demonstration"]


def demonstration(folder: Path) -> Platform:
    """Return two agents and a team on the echo model, with a database in `folder`."""
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
