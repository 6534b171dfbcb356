"""The codec of Anthropic's Messages API."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.effects import CloseStream, Log, OpenStream, Unreachable
from legation.models.anthropic import DEFAULT_MAX_TOKENS, AnthropicMessages
from legation.models.conversation import (
    Document,
    Image,
    Message,
    Prompt,
    Reply,
    ToolCall,
    ToolSpec,
    Usage,
)
from legation.models.provider_json import MOST_CALLS

from ..model_kit import WHOLE, Outcome, Played, asked, sse

MODEL = AnthropicMessages(id="claude", base_url="http://127.0.0.1:9/", api_key="k-123", retries=0)
HELLO = Prompt((Message("user", "Hello"),))
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
WEATHER = ToolSpec("weather", "Tell the weather.", {"type": "object", "properties": {}})


def event(kind: str, **more: Any) -> tuple[str, str]:
    return kind, json.dumps({"type": kind, **more})


def begun(index: int, **block: Any) -> tuple[str, str]:
    return event("content_block_start", index=index, content_block=block)


def delta(index: int, **more: Any) -> tuple[str, str]:
    return event("content_block_delta", index=index, delta=more)


def text(index: int, said: str) -> tuple[str, str]:
    return delta(index, type="text_delta", text=said)


def part(index: int, json_part: str) -> tuple[str, str]:
    return delta(index, type="input_json_delta", partial_json=json_part)


def ended(reason: str = "end_turn", **tokens: Any) -> tuple[str, str]:
    return event("message_delta", delta={"stop_reason": reason}, usage=tokens)


START = event(
    "message_start",
    message={
        "type": "message",
        "content": [],
        "usage": {
            "input_tokens": 5,
            "cache_read_input_tokens": 2,
            "cache_creation_input_tokens": None,
            "output_tokens": 1,
        },
    },
)
STOP = event("message_stop")


def streamed(*events: tuple[str, str]) -> Outcome:
    return asked(MODEL, HELLO, Played((sse(events),)))


def sent(prompt: Prompt, model: AnthropicMessages = MODEL) -> dict[str, Any]:
    (effect,) = asked(model, prompt, Unreachable("tls")).of(OpenStream)
    body: dict[str, Any] = json.loads(effect.body)
    return body


def test_a_request_as_it_is_sent() -> None:
    (effect,) = asked(MODEL, HELLO, Unreachable("tls")).of(OpenStream)

    assert effect.url == "http://127.0.0.1:9/v1/messages"
    assert effect.headers == (
        ("content-type", "application/json"),
        ("accept", "text/event-stream, application/json"),
        ("anthropic-version", "2026-10-21"),
        ("x-api-key", "k-123"),
    )
    assert json.loads(effect.body) == {
        "model": "claude",
        "max_tokens": DEFAULT_MAX_TOKENS,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
        "stream": True,
    }


def test_settings_go_with_it() -> None:
    model = AnthropicMessages(id="claude", max_output_tokens=9, retries=0)
    (effect,) = asked(model, HELLO, Unreachable("tls")).of(OpenStream)

    assert effect.url == "https://api.anthropic.com/v1/messages"
    assert "x-api-key" not in dict(effect.headers)
    assert sent(HELLO, model)["max_tokens"] == 9


def test_a_conversation_with_tools_and_pictures() -> None:
    calls = (ToolCall("c1", "weather", '{"city":"Oslo"}'), ToolCall("f:2", "no such!", "nonsense"))
    prompt = Prompt(
        (
            Message("system", "Be brief."),
            Message("system", " "),
            Message("system", "Be kind."),
            Message(
                "user",
                "What is this?",
                images=(Image("image/png", "AAAA"), Image(url="https://example.org/a.png")),
            ),
            Message("assistant", "Let me see.", calls=calls),
            Message("tool", "Rain", call_id="c1"),
            Message("tool", "", call_id="f:2"),
            Message("user", "And?"),
            Message("assistant", " "),
            Message("user", "Hello?"),
            Message("assistant", "Rain."),
            Message("user", " "),
        ),
        tools=(WEATHER,),
    )

    body = sent(prompt)

    assert body["system"] == "Be brief.\n\nBe kind."
    assert body["messages"] == [
        {
            "role": "user",
            "content": [
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
                },
                {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
                {"type": "text", "text": "What is this?"},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}},
                {"type": "tool_use", "id": "f_2", "name": "no_such_", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "Rain"},
                {"type": "tool_result", "tool_use_id": "f_2"},
                {"type": "text", "text": "And?"},
                {"type": "text", "text": "Hello?"},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "Rain."}]},
        {"role": "user", "content": [{"type": "text", "text": "(no text)"}]},
    ]
    assert body["tools"] == [
        {
            "name": "weather",
            "description": "Tell the weather.",
            "input_schema": {"type": "object", "properties": {}},
        }
    ]
    assert "tool_choice" not in body


def test_a_document_stands_before_the_text_under_its_name() -> None:
    documents = (
        Document("invoice.pdf", "application/pdf", "JVBERi0="),
        Document("terms", "application/pdf", url="https://example.org/terms.pdf"),
    )
    image = Image("image/png", "AAAA")
    message = Message("user", "How much?", images=(image,), documents=documents)

    (turn,) = sent(Prompt((message,)))["messages"]

    assert turn["content"][:2] == [
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
            "title": "invoice.pdf",
        },
        {
            "type": "document",
            "source": {"type": "url", "url": "https://example.org/terms.pdf"},
            "title": "terms",
        },
    ]
    assert [block["type"] for block in turn["content"][2:]] == ["image", "text"]


@pytest.mark.parametrize(
    ("choice", "payload"),
    [("*", {"type": "any"}), ("weather", {"type": "tool", "name": "weather"})],
)
def test_a_tool_can_be_asked_for(choice: str, payload: Any) -> None:
    assert sent(Prompt(HELLO.messages, (WEATHER,), tool_choice=choice))["tool_choice"] == payload
    assert "tool_choice" not in sent(Prompt(HELLO.messages, tool_choice=choice))


def test_a_shape_can_be_asked_for() -> None:
    body = sent(Prompt(HELLO.messages, (WEATHER,), output_schema=SCHEMA, tool_choice="weather"))

    assert body["output_config"] == {
        "format": {"type": "json_schema", "schema": {**SCHEMA, "additionalProperties": False}}
    }
    assert body["tool_choice"] == {"type": "tool", "name": "weather"}


def test_an_answer_in_pieces() -> None:
    events = (
        START,
        begun(0, type="text", text=""),
        event("ping"),
        text(0, "Good "),
        text(0, "morning"),
        event("content_block_stop", index=0),
        ended(output_tokens=3),
        STOP,
    )

    outcome = asked(MODEL, HELLO, Played(tuple(sse([one]) for one in events)))

    assert outcome.reply == Reply("Good morning", Usage(7, 3, cache_read_tokens=2))
    assert outcome.said == ("Good ", "morning")
    assert outcome.of(CloseStream) == []


def test_calls_side_by_side() -> None:
    outcome = streamed(
        START,
        begun(0, type="text", text="So: "),
        begun(1, type="tool_use", id="a", name="f", input={}),
        part(1, ""),
        part(1, '{"x":'),
        part(1, "1}"),
        begun(2, type="tool_use", id="b", name="g", input={}),
        begun(3, type="tool_use", id="c", name="h", input={"y": 2}),
        ended("tool_use"),
        STOP,
    )

    assert outcome.reply == Reply(
        "So: ",
        Usage(7, 1, cache_read_tokens=2),
        (
            ToolCall("a", "f", '{"x":1}'),
            ToolCall("b", "g", "{}"),
            ToolCall("c", "h", '{"y":2}'),
        ),
    )


def test_what_the_caches_and_the_thinking_took_is_told_apart() -> None:
    caches: dict[str, Any] = {"cache_creation_input_tokens": 4, "cache_read_input_tokens": 8}
    details: Any
    for details in ({"thinking_tokens": 6}, {"thinking_tokens": "6"}, {}, None, 1):
        tokens: dict[str, Any] = {"output_tokens": 9, "output_tokens_details": details, **caches}
        reply = streamed(START, text(0, "a"), ended(**tokens), STOP).reply

        assert reply is not None
        thought = 6 if details == {"thinking_tokens": 6} else 0
        assert reply.usage == Usage(17, 9, thought, 8, 4)


SIGNED = {"type": "thinking", "thinking": "So\0 \U0001f989", "signature": "s+/="}
HIDDEN = {"type": "redacted_thinking", "data": "x+/="}
CALLED: dict[str, Any] = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
THOUGHTFUL = (
    START,
    begun(0, type="thinking", thinking="", signature=""),
    delta(0, type="thinking_delta", thinking="So\0 "),
    delta(0, type="thinking_delta", thinking="\ud83e"),
    delta(0, type="thinking_delta", thinking="\udd89"),
    delta(0, type="signature_delta", signature="s+/="),
    delta(0, type="some_other_delta"),
    begun(1, **HIDDEN),
    begun(2, type="text", text=""),
    text(2, "Let me "),
    text(2, "see"),
    begun(3, **SIGNED),
    begun(4, type="text", text="."),
    begun(5, **CALLED),
    begun(6, type="thinking", thinking="", signature=""),
    begun(7, **HIDDEN),
    begun(8, **{**CALLED, "id": "b"}),
    ended("tool_use"),
    STOP,
)
WHOLLY: list[dict[str, Any]] = [
    SIGNED,
    HIDDEN,
    {"type": "text", "text": "Let me see"},
    SIGNED,
    {"type": "text", "text": "."},
    CALLED,
    HIDDEN,
    {**CALLED, "id": "b"},
]


@pytest.mark.parametrize("whole", [False, True], ids=["streamed", "whole"])
def test_what_was_thought_before_calls_is_told_again_in_its_place(whole: bool) -> None:
    answer = {"type": "message", "content": WHOLLY, "stop_reason": "tool_use"}
    body = json.dumps(answer).encode() if whole else sse(THOUGHTFUL)
    outcome = asked(MODEL, HELLO, Played((body,), headers=WHOLE if whole else {}))
    reply = outcome.reply
    assert reply is not None
    said = Message("assistant", reply.content, calls=reply.calls, thoughts=reply.thoughts)
    results = tuple(Message("tool", "1", call_id=call.id) for call in reply.calls)
    conversation = (*HELLO.messages, said, *results)

    assert "".join(outcome.said) == reply.content == "Let me see."
    assert "So" not in repr(reply)
    assert all(thought.block.isascii() for thought in reply.thoughts)
    assert sent(Prompt(conversation))["messages"][1]["content"] == WHOLLY
    other = sent(Prompt(conversation), AnthropicMessages(id="other", retries=0))
    assert [block["type"] for block in other["messages"][1]["content"]] == [
        "text",
        "tool_use",
        "tool_use",
    ]


@pytest.mark.parametrize(
    ("url", "kinds"),
    [
        ("https://api.anthropic.com", ["tool_use"]),
        ("https://api.deepseek.com/anthropic", ["thinking", "tool_use"]),
    ],
)
def test_thinking_that_nobody_signed_is_told_again_where_thinking_is_not_signed(
    url: str, kinds: list[str]
) -> None:
    model = AnthropicMessages(id="m", base_url=url, retries=0)
    thought = {"type": "thinking", "thinking": "Hm"}
    nothing = begun(1, type="thinking", thinking="", signature="")
    stream = sse([begun(0, **thought), nothing, begun(2, **CALLED), ended("tool_use"), STOP])
    reply = asked(model, HELLO, Played((stream,))).reply
    assert reply is not None
    said = Message("assistant", "", calls=reply.calls, thoughts=reply.thoughts)

    (_, message) = sent(Prompt((*HELLO.messages, said)), model)["messages"]

    assert [block["type"] for block in message["content"]] == kinds
    assert message["content"][0] in (thought, CALLED)


def test_what_was_thought_before_an_answer_is_shown_and_not_told_again() -> None:
    reply = streamed(
        begun(0, **SIGNED),
        begun(1, **HIDDEN),
        begun(2, type="thinking", thinking="", signature=""),
        delta(2, type="thinking_delta", thinking="And "),
        delta(2, type="thinking_delta", thinking="so"),
        text(3, "a"),
        ended(),
        STOP,
    ).reply

    assert reply == Reply("a", reasoning="So\ufffd \U0001f989\n\nAnd so")


@pytest.mark.parametrize("noise", [("ping", ""), ("ping", " "), ("", ""), ("ping", '{"a": 1}')])
def test_what_keeps_a_stream_alive_may_say_nothing_at_all(noise: tuple[str, str]) -> None:
    assert streamed(noise, text(0, "a"), noise, ended(), STOP).reply == Reply("a")


def test_an_event_without_a_type_is_of_the_type_of_its_name() -> None:
    event = ("error", '{"error": {"type": "rate_limit_error"}}')

    assert streamed(START, event).reason == "rate_limited"


def test_a_count_of_tokens_never_falls() -> None:
    reply = streamed(START, text(0, "a"), ended(input_tokens=0, output_tokens=3), STOP).reply

    assert reply == Reply("a", Usage(7, 3, cache_read_tokens=2))


@pytest.mark.parametrize(
    "noise",
    [
        event("something_new", data=1),
        begun(9, type="thinking", thinking="", signature=""),
        delta(9, type="thinking_delta", thinking="hm"),
        delta(9, type="signature_delta", signature="x"),
        begun(9, type="server_tool_use", id="s", name="search", input={}),
        part(9, "{}"),
        ("ping", "{}"),
    ],
)
def test_what_says_nothing_is_passed_over(noise: tuple[str, str]) -> None:
    assert streamed(noise, text(0, "a"), noise, ended(), STOP).reply == Reply("a")


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("max_tokens", "truncated"),
        ("model_context_window_exceeded", "truncated"),
        ("pause_turn", "truncated"),
        ("refusal", "refused"),
    ],
)
def test_an_end_that_is_no_answer(stop: str, reason: str) -> None:
    outcome = streamed(START, text(0, "So "), ended(stop), STOP)

    assert outcome.reason == reason
    assert outcome.said == ("So ",)


def test_a_stream_may_end_without_its_last_event_but_not_without_a_reason() -> None:
    assert streamed(START, text(0, "a"), ended()).reply == Reply(
        "a", Usage(7, 1, cache_read_tokens=2)
    )
    assert streamed(START, text(0, "a")).reason == "broken"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("overloaded_error", "unreachable"),
        ("api_error", "unreachable"),
        ("rate_limit_error", "rate_limited"),
        ("invalid_request_error", "rejected"),
        ("authentication_error", "rejected"),
        (None, "unreachable"),
    ],
)
def test_an_error_in_place_of_an_answer(kind: str | None, reason: str) -> None:
    error = {"type": kind, "message": "secret"}
    whole = json.dumps({"type": "error", "error": error}).encode()

    for outcome in (
        streamed(START, text(0, "a"), event("error", error=error)),
        asked(MODEL, HELLO, Played((whole,), headers=WHOLE)),
    ):
        assert outcome.reason == reason
        others = [effect for effect in outcome.effects[1:] if not isinstance(effect, Log)]
        assert "secret" not in repr(outcome.failure) + str(others)


def test_an_error_that_is_no_object_is_one_too() -> None:
    assert streamed(event("error", error="secret")).reason == "unreachable"


def test_who_is_overloaded_is_asked_again_while_nothing_was_heard() -> None:
    model = AnthropicMessages(id="claude", retries=1)
    busy = Played((sse([START, event("error", error={"type": "overloaded_error"})]),))
    good = Played((sse([START, text(0, "a"), ended(), STOP]),))

    both = Usage(14, 2, cache_read_tokens=4)
    assert asked(model, HELLO, busy, good).reply == Reply("a", both)


@pytest.mark.parametrize(
    "nonsense",
    [
        ("", "nonsense"),
        ("", "null"),
        ("", "[]"),
        event("message_start", message=1),
        event("message_start", message={"usage": 1}),
        event("content_block_start", index=0, content_block=1),
        begun(0, type="text", text=1),
        begun(0, type="thinking", thinking=1),
        begun(0, type="thinking", thinking="", signature=1),
        begun(0, type="redacted_thinking", data=[]),
        begun(0, type="tool_use", id=1, name="f"),
        begun(0, type="tool_use", id="a", name="f", input=[1]),
        begun(0, type="tool_use", id="a", name="f", input={"n": float("inf")}),
        event("content_block_delta", index=0, delta=1),
        text(0, 1),  # type: ignore[arg-type]
        event("message_delta", delta=1),
        event("message_delta", delta={"stop_reason": 1}),
    ],
)
def test_nonsense_is_no_answer(nonsense: tuple[str, str]) -> None:
    outcome = streamed(text(0, "a"), nonsense, ended(), STOP)

    assert outcome.reason == "broken"
    assert outcome.said == ("a",)


def test_more_calls_than_anybody_makes_are_nonsense() -> None:
    calls = [begun(n, type="tool_use", id=f"c{n}", name="f") for n in range(MOST_CALLS + 1)]

    assert streamed(*calls[:-1], ended(), STOP).reply is not None
    assert streamed(*calls, ended(), STOP).reason == "broken"


def test_a_call_without_a_name_is_nonsense() -> None:
    assert streamed(begun(0, type="tool_use", id="a"), STOP).reason == "broken"


def test_an_answer_that_was_not_streamed() -> None:
    message = {
        "type": "message",
        "content": [
            {"type": "text", "text": "So:"},
            {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 5, "output_tokens": 3},
    }
    body = json.dumps(message).encode()

    outcome = asked(MODEL, HELLO, Played((body[:9], body[9:]), headers=WHOLE))

    assert outcome.reply == Reply("So:", Usage(5, 3), (ToolCall("a", "f", '{"x":1}'),))
    assert outcome.said == ("So:",)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "broken"),
        (b"[1]", "broken"),
        (b"{}", "broken"),
        (b'{"content": 1}', "broken"),
        (b'{"content": [1]}', "broken"),
        (b'{"content": [], "stop_reason": "refusal"}', "refused"),
    ],
)
def test_what_is_no_answer_streamed_or_not(body: bytes, reason: str) -> None:
    assert asked(MODEL, HELLO, Played((body,), headers=WHOLE)).reason == reason


def test_how_it_is_shown() -> None:
    assert (MODEL.name, MODEL.provider, MODEL.id) == ("Claude", "Anthropic", "claude")
    assert "k-123" not in repr(MODEL)
    assert "k-123" not in repr(streamed(STOP).effects)


VALUES = st.recursive(
    st.none()
    | st.integers()
    | st.sampled_from(
        """message_start content_block_start content_block_delta message_delta message_stop error
        tool_use text text_delta input_json_delta answer end_turn thinking redacted_thinking
        thinking_delta signature_delta""".split()
    ),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                """type message content_block delta index usage id name input text partial_json
                error stop_reason content input_tokens thinking signature data""".split()
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(VALUES, max_size=4), st.booleans())
def test_any_json_gives_a_reply_or_a_reason(values: list[Any], is_whole: bool) -> None:
    texts = [json.dumps(value) for value in values]
    body = texts[0].encode() if is_whole and texts else sse(("", data) for data in texts)

    outcome = asked(MODEL, HELLO, Played((body,), headers=WHOLE if is_whole else {}))

    assert (outcome.reply is None) != (outcome.failure is None)


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=4), st.booleans())
def test_any_bytes_give_a_reply_or_a_reason(chunks: list[bytes], is_whole: bool) -> None:
    outcome = asked(MODEL, HELLO, Played(tuple(chunks), headers=WHOLE if is_whole else {}))

    assert (outcome.reply is None) != (outcome.failure is None)


GOOD = sse(
    [
        START,
        begun(0, type="text", text=""),
        text(0, "Grüße, "),
        text(0, "🦉"),
        begun(1, type="tool_use", id="a", name="f", input={}),
        part(1, '{"x": "ü"}'),
        ended("tool_use", output_tokens=3),
        STOP,
    ]
)


@given(st.lists(st.integers(1, len(GOOD) - 1), unique=True), st.sampled_from([b"\n", b"\r\n"]))
def test_it_does_not_matter_how_a_stream_is_cut(cuts: list[int], end: bytes) -> None:
    stream = GOOD.replace(b"\n", end)
    bounds = [0, *sorted(cuts), len(stream)]
    pieces = tuple(stream[a:b] for a, b in pairwise(bounds))

    outcome = asked(MODEL, HELLO, Played(pieces))

    assert outcome.reply == Reply(
        "Grüße, 🦉", Usage(7, 3, cache_read_tokens=2), (ToolCall("a", "f", '{"x": "ü"}'),)
    )


@given(st.integers(0, len(GOOD) - 1))
def test_a_stream_that_breaks_off_gives_the_whole_reply_or_none(end: int) -> None:
    outcome = asked(MODEL, HELLO, Played((GOOD[:end], Unreachable("protocol"))))

    if outcome.reply is not None:
        assert outcome.reply.content == "Grüße, 🦉"
        assert len(outcome.reply.calls) == 1
    else:
        assert outcome.reason == "broken"


@pytest.mark.parametrize("arguments", ['{"n":NaN}', '{"n":1e999}'])
def test_a_number_that_has_no_json_keeps_nothing_from_being_asked(arguments: str) -> None:
    call = ToolCall("a", "f", arguments)
    prompt = Prompt((Message("assistant", "", calls=(call,)), Message("tool", "no", call_id="a")))

    assert MODEL.encode(prompt)["messages"][0]["content"][0]["input"] == {}
    assert asked(MODEL, prompt, Played((sse([START, text(0, "a"), ended(), STOP]),))).reply
