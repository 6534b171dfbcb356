"""A platform whose agent speaks for a while, piece by piece; the environment says for how long.

`legation serve tests.providers.piecewise:platform` serves it, an ASGI server `:app`.
"""

from __future__ import annotations

import os
from typing import Final

from legation import Agent, Database, Platform
from legation.effects import Program, Sleep
from legation.models.conversation import Listener, Prompt, Reply, Usage
from legation.values import frozen
from legation_asgi import asgi

__all__ = ["PIECES", "app", "platform"]

PIECES: Final = 8


@frozen
class Piecewise:
    """Says as many words as it has pieces, over `seconds`."""

    seconds: float
    id: str = "piecewise"
    name: str = "Piecewise"
    provider: str = "Legation"

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        """Answer with numbers."""
        for number in range(PIECES):
            listener.hear(f"{number} ")
            yield from listener.settle()
            yield from Sleep(self.seconds / PIECES)
        return Reply("".join(f"{number} " for number in range(PIECES)), Usage(1, PIECES))


platform = Platform(
    databases=[Database("main", os.environ["PIECEWISE_URL"], auto_migrate=True)],
    agents=[Agent(id="concierge", model=Piecewise(float(os.environ["PIECEWISE_SECONDS"])))],
    lease_seconds=5,
)
app = asgi(platform)
