"""Anthropic's Messages API (API reference, Messages; version 2026-10-21).

Two things differ from a plain list of messages: the system's text stands apart, and the results of
tools are blocks in a message of the user's, all of them in the one behind the calls.  The thinking
of a model before it called tools is sent again with the calls, unchanged and in its place, as the
API demands (guide "Extended thinking", Preserving thinking blocks); that of earlier turns may be
left out, and is.  Anthropic signs thinking, and takes none without a signature; other servers of
the protocol may not sign, and want it all the same (DeepSeek and Moonshot do).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import field

from ..effects import Fetch, Program
from ..http.messages import compact_json
from ..http.sse import ForeignEvent
from ..values import define, frozen
from .anthropic_schema import narrow
from .conversation import (
    Document,
    Image,
    Listener,
    Message,
    Prompt,
    Reply,
    Thought,
    ToolCall,
    ToolSpec,
    Usage,
    storable,
)
from .exchange import ask
from .http_settings import HostedModel, base_url
from .provider_json import (
    Draft,
    arguments_of,
    count,
    finish_calls,
    is_table,
    items,
    json_value,
    new_draft,
    require_table,
    table,
    text,
    verbatim,
)
from .trouble import Trouble

__all__ = ["AnthropicMessages"]

VERSION: Final = "2026-10-21"
DEFAULT_MAX_TOKENS: Final = 8192
"""The protocol asks for a limit; every model that is served today takes this one."""

_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_NO_TEXT: Final = "(no text)"  # an empty message is refused there
_THINKING: Final = ("thinking", "redacted_thinking")
_COUNTED: Final = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
    "thinking_tokens",
)
_BAD_ENDS: Final = {
    "max_tokens": "truncated",
    "model_context_window_exceeded": "truncated",
    "pause_turn": "truncated",
    "refusal": "refused",
}
_ERRORS: Final = {
    "authentication_error": "rejected",
    "billing_error": "rejected",
    "invalid_request_error": "rejected",
    "not_found_error": "rejected",
    "permission_error": "rejected",
    "rate_limit_error": "rate_limited",
    "request_too_large": "rejected",
}


@frozen(kw_only=True)
class AnthropicMessages(HostedModel):
    """A model behind `{base_url}/v1/messages`."""

    name = "Claude"
    provider = "Anthropic"
    document_urls = True  # guide "PDF support": a PDF is sent whole, or by its address
    pdf_hosts = ("anthropic.com",)

    base_url: str = base_url("https://api.anthropic.com")

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        """Answer `prompt`.

        Raises:
            ModelFailed: There is no answer.
        """
        body = compact_json(self.encode(prompt)).encode("utf-8", "replace")
        question = self.question("/v1/messages", self._headers(), body)
        taken = frozenset(call.id for message in prompt.messages for call in message.calls)
        return (yield from ask(question, lambda: _Answer(self.id, taken, self._signs()), listener))

    def list_models(self, *, with_key: bool = True) -> Fetch:
        """Return the request for the first of the models (Anthropic API reference, Models)."""
        return self.small_question("/v1/models?limit=1", self._headers(with_key=with_key))

    def _headers(self, *, with_key: bool = True) -> tuple[tuple[str, str], ...]:
        key = (("x-api-key", self.api_key),) if self.api_key and with_key else ()
        return (("anthropic-version", VERSION), *key)

    def _signs(self) -> bool:
        """Return whether what is thought there is signed, all of it."""
        return (urlsplit(self.base_url).hostname or "").endswith("anthropic.com")

    def encode(self, prompt: Prompt) -> dict[str, Any]:
        """Return the body of the request."""
        body: dict[str, Any] = {
            "model": self.id,
            "max_tokens": self.token_limit(prompt) or DEFAULT_MAX_TOKENS,
            "messages": _turns(self.id, (m for m in prompt.messages if m.role != "system")),
            "stream": True,
        }
        said = [m.content for m in prompt.messages if m.role == "system" and m.content.strip()]
        if said:
            body["system"] = "\n\n".join(said)
        if prompt.tools:
            body["tools"] = [_tool(tool) for tool in prompt.tools]
        if prompt.tools and prompt.tool_choice is not None:
            body["tool_choice"] = _choice(prompt.tool_choice)
        if prompt.output_schema is not None:
            shape = {"type": "json_schema", "schema": narrow(dict(prompt.output_schema))}
            body["output_config"] = {"format": shape}
        return body


def _choice(wanted: str) -> dict[str, str]:
    return {"type": "any"} if wanted == "*" else {"type": "tool", "name": wanted}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    schema = {"type": "object", **tool.parameters}
    return {"name": tool.name, "description": tool.description, "input_schema": schema}


def _turns(model: str, messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return the messages, those of one side that follow each other as one.

    The results of tools are the user's, and all results of one answer belong in one message.
    """
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = list(_blocks(model, message))
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks or role == "user":
            turns.append({"role": role, "content": blocks})
    for turn in turns:
        turn["content"] = turn["content"] or [{"type": "text", "text": _NO_TEXT}]
    return turns


def _blocks(model: str, message: Message) -> Iterable[dict[str, Any]]:
    if message.role == "tool":
        result = {"type": "tool_result", "tool_use_id": _wire_id(message.call_id or "")}
        yield {**result, "content": message.content} if message.content else result
        return
    # Better before the text that speaks of them, as the guides say.
    yield from map(_encode_document, message.documents)
    yield from map(_picture, message.images)
    characters = calls = 0
    for thought in message.thoughts:
        if thought.model == model:  # another could not read it
            yield from _encode_content(
                message, slice(characters, thought.characters), calls, thought.calls
            )
            yield json.loads(thought.block)
            characters, calls = thought.characters, thought.calls
    yield from _encode_content(message, slice(characters, None), calls, None)


def _encode_content(
    message: Message, characters: slice, begin: int, end: int | None
) -> Iterable[dict[str, Any]]:
    """Yield a part of the text, and of the calls."""
    content = message.content[characters]
    if content.strip():
        yield {"type": "text", "text": content}
    yield from map(_encode_call, message.calls[begin:end])


def _wire_id(call_id: str) -> str:
    """Return an id of a call in the characters that are taken; it may be another provider's."""
    return _NO_NAME.sub("_", call_id) or "_"


def _encode_call(call: ToolCall) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": _wire_id(call.id),
        "name": _NO_NAME.sub("_", call.name)[:128],
        "input": arguments_of(call) or {},
    }


def _encode_document(document: Document) -> dict[str, Any]:
    """Return a PDF, under its name (guide "PDF support")."""
    source = {"type": "url", "url": document.url}
    if document.data:
        source = {"type": "base64", "media_type": document.media_type, "data": document.data}
    return {"type": "document", "source": source, "title": document.name}


def _picture(image: Image) -> dict[str, Any]:
    source = {"type": "base64", "media_type": image.media_type, "data": image.data}
    return {"type": "image", "source": {"type": "url", "url": image.url} if image.url else source}


@define
class _Thinking:
    """A block of thinking of which parts have come; `place` is how much was said before it.

    `seal` is what the provider knows its own by: a signature, or all of it where it is redacted.
    """

    redacted: bool
    place: tuple[int, int]
    seal: str
    visible: list[str] = field(factory=list[str])

    @property
    def text(self) -> str:
        """The text that is shown of it."""
        return "".join(self.visible)

    def go_on(self, delta: dict[str, Any]) -> None:
        if delta.get("type") == "thinking_delta":
            self.visible.append(verbatim(delta.get("thinking")))
        elif delta.get("type") == "signature_delta":
            self.seal = verbatim(delta.get("signature"))

    def block(self) -> str:
        """Return it as it was; in ASCII, so that it can be stored whatever is in it."""
        block = {"type": "redacted_thinking", "data": self.seal}
        if not self.redacted:
            seal = {"signature": self.seal} if self.seal else {}
            block = {"type": "thinking", "thinking": self.text, **seal}
        return json.dumps(block, separators=(",", ":"))


@define
class _Answer:
    """Reads an answer, streamed or whole."""

    model: str
    taken: frozenset[str]
    signed: bool
    complete: bool = False
    stop: str = ""
    counts: dict[str, int] = field(factory=dict[str, int])
    pieces: list[str] = field(factory=list[str])
    characters: int = 0
    blocks: dict[int, Draft] = field(factory=dict[int, Draft])
    thinking: dict[int, _Thinking] = field(factory=dict[int, _Thinking])
    visible: list[str] = field(factory=list[str])
    _showing: int | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the model has said all it has to say."""
        return self.complete or bool(self.stop)

    def event(self, event: ForeignEvent) -> str:
        """Take the next event; those of unknown types are to be ignored, as the API says.

        What speaks for others may leave out the type, or the data of what only keeps alive.
        """
        if not event.data.strip():
            return ""
        value = require_table(json_value(event.data))
        match value.get("type", event.name):
            case "message_start":
                self._count(table(value.get("message")).get("usage"))
            case "content_block_start":
                return self._say(self._begin(value.get("index"), table(value.get("content_block"))))
            case "content_block_delta":
                return self._say(self._go_on(value.get("index"), table(value.get("delta"))))
            case "message_delta":
                self.stop = text(table(value.get("delta")).get("stop_reason")) or self.stop
                self._count(value.get("usage"))
            case "message_stop":
                self.complete = True
            case "error":
                raise _judge_error(value.get("error"))
            case _:
                pass
        return ""

    def whole(self, value: Any) -> str:
        """Take an answer that was not streamed."""
        message = require_table(value)
        if message.get("type") == "error":
            raise _judge_error(message.get("error"))
        if message.get("content") is None:
            raise Trouble("broken")
        said = "".join(
            self._say(self._begin(index, block))
            for index, block in enumerate(map(table, items(message.get("content"))))
        )
        self._count(message.get("usage"))
        self.stop = text(message.get("stop_reason"))
        self.complete = True
        return said

    def reply(self) -> Reply:
        """Return the answer, if it is one."""
        if self.stop in _BAD_ENDS:
            raise Trouble(_BAD_ENDS[self.stop])
        if not self.has_ended:
            raise Trouble("broken", passing=True)
        calls = finish_calls(list(self.blocks.values()), self.taken)
        thoughts = self._thoughts() if calls else ()
        return Reply(
            "".join(self.pieces), self.usage, calls, thoughts, storable("".join(self.visible))
        )

    @property
    def usage(self) -> Usage:
        """The tokens; those of the input are counted by their source."""
        fresh, written, read, said, thought = (self.counts.get(name, 0) for name in _COUNTED)
        return Usage(fresh + written + read, said, thought, read, written)

    def _thoughts(self) -> tuple[Thought, ...]:
        """Return the thoughts to send again; where all is signed, none without its seal."""
        known = (one for one in self.thinking.values() if one.seal or self._is_unsigned(one))
        return tuple(Thought(self.model, one.block(), *one.place) for one in known)

    def _is_unsigned(self, thinking: _Thinking) -> bool:
        return bool(thinking.text) and not self.signed

    def _say(self, said: str) -> str:
        if said:
            self.pieces.append(said)
            self.characters += len(said)
        return said

    def _begin(self, index: Any, block: dict[str, Any]) -> str:
        """Take the head of a block, or a whole one; return the text in it."""
        kind = block.get("type")
        if kind == "text":
            return text(block.get("text"))
        if kind in _THINKING:
            self._think(count(index), block)
        if kind != "tool_use":
            return ""
        draft = self.blocks[count(index)] = new_draft(self.blocks)
        draft.id, draft.name = text(block.get("id")), text(block.get("name"))
        if table(block.get("input")):  # else it comes in pieces
            draft.argue(block["input"])
        return ""

    def _think(self, index: int, block: dict[str, Any]) -> None:
        """Take the head of a block of thinking, or a whole one."""
        redacted = block["type"] == "redacted_thinking"
        seal = verbatim(block.get("data" if redacted else "signature"))
        shown = [verbatim(block.get("thinking"))]
        place = (self.characters, len(self.blocks))
        self.thinking[index] = _Thinking(redacted, place, seal, shown)
        self._show(index, shown[0])

    def _show(self, index: int, piece: str) -> None:
        """Keep a piece of the thinking for people to read; what stands in between parts it."""
        if piece:
            self.visible.append(piece if self._showing in (None, index) else f"\n\n{piece}")
            self._showing = index

    def _go_on(self, index: Any, delta: dict[str, Any]) -> str:
        """Take a piece of a block; return the text in it."""
        if delta.get("type") == "text_delta":
            return text(delta.get("text"))
        if (thinking := self.thinking.get(count(index))) is not None:
            thinking.go_on(delta)
            self._show(count(index), verbatim(delta.get("thinking")))
        draft = self.blocks.get(count(index))  # none of a tool that is not ours
        if draft is not None and delta.get("type") == "input_json_delta":
            draft.argue(delta.get("partial_json"))
        return ""

    def _count(self, usage: Any) -> None:
        """Keep the counts of tokens, which go on from event to event and never fall."""
        known = table(usage)
        details = known.get("output_tokens_details")
        if is_table(details):
            known = {**known, "thinking_tokens": details.get("thinking_tokens")}
        for name in _COUNTED:
            if known.get(name) is not None:
                self.counts[name] = max(self.counts.get(name, 0), count(known[name]))


def _judge_error(error: Any) -> Trouble:
    """Judge an error that came in place of an answer; its text is for the log alone."""
    kind = error.get("type") if is_table(error) else None
    reason = _ERRORS.get(str(kind), "unreachable")
    return Trouble(reason, passing=reason != "rejected", error=error)
