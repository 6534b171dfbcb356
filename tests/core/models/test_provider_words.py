"""What the operator's log has of a provider's words, and what it must not have."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.models.provider_words import ProviderWords, find_words

KEY = "sk-live-51Habcdefghijklmnopq"


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (
            {
                "error": {
                    "message": "Invalid schema for function 'pay'",
                    "type": "invalid_request_error",
                    "code": "invalid_function_parameters",
                    "param": "tools[0]",
                }
            },
            (
                "invalid_request_error, invalid_function_parameters",
                "Invalid schema for function 'pay'",
            ),
        ),
        (
            {"type": "error", "error": {"type": "not_found_error", "message": "model: claud"}},
            ("not_found_error", "model: claud"),
        ),
        (
            [{"error": {"code": 400, "message": "bad", "status": "INVALID"}}],
            ("400, INVALID", "bad"),
        ),
        (
            {"detail": [{"loc": ["body"], "msg": "missing"}]},
            ("", '[{"loc": ["body"], "msg": "missing"}]'),
        ),
        ({"object": "error", "message": "too long", "code": 40303}, ("40303", "too long")),
        ({"error": "model 'x' not found"}, ("", "model 'x' not found")),
        ({"error": {"type": "error", "code": None}}, ("", "")),
        ([], ("", "")),
        (None, ("", "")),
        ("plain", ("", "plain")),
        (7, ("", "7")),
    ],
)
def test_words_of_each_kind_of_provider(sent: Any, words: tuple[str, str]) -> None:
    assert find_words(sent, ()) == ProviderWords(*words)
    if sent is not None:
        assert find_words(json.dumps(sent).encode(), ()) == ProviderWords(*words)


def test_a_page_is_its_text() -> None:
    page = b"<html><head><title>502 Bad Gateway</title></head>\r\n<body>nginx</body></html>"

    assert find_words(page, ()).message == "502 Bad Gateway nginx"


@pytest.mark.parametrize(
    "said",
    [
        f"Incorrect API key provided: {KEY}.",
        f"Incorrect API key provided: {KEY[:14]}",
        f"the end was {KEY[-8:]}, it is wrong",
        f"Authorization: Bearer {KEY}",
        f"split {KEY[:9]}\u200b{KEY[9:]} by what cannot be seen",
        f"split {KEY[:9]}\x00\x1b{KEY[9:]} by what cannot be seen",
        json.dumps({"headers": {"authorization": KEY}}),
    ],
)
def test_key_that_a_provider_repeats_is_not_there_nor_a_part_of_it(said: str) -> None:
    message = find_words({"error": {"message": said}}, ("Bearer", KEY)).message

    assert "[redacted]" in message
    assert not [i for i in range(len(KEY) - 7) if KEY[i : i + 8] in message]


@pytest.mark.parametrize(
    "said",
    [
        "Incorrect API key provided: sk-proj-abcdefgh1234.",
        "Incorrect API key provided: abc-****************5678. You can find",
        "xoxb-1234567890-abc is revoked",
        "token eyJhbGciOiJIUzI1NiJ9.e30.abc expired",
        "AKIAIOSFODNN7EXAMPLE has no access",
        "sent Authorization: bearer abc123",
    ],
)
def test_what_looks_like_a_key_is_not_there(said: str) -> None:
    assert "[redacted]" in find_words({"message": said}, ()).message
    assert not set(find_words({"message": said}, ()).message.split()) & {
        word for word in said.split() if any(c.isdigit() for c in word)
    }


def test_words_that_are_no_key_stay() -> None:
    said = "The key 'skill' of risk-free is unknown; eye"

    assert find_words({"message": said}, ("abc", "k-12345")).message == said


@pytest.mark.parametrize(
    "body",
    [
        b'{"error": {"message": "' + b"a " * 9_000,
        b"[" * 16_000,
        b"\xff\xfe" * 8_000,
        b"\n" * 16_000 + b"x",
        b"<" * 16_000,
        b"a" * 16_000,
        b"*" * 16_000,
        b"",
    ],
)
def test_whatever_comes_is_short_and_on_one_line(body: bytes) -> None:
    words = find_words(body, (KEY,))

    assert len(words.message) <= 500
    assert words.message.isprintable() or not words.message


def test_nested_without_an_end_is_nothing() -> None:
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]

    assert find_words({"message": nested}, ()) == ProviderWords()


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda x: (
            st.lists(x)
            | st.dictionaries(st.sampled_from(["error", "message", "type", "code", "detail"]), x)
        ),
    ),
    st.text(min_size=8, max_size=20),
)
def test_any_value_has_words_without_the_secret(sent: Any, secret: str) -> None:
    words = find_words(sent, (secret,))

    assert len(words.code) <= 100
    assert secret not in words.message
    assert f"{words.code}{words.message}".isprintable()
