"""The output of `legation serve --dev`: tracebacks, and what models are sent, for their author.

It goes to a terminal, and may hold what users, models and databases say: so every line is bounded,
and nothing in it moves the cursor.  What looks like a key is replaced, and so is a secret of the
environment.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TextIO
from urllib.parse import unquote, urlsplit

from attrs import field

from legation import Platform
from legation.effects import Program
from legation.hosted.registry import Component
from legation.incidents import find_authors_frames, where
from legation.models.conversation import Listener, Message, ModelProtocol, Prompt, Reply
from legation.models.provider_words import hide_secrets
from legation.values import define
from legation_host.logs import make_visible

__all__ = ["DevOutput", "find_secrets"]

_LINE: Final = 1_000  # characters
_FIRST_LINES: Final = 40
_LAST_LINES: Final = 120
_MESSAGES: Final = 12
_MESSAGE_LINES: Final = 20
_LEAST_SECRET: Final = 6
_LEAST_LINE: Final = 16
_NAMED: Final = re.compile("(?i)key|token|secret|passw|credential|auth")


def find_secrets(environ: Mapping[str, str], urls: Iterable[str] = ()) -> tuple[str, ...]:
    """Return what must not be shown: secrets of the environment and passwords in `urls`."""
    named = [value for name, value in environ.items() if _NAMED.search(name)]
    passwords = [urlsplit(url).password or "" for url in urls]
    values = (*named, *passwords, *map(unquote, passwords))
    return tuple(sorted({word for value in values for word in _words(value)}, key=len)[::-1])


def _words(value: str) -> Iterator[str]:
    """Yield a secret and its words: none of a path, and of a key in PEM the lines of it."""
    least = _LEAST_LINE if "\n" in value else _LEAST_SECRET
    words = value.split() if "\n" in value else (value, *value.split())
    return (word for word in words if len(word) >= least and word[0] not in "/.~")


@define
class DevOutput:
    """Writes for the author; `secrets` are replaced in all of it."""

    stream: TextIO
    secrets: Sequence[str] = field(default=(), repr=False)

    def show_error(self, event: str, error: BaseException) -> None:
        """Show the traceback of `error`, from the author's code on, with its causes."""
        try:
            frames = find_authors_frames(error) or error.__traceback__
            text = "".join(traceback.format_exception(type(error), error, frames))
        except Exception as broken:  # noqa: BLE001  an exception of the author's may do anything
            text = f"{where(error)}, whose traceback cannot be shown: {where(broken)}"
        self._write(event, _shorten(text.splitlines(), _FIRST_LINES, _LAST_LINES))

    def show_prompt(self, asker: str, model: str, prompt: Prompt) -> None:
        """Show what a model is sent: the end of the conversation, and the tools to choose from."""
        messages = prompt.messages[-_MESSAGES:]
        earlier = len(prompt.messages) - len(messages)
        lines = [f"({earlier} messages before)"] if earlier else []
        for message in messages:
            lines += _render(message)
        if prompt.tools:
            lines.append(f"tools: {', '.join(tool.name for tool in prompt.tools)}")
        if prompt.output_schema is not None:
            lines.append(f"output_schema: {prompt.output_schema.get('title', 'without a title')}")
        self._write(f"{asker} asks {model}", lines)

    def show_reply(self, asker: str, model: str, reply: Reply) -> None:
        """Show what a model answers."""
        self._write(f"{model} answers {asker}", _render(Message("", reply.content, reply.calls)))

    def _write(self, title: str, lines: Iterable[str]) -> None:
        bounded = (line if len(line) <= _LINE else f"{line[:_LINE]}…" for line in lines)
        body = hide_secrets("\n".join(bounded), self.secrets)
        shown = "\n".join(f"  | {make_visible(line)}".rstrip() for line in body.split("\n"))
        with suppress(OSError, ValueError):  # a terminal that is gone
            self.stream.write(f"--- {make_visible(title)}\n{shown}\n")
            self.stream.flush()

    def watch_models(self, platform: Platform) -> None:
        """Show from now on what the models of `platform` are sent, and what they answer."""

        def choose(component: Component) -> ModelProtocol:
            return _ShownModel(component.model, component.id, self)

        platform.replace_models(choose)


class _ShownModel:
    """A model that is watched; in all else it is the one behind it."""

    def __init__(self, model: ModelProtocol, asker: str, output: DevOutput) -> None:
        self._model, self._asker, self._output = model, asker, output
        self.id, self.name, self.provider = model.id, model.name, model.provider

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        self._output.show_prompt(self._asker, self.id, prompt)
        reply = yield from self._model.respond(prompt, listener)
        self._output.show_reply(self._asker, self.id, reply)
        return reply


def _render(message: Message) -> Iterator[str]:
    """Yield a message as lines: its role, its text, and the tools that it wants called."""
    lines = message.content.splitlines() if message.content else []
    lead = f"{message.role}: " if message.role else ""
    for number, line in enumerate(_shorten(lines, _MESSAGE_LINES, 1) or ([""] if lead else [])):
        yield f"{lead if number == 0 else ' ' * len(lead)}{line}"
    for call in message.calls:
        yield f"{' ' * len(lead)}calls {call.name} {call.arguments}"


def _shorten(lines: list[str], first: int, last: int) -> list[str]:
    omitted = len(lines) - first - last
    if omitted <= 0:
        return lines
    return [*lines[:first], f"({omitted} lines left out)", *lines[-last:]]
