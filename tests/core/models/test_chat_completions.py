"""The chat-completions codec."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from legation.effects import CloseStream, Log, NextChunk, OpenStream, Unreachable
from legation.http.messages import compact_json
from legation.models.chat_completions import ChatCompletions
from legation.models.conversation import (
    Document,
    Image,
    Message,
    Prompt,
    Reply,
    Thought,
    ToolCall,
    ToolSpec,
    Usage,
)
from legation.models.provider_json import MOST_CALLS

from ..model_kit import WHOLE, Outcome, Played, asked, sse

MODEL = ChatCompletions(id="gpt", base_url="http://127.0.0.1:9/v1/", api_key="k-123", retries=0)
HELLO = Prompt((Message("user", "Hello"),))
WEATHER = ToolSpec("weather", "Tell the weather.", {"type": "object", "properties": {}})


def chunk(delta: Any = None, finish: str | None = None, **more: Any) -> str:
    choice: Any = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    payload: dict[str, Any] = {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}
    return json.dumps(payload | more)


def calling(*parts: dict[str, Any]) -> str:
    return chunk({"tool_calls": list(parts)})


STOP = chunk(finish="stop")
USAGE = chunk(choices=[], usage={"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10})


@pytest.mark.parametrize(
    ("details", "usage"),
    [
        ({}, Usage(7, 3)),
        ({"prompt_tokens_details": None, "completion_tokens_details": 1}, Usage(7, 3)),
        (
            {
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
                "completion_tokens_details": {"reasoning_tokens": 1, "audio_tokens": 0},
            },
            Usage(7, 3, reasoning_tokens=1, cache_read_tokens=4, cache_write_tokens=2),
        ),
        (
            {
                "prompt_tokens_details": {"cached_tokens": "4"},
                "completion_tokens_details": {"reasoning_tokens": -1},
            },
            Usage(7, 3),
        ),
    ],
)
def test_what_was_thought_and_what_the_cache_knew_is_told_apart(
    details: dict[str, Any], usage: Usage
) -> None:
    counts = {"prompt_tokens": 7, "completion_tokens": 3, **details}
    end = chunk({"content": "a"}, finish="stop")

    assert streamed(end, chunk(choices=[], usage=counts), "[DONE]").reply == Reply("a", usage)


def streamed(*data: str) -> Outcome:
    """Ask with a stream of these events, in one chunk."""
    return asked(MODEL, HELLO, Played((sse(("", datum) for datum in data),)))


def calls_of(*parts: dict[str, Any]) -> list[tuple[str, str, str]]:
    outcome = streamed(*(calling(part) for part in parts), chunk(finish="tool_calls"), "[DONE]")
    assert outcome.reply is not None, outcome.failure
    return [(call.id, call.name, call.arguments) for call in outcome.reply.calls]


def sent(model: ChatCompletions, prompt: Prompt) -> dict[str, Any]:
    outcome = asked(model, prompt, Unreachable("tls"))
    (effect,) = outcome.of(OpenStream)
    body: dict[str, Any] = json.loads(effect.body)
    assert body == model.encode(prompt)
    return body


def test_a_request_as_it_is_sent() -> None:
    (effect,) = streamed(STOP).of(OpenStream)

    assert effect.method == "POST"
    assert effect.url == "http://127.0.0.1:9/v1/chat/completions"
    assert effect.headers == (
        ("content-type", "application/json"),
        ("accept", "text/event-stream, application/json"),
        ("authorization", "Bearer k-123"),
    )
    assert effect.timeout_seconds == 120
    assert json.loads(effect.body) == {
        "model": "gpt",
        "messages": [{"role": "user", "content": "Hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_without_a_key_none_is_sent() -> None:
    (effect,) = asked(ChatCompletions(id="m", retries=0), HELLO, Unreachable("tls")).of(OpenStream)

    assert "authorization" not in dict(effect.headers)


def test_a_conversation_with_tools_and_pictures() -> None:
    calls = (
        ToolCall("c1", "weather", '{"city":"Oslo"}'),
        ToolCall("c2", "no such tool!", "nonsense"),
    )
    prompt = Prompt(
        (
            Message("system", "Be brief."),
            Message(
                "user",
                "What is this?",
                images=(Image("image/png", "AAAA"), Image(url="https://example.org/a.png")),
            ),
            Message("assistant", "", calls=calls),
            Message("tool", "Rain", call_id="c1"),
            Message("tool", "There is no such tool", call_id="c2"),
            Message("assistant", "Rain."),
            Message("user", "", images=(Image("image/png", "AAAA"),)),
        ),
        tools=(WEATHER,),
    )

    body = sent(MODEL, prompt)

    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                picture,
                {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city":"Oslo"}'},
                },
                {
                    "id": "c2",
                    "type": "function",
                    "function": {"name": "no_such_tool_", "arguments": "{}"},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "Rain"},
        {"role": "tool", "tool_call_id": "c2", "content": "There is no such tool"},
        {"role": "assistant", "content": "Rain."},
        {"role": "user", "content": [picture]},
    ]
    function: Any = {
        "name": "weather",
        "description": "Tell the weather.",
        "parameters": {"type": "object", "properties": {}},
    }
    assert body["tools"] == [{"type": "function", "function": function}]
    assert "tool_choice" not in body


@pytest.mark.parametrize(
    ("name", "filename"),
    [("invoice.pdf", "invoice.pdf"), ("INVOICE.PDF", "INVOICE.pdf"), ("invoice", "invoice.pdf")],
)
def test_a_document_is_a_file_whose_name_ends_like_that_of_a_pdf(name: str, filename: str) -> None:
    document = Document(name, "application/pdf", "JVBERi0=")
    message = Message("user", "How much?", documents=(document,))

    (payload,) = sent(MODEL, Prompt((message,)))["messages"]

    file = {"filename": filename, "file_data": "data:application/pdf;base64,JVBERi0="}
    assert payload["content"] == [
        {"type": "file", "file": file},
        {"type": "text", "text": "How much?"},
    ]


@pytest.mark.parametrize(
    ("choice", "payload"),
    [("*", "required"), ("weather", {"type": "function", "function": {"name": "weather"}})],
)
def test_a_tool_can_be_asked_for(choice: str, payload: Any) -> None:
    prompt = Prompt(HELLO.messages, tools=(WEATHER,), tool_choice=choice)

    assert sent(MODEL, prompt)["tool_choice"] == payload


def test_no_choice_is_sent_without_tools() -> None:
    assert "tool_choice" not in sent(MODEL, Prompt(HELLO.messages, tool_choice="*"))


def test_a_shape_can_be_asked_for() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}

    assert sent(MODEL, Prompt(HELLO.messages, output_schema=schema))["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": schema},
    }


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://desk.openai.azure.com/openai/v1", "max_completion_tokens"),
        ("https://desk.services.ai.azure.com/openai/v1", "max_completion_tokens"),
        ("http://localhost:11434/v1", "max_tokens"),
    ],
)
def test_the_limit_of_tokens_is_called_as_the_endpoint_calls_it(url: str, key: str) -> None:
    model = ChatCompletions(id="m", base_url=url, max_output_tokens=100, temperature=0.5, retries=0)

    assert sent(model, HELLO)[key] == 100
    assert sent(model, HELLO)["temperature"] == 0.5
    assert sent(model, Prompt(HELLO.messages, max_tokens=10))[key] == 10
    assert sent(model, Prompt(HELLO.messages, max_tokens=1000))[key] == 100


def test_a_temperature_below_zero_cannot_be_meant() -> None:
    with pytest.raises(ValueError, match="temperature"):
        ChatCompletions(id="m", temperature=-0.1)


def test_what_has_no_utf_8_does_not_stop_a_request() -> None:
    outcome = asked(MODEL, Prompt((Message("user", "\ud800"),)), Unreachable("tls"))

    assert b'"content":"?"' in outcome.of(OpenStream)[0].body


def test_an_answer_in_pieces() -> None:
    stream = (
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Good "}),
        chunk({"content": "morning"}),
        STOP,
        USAGE,
        "[DONE]",
    )
    pieces = tuple(sse([("", data)]) for data in stream)

    outcome = asked(MODEL, HELLO, Played(pieces))

    assert outcome.reply == Reply("Good morning", Usage(7, 3))
    assert outcome.said == ("Good ", "morning")


def test_text_may_come_in_parts_of_several_kinds() -> None:
    parts = [{"type": "thinking", "text": "hm"}, {"type": "text", "text": "a"}, {"type": "text"}]

    assert streamed(chunk({"content": parts}), STOP).reply == Reply("a")


def test_what_came_at_once_is_told_at_once() -> None:
    outcome = streamed(chunk({"content": "Good "}), chunk({"content": "morning"}), STOP, "[DONE]")

    assert outcome.said == ("Good morning",)


def test_chunks_that_differ_in_their_text_alone_are_one_answer() -> None:
    words = ["", "a ", "a ", 'quote" ', "", "\ud83d ", "line\n", "{} "]
    saying = [chunk({"content": word}) for word in words]

    outcome = streamed(*saying, chunk({"content": "end"}, id="d"), STOP, USAGE, "[DONE]")

    assert outcome.reply == Reply('a a quote" \ufffd line\n{} end', Usage(7, 3))


def test_an_error_that_looks_like_the_chunk_before_is_one() -> None:
    saying = ("", chunk({"content": "a"}))

    outcome = asked(MODEL, HELLO, Played((sse([saying, saying, ("error", saying[1])]),)))

    assert outcome.reason == "unreachable"


def test_usage_may_stand_in_any_chunk_and_the_last_one_counts() -> None:
    first = {"prompt_tokens": 7, "completion_tokens": 1}
    last = {"prompt_tokens": 7, "completion_tokens": 2}
    stream = (chunk({"content": "a"}, usage=first), chunk(finish="stop", usage=last, x=1))

    assert streamed(*stream).reply == Reply("a", Usage(7, 2))
    assert streamed(*stream, chunk(usage=None), "[DONE]").reply == Reply("a", Usage(7, 2))


@pytest.mark.parametrize("tokens", [None, -1, "7", True, 7.0, 1 << 60])
def test_a_count_that_is_none_is_nothing(tokens: Any) -> None:
    counts = {"prompt_tokens": tokens, "completion_tokens": 1}

    assert streamed(chunk(finish="stop", usage=counts)).reply == Reply("", Usage(0, 1))


@pytest.mark.parametrize(
    "noise",
    [
        chunk(choices=[]),
        chunk(choices=None),
        json.dumps({"choices": [{"index": 0, "delta": None}]}),
        json.dumps({"choices": [{"index": 1, "delta": {"content": "another choice"}}]}),
        json.dumps({"id": "only"}),
        chunk({"content": None}),
        " ",
    ],
)
def test_what_says_nothing_is_passed_over(noise: str) -> None:
    assert streamed(noise, chunk({"content": "a"}), noise, STOP).reply == Reply("a")


def test_a_stream_may_end_without_its_mark_or_without_a_reason() -> None:
    assert streamed(chunk({"content": "a"}), STOP).reply == Reply("a")
    assert streamed(chunk({"content": "a"}), "[DONE]").reply == Reply("a")


def test_nothing_behind_the_mark_is_read() -> None:
    outcome = streamed(chunk({"content": "a"}), "[DONE]", chunk({"content": "b"}), "nonsense")

    assert outcome.reply == Reply("a")


def test_half_a_stream_is_no_answer() -> None:
    outcome = streamed(chunk({"content": "Good "}))

    assert outcome.reason == "broken"
    assert outcome.said == ("Good ",)


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("length", "truncated"),
        ("model_length", "truncated"),
        ("model_context_window_exceeded", "truncated"),
        ("content_filter", "refused"),
        ("sensitive", "refused"),
        ("error", "broken"),
        ("abort", "broken"),
        ("network_error", "broken"),
        ("insufficient_system_resource", "broken"),
    ],
)
def test_an_end_that_is_no_answer(finish: str, reason: str) -> None:
    outcome = streamed(chunk({"content": "So "}), chunk(finish=finish), USAGE, "[DONE]")

    assert outcome.reason == reason
    assert outcome.said == ("So ",)


def test_an_end_of_the_provider_s_own_making_is_asked_about_again() -> None:
    tired = Played((sse([("", chunk(finish="insufficient_system_resource"))]),))
    answer = Played((sse([("", chunk({"content": "a"}, finish="stop")), ("", "[DONE]")]),))

    outcome = asked(evolve(MODEL, retries=1), HELLO, tired, answer)

    assert outcome.reply == Reply("a")


def test_a_refusal_is_not_told_on() -> None:
    outcome = streamed(chunk({"refusal": "I will "}), chunk({"refusal": "not"}), STOP, "[DONE]")

    assert outcome.reason == "refused"
    assert outcome.said == ()
    assert "not" not in str(outcome.failure).split()


@pytest.mark.parametrize(
    "nonsense",
    [
        "nonsense",
        "{",
        "1",
        "null",
        "[]",
        '"[DONE]"',
        '{"choices": 1}',
        '{"choices": [1]}',
        '{"choices": [{"delta": 1}]}',
        '{"choices": [{"delta": {"content": 1}}]}',
        '{"choices": [{"delta": {"content": ["a"]}}]}',
        '{"choices": [{"delta": {"tool_calls": 1}}]}',
        '{"choices": [{"delta": {"tool_calls": [1]}}]}',
        '{"choices": [{"delta": {"tool_calls": [{"function": 1}]}}]}',
        '{"choices": [{"delta": {"tool_calls": [{"function": {"arguments": 1}}]}}]}',
        '{"choices": [{"delta": {"tool_calls": [{"function": {"arguments": {"n": NaN}}}]}}]}',
        '{"choices": [{"delta": {"tool_calls": [{"function": {"arguments": {"n": 1e999}}}]}}]}',
        '{"usage": 1}',
        "[" * 100_000,
        "9" * 10_000,
    ],
)
def test_nonsense_is_no_answer(nonsense: str) -> None:
    outcome = streamed(chunk({"content": "a"}), nonsense, STOP, "[DONE]")

    assert outcome.reason == "broken"
    assert outcome.said == ("a",)
    assert outcome.of(CloseStream) == [CloseStream(1)]
    assert outcome.failure is not None
    assert outcome.failure.__cause__ is None


def test_what_cannot_be_stored_is_replaced() -> None:
    outcome = streamed(chunk({"content": "a\0b\ud800"}), STOP)

    assert outcome.reply == Reply("a\ufffdb\ufffd")
    assert outcome.said == ("a\ufffdb\ufffd",)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ({"type": "invalid_request_error", "message": "secret"}, "rejected"),
        ({"type": "x", "code": "rate_limit_exceeded"}, "rate_limited"),
        ({"code": 429}, "rate_limited"),
        ({"type": "BadRequestError", "code": 400}, "rejected"),
        ({"code": "401"}, "rejected"),
        ({"type": "server_error", "code": None}, "unreachable"),
        ({"code": 502}, "unreachable"),
        ("secret", "unreachable"),
        (["secret"], "unreachable"),
    ],
)
def test_an_error_in_place_of_an_answer(error: Any, reason: str) -> None:
    data = json.dumps({"error": error})

    for outcome in (
        streamed(chunk({"content": "a"}), data),
        asked(MODEL, HELLO, Played((data.encode(),), headers=WHOLE)),
    ):
        assert outcome.reason == reason
        others = [effect for effect in outcome.effects[1:] if not isinstance(effect, Log)]
        assert "secret" not in repr(outcome.failure) + str(others)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("", '{"object": "error", "message": "secret", "code": 400}'),
        ("error", '{"message": "secret", "type": "invalid_request_error"}'),
        ("error", '{"error": {"message": "secret", "code": 400}}'),
    ],
)
def test_an_error_is_known_by_its_event_or_its_object_too(name: str, data: str) -> None:
    outcome = asked(MODEL, HELLO, Played((sse([(name, data), ("", "[DONE]")]),)))

    assert outcome.reason == "rejected"


def test_tool_calls_side_by_side() -> None:
    assert calls_of(
        {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}},
        {"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"x":'}},
        {"index": 1, "id": None, "function": {"name": None, "arguments": "{}"}},
        {"index": 0, "id": "", "function": {"arguments": "1}"}},
    ) == [("a", "f", '{"x":1}'), ("b", "g", "{}")]


def test_an_id_or_a_name_that_is_repeated_begins_no_other_call() -> None:
    assert calls_of(
        {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}},
        {"index": 0, "id": "a", "function": {"name": "f", "arguments": "}"}},
    ) == [("a", "f", "{}")]


def test_calls_that_are_all_number_0_are_told_apart_by_id() -> None:
    assert calls_of(
        {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}},
        {"index": 0, "id": "b", "function": {"name": "f", "arguments": '{"x"'}},
        {"index": 0, "function": {"arguments": ":1}"}},
    ) == [("a", "f", "{}"), ("b", "f", '{"x":1}')]


def test_calls_that_are_all_number_0_and_have_no_id_end_with_their_arguments() -> None:
    assert calls_of(
        {"index": 0, "id": "", "function": {"name": "f", "arguments": '{"x":1}'}},
        {"index": 0, "id": "", "function": {"name": "f", "arguments": '{"x":2}'}},
        {"index": 0, "function": {"name": "g", "arguments": {"x": 3}}},
        {"index": 0, "function": {"name": "g", "arguments": ""}},
    ) == [("call_1", "f", '{"x":1}'), ("call_2", "f", '{"x":2}'), ("call_3", "g", '{"x":3}')]


def test_a_name_that_is_repeated_without_an_id_begins_no_other_call() -> None:
    assert calls_of(
        {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":'}},
        {"index": 0, "function": {"name": "f", "arguments": '{"y":1}'}},
        {"index": 0, "function": {"name": "f", "arguments": "}"}},
    ) == [("a", "f", '{"x":{"y":1}}')]


def test_an_id_that_is_new_in_every_part_begins_no_other_call() -> None:
    assert calls_of(
        {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}},
        {"index": 0, "id": "b", "function": {"arguments": "}"}},
    ) == [("a", "f", "{}")]
    assert calls_of(
        {"id": "a", "function": {"name": "f", "arguments": "{"}},
        {"id": "b", "function": {"arguments": "}"}},
    ) == [("a", "f", "{}")]


def test_calls_without_index_are_put_together_by_id() -> None:
    assert calls_of(
        {"id": "a", "function": {"name": "f", "arguments": "{"}},
        {"id": "b", "function": {"name": "g", "arguments": "{}"}},
        {"id": "a", "function": {"arguments": "}"}},
    ) == [("a", "f", "{}"), ("b", "g", "{}")]


def test_calls_with_neither_begin_with_their_name() -> None:
    assert calls_of(
        {"function": {"name": "f", "arguments": {"x": 1}}},
        {"function": {"name": "g", "arguments": "{"}},
        {"function": {"arguments": "}"}},
    ) == [("call_1", "f", '{"x":1}'), ("call_2", "g", "{}")]


def test_a_call_without_arguments_has_none() -> None:
    assert calls_of({"index": 0, "id": "a", "function": {"name": "f"}}) == [("a", "f", "{}")]


@pytest.mark.parametrize("part", [{}, {"index": 0, "id": "a"}, {"function": {"name": ""}}])
def test_a_call_without_a_name_is_nonsense(part: dict[str, Any]) -> None:
    assert streamed(calling(part), STOP).reason == "broken"


def test_more_calls_than_anybody_makes_are_nonsense() -> None:
    parts = [{"id": f"c{n}", "function": {"name": "f"}} for n in range(MOST_CALLS + 1)]

    assert streamed(*map(calling, parts[:-1]), STOP).reply is not None
    assert streamed(*map(calling, parts), STOP).reason == "broken"


def test_ids_are_new_in_the_conversation() -> None:
    before = Message("assistant", "", calls=(ToolCall("call_1", "f", "{}"),))
    prompt = Prompt((*HELLO.messages, before, Message("tool", "1", call_id="call_1")))
    parts = ({"function": {"name": "f"}}, {"id": "call_1", "function": {"name": "g"}})
    stream = (calling(parts[0]), calling(parts[1]), STOP)

    outcome = asked(MODEL, prompt, Played((sse(("", data) for data in stream),)))

    assert outcome.reply is not None
    assert [call.id for call in outcome.reply.calls] == ["call_2", "call_3"]


def whole(message: Any, finish: str = "stop", **more: Any) -> bytes:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    payload = {"object": "chat.completion", "choices": [choice]} | more
    return json.dumps(payload).encode()


def test_an_answer_that_was_not_streamed() -> None:
    tokens = {"prompt_tokens": 7, "completion_tokens": 3}
    calls = [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "a", "type": "function", "function": {"name": "g", "arguments": '{"x":1}'}},
    ]
    body = whole({"role": "assistant", "content": "So:", "tool_calls": calls}, usage=tokens)

    outcome = asked(MODEL, HELLO, Played((body[:9], body[9:]), headers=WHOLE))

    made = (ToolCall("a", "f", "{}"), ToolCall("call_2", "g", '{"x":1}'))
    assert outcome.reply == Reply("So:", Usage(7, 3), made)
    assert outcome.said == ("So:",)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "broken"),
        (b"null", "broken"),
        (b"<html>", "broken"),
        (b"\xff", "broken"),
        (b"[1]", "broken"),
        (b"{}", "broken"),
        (whole({"content": 1}), "broken"),
        (whole({"content": "a"}, "length"), "truncated"),
        (whole({"refusal": "no"}), "refused"),
    ],
)
def test_what_is_no_answer_streamed_or_not(body: bytes, reason: str) -> None:
    assert asked(MODEL, HELLO, Played((body,), headers=WHOLE)).reason == reason


def test_how_it_is_shown() -> None:
    assert (MODEL.name, MODEL.provider, MODEL.id) == ("OpenAIChat", "OpenAI", "gpt")
    assert "k-123" not in repr(MODEL)
    assert "k-123" not in repr(streamed(STOP).effects)


DELTAS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                """choices delta message content tool_calls function name arguments id index
                usage error finish_reason prompt_tokens refusal type code""".split()
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(st.lists(DELTAS | st.just("[DONE]"), max_size=4), st.booleans())
def test_any_json_gives_a_reply_or_a_reason(values: list[Any], is_whole: bool) -> None:
    texts = [value if value == "[DONE]" else json.dumps(value) for value in values]
    body = texts[0].encode() if is_whole and texts else sse(("", data) for data in texts)
    headers = WHOLE if is_whole else {}

    outcome = asked(MODEL, HELLO, Played((body,), headers=headers))

    assert (outcome.reply is None) != (outcome.failure is None)


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=4), st.booleans())
def test_any_bytes_give_a_reply_or_a_reason(chunks: list[bytes], is_whole: bool) -> None:
    outcome = asked(MODEL, HELLO, Played(tuple(chunks), headers=WHOLE if is_whole else {}))

    assert (outcome.reply is None) != (outcome.failure is None)


GOOD = sse(
    ("", data)
    for data in (
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Grüße, "}),
        chunk({"content": "\n🦉"}),
        calling({"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}),
        calling({"index": 0, "function": {"arguments": '{"x": "ü"}'}}),
        chunk(finish="tool_calls"),
        USAGE,
        "[DONE]",
    )
)


@given(
    st.lists(st.integers(1, len(GOOD) - 1), unique=True), st.sampled_from([b"\n", b"\r\n", b"\r"])
)
def test_it_does_not_matter_how_a_stream_is_cut(cuts: list[int], end: bytes) -> None:
    stream = GOOD.replace(b"\n", end)
    bounds = [0, *sorted(cuts), len(stream)]
    pieces = tuple(stream[a:b] for a, b in pairwise(bounds))

    outcome = asked(MODEL, HELLO, Played(pieces))

    made = (ToolCall("a", "f", '{"x": "ü"}'),)
    assert outcome.reply == Reply("Grüße, \n🦉", Usage(7, 3), made)
    assert "".join(outcome.said) == "Grüße, \n🦉"


@given(st.integers(0, len(GOOD) - 1))
def test_a_stream_that_breaks_off_gives_the_whole_reply_or_none(end: int) -> None:
    outcome = asked(MODEL, HELLO, Played((GOOD[:end], Unreachable("protocol"))))

    if outcome.reply is not None:
        assert outcome.reply.content == "Grüße, \n🦉"
        assert len(outcome.reply.calls) == 1
    else:
        assert outcome.reason == "broken"


def test_it_waits_less_for_what_comes_behind_the_answer() -> None:
    stream = [chunk({"content": "a"}), STOP, "[DONE]"]
    pieces = tuple(sse([("", data)]) for data in stream)

    outcome = asked(MODEL, HELLO, Played(pieces))

    assert [wait.timeout_seconds for wait in outcome.of(NextChunk)] == [120, 120, 2, 0.25]
    assert outcome.of(CloseStream) == []


def test_arguments_are_sent_as_they_were_made() -> None:
    arguments = compact_json({"x": "ü"})
    prompt = Prompt((Message("assistant", "", calls=(ToolCall("a", "f", arguments),)),))

    call = sent(MODEL, prompt)["messages"][0]["tool_calls"][0]
    assert call["function"]["arguments"] == arguments


@pytest.mark.parametrize("arguments", ['{"n":NaN}', '{"n":1e999}'])
def test_arguments_that_are_no_json_are_put_right(arguments: str) -> None:
    prompt = Prompt((Message("assistant", "", calls=(ToolCall("a", "f", arguments),)),))

    call = sent(MODEL, prompt)["messages"][0]["tool_calls"][0]
    assert call["function"]["arguments"] == "{}"


# --- what has to be told again -------------------------------------------------------------------

F = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}


def signed(part: dict[str, Any], signature: Any) -> dict[str, Any]:
    return part | {"extra_content": {"google": {"thought_signature": signature}}}


def test_thoughts_that_led_to_calls_are_told_again_with_them() -> None:
    outcome = streamed(
        chunk({"reasoning_content": "I must \ud800"}),
        chunk({"reasoning_content": None, "content": "So:"}),
        chunk({"reasoning_content": " call."}),
        calling(F),
        chunk(finish="tool_calls"),
        "[DONE]",
    )
    assert outcome.reply is not None
    calls, thoughts = outcome.reply.calls, outcome.reply.thoughts
    before = Message("assistant", "So:", calls=calls, thoughts=thoughts)
    others = evolve(MODEL, id="another")

    assert [thought.block for thought in thoughts] == [
        '{"reasoning_content": "I must \\ud800 call."}'
    ]
    (message,) = MODEL.encode(Prompt((before,)))["messages"]
    assert message["reasoning_content"] == "I must \ud800 call."
    assert "reasoning_content" not in others.encode(Prompt((before,)))["messages"][0]
    assert sent(MODEL, Prompt((evolve(before, thoughts=()),)))["messages"] == [
        {key: value for key, value in message.items() if key != "reasoning_content"}
    ]


def test_thoughts_that_led_to_no_call_are_not_told_again() -> None:
    outcome = streamed(chunk({"reasoning_content": "Hm", "content": "a"}, finish="stop"), "[DONE]")

    assert outcome.reply == Reply("a", reasoning="Hm")


@pytest.mark.parametrize(
    ("deltas", "reasoning"),
    [
        ([{"reasoning_content": "So\ud800"}, {"reasoning_content": " be it."}], "So\ufffd be it."),
        ([{"reasoning": "So "}, {"reasoning": "be it.", "reasoning_content": None}], "So be it."),
        ([{"reasoning": "So", "reasoning_content": "So"}], "So"),
        ([{"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "So"}]}]}], "So"),
        ([{"content": [{"type": "thinking", "thinking": [1, {"text": 1}]}]}], ""),
        ([{"content": [{"type": "thinking", "thinking": "So"}]}, {"reasoning": ["So"]}], ""),
        ([{"reasoning": {"text": "So"}}], ""),
    ],
)
def test_what_was_thought_is_told_apart_from_the_answer(deltas: Any, reasoning: str) -> None:
    end = chunk({"content": "a"}, finish="stop")

    assert streamed(*map(chunk, deltas), end, "[DONE]").reply == Reply("a", reasoning=reasoning)


def test_what_was_thought_is_told_where_the_answer_is_not_streamed() -> None:
    body = whole({"content": "a", "reasoning_content": "Hm"})

    assert asked(MODEL, HELLO, Played((body,), headers=WHOLE)).reply == Reply("a", reasoning="Hm")


def test_the_signature_of_a_call_is_told_again_with_it() -> None:
    second = signed(F | {"index": 1, "id": "b"}, "S1g==")
    outcome = streamed(calling(F), calling(second), STOP, "[DONE]")
    assert outcome.reply is not None
    calls, thoughts = outcome.reply.calls, outcome.reply.thoughts

    body = sent(MODEL, Prompt((Message("assistant", "", calls=calls, thoughts=thoughts),)))

    first, again = body["messages"][0]["tool_calls"]
    assert "extra_content" not in first
    assert again["extra_content"] == {"google": {"thought_signature": "S1g=="}}


@pytest.mark.parametrize(
    "more",
    [
        {"extra_content": None},
        {"extra_content": {"google": 1}},
        {"extra_content": {"google": {"thought_signature": 1}}},
        {"reasoning_content": ["a"]},
    ],
)
def test_what_looks_like_neither_is_not_told_again(more: dict[str, Any]) -> None:
    delta = {"tool_calls": [F | more], **more}
    outcome = streamed(chunk(delta, finish="tool_calls"), "[DONE]")

    assert outcome.reply == Reply("", calls=(ToolCall("a", "f", "{}"),))


def test_what_a_provider_of_another_kind_thought_is_not_told_again() -> None:
    thoughts = (Thought("gpt", '{"type":"thinking","thinking":"a","signature":"s"}'),)
    before = Message("assistant", "", calls=(ToolCall("a", "f", "{}"),), thoughts=thoughts)

    (message,) = sent(MODEL, Prompt((before,)))["messages"]

    assert set(message) == {"role", "content", "tool_calls"}


@pytest.mark.parametrize(
    ("url", "unknown"),
    [
        ("https://api.deepseek.com/v1", {"reasoning_content": ""}),
        ("https://api.moonshot.ai/v1", {"reasoning_content": " "}),
        ("https://api.kimi.com/coding/v1", {"reasoning_content": " "}),
        ("https://api.openai.com/v1", {}),
    ],
)
def test_who_refuses_messages_without_thoughts_gets_an_empty_one(
    url: str, unknown: dict[str, str]
) -> None:
    model = evolve(MODEL, base_url=url)

    asked_, said = sent(model, Prompt((*HELLO.messages, Message("assistant", "Hi"))))["messages"]

    assert asked_ == {"role": "user", "content": "Hello"}
    assert said == {"role": "assistant", "content": "Hi", **unknown}


@pytest.mark.parametrize("nothing", ["", " \n"])
def test_an_answer_that_said_nothing_is_told_as_such(nothing: str) -> None:
    call = ToolCall("c", "f", "{}")
    silent = (Message("assistant", nothing), Message("assistant", "", calls=(call,)))

    said, called = sent(MODEL, Prompt(silent))["messages"]

    assert (said["content"], called["content"]) == ("(no text)", None)


def test_mistral_is_not_asked_for_the_usage_which_it_tells_anyhow() -> None:
    model = evolve(MODEL, base_url="https://api.mistral.ai/v1")

    assert "stream_options" not in sent(model, HELLO)
