"""The stand-ins for providers of models are honest: the providers' own clients talk with them.

A stand-in that is too kind would prove nothing, so its judge is tried as well.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from ..providers.anthropic_messages import AnthropicServer
from ..providers.chat_completions import ChatCompletionsServer
from ..providers.model_server import (
    KEY,
    Cut,
    Hangs,
    Huge,
    ModelServer,
    Nonsense,
    Refusal,
    Said,
    TellsTrouble,
    serving,
)

CALLS = (("call_a", "weather", '{"city": "Oslo"}'), ("call_b", "time", "{}"))
ANSWERS = {
    "text": Said(("Grüße, ", "🦉")),
    "calls": Said(calls=CALLS),
    "both": Said(("Let me see.",), CALLS),
    "short": Said(("Half",), finish="length"),
    "refused": Said(finish="refused"),
    "nothing": Said(),
    "thoughts": Said(
        ("a",),
        CALLS,
        apart=(2, 1, 3),
        thoughts=(("Hm, let me see", "s+/="), (None, "x"), ("", "t")),
    ),
}
SAID = pytest.mark.parametrize("said", ANSWERS.values(), ids=ANSWERS)
HELLO: Any = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def chat() -> Generator[ChatCompletionsServer]:
    server = ChatCompletionsServer()
    with serving(server):
        yield server
    assert server.broken == []


@pytest.fixture
def claude() -> Generator[AnthropicServer]:
    server = AnthropicServer()
    with serving(server):
        yield server
    assert server.broken == []


def openai_client(server: ModelServer) -> openai.OpenAI:
    return openai.OpenAI(
        api_key=KEY,
        base_url=f"{server.address}/v1",
        max_retries=0,
        timeout=0.3,
        _strict_response_validation=True,
    )


def anthropic_client(server: ModelServer) -> anthropic.Anthropic:
    return anthropic.Anthropic(
        api_key=KEY,
        base_url=server.address,
        max_retries=0,
        timeout=0.3,
        _strict_response_validation=True,
    )


@SAID
def test_openais_client_reads_a_stream(chat: ChatCompletionsServer, said: Said) -> None:
    chat.plan = [said]
    text, calls, usage, finish, refusal = "", dict[int, list[str]](), None, None, ""
    with openai_client(chat) as client:
        for chunk in client.chat.completions.create(
            model="m", messages=HELLO, stream=True, stream_options={"include_usage": True}
        ):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                finish = choice.finish_reason or finish
                text += choice.delta.content or ""
                refusal += choice.delta.refusal or ""
                for part in choice.delta.tool_calls or []:
                    assert part.function is not None
                    call = calls.setdefault(part.index, ["", "", ""])
                    call[0] += part.id or ""
                    call[1] += part.function.name or ""
                    call[2] += part.function.arguments or ""

    assert text == "".join(said.pieces)
    assert [tuple(call) for call in calls.values()] == list(said.calls)
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == said.tokens
    heard, spoken = usage.prompt_tokens_details, usage.completion_tokens_details
    assert heard is not None
    assert spoken is not None
    told = (spoken.reasoning_tokens, heard.cached_tokens, heard.cache_write_tokens)
    assert told == said.apart
    assert finish == ("length" if said.finish == "length" else "tool_calls" if calls else "stop")
    assert bool(refusal) == (said.finish == "refused")


@SAID
def test_openais_client_reads_an_answer_in_one(chat: ChatCompletionsServer, said: Said) -> None:
    chat.plan = [said]
    with openai_client(chat) as client:
        completion = client.chat.completions.create(model="m", messages=HELLO)

    (choice,) = completion.choices
    assert (choice.message.content or "") == "".join(said.pieces)
    made = [call for call in choice.message.tool_calls or [] if call.type == "function"]
    assert [(c.id, c.function.name, c.function.arguments) for c in made] == list(said.calls)
    assert bool(choice.message.refusal) == (said.finish == "refused")


@SAID
def test_anthropics_client_reads_a_stream(claude: AnthropicServer, said: Said) -> None:
    claude.plan = [said]
    with (
        anthropic_client(claude) as client,
        client.messages.stream(model="m", messages=HELLO, max_tokens=9) as stream,
    ):
        check_message(stream.get_final_message(), said)


@SAID
def test_anthropics_client_reads_an_answer_in_one(claude: AnthropicServer, said: Said) -> None:
    claude.plan = [said]
    with anthropic_client(claude) as client:
        check_message(client.messages.create(model="m", messages=HELLO, max_tokens=9), said)


def check_message(message: anthropic.types.Message, said: Said) -> None:
    text = "".join(block.text for block in message.content if block.type == "text")
    calls = [block for block in message.content if block.type == "tool_use"]
    stops = {"length": "max_tokens", "refused": "refusal"}
    assert text == "".join(said.pieces)
    assert [(c.id, c.name, json.dumps(c.input)) for c in calls] == list(said.calls)
    thoughts = [(b.thinking, b.signature) for b in message.content if b.type == "thinking"]
    hidden = [(None, b.data) for b in message.content if b.type == "redacted_thinking"]
    assert sorted(map(str, (*thoughts, *hidden))) == sorted(map(str, said.thoughts))
    usage, details = message.usage, message.usage.output_tokens_details
    assert details is not None
    cached = (usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0)
    assert (details.thinking_tokens, *cached) == said.apart
    assert (usage.input_tokens + sum(cached), usage.output_tokens) == said.tokens
    assert message.stop_reason == stops.get(said.finish, "tool_use" if calls else "end_turn")


OPENAI_ERRORS: list[tuple[Any, type[Exception]]] = [
    (Refusal(429, {"retry-after": "1"}), openai.RateLimitError),
    (Refusal(500), openai.InternalServerError),
    (Refusal(401), openai.AuthenticationError),
    (Hangs(), openai.APITimeoutError),
    (Hangs(Said(("a", "b")), 2), openai.APITimeoutError),
    (Cut(), openai.APIConnectionError),
    (Cut(Said(("a", "b")), 2), openai.APIConnectionError),
    (Nonsense(b"data: nonsense\n\n"), ValueError),
    (TellsTrouble("server_error", Said(("a",)), 2), openai.APIError),
]


@pytest.mark.parametrize(("item", "error"), OPENAI_ERRORS, ids=str)
def test_openais_client_sees_what_goes_wrong(
    chat: ChatCompletionsServer, item: Any, error: type[Exception]
) -> None:
    chat.plan = [item]
    with openai_client(chat) as client, pytest.raises(error):
        list(client.chat.completions.create(model="m", messages=HELLO, stream=True))


ANTHROPIC_ERRORS: list[tuple[Any, type[Exception]]] = [
    (Refusal(429, {"retry-after": "1"}), anthropic.RateLimitError),
    (Refusal(529), anthropic.InternalServerError),
    (Refusal(401), anthropic.AuthenticationError),
    (Hangs(), anthropic.APITimeoutError),
    (Cut(), anthropic.APIConnectionError),
    (TellsTrouble("overloaded_error", Said(("a",)), 2), anthropic.APIStatusError),
]


@pytest.mark.parametrize(("item", "error"), ANTHROPIC_ERRORS, ids=str)
def test_anthropics_client_sees_what_goes_wrong(
    claude: AnthropicServer, item: Any, error: type[Exception]
) -> None:
    claude.plan = [item]
    with anthropic_client(claude) as client, pytest.raises(error):
        list(client.messages.create(model="m", messages=HELLO, max_tokens=9, stream=True))


def test_a_flood_is_as_large_as_it_says(chat: ChatCompletionsServer) -> None:
    chat.plan = [Huge(2_000_000)]
    body = {"model": "m", "messages": HELLO, "stream": True}
    with httpx2.Client() as client:
        response = client.post(f"{chat.address}{chat.path}", headers=BEARER, json=body)

    assert len(response.content) >= 2_000_000


BEARER = {"authorization": f"Bearer {KEY}"}
TOOL = {"type": "function", "function": {"name": "f"}}
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLED: Any = [*HELLO, {"role": "assistant", "tool_calls": [CALL]}]
ANSWERED = {"role": "tool", "tool_call_id": "a", "content": "1"}


CHAT_FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"max_token": 1}, "max_token: Extra inputs are not permitted"),
    ({"stream": "true"}, "stream: Input should be True"),
    ({"model": 1}, "model"),
    ({"messages": "Hello"}, "messages: Input should be a valid array"),
    ({"messages": []}, "no messages"),
    ({"messages": [{"role": "user", "text": "Hello"}]}, "messages.0"),
    ({"messages": [{"role": "user", "content": [{"type": "picture"}]}]}, "messages.0"),
    ({"messages": [{"role": "user", "content": "a", "images": []}]}, "Extra inputs"),
    ({"messages": CALLED}, "without an answer"),
    ({"messages": [*CALLED, *HELLO]}, "without an answer"),
    ({"messages": [*HELLO, ANSWERED]}, "answers no call"),
    ({"messages": [*CALLED, ANSWERED, ANSWERED]}, "answers no call"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "no name"),
    ({"tools": [{"type": "function", "function": {"name": "f", "x": 1}}]}, "Extra inputs"),
    ({"tool_choice": "required"}, "without tools"),
    ({"tools": [TOOL], "tool_choice": "any"}, "tool_choice"),
    (
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
        "names no tool",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a b"}}},
        "no name of a schema",
    ),
    ({"stream_options": {"include_usage": 1}}, "include_usage"),
]


@pytest.mark.parametrize(("changes", "fault"), CHAT_FAULTS)
def test_the_judge_of_chat_completions_is_strict(changes: dict[str, Any], fault: str) -> None:
    server = ChatCompletionsServer()
    good = {"model": "m", "messages": HELLO, "stream": True}
    headers = {**BEARER, "content-type": "application/json"}

    assert list(server.faults(headers, json.dumps(good).encode())) == []
    faults = list(server.faults(headers, json.dumps(good | changes).encode()))
    assert fault in "\n".join(faults)


USE: Any = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "1"}
USED: Any = [*HELLO, {"role": "assistant", "content": [USE]}]
TEXT = {"type": "text", "text": "a"}


MESSAGE_FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"max_output": 1}, "max_output: Extra inputs are not permitted"),
    ({"max_tokens": None}, "valid integer"),
    ({"max_tokens": 0}, "no tokens"),
    ({"messages": [{"role": "tool", "content": "1"}]}, "messages.0"),
    ({"messages": [{"role": "user", "content": [{"type": "picture"}]}]}, "messages.0"),
    ({"messages": [{"role": "user", "content": [{**TEXT, "x": 1}]}]}, "Extra inputs"),
    ({"messages": [{"role": "user", "content": " "}]}, "text without text"),
    ({"messages": [{"role": "user", "content": []}]}, "without content"),
    ({"messages": [{"role": "assistant", "content": "a"}]}, "not the user's"),
    ({"messages": USED}, "calls without results"),
    ({"messages": [*USED, *HELLO]}, "not those of the calls"),
    ({"messages": [*HELLO, {"role": "user", "content": [RESULT]}]}, "not those of the calls"),
    ({"messages": [*USED, {"role": "user", "content": [TEXT, RESULT]}]}, "before the results"),
    ({"tool_choice": {"type": "any"}}, "without tools"),
    ({"tools": [{"name": "f", "input_schema": {}}]}, "no object"),
    ({"tools": [{"name": "a b", "input_schema": {"type": "object"}}]}, "no name"),
    ({"system": [{"text": "a"}]}, "system"),
    ({"temperature": 0.5}, "temperature: Extra inputs are not permitted"),
    (
        {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
        "is open",
    ),
]


@pytest.mark.parametrize(("changes", "fault"), MESSAGE_FAULTS)
def test_the_judge_of_messages_is_strict(changes: dict[str, Any], fault: str) -> None:
    server = AnthropicServer()
    good = {"model": "m", "messages": HELLO, "max_tokens": 9, "stream": True}
    headers = {
        "x-api-key": KEY,
        "anthropic-version": "2026-10-21",
        "content-type": "application/json",
    }

    assert list(server.faults(headers, json.dumps(good).encode())) == []
    faults = list(server.faults(headers, json.dumps(good | changes).encode()))
    assert fault in "\n".join(faults)


THOUGHT = {"type": "thinking", "thinking": "Hm", "signature": "s"}
HIDDEN = {"type": "redacted_thinking", "data": "x"}
THOUGHTS = (("Hm", "s"), (None, "x"))


@pytest.mark.parametrize(
    ("content", "last", "sound"),
    [
        ([THOUGHT, HIDDEN, USE], [RESULT], True),
        ([THOUGHT, HIDDEN, TEXT, USE], [RESULT], True),
        ([USE], [RESULT], False),
        ([THOUGHT, USE], [RESULT], False),
        ([HIDDEN, THOUGHT, USE], [RESULT], False),
        ([{**THOUGHT, "thinking": "Hm "}, HIDDEN, USE], [RESULT], False),
        ([{**THOUGHT, "signature": "t"}, HIDDEN, USE], [RESULT], False),
        ([THOUGHT, USE, HIDDEN], [RESULT], False),
        ([{**USE, "id": "b"}], [{**RESULT, "tool_use_id": "b"}], True),
        ([THOUGHT, {**USE, "id": "b"}], [{**RESULT, "tool_use_id": "b"}], False),
        # Another question has begun another turn.
        ([THOUGHT, HIDDEN, USE], [RESULT, TEXT], True),
        ([USE], [RESULT, TEXT], True),
        ([HIDDEN, USE], [RESULT, TEXT], False),
    ],
)
def test_what_was_thought_before_calls_has_to_come_back(
    content: Any, last: Any, sound: bool
) -> None:
    server = AnthropicServer()
    server.whole(Said(calls=(("a", "f", "{}"),), thoughts=THOUGHTS), None)
    messages = [*HELLO, {"role": "assistant", "content": content}]
    messages += [{"role": "user", "content": last}]
    body = {"model": "m", "max_tokens": 9, "messages": messages}
    headers = {
        "x-api-key": KEY,
        "anthropic-version": "2026-10-21",
        "content-type": "application/json",
    }

    assert (list(server.faults(headers, json.dumps(body).encode())) == []) == sound


@pytest.mark.parametrize("kind", [ChatCompletionsServer, AnthropicServer])
def test_no_request_without_a_key_or_a_body_is_taken(kind: type[ModelServer]) -> None:
    server = kind()

    assert "no key" in list(server.faults({}, b"nonsense"))
    assert "not JSON" in list(server.faults({}, b"nonsense"))
    assert isinstance(server.take("/other", {}, b"{}"), Refusal)
    assert "no such path: /other" in server.broken
