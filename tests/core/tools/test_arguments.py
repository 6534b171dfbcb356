from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.tools import plain_arguments, read_arguments, tool
from legation.tools.arguments import MAX_ARGUMENTS


@tool
def weather(city: str, days: int = 3) -> None: ...


@tool
def now() -> None: ...


def test_arguments_are_read() -> None:
    assert read_arguments(weather, '{"city": "Bonn"}') == {"city": "Bonn"}
    assert read_arguments(weather, ' {"days": 2.0, "city": "Bonn"} ') == {"city": "Bonn", "days": 2}


@pytest.mark.parametrize("text", ["", " \n", "{}"])
def test_nothing_is_no_arguments(text: str) -> None:
    assert read_arguments(now, text) == {}
    assert plain_arguments(text) == {}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "The arguments do not fit: city is missing."),
        (
            '{"days": "2", "colour": 1}',
            (
                "The arguments do not fit: colour is an unknown field; city is missing; "
                "days must be an integer."
            ),
        ),
        ("[]", "The arguments must be a JSON object."),
        ("null", "The arguments must be a JSON object."),
        ("{", "The arguments must be a JSON object; this is not JSON at line 1, column 2."),
        (
            '{"city": "a", "city": "b"}',
            "The arguments must be a JSON object; this is an object with a member twice.",
        ),
        (
            '{"days": NaN}',
            "The arguments must be a JSON object; this is NaN, which is no JSON number.",
        ),
        (
            '{"city": ' + "[" * 99 + "]" * 99 + "}",
            "The arguments must be a JSON object; this is nested deeper than 64 levels.",
        ),
        (
            '{"city": "\ud800"}',
            "The arguments must be a JSON object; this is not UTF-8 at byte 10.",
        ),
        (
            " " * MAX_ARGUMENTS + "{}",
            "The arguments are too long: at most 262144 characters are read.",
        ),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(text: str, sentence: str) -> None:
    assert read_arguments(weather, text) == sentence


def test_a_few_problems_are_told_and_the_others_counted() -> None:
    sentence = read_arguments(weather, json.dumps({f"x{i}": 1 for i in range(1000)}))

    assert isinstance(sentence, str)
    assert sentence.endswith("x7 is an unknown field; and 993 more.")


@given(st.text(max_size=20) | st.dictionaries(st.text(max_size=5), st.integers()).map(json.dumps))
def test_any_text_is_arguments_or_a_sentence(text: str) -> None:
    found = read_arguments(weather, text)

    assert isinstance(found, str) is (not isinstance(found, dict))
