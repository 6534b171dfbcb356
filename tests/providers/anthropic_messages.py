"""Anthropic's Messages API, as strict as the real one.

Bodies are judged by the types of the `anthropic` package, and by what the API reference says
beyond them; nothing here imports a codec of ours.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, cast

from anthropic.types.message_create_params import (
    MessageCreateParamsNonStreaming,
    MessageCreateParamsStreaming,
)
from attrs import define, field

from .model_server import KEY, ModelServer, Said
from .param_types import judge_of

__all__ = ["AnthropicServer"]

_STREAMED: Final = judge_of(MessageCreateParamsStreaming)
_WHOLE: Final = judge_of(MessageCreateParamsNonStreaming)
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_ID: Final = re.compile(r"[A-Za-z0-9_-]+")


@define(eq=False)
class AnthropicServer(ModelServer):
    """Answers `POST /v1/messages`.

    Attributes:
        issued: What was answered with calls: it has to come back with what was thought.
    """

    path: ClassVar[str] = "/v1/messages"

    issued: list[list[dict[str, Any]]] = field(factory=list[list[dict[str, Any]]], init=False)

    def faults(self, headers: Mapping[str, str], body: bytes) -> Iterator[str]:
        """Yield what the API does not allow."""
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        if KEY not in (headers.get("x-api-key"), bearer):
            yield "no key"
        if headers.get("anthropic-version") != "2026-10-21":
            yield "no version"
        if headers.get("content-type") != "application/json":
            yield "not application/json"
        try:
            request = json.loads(body)
        except ValueError:
            yield "not JSON"
            return
        judged = list((_STREAMED if request.get("stream") else _WHOLE)(body))
        yield from judged
        if not judged:
            yield from _broken_rules(request)
            yield from _lost_thoughts(request["messages"], self.issued)

    def events(self, said: Said, request: Any) -> Iterable[tuple[str, Any]]:
        """Yield the events, in the order and shape of the real ones."""
        nothing: dict[str, Any] = {"content": [], "stop_reason": None}
        message = self.whole(said, request)
        yield _event("message_start", message=message | nothing)
        yield _event("ping")
        index = 0
        for block in _thoughts(said):
            empty = {"thinking": "", "signature": ""} if "thinking" in block else {}
            yield _event("content_block_start", index=index, content_block=block | empty)
            for part in _parts(block):
                yield _event("content_block_delta", index=index, delta=part)
            yield _event("content_block_stop", index=index)
            index += 1
        if said.pieces:
            block = {"type": "text", "text": ""}
            yield _event("content_block_start", index=index, content_block=block)
            for piece in said.pieces:
                delta = {"type": "text_delta", "text": piece}
                yield _event("content_block_delta", index=index, delta=delta)
            yield _event("content_block_stop", index=index)
            index += 1
        for call_id, name, arguments in said.calls:
            unread = {"input": dict[str, Any]()}
            block = {"type": "tool_use", "id": call_id, "name": name, **unread}
            yield _event("content_block_start", index=index, content_block=block)
            for at in range(0, len(arguments), 5):
                part = {"type": "input_json_delta", "partial_json": arguments[at : at + 5]}
                yield _event("content_block_delta", index=index, delta=part)
            yield _event("content_block_stop", index=index)
            index += 1
        ended = {"stop_reason": _stop(said), "stop_sequence": None}
        told = ("output_tokens", "output_tokens_details")
        usage = {name: message["usage"][name] for name in told}
        yield _event("message_delta", delta=ended, usage=usage)
        yield _event("message_stop")

    def whole(self, said: Said, request: Any) -> Any:
        """Return a message."""
        message = _message(said)
        if said.calls:
            self.issued.append(message["content"])
        return message

    def error(self, status: int, kind: str) -> Any:
        """Return an error, which quotes the key as no real one should."""
        kinds = {429: "rate_limit_error", 529: "overloaded_error", 400: "invalid_request_error"}
        told = {"type": kinds.get(status, kind), "message": f"invalid x-api-key: {KEY}"}
        return {"type": "error", "error": told, "request_id": "req_1"}

    def trouble(self, kind: str) -> tuple[str, Any]:
        """Return an error in the stream."""
        return "error", self.error(200, kind)


def _broken_rules(request: dict[str, Any]) -> Iterator[str]:
    """Yield what the types cannot say."""
    names = {tool["name"] for tool in request.get("tools", ())}
    yield from (f"no name of a tool: {name}" for name in names if not _NAME.fullmatch(name))
    for tool in request.get("tools", ()):
        if tool["input_schema"].get("type") != "object":
            yield "a schema of a tool that is no object"
    choice = request.get("tool_choice", {})
    if choice and not names:
        yield "tool_choice without tools"
    if choice.get("type") == "tool" and choice["name"] not in names:
        yield "tool_choice names no tool"
    shape = request.get("output_config", {}).get("format", {}).get("schema", {})
    yield from ("an object of the output is open" for _ in _open_objects(shape))
    if request["max_tokens"] < 1:
        yield "no tokens at all"
    turns = request["messages"]
    if not turns or turns[0]["role"] != "user":
        yield "the first message is not the user's"
    yield from _broken_documents(request)
    due: list[str] = []
    known: set[str] = set()
    for turn in turns:
        blocks = turn["content"]
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        if not blocks:
            yield "a message without content"
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if results != due:
            yield "results that are not those of the calls before them"
        if any(block["type"] != "tool_result" for block in blocks[: len(results)]):
            yield "something before the results"
        if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
            yield "text without text"
        calls = [block for block in blocks if block["type"] == "tool_use"]
        due = [call["id"] for call in calls]
        if known & set(due) or len(set(due)) < len(due):
            yield "an id of a call twice"
        known |= set(due)
        if any(
            not _ID.fullmatch(call["id"]) or not _NAME.fullmatch(call["name"]) for call in calls
        ):
            yield "an id or a name with other characters"
        if calls and turn["role"] != "assistant":
            yield "a call that is not the assistant's"
    if due:
        yield "calls without results"


def _broken_documents(request: dict[str, Any]) -> Iterator[str]:
    """Yield what the guide "PDF support" does not allow of documents."""
    if len(json.dumps(request)) > 32 << 20:
        yield "a request of more than 32 MB"
    for turn in request["messages"]:
        blocks: list[Any] = [] if isinstance(turn["content"], str) else turn["content"]
        for block in (one for one in blocks if one["type"] == "document"):
            source = block["source"]
            if turn["role"] != "user":
                yield "a document that is not the user's"
            if not 1 <= len(block.get("title") or "a") <= 500:
                yield "no title of a document"
            if source["type"] == "url" and not source["url"].startswith("https://"):
                yield "a document that cannot be fetched"
            if source["type"] == "base64":
                data = b64decode(source["data"], validate=True)
                if not data.startswith(b"%PDF-") or b"/Encrypt" in data:
                    yield "a PDF that cannot be read"


def _lost_thoughts(
    turns: list[dict[str, Any]], issued: list[list[dict[str, Any]]]
) -> Iterator[str]:
    """Yield what was thought before calls and does not come back, unchanged and in its place.

    Of turns that are over it may be left out, but not changed.
    """
    asked = [number for number, turn in enumerate(turns) if _asks(turn)]
    for number, turn in enumerate(turns):
        if turn["role"] == "user" or isinstance(turn["content"], str):
            continue
        if turn["content"][-1]["type"] in _THINKING:
            yield "a message that ends with a thought"
        told = _order(turn["content"])
        calls = _calls(told)
        wanted = next((one for one in map(_order, reversed(issued)) if _calls(one) == calls), calls)
        over = number < max(asked, default=0)
        if told != wanted and not (over and told == calls):
            yield "what was thought before calls has not come back as it was"


def _asks(turn: dict[str, Any]) -> bool:
    """Return whether a turn begins here: with more of the user's than results of tools."""
    content = turn["content"]
    more = isinstance(content, str) or any(block["type"] != "tool_result" for block in content)
    return turn["role"] == "user" and more


_THINKING: Final = ("thinking", "redacted_thinking")


def _order(content: list[dict[str, Any]]) -> list[str]:
    """Return thoughts, whole, and the ids of calls, in their order."""
    kept = (block for block in content if block["type"] in (*_THINKING, "tool_use"))
    return [block["id"] if block["type"] == "tool_use" else _text(block) for block in kept]


def _text(block: dict[str, Any]) -> str:
    return json.dumps(block, sort_keys=True)


def _calls(order: list[str]) -> list[str]:
    return [one for one in order if not one.startswith("{")]


def _thoughts(said: Said) -> list[dict[str, Any]]:
    return [
        {"type": "redacted_thinking", "data": signature}
        if text is None
        else {"type": "thinking", "thinking": text, "signature": signature}
        for text, signature in said.thoughts
    ]


def _parts(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a thought in pieces; one that is redacted comes in one."""
    text = block.get("thinking", "")
    for at in range(0, len(text), 5):
        yield {"type": "thinking_delta", "thinking": text[at : at + 5]}
    if "signature" in block:
        yield {"type": "signature_delta", "signature": block["signature"]}


def _open_objects(schema: Any) -> Iterator[Any]:
    """Yield the objects in a schema of the output that allow other members."""
    parts: list[Any] = []
    if isinstance(schema, dict):
        table = cast("dict[str, Any]", schema)
        if table.get("type") == "object" and table.get("additionalProperties") is not False:
            yield table
        parts = [*table.values()]
    elif isinstance(schema, list):
        parts = [*schema]
    for part in parts:
        yield from _open_objects(part)


def _event(kind: str, **more: Any) -> tuple[str, Any]:
    return kind, {"type": kind, **more}


def _message(said: Said) -> dict[str, Any]:
    text = "".join(said.pieces)
    content = [*_thoughts(said), *([{"type": "text", "text": text}] if text else ())]
    content += [
        {"type": "tool_use", "id": i, "name": n, "input": json.loads(a)} for i, n, a in said.calls
    ]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": content,
        "stop_reason": _stop(said),
        "stop_sequence": None,
        "usage": _usage(said),
    }


def _usage(said: Said) -> dict[str, Any]:
    """Return the tokens; of the input, those of the cache are not counted among the others."""
    heard, spoken = said.tokens
    thought, read, written = said.apart
    return {
        "input_tokens": heard - read - written,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": spoken,
        "output_tokens_details": {"thinking_tokens": thought},
    }


def _stop(said: Said) -> str:
    ends = {"length": "max_tokens", "refused": "refusal"}
    return ends.get(said.finish, "tool_use" if said.calls else "end_turn")
