"""The thoughts of a model behind chat completions on the way to its answer.

No standard has them.  The visible part is `reasoning_content`, `reasoning` (OpenRouter, Groq, vLLM,
Ollama), or parts of the content (Mistral).  Some of it has to be sent again, unchanged, with the
calls that it led to, or the provider refuses to go on:

* DeepSeek and Moonshot want the `reasoning_content` of the message (DeepSeek API, guide "Thinking
  mode"), and that of every message of the assistant;
* Gemini wants the signature of each call (Gemini API, guide "Thought signatures");
* OpenRouter wants the `reasoning_details` (guide "Reasoning tokens", Preserving reasoning).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from attrs import field

from ..values import define
from .conversation import Thought, storable
from .provider_json import is_array, is_table
from .trouble import Trouble

__all__ = ["UNKNOWN_THOUGHTS", "Thinking", "tell_again"]

UNKNOWN_THOUGHTS: Final = {"deepseek.": "", "kimi.": " ", "moonshot.": " "}
"""What stands for thoughts that are not at hand, by a part of the host that wants them; Moonshot
takes an empty text for none."""

_OF_THE_MESSAGE: Final = ("reasoning_content", "reasoning_details")
_IN_PARTS: Final = frozenset({"summary", "text"})


@define
class _Detail:
    """A block of `reasoning_details` of which parts have come."""

    members: dict[str, Any]
    texts: dict[str, list[str]] = field(factory=dict[str, list[str]])

    def goes_on_with(self, part: dict[str, Any]) -> bool:
        """Return whether `part` is of this block; what is encrypted comes whole."""
        kind, place = part.get("type"), part.get("index")
        same = (self.members.get("type"), self.members.get("index")) == (kind, place)
        return same and place is not None and kind != "reasoning.encrypted"

    def add(self, part: dict[str, Any]) -> None:
        for name, value in part.items():
            if name in _IN_PARTS and isinstance(value, str):
                self.texts.setdefault(name, []).append(value)
            elif value is not None or name not in self.members:
                self.members[name] = value

    def block(self) -> dict[str, Any]:
        return {**self.members, **{name: "".join(said) for name, said in self.texts.items()}}


@define
class Thinking:
    """Takes the thoughts of one answer; nothing depends on them, so nothing of them is trouble.

    Attributes:
        visible: The visible part of them, piece by piece.
    """

    visible: list[str] = field(factory=list[str])
    _content: list[str] = field(factory=list[str])
    _details: list[_Detail] = field(factory=list[_Detail])
    _signatures: dict[int, dict[str, Any]] = field(factory=dict[int, dict[str, Any]])

    def take(self, message: dict[str, Any]) -> None:
        """Take the thoughts out of a message, or out of a piece of one."""
        thought = message.get("reasoning_content")
        if thought and isinstance(thought, str):
            self._content.append(thought)
        else:
            thought = message.get("reasoning") or _in_content(message.get("content"))
        if thought and isinstance(thought, str):
            self.visible.append(thought)
        for part in _tables(message.get("reasoning_details")):
            if not self._details or not self._details[-1].goes_on_with(part):
                self._details.append(_Detail({}))
            self._details[-1].add(part)

    def sign(self, place: int, call: dict[str, Any]) -> None:
        """Take the signature of the call in this place, if it has one."""
        extra = call.get("extra_content")
        for server, fields in extra.items() if is_table(extra) else ():
            signature = fields.get("thought_signature") if is_table(fields) else None
            if isinstance(signature, str):
                self._signatures[place] = {server: {"thought_signature": signature}}

    def visible_text(self) -> str:
        """Return all that can be seen."""
        return storable("".join(self.visible))

    def thoughts(self, model: str) -> Iterator[Thought]:
        """Yield the thoughts that have to be sent again with the calls."""
        fields: dict[str, Any] = {}
        if self._content:
            fields["reasoning_content"] = "".join(self._content)
        if self._details:
            fields["reasoning_details"] = [detail.block() for detail in self._details]
        if fields:
            yield Thought(model, _encode(fields))
        for place, signature in self._signatures.items():
            yield Thought(model, _encode({"extra_content": signature}), calls=place)


def tell_again(thought: Thought, message: dict[str, Any]) -> None:
    """Put `thought` where it was: in the message, or in one of its calls."""
    known = json.loads(thought.block)
    if "extra_content" in known:
        message["tool_calls"][thought.calls]["extra_content"] = known["extra_content"]
    else:
        message.update((name, known[name]) for name in _OF_THE_MESSAGE if name in known)


def _in_content(content: Any) -> str:
    """Return the thoughts in the parts of `content`."""
    parts = _tables(content)
    words = (word.get("text") for part in parts for word in _tables(part.get("thinking")))
    return "".join(word for word in words if isinstance(word, str))


def _tables(value: Any) -> list[dict[str, Any]]:
    """Return the objects in the array that `value` may be."""
    return list(filter(is_table, value)) if is_array(value) else []


def _encode(block: dict[str, Any]) -> str:
    """Return `block` in ASCII, so that it can be stored whatever is in it."""
    try:
        return json.dumps(block, allow_nan=False)
    except (ValueError, RecursionError):  # it came as JSON, but is none that could be sent
        raise Trouble("broken") from None
