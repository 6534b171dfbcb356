"""A platform for nodes of a cluster: an agent that speaks for as long as it is told, and a channel.

`legation serve tests.providers.clustered:platform` serves it.  The environment names the database
and the lease, how many runs a user may have at once, and by how many seconds the clock of this
process is wrong.
"""

from __future__ import annotations

import os
import time

from legation import Agent, Database, Platform
from legation.effects import Program, Sleep
from legation.models.conversation import Listener, Prompt, Reply, Usage
from legation.shares.limits import PlatformLimits
from legation.values import frozen

from .deliveries import ENVIRON, channels

__all__ = ["Speaker", "platform"]


def _set_clock(seconds: float) -> None:
    """Let the clock of this process be ahead of that of the machine."""
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + seconds
    time.time_ns = lambda: real_ns() + round(seconds * 1e9)


_set_clock(float(os.environ.get("CLUSTER_CLOCK", "0")))


@frozen
class Speaker:
    """Says as many words as the message asks for, in so many seconds: "24 words in 12.0 s"."""

    id: str = "speaker"
    name: str = "Speaker"
    provider: str = "Legation"

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        """Answer with numbers; any other message is answered at once."""
        text = next(m.content for m in reversed(prompt.messages) if m.role == "user")
        words, _, seconds = text.removesuffix(" s").partition(" words in ")
        if not seconds:
            return Reply(text, Usage(1, 1))
        for number in range(int(words)):
            listener.hear(f"{number} ")
            yield from listener.settle()
            yield from Sleep(float(seconds) / int(words))
        return Reply("".join(f"{number} " for number in range(int(words))), Usage(1, int(words)))


platform = Platform(
    databases=[Database("main", os.environ["CLUSTER_URL"], auto_migrate=True)],
    agents=[Agent(id="concierge", model=Speaker())],
    channels=[
        channel
        for channel in channels(os.environ.get("CLUSTER_PROVIDER", "http://127.0.0.1:9"))
        if channel.id == "whatsapp"
    ],
    environ=ENVIRON,
    limits=PlatformLimits(runs=int(os.environ.get("CLUSTER_RUNS", PlatformLimits().runs))),
    lease_seconds=float(os.environ.get("CLUSTER_LEASE", "30")),
)
