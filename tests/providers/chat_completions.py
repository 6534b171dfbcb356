"""OpenAI's chat completions, as strict as the real ones.

Bodies are judged by the types of the `openai` package, and by what the API reference says beyond
them; nothing here imports a codec of ours.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final

from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)

from .model_server import KEY, ModelServer, Said
from .param_types import judge_of

__all__ = ["ChatCompletionsServer"]

_STREAMED: Final = judge_of(CompletionCreateParamsStreaming)
_WHOLE: Final = judge_of(CompletionCreateParamsNonStreaming)
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ChatCompletionsServer(ModelServer):
    """Answers `POST /v1/chat/completions`."""

    path: ClassVar[str] = "/v1/chat/completions"

    def faults(self, headers: Mapping[str, str], body: bytes) -> Iterator[str]:
        """Yield what the API does not allow."""
        if headers.get("authorization") != f"Bearer {KEY}":
            yield "no key"
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

    def events(self, said: Said, request: Any) -> Iterable[tuple[str, Any]]:
        """Yield the chunks, in the order and shape of the real ones."""
        yield "", _chunk({"role": "assistant", "content": ""})
        if said.finish == "refused":
            yield "", _chunk({"refusal": "I cannot help with that."})
        for piece in said.pieces:
            yield "", _chunk({"content": piece})
        for index, (call_id, name, _) in enumerate(said.calls):
            function = {"name": name, "arguments": ""}
            call = {"index": index, "id": call_id, "type": "function", "function": function}
            yield "", _chunk({"tool_calls": [call]})
        # Parts of calls side by side come in turn.
        for at in range(0, max((len(call[2]) for call in said.calls), default=0), 5):
            for index, call_made in enumerate(said.calls):
                if piece := call_made[2][at : at + 5]:
                    part = {"index": index, "function": {"arguments": piece}}
                    yield "", _chunk({"tool_calls": [part]})
        yield "", _chunk({}, _finish(said))
        options: dict[str, Any] = request.get("stream_options") or {}
        if options.get("include_usage"):
            yield "", _base("chat.completion.chunk") | {"choices": [], "usage": _usage(said)}
        yield "", "[DONE]"

    def whole(self, said: Said, request: Any) -> Any:
        """Return a completion."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(said.pieces) if said.pieces else None,
            "refusal": "I cannot help with that." if said.finish == "refused" else None,
        }
        if said.calls:
            message["tool_calls"] = [
                {"id": i, "type": "function", "function": {"name": n, "arguments": a}}
                for i, n, a in said.calls
            ]
        choice = {"index": 0, "message": message, "finish_reason": _finish(said), "logprobs": None}
        return _base("chat.completion") | {"choices": [choice], "usage": _usage(said)}

    def error(self, status: int, kind: str) -> Any:
        """Return an error, which quotes the key as real ones have done."""
        told = f"Incorrect API key provided: {KEY}"
        return {"error": {"message": told, "type": kind, "param": None, "code": None}}

    def trouble(self, kind: str) -> tuple[str, Any]:
        """Return an error in the stream."""
        return "", self.error(200, kind)


def _broken_rules(request: dict[str, Any]) -> Iterator[str]:
    """Yield what the types cannot say."""
    names = {tool["function"]["name"] for tool in request.get("tools", ())}
    yield from (f"no name of a function: {name}" for name in names if not _NAME.fullmatch(name))
    choice = request.get("tool_choice")
    if choice is not None and not names:
        yield "tool_choice without tools"
    if isinstance(choice, dict) and choice["function"]["name"] not in names:
        yield "tool_choice names no tool"
    shape = request.get("response_format", {}).get("json_schema", {"name": "a"})
    if not _NAME.fullmatch(shape["name"]):
        yield "no name of a schema"
    if not request["messages"]:
        yield "no messages"
    yield from _broken_files(request["messages"])
    due: set[str] = set()
    for message in request["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in due:
                yield "a tool message that answers no call before it"
            due.discard(message["tool_call_id"])
            continue
        if due:
            yield "calls of tools without an answer to each"
        calls = message.get("tool_calls", [])
        due = {call["id"] for call in calls}
        for call in calls:
            if not _NAME.fullmatch(call["function"]["name"]):
                yield "no name of a function in a call"
            if not isinstance(json.loads(call["function"]["arguments"]), dict):
                yield "arguments that are no object"
    if due:
        yield "calls of tools without an answer to each"


def _broken_files(messages: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what the guide "File inputs" does not allow of files: here they are PDFs alone."""
    total = 0
    for message in messages:
        content: Any = message.get("content")
        parts: Iterable[Any] = () if isinstance(content, str | None) else content
        for part in (one for one in parts if one["type"] == "file"):
            file = part["file"]
            if message["role"] != "user":
                yield "a file that is not the user's"
            if file.keys() != {"filename", "file_data"} or not file["filename"].endswith(".pdf"):
                yield "a file without the name of one"
            head, _, data = file["file_data"].partition(",")
            decoded = b64decode(data, validate=True)
            total += len(decoded)
            if head != "data:application/pdf;base64" or not decoded.startswith(b"%PDF-"):
                yield "Expected a base64-encoded data URL with an application/pdf MIME type"
    if total > 50 << 20:
        yield "files of more than 50 MB"


def _base(kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1_767_225_600, "model": "gpt-test"}


def _chunk(delta: Any, finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return _base("chat.completion.chunk") | {"choices": [choice], "usage": None}


def _finish(said: Said) -> str:
    ends = {"length": "length", "filtered": "content_filter"}
    return ends.get(said.finish, "tool_calls" if said.calls else "stop")


def _usage(said: Said) -> dict[str, Any]:
    heard, spoken = said.tokens
    thought, read, written = said.apart
    return {
        "prompt_tokens": heard,
        "completion_tokens": spoken,
        "total_tokens": heard + spoken,
        "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
        "completion_tokens_details": {"reasoning_tokens": thought},
    }
