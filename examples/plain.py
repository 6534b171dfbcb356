"""A platform in Python: two agents and a team.

legation serve plain:platform
"""

from __future__ import annotations

from legation import Agent, Database, Platform, Team

__all__ = ["platform"]

platform = Platform(
    id="front-office",
    name="Front office",
    databases=[Database("main", "sqlite:///front-office.db")],
    agents=[
        Agent(
            id="concierge",
            name="Concierge",
            description="Greets, and knows who knows.",
            instructions="Answer briefly.",
        ),
        Agent(id="archivist", name="Archivist", role="Finds what was written down."),
    ],
    teams=[Team(id="desk", name="Front desk", members=["concierge", "archivist"])],
)
