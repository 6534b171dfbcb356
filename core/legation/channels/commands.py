"""Commands: the messages that are answered without a run, as people know them from chats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

__all__ = ["COMMANDS", "OPTED_OUT", "Command", "help_text", "read_command", "read_word"]

# Telegram writes `/help@bot` in groups, and a word behind the first `/start` of a link.
_COMMAND: Final = re.compile(r"\s*/(help|start|stop)(?:@\w+)?(\s[^\n]*)?\s*", re.IGNORECASE)
_WORD: Final = re.compile(r"\s*/(\w{1,32})(?:@\w+)?(?:\s+|\Z)", re.ASCII)

COMMANDS: Final[Mapping[str, str]] = {
    "new": "begins a new conversation",
    "help": "shows this text",
    "stop": "ends all messages from here",
    "start": "begins them again",
}
"""The commands of every channel, each with its meaning."""

OPTED_OUT: Final = "You get no more messages from here. Write /start when you want them again."


class Command(Enum):
    """A command that stands alone in a message; `/new`, which may be followed by words, is none."""

    HELP = "help"
    START = "start"
    STOP = "stop"


def read_command(text: str) -> Command | None:
    """Return the command that `text` is, or None: "/stop the engine" is for the agent."""
    found = _COMMAND.fullmatch(text)
    if found is None:
        return None
    command = Command(found[1].lower())
    more = (found[2] or "").strip()
    return None if more and command is not Command.START else command


def read_word(text: str) -> tuple[str, str]:
    """Return the word behind a `/` at the beginning, with it, and what follows; "" for neither."""
    found = _WORD.match(text)
    return (f"/{found[1].lower()}", text[found.end() :].strip()) if found else ("", "")


def help_text(name: str, description: str | None, more: Iterable[tuple[str, str]] = ()) -> str:
    """Return what a person reads after `/help`: who answers here, and the commands.

    `more` are the commands of the channel itself, each with its meaning.
    """
    lines = (*more, *((f"/{name}", meaning) for name, meaning in COMMANDS.items()))
    about = f"This is {name}." if not description else f"This is {name}: {description}"
    return "\n".join([about, "", *(f"{command} {meaning}" for command, meaning in lines)])
