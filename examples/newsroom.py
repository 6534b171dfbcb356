"""A team: an editor that has three reporters, who work side by side.

legation serve newsroom:platform     no key needed: the reporters are functions, and the editor's
                                     model only puts together what they said

A function that is hosted as an agent may be anything: another framework's agent, say.  It is
called with as much as it names: the message, the session, the user.  These only report, so they may
be called again after a crash.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from legation import Agent, Database, Platform, Team, ToolError
from legation.effects import Program
from legation.models.conversation import Listener, Prompt, Reply

__all__ = ["Editor", "platform", "sports", "traffic", "weather"]


async def weather(message: str) -> str:
    """Report on the weather."""
    return f"{_town(message)}: rain by noon."


async def traffic(message: str) -> AsyncIterator[str]:
    """Report on the traffic, piece by piece: each is an event that clients can follow."""
    for piece in (f"{_town(message)}: ", "the bridge ", "is closed."):
        yield piece


def sports(message: str) -> str:
    """Report on sports; there is a reporter in Oslo alone.

    It is not `async`, so it runs in a thread, where it may wait as long as it likes.
    """
    if _town(message) != "Oslo":
        raise ToolError("We have nobody there.")
    return "Oslo: Vålerenga won."


def _town(message: str) -> str:
    return message.rsplit(maxsplit=1)[-1].strip("?!.")


class Editor:
    """A model that makes a paragraph of what the reporters said."""

    id = "editor"
    name = "Editor"
    provider = "Example"

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        """Answer `prompt`, in which every reporter's words are the result of a tool."""
        said = [message.content for message in prompt.messages if message.role == "tool"]
        text = " ".join(said)
        listener.hear(text)
        yield from listener.settle()
        return Reply(text)


platform = Platform(
    id="newsroom",
    name="Newsroom",
    databases=[Database("main", "sqlite:///newsroom.db")],
    agents=[
        Agent(id="weather", name="Weather", role="Knows the weather", run=weather, again="safe"),
        Agent(id="traffic", name="Traffic", role="Knows the roads", run=traffic, again="safe"),
        Agent(id="sports", name="Sports", role="Knows who won", run=sports, again="safe"),
    ],
    teams=[
        Team(
            id="front-page",
            name="Front page",
            description="What happens in your town",
            mode="collaborate",
            model=Editor(),
            members=["weather", "traffic", "sports"],
        )
    ],
)
