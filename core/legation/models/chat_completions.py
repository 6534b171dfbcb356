"""Any endpoint that speaks the chat-completions protocol of OpenAI.

The protocol is that of `POST /chat/completions` (OpenAI API reference, Chat); "compatible" servers
leave out or add a lot, so what is read is read leniently where the meaning is plain:

* parts of a tool call are put together by index, or by id, or because they follow each other;
* an answer is whole when a `finish_reason` came, also without `[DONE]` behind it;
* the usage may be in any chunk; the last one counts;
* an error in place of a chunk shows by the name of its event, its `object` or its `error`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import field, validators

from ..effects import Fetch, Program
from ..http.messages import compact_json
from ..http.sse import ForeignEvent
from ..values import define, frozen
from .chat_thoughts import UNKNOWN_THOUGHTS, Thinking, tell_again
from .conversation import (
    Document,
    Image,
    Listener,
    Message,
    Prompt,
    Reply,
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
    is_array,
    is_table,
    items,
    json_value,
    new_draft,
    require_table,
    table,
    text,
)
from .repeated_chunks import RepeatedChunk
from .trouble import Trouble

__all__ = ["ChatCompletions", "check_answer"]

_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")
_DONE: Final = "[DONE]"
_NO_TEXT: Final = "(no text)"  # Mistral and Moonshot refuse an answer that says nothing
# What a `finish_reason` says against an answer; any other is an end like `stop`.
_BAD_ENDS: Final = {
    "abort": "broken",
    "content_filter": "refused",
    "error": "broken",
    "insufficient_system_resource": "broken",
    "length": "truncated",
    "model_context_window_exceeded": "truncated",
    "model_length": "truncated",
    "network_error": "broken",
    "sensitive": "refused",
}
# Types and codes of errors in a stream; any other is a fault of the provider, which may pass.
_REJECTIONS: Final = frozenset(
    "authentication_error invalid_request_error not_found_error permission_error "
    "400 401 402 403 404 413 422".split()
)
_LIMITS: Final = frozenset({"429", "rate_limit_error", "rate_limit_exceeded", "requests", "tokens"})


@frozen(kw_only=True)
class ChatCompletions(HostedModel):
    """A model behind `{base_url}/chat/completions`; `temperature` is its own where it is None."""

    name = "OpenAIChat"
    provider = "OpenAI"
    # Guides "File inputs" of OpenAI and "PDF Inputs" of OpenRouter; other servers mostly refuse
    # the part.
    pdf_hosts = ("openai.com", "openrouter.ai")

    base_url: str = base_url("https://api.openai.com/v1")
    temperature: float | None = field(default=None, validator=validators.optional(validators.ge(0)))

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        """Answer `prompt`.

        Raises:
            ModelFailed: There is no answer.
        """
        body = compact_json(self.encode(prompt)).encode("utf-8", "replace")
        question = self.question("/chat/completions", self._key_header(), body)
        taken = frozenset(call.id for message in prompt.messages for call in message.calls)
        return (yield from ask(question, lambda: _Completion(self.id, taken), listener))

    def list_models(self, *, with_key: bool = True) -> Fetch:
        """Return the request for the list of models (OpenAI API reference, Models)."""
        return self.small_question("/models", self._key_header() if with_key else ())

    def _key_header(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.api_key}"),) if self.api_key else ()

    def encode(self, prompt: Prompt) -> dict[str, Any]:
        """Return the body of the request."""
        body: dict[str, Any] = {
            "model": self.id,
            "messages": [self._message(message) for message in prompt.messages],
            "stream": True,
        }
        if not self._is_at("mistral."):  # refuses what it does not know, and always tells the usage
            body["stream_options"] = {"include_usage": True}
        if (limit := self.token_limit(prompt)) is not None:
            body[self._limit_key()] = limit
        if self.temperature is not None:
            body["temperature"] = self.temperature
        if prompt.tools:
            body["tools"] = [_tool(tool) for tool in prompt.tools]
        if prompt.tools and prompt.tool_choice is not None:
            body["tool_choice"] = _choice(prompt.tool_choice)
        if prompt.output_schema is not None:
            schema = {"name": "answer", "schema": dict(prompt.output_schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body

    def _limit_key(self) -> str:
        """Return how this endpoint calls the limit of tokens.

        OpenAI's newer models refuse `max_tokens`; most others know no `max_completion_tokens`.
        """
        newer = self._is_at("openai.") or self._is_at(".azure.")
        return "max_completion_tokens" if newer else "max_tokens"

    def _is_at(self, provider: str) -> bool:
        """Tell whether `provider` is a part of the name of the host."""
        return provider in (urlsplit(self.base_url).hostname or "")

    def _message(self, message: Message) -> dict[str, Any]:
        """Return a message, with what the model thought where that is asked for."""
        payload = _message(message)
        if message.role == "assistant":
            for provider, unknown in UNKNOWN_THOUGHTS.items():
                if self._is_at(provider):
                    payload["reasoning_content"] = unknown
        for thought in message.thoughts:
            if thought.model == self.id:  # another could not read it
                tell_again(thought, payload)
        return payload


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.content}
    payload: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.role == "assistant" and not message.content.strip():
        payload["content"] = _NO_TEXT
    if message.calls:
        payload["content"] = message.content or None
        payload["tool_calls"] = [_encode_call(call) for call in message.calls]
    if message.images or message.documents:
        words = [{"type": "text", "text": message.content}] if message.content else []
        files = map(_file, message.documents)
        payload["content"] = [*files, *words, *map(_picture, message.images)]
    return payload


def _encode_call(call: ToolCall) -> dict[str, Any]:
    """Return a call as it is sent again.

    Malformed arguments are replaced, because endpoints check them: the model learns from the
    result of the call what was wrong.
    """
    sound = arguments_of(call) is not None
    name = _NO_NAME.sub("_", call.name)[:64]
    function = {"name": name, "arguments": call.arguments if sound else "{}"}
    return {"id": call.id, "type": "function", "function": function}


def _picture(image: Image) -> dict[str, Any]:
    url = image.url or f"data:{image.media_type};base64,{image.data}"
    return {"type": "image_url", "image_url": {"url": url}}


def _file(document: Document) -> dict[str, Any]:
    """Return a PDF with its name, which has to end like that of one (guide "File inputs")."""
    name = document.name
    stem = name[:-4] if name.lower().endswith(".pdf") else name
    url = f"data:{document.media_type};base64,{document.data}"
    return {"type": "file", "file": {"filename": f"{stem}.pdf", "file_data": url}}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    return {"type": "function", "function": function}


def _choice(wanted: str) -> Any:
    return "required" if wanted == "*" else {"type": "function", "function": {"name": wanted}}


@define
class _Completion:
    """Reads an answer, streamed or whole."""

    model: str
    taken: frozenset[str]
    complete: bool = False
    finish: str = ""
    refused: bool = False
    usage: Usage = field(factory=Usage)
    pieces: list[str] = field(factory=list[str])
    drafts: list[Draft] = field(factory=list[Draft])
    indexed: dict[int, Draft] = field(factory=dict[int, Draft])
    thinking: Thinking = field(factory=Thinking)
    repeated: RepeatedChunk = field(factory=RepeatedChunk)

    @property
    def visible(self) -> Sequence[str]:
        """The visible part of the model's thoughts until now, piece by piece."""
        return self.thinking.visible

    @property
    def has_ended(self) -> bool:
        """Whether the model has said all it has to say."""
        return self.complete or bool(self.finish)

    def event(self, event: ForeignEvent) -> str:
        """Take the next chunk."""
        data = event.data.strip()
        repeated = self.repeated.read(data)
        if repeated is not None and event.name != "error":
            return self._keep(storable(repeated))
        self.complete = data == _DONE
        if self.complete or not data:
            return ""
        chunk = require_table(json_value(data))
        if event.name == "error":
            raise _judge_error(chunk.get("error") or chunk)
        check_answer(chunk)
        self.repeated.learn(data, chunk)
        return self._chunk(chunk, "delta")

    def whole(self, value: Any) -> str:
        """Take an answer that was not streamed."""
        completion = require_table(value)
        check_answer(completion)
        if not items(completion.get("choices")):
            raise Trouble("broken")
        self.complete = True
        return self._chunk(completion, "message")

    def reply(self) -> Reply:
        """Return the answer, if it is one."""
        if self.refused:
            raise Trouble("refused")
        if (reason := _BAD_ENDS.get(self.finish)) is not None:
            raise Trouble(reason, passing=reason == "broken")
        if not self.has_ended:
            raise Trouble("broken", passing=True)
        calls = finish_calls(self.drafts, self.taken)
        thoughts = tuple(self.thinking.thoughts(self.model)) if calls else ()
        return Reply(
            "".join(self.pieces), self.usage, calls, thoughts, self.thinking.visible_text()
        )

    def _chunk(self, chunk: dict[str, Any], key: str) -> str:
        """Take what is under `key` in the first choice, and the usage; return the text."""
        if chunk.get("usage") is not None:
            self.usage = _usage(table(chunk["usage"]))
        said = ""
        for choice in map(table, items(chunk.get("choices"))):
            if choice.get("index"):  # only one is asked for
                continue
            part = table(choice.get(key))
            content = part.get("content")
            said += storable(content) if type(content) is str else _words(content)
            if type(content) is not str or len(part) > 1:  # most tokens are a text and nothing else
                self.thinking.take(part)
                self.refused |= bool(text(part.get("refusal")))
                for call in map(table, items(part.get("tool_calls"))):
                    self._part_of_call(call, whole=key == "message")
            if (finish := choice.get("finish_reason")) is not None:
                self.finish = text(finish) or self.finish
        return self._keep(said)

    def _keep(self, said: str) -> str:
        if said:
            self.pieces.append(said)
        return said

    def _part_of_call(self, part: dict[str, Any], *, whole: bool) -> None:
        function = table(part.get("function"))
        call_id, name = text(part.get("id")), text(function.get("name"))
        draft = None if whole else self._draft(part.get("index"), call_id)
        if draft is None or (name and _is_another(part, draft)):
            draft = new_draft(self.drafts)
            self.drafts.append(draft)
        if type(part.get("index")) is int:
            self.indexed[part["index"]] = draft
        draft.id = draft.id or call_id
        draft.name = draft.name or name
        draft.argue(function.get("arguments"))
        self.thinking.sign(next(n for n, one in enumerate(self.drafts) if one is draft), part)

    def _draft(self, index: Any, call_id: str) -> Draft | None:
        """Return the call that a part may belong to: by index, as the protocol says, else by id.

        Without either it is the last one.
        """
        if type(index) is int:
            return self.indexed.get(index)
        named = (draft for draft in self.drafts if draft.id == call_id)
        last = self.drafts[-1] if self.drafts else None
        return next(named, last) if call_id else last


def _is_another(part: dict[str, Any], draft: Draft) -> bool:
    """Tell whether a part with a name begins a call of its own, and is no more of `draft`.

    Some number every call 0, or none, and tell them apart by id.  Some give no id either: then a
    name begins a call where none is numbered, and where all are 0, whole arguments end one.
    """
    if part.get("id") and draft.id:
        return bool(part["id"] != draft.id)
    if type(part.get("index")) is not int:
        return True
    more = part["function"].get("arguments")
    begun = is_table(more) or (isinstance(more, str) and more.startswith("{"))
    return begun and is_table(json_value("".join(draft.arguments)))


def _usage(counts: dict[str, Any]) -> Usage:
    """Return the tokens; few endpoints count their details."""
    heard, said = _details(counts, "prompt"), _details(counts, "completion")
    return Usage(
        count(counts.get("prompt_tokens")),
        count(counts.get("completion_tokens")),
        reasoning_tokens=count(said.get("reasoning_tokens")),
        cache_read_tokens=count(heard.get("cached_tokens")),
        cache_write_tokens=count(heard.get("cache_write_tokens")),
    )


def _details(counts: dict[str, Any], side: str) -> dict[str, Any]:
    """Return the details of one side; nothing depends on them, so nothing of them is trouble."""
    details = counts.get(f"{side}_tokens_details")
    return details if is_table(details) else {}


def _words(content: Any) -> str:
    """Return the text of `content`: as it is, or in parts, where it stands beside what is none."""
    if not is_array(content):
        return text(content)
    parts = [part for part in map(table, content) if part.get("type") == "text"]
    return "".join(text(part.get("text")) for part in parts)


def check_answer(value: dict[str, Any]) -> None:
    """Raise the error that came in place of an answer, if one did."""
    if value.get("error"):
        raise _judge_error(value["error"])
    if value.get("object") == "error":
        raise _judge_error(value)


def _judge_error(error: Any) -> Trouble:
    """Judge an error that came in place of an answer; its text is for the log alone."""
    known = error if is_table(error) else {}
    words = {str(known.get(key)) for key in ("type", "code")}
    if words & _REJECTIONS:
        return Trouble("rejected", error=error)
    if words & _LIMITS:
        return Trouble("rate_limited", passing=True, error=error)
    return Trouble("unreachable", passing=True, error=error)
