"""An agent with tools.  It looks for a room by itself; before it books one, a person is asked.

legation serve booking:platform      no key needed: a few lines stand in for a model
legation serve booking.toml          the same agent on a real model (OPENAI_API_KEY)
"""

from __future__ import annotations

import json
import re

from legation import Agent, Database, Platform, ToolError, tool
from legation.effects import Program
from legation.models.conversation import Listener, Prompt, Reply, ToolCall

__all__ = ["Clerk", "book_room", "booked", "free_rooms", "platform"]

ROOMS = {"blue": 90, "green": 120, "tower": 240}
INSTRUCTIONS = "You are at the desk of a small hotel. Look for a room before you book one."

booked: list[str] = []
"""What was booked since this process began; a real hotel has a database for it."""


async def free_rooms(most: int = 1000) -> dict[str, int]:
    """Return the rooms that are free, with the price of a night.

    Args:
        most: How much a night may cost.
    """
    return {room: price for room, price in ROOMS.items() if price <= most}


@tool(requires_confirmation=True)
def book_room(room: str, nights: int) -> str:
    """Book a room.

    Args:
        room: One of those that are free.
        nights: How many nights.
    """
    if room not in ROOMS:
        raise ToolError(f"There is no room {room!r}")
    booked.append(f"{room} for {nights}")
    return f"The {room} room is yours for {nights} nights: {nights * ROOMS[room]} in all."


class Clerk:
    """A model that knows four phrases.  Any object with these four members is a model."""

    id = "clerk"
    name = "Clerk"
    provider = "Example"

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        """Answer `prompt`."""
        said = prompt.messages[-1]
        if said.role == "tool":
            return (yield from self._say(said.content, listener))
        if found := re.search(r"book (?:the )?(\w+).*?(\d+) night", said.content, re.IGNORECASE):
            return _wants("book_room", room=found[1], nights=int(found[2]))
        if found := re.search(r"room.*?(\d+)", said.content, re.IGNORECASE):
            return _wants("free_rooms", most=int(found[1]))
        return (yield from self._say("Try: book the blue room for 2 nights", listener))

    def _say(self, text: str, listener: Listener) -> Program[Reply]:
        listener.hear(text)
        yield from listener.settle()
        return Reply(text)


def _wants(name: str, **arguments: object) -> Reply:
    return Reply("", calls=(ToolCall(name, name, json.dumps(arguments)),))


platform = Platform(
    id="hotel",
    name="Hotel",
    databases=[Database("main", "sqlite:///hotel.db")],
    agents=[
        Agent(
            id="desk",
            name="Desk",
            instructions=INSTRUCTIONS,
            model=Clerk(),
            tools=[free_rooms, book_room],
        )
    ],
)
