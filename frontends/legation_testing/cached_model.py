"""A model whose answers are in a file: recorded once of a real model, and given without network.

    model = CachedModel(ChatCompletions(id="gpt-5-mini", api_key=key), "answers.jsonl")

A line of the file is one answer, under the digest of the prompt that it is for.  The prompt itself
is not in the file, and neither is a key.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import anyio.from_thread
from attrs import astuple, define, field, fields, has

from legation.effects import Program
from legation.models.conversation import (
    Listener,
    ModelProtocol,
    Prompt,
    Reply,
    SilentListener,
    Thought,
    ToolCall,
    storable,
)
from legation.models.provider_words import hide_secrets
from legation.runs.step_outcomes import decode_usage, encode_usage
from legation_host import open_host

from .misuse import Misuse

__all__ = ["RECORD", "CachedModel"]

RECORD: Final = "LEGATION_RECORD_ANSWERS"
"""The environment variable that, set to 1, lets models be asked for what no file has."""

MAX_FILE: Final = 64 << 20
"""How long a file may be, in bytes."""

_MISSING: Final = (
    "{path} has no answer of {model} to this prompt, which ends with {said!r}: run the test once"
    f" with {RECORD}=1 and the key of the model, and keep the file"
)
_HELD: Final = "{path}: an answer of {model} holds what looks like a secret, and is not written"
_BROKEN: Final = "{path}, line {number}, is no answer: delete the line, and record it again"
_LONG: Final = f"{{path}} is longer than {MAX_FILE} bytes"
_NAMED: Final = re.compile("(?i)key|token|secret|passw|credential")
_EMPTY: Final[tuple[Any, ...]] = (None, "", ())
_LEAST: Final = 8  # characters of a secret
_SHOWN: Final = 80  # characters of a prompt


@define(eq=False)
class CachedModel:
    """Answers as a real model did, from a file.

    It is the model in all else: its id, its provider, the files that it takes.  Where the file has
    no answer to a prompt, the test fails, unless answers are recorded: then the model is asked, and
    the file is written anew, in an order that does not depend on that of the tests.

    Attributes:
        model: The real model; it is asked only while answers are recorded.
        path: The file: JSON lines, which may be kept with the tests.
        record: Whether answers are recorded; None is as `LEGATION_RECORD_ANSWERS` says.
    """

    model: ModelProtocol
    path: Path = field(converter=Path)
    record: bool | None = field(default=None, kw_only=True)
    _answers: dict[str, dict[str, Any]] | None = field(default=None, init=False, repr=False)

    @property
    def id(self) -> str:
        """The name of the model."""
        return self.model.id

    @property
    def name(self) -> str:
        """The name of its protocol."""
        return self.model.name

    @property
    def provider(self) -> str:
        """The provider that runs it."""
        return self.model.provider

    def __getattr__(self, name: str) -> Any:
        """Return what the model says of itself beside these."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.model, name)

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        """Answer as the file says.

        Raises:
            Misuse: It has no answer, or is no such file; or an answer holds a secret.
            ModelFailed: The model is asked, and failed.
        """
        yield from listener.settle()
        key = self._digest(prompt)
        answers = self._read()
        if key not in answers:
            answers = self._record(key, prompt)
        reply = _decode(answers[key]["answer"])
        listener.think(reply.reasoning)
        listener.hear(reply.content)
        return reply

    def _digest(self, prompt: Prompt) -> str:
        asked = {"model": self.id, "provider": self.provider, "prompt": _plain(prompt)}
        text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def _record(self, key: str, prompt: Prompt) -> dict[str, dict[str, Any]]:
        """Ask the model, and write its answer to the file."""
        record = os.environ.get(RECORD) == "1" if self.record is None else self.record
        if not record:
            said = prompt.messages[-1].content[-_SHOWN:] if prompt.messages else ""
            raise Misuse(_MISSING.format(path=self.path, model=self.id, said=said))
        answer = _encode(_ask(self.model, prompt))
        if _holds_secret(answer, getattr(self.model, "api_key", None)):
            raise Misuse(_HELD.format(path=self.path, model=self.id))
        self._answers = None  # another model may have written to the file
        answers = {**self._read(), key: {"key": key, "model": self.id, "answer": answer}}
        whole = "".join(_write_line(answers[one]) for one in sorted(answers))
        written = self.path.with_name(f"{self.path.name}.new")
        written.write_text(whole, "utf-8", newline="\n")
        written.replace(self.path)
        self._answers = answers
        return answers

    def _read(self) -> dict[str, dict[str, Any]]:
        """Return the answers by their keys; none where there is no file yet."""
        if self._answers is None:
            self._answers = dict(self._list_answers())
        return self._answers

    def _list_answers(self) -> Iterator[tuple[str, dict[str, Any]]]:
        if not self.path.exists():
            return
        if self.path.stat().st_size > MAX_FILE:
            raise Misuse(_LONG.format(path=self.path))
        lines = self.path.read_text("utf-8").rstrip("\n").split("\n")
        for number, line in enumerate(lines, 1):
            try:
                one = json.loads(line)
                _decode(one["answer"])
                yield one["key"], one
            except (ValueError, LookupError, TypeError):
                raise Misuse(_BROKEN.format(path=self.path, number=number)) from None


def _write_line(answer: Mapping[str, Any]) -> str:
    return f"{storable(json.dumps(answer, ensure_ascii=False, sort_keys=True))}\n"


def _plain(value: object) -> Any:
    """Return a part of a prompt as JSON; what is empty is left out, so that a part may be added."""
    kind = type(value)
    if has(kind):
        parts = {one.name: getattr(value, one.name) for one in fields(kind)}
        return {name: _plain(one) for name, one in parts.items() if one not in _EMPTY}
    if isinstance(value, Mapping):
        table = cast("Mapping[str, Any]", value)
        return {name: _plain(one) for name, one in table.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in cast("Sequence[Any]", value)]
    return value


def _ask(model: ModelProtocol, prompt: Prompt) -> Reply:
    """Ask `model` as a server does: with sockets, in an event loop of its own."""
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(open_host()) as host,
    ):
        reply: Reply = portal.call(partial(host.run, model.respond(prompt, SilentListener())))
        return reply


def _encode(reply: Reply) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "content": reply.content,
        "calls": [astuple(call) for call in reply.calls],
        "thoughts": [astuple(thought) for thought in reply.thoughts],
        "reasoning": reply.reasoning,
        **encode_usage(reply.usage),
    }
    return {name: value for name, value in whole.items() if value}


def _decode(answer: Mapping[str, Any]) -> Reply:
    return Reply(
        answer.get("content", ""),
        decode_usage(answer),
        tuple(ToolCall(*call) for call in answer.get("calls", ())),
        tuple(Thought(*thought) for thought in answer.get("thoughts", ())),
        answer.get("reasoning", ""),
    )


def _holds_secret(answer: Mapping[str, Any], key: str | None) -> bool:
    """Return whether a secret of the environment, or what looks like a key, is in an answer."""
    named = [value for name, value in os.environ.items() if _NAMED.search(name)]
    secrets = [value for value in (*named, key or "") if len(value) >= _LEAST]
    texts = list(_list_texts(answer))
    if any(secret in text for text in texts for secret in secrets):
        return True
    seen = (*_list_texts(answer.get("calls")), answer.get("content", ""))
    return any(hide_secrets(text, ()) != text for text in seen)


def _list_texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in cast("Mapping[object, object]", value).values():
            yield from _list_texts(one)
    elif isinstance(value, list | tuple):
        for one in cast("Sequence[object]", value):
            yield from _list_texts(one)
