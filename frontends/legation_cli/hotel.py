"""The hotel: a platform to try at once, which needs no key.

Two agents, a team and a channel, with tools as anybody would write them.  In the place of a model
stands a script: it looks for a few words in the last message, calls a tool, and puts into words
the result of it.  `examples/hotel.toml` has the same tools on a real model.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias

from attrs import field

from legation import Agent, Database, Platform, Run, StandardChannel, Team, ToolError, tool
from legation.effects import Program, Sleep
from legation.models.conversation import Listener, Message, Prompt, Reply, ToolCall, Usage
from legation.values import frozen

__all__ = [
    "CHANNEL_SECRET",
    "Script",
    "book_room",
    "find_rooms",
    "list_bookings",
    "make_hotel",
    "read_menu",
]

CHANNEL_SECRET: Final = "whsec_QSBkZW1vbnN0cmF0aW9uIGhhcyBubyBzZWNyZXRz"  # noqa: S105
"""The secret of the channel `help`, known to everybody: it guards a demonstration."""

Kind: TypeAlias = Literal["single", "double", "suite"]

_ROOMS: Final[Mapping[Kind, tuple[int, int]]] = {
    "single": (4, 80),
    "double": (3, 120),
    "suite": (1, 240),
}
"""How many rooms of each kind there are, and the price of a night in euros."""

_MOST_NIGHTS: Final = 14
_BREAKFAST: Final = ("coffee or tea", "rolls", "an egg", "porridge")
_DINNERS: Final = (
    ("leek soup", "baked trout", "plum cake"),
    ("beetroot salad", "mushroom risotto", "pears in wine"),
    ("tomato soup", "roast chicken", "lemon tart"),
    ("lentil salad", "fish stew", "rice pudding"),
    ("onion soup", "potato gratin", "apple crumble"),
    ("smoked trout", "braised beef", "chocolate mousse"),
    ("pumpkin soup", "spinach dumplings", "cherry cake"),
)
"""The courses of dinner, from Monday on."""


# --- Tools ---------------------------------------------------------------------------------------


@tool(again="safe")
def find_rooms(run: Run, day: Literal["today", "tomorrow"] = "tomorrow") -> dict[str, Any]:
    """Return the rooms that are free, with the price of a night in euros.

    Args:
        day: The first night.
    """
    night = run.now + timedelta(days=day == "tomorrow")
    return {"night": f"{night:%d %B}".lstrip("0"), "rooms": _count_free(run)}


@tool(requires_confirmation=True, again="safe")
def book_room(run: Run, kind: Kind, nights: int = 1, guest: str = "") -> dict[str, Any]:
    """Book a room.  The number of the booking comes from the run: made twice, it is the same one.

    Args:
        kind: The kind of room.
        nights: How many nights.
        guest: For whom; the guest of the booking before, unless given.
    """
    guest = guest or run.state.get("guest") or run.user_id or ""
    number = f"H-{int(hashlib.sha256(run.run_id.encode()).hexdigest(), 16) % 90_000 + 10_000}"
    bookings = run.state.get("bookings", {})
    if not guest:
        raise ToolError("The booking needs a name: add “for” and who it is for.")
    if not 1 <= nights <= _MOST_NIGHTS:
        raise ToolError(f"A room can be booked for 1 to {_MOST_NIGHTS} nights.")
    if number not in bookings and not _count_free(run).get(kind):
        raise ToolError(f"No {kind} room is free.")
    booking = {"room": kind, "nights": nights, "guest": guest, "euros": nights * _ROOMS[kind][1]}
    run.state["guest"] = guest
    run.state["bookings"] = {**bookings, number: booking}
    return {"number": number, **booking}


@tool(again="safe")
def list_bookings(run: Run) -> dict[str, Any]:
    """Return the bookings of this guest, by their numbers."""
    return dict(run.state.get("bookings", {}))


@tool(again="safe")
def read_menu(run: Run, meal: Literal["breakfast", "dinner"]) -> list[str]:
    """Return what the kitchen serves today.

    Args:
        meal: Which meal.
    """
    return list(_BREAKFAST if meal == "breakfast" else _DINNERS[run.now.weekday()])


def _count_free(run: Run) -> dict[str, dict[str, int]]:
    """Return the kinds of which a room is free for this guest, who sees no other's bookings."""
    booked = [booking["room"] for booking in run.state.get("bookings", {}).values()]
    found: dict[str, dict[str, int]] = {}
    for kind, (rooms, euros) in _ROOMS.items():
        if (free := rooms - booked.count(kind)) > 0:
            found[kind] = {"free": free, "euros": euros}
    return found


# --- The model -----------------------------------------------------------------------------------

_LONGEST: Final = 400
"""Nobody wishes for something in more characters; a longer message is not searched."""

_PIECES: Final = 64

Wish: TypeAlias = tuple[re.Pattern[str], Callable[[str], tuple[str, Mapping[str, Any]]]]
"""Words to look for, and the tool that is called with its arguments, found in the message."""


@frozen
class Script:
    """A model that knows a few wishes, and says which these are to whoever wishes for more.

    Attributes:
        hint: The answer to everything else.
        pause_seconds: Between two words, so that an answer can be seen to come.
    """

    name = "Script"
    provider = "Legation"

    id: str
    hint: str = ""
    wishes: tuple[Wish, ...] = ()
    pause_seconds: float = field(default=0.0, kw_only=True)

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        """Answer the last message, or say what came of the tools that were called for it."""
        results = list(_find_results(prompt.messages))
        wish = None if results else self._find_wish(prompt.messages[-1].content)
        if wish is not None:
            name, arguments = wish
            number = 1 + sum(message.role == "tool" for message in prompt.messages)
            call = ToolCall(f"call-{number}", name, json.dumps(arguments))
            return Reply("", _count(prompt, ""), (call,))
        text = " ".join(_describe(name, result) for name, result in results) or self.hint
        yield from self._say(text, listener)
        return Reply(text, _count(prompt, text))

    def _find_wish(self, text: str) -> tuple[str, Mapping[str, Any]] | None:
        if len(text) > _LONGEST:
            return None
        found = (find(text) for words, find in self.wishes if words.search(text))
        return next(found, None)

    def _say(self, text: str, listener: Listener) -> Program[None]:
        words = re.findall(r"\S+\s*", text)
        for word in words[:_PIECES]:
            listener.hear(word)
            if self.pause_seconds:
                yield from listener.settle()
                yield from Sleep(self.pause_seconds)
        listener.hear("".join(words[_PIECES:]))


def _find_results(messages: tuple[Message, ...]) -> Iterator[tuple[str, str]]:
    """Yield the tools that the last turn of the model called, each with its result."""
    names: dict[str | None, str] = {}
    results: list[Message] = []
    for message in messages:
        if message.role == "tool":
            results.append(message)
        else:
            results.clear()
            names.update((call.id, call.name) for call in message.calls)
    return ((names.get(result.call_id, ""), result.content) for result in results)


def _describe(name: str, result: str) -> str:
    """Return the result of a tool in words; as it stands where the tool refused, or a person."""
    try:
        value = json.loads(result)
    except ValueError:
        return result
    sentence = _SENTENCES.get(name)
    return sentence(value) if sentence else result


def _describe_rooms(found: Mapping[str, Any]) -> str:
    rooms = (f"{kind} ({room['euros']} euros)" for kind, room in found["rooms"].items())
    return f"Free on {found['night']}: {', '.join(rooms) or 'nothing'}."


def _describe_stay(booking: Mapping[str, Any]) -> str:
    nights = "1 night" if booking["nights"] == 1 else f"{booking['nights']} nights"
    return f"a {booking['room']} room for {booking['guest']}, {nights}, {booking['euros']} euros"


def _describe_booking(booking: Mapping[str, Any]) -> str:
    return f"Booked: {_describe_stay(booking)}. The number is {booking['number']}."


def _describe_bookings(bookings: Mapping[str, Mapping[str, Any]]) -> str:
    stays = (f"{number} is {_describe_stay(booking)}." for number, booking in bookings.items())
    return " ".join(stays) or "You have not booked anything yet."


def _describe_menu(courses: list[str]) -> str:
    return f"Today the kitchen serves {', '.join(courses[:-1])} and {courses[-1]}."


_SENTENCES: Final[Mapping[str, Callable[[Any], str]]] = {
    "find_rooms": _describe_rooms,
    "book_room": _describe_booking,
    "list_bookings": _describe_bookings,
    "read_menu": _describe_menu,
}


def _count(prompt: Prompt, said: str) -> Usage:
    """Count a word as a token."""
    heard = sum(len(message.content.split()) for message in prompt.messages)
    return Usage(heard, len(said.split()))


# --- Wishes --------------------------------------------------------------------------------------

_NUMBERS: Final = ("one", "two", "three", "four", "five", "six", "seven")
_NIGHTS: Final = re.compile(
    r"\b(?:for +)?(\d{1,3}|a|one|two|three|four|five|six|seven) +nights?\b", re.IGNORECASE
)
_GUEST: Final = re.compile(
    r"\bfor +(?!(?:an?|the|my|me|us|today|tonight|tomorrow)\b)([^\W\d_][\w'-]{0,40})", re.IGNORECASE
)


def _book(text: str) -> tuple[str, Mapping[str, Any]]:
    """Read the kind of room, the nights and the guest from the message."""
    kind = next((kind for kind in _ROOMS if kind in text.lower()), "single")
    nights = 1
    if found := _NIGHTS.search(text):
        said = found[1].lower()
        nights = int(said) if said.isdecimal() else 1 + max(0, _index(said))
    guest = next(iter(_GUEST.findall(_NIGHTS.sub("", text))[-1:]), "")
    return "book_room", {"kind": kind, "nights": nights, "guest": guest}


def _index(number: str) -> int:
    return _NUMBERS.index(number) if number in _NUMBERS else 0


def _find(text: str) -> tuple[str, Mapping[str, Any]]:
    return "find_rooms", {"day": "tomorrow" if "tomorrow" in text.lower() else "today"}


def _list(_: str) -> tuple[str, Mapping[str, Any]]:
    return "list_bookings", {}


def _break(_: str) -> tuple[str, Mapping[str, Any]]:
    raise LookupError("the demonstration breaks here because somebody wished for it")


def _menu(text: str) -> tuple[str, Mapping[str, Any]]:
    return "read_menu", {"meal": "breakfast" if "breakfast" in text.lower() else "dinner"}


_DESK: Final[tuple[Wish, ...]] = (
    (re.compile(r"\bdid i book\b|\bmy bookings?\b", re.IGNORECASE), _list),
    (re.compile(r"\bbook\b.*\b(room|single|double|suite)\b", re.IGNORECASE), _book),
    (re.compile(r"\brooms?\b|\bevening\b", re.IGNORECASE), _find),
    (re.compile(r"\bbreak something\b", re.IGNORECASE), _break),
)
_KITCHEN: Final[tuple[Wish, ...]] = (
    (re.compile(r"\b(breakfast|dinner|menu|evening)\b", re.IGNORECASE), _menu),
)
_DESK_HINT: Final = (
    "I understand: “Which rooms are free tomorrow?”, “Book a double room for two nights for"
    " Ada”, “What did I book?” and “Break something”."
)
_KITCHEN_HINT: Final = "I understand: “What is for dinner?” and “What is for breakfast?”."


# --- The platform --------------------------------------------------------------------------------


def make_hotel(url: str, *, pause_seconds: float = 0.0) -> Platform:
    """Return the hotel, with its database at `url`."""
    desk = Script("desk-script", _DESK_HINT, _DESK, pause_seconds=pause_seconds)
    kitchen = Script("kitchen-script", _KITCHEN_HINT, _KITCHEN, pause_seconds=pause_seconds)
    host = Script("evening-script", "Nobody answered.", pause_seconds=pause_seconds)
    return Platform(
        id="hotel",
        name="Hotel Legation",
        description="A demonstration that needs no key: a script stands in the place of a model",
        databases=[Database("main", url)],
        agents=[
            Agent(
                id="desk",
                name="Booking desk",
                role="Finds and books rooms",
                description="Finds free rooms and books one; a person approves each booking."
                " Try: Which rooms are free tomorrow? Or: Book a double room for Ada.",
                instructions="You are at the desk of a small hotel. Answer briefly.",
                model=desk,
                tools=[find_rooms, book_room, list_bookings],
            ),
            Agent(
                id="kitchen",
                name="Kitchen",
                role="Knows what is cooked",
                description="Says what is cooked today. Try: What is for dinner?",
                instructions="You are the cook of a small hotel. Answer briefly.",
                model=kitchen,
                tools=[read_menu],
            ),
        ],
        teams=[
            Team(
                id="evening",
                name="Evening",
                description="The desk and the kitchen, asked side by side. Try: Plan my evening",
                mode="collaborate",
                model=host,
                members=["desk", "kitchen"],
            )
        ],
        channels=[
            StandardChannel(
                id="help",
                agent="desk",
                secret_env="HELP_SECRET",  # noqa: S106  a name
                reply_url="http://127.0.0.1:7778/replies",
            )
        ],
        environ={"HELP_SECRET": CHANNEL_SECRET},
    )
