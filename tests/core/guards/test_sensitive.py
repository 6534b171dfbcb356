"""Redaction finds what it names, in texts of any kind, at a cost in proportion to their length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.guards.sensitive import PATTERNS, redact, redact_value

ALL = tuple(PATTERNS)

FOUND = {
    "mail ann@example.org.": "mail [email].",
    "to a.b+c@mail.example.co.uk, please": "to [email], please",
    "jörg@müller.de": "[email]",
    "card 4111 1111 1111 1111!": "card [card]!",
    "4111-1111-1111-1111": "[card]",
    "378282246310005": "[card]",
    "order 12 4111111111111111": "order 12 [card]",
    "4111111111111111 4012888888881881": "[card] [card]",
    "pay to DE89 3704 0044 0532 0130 00 today": "pay to [iban] today",
    "gb82west12345698765432": "[iban]",
    "NL91ABNA0417164300": "[iban]",
    "call +49 30 1234567": "call [phone]",
    "or (555) 123-4567": "or [phone]",
    "0041 44 668 18 00": "[phone]",
    "use sk-abcdefghijkl1234": "use [key]",
    "AKIAIOSFODNN7EXAMPLE": "[key]",
}
KEPT = (
    "",
    "a@b",
    "an order of 4111 1111 1111 1112",
    "the year 2026, at 10:30",
    "DE12 3456 7890",
    "sk-short",
    "1" * 40,
    "12 34 56",
)


@pytest.mark.parametrize("text", FOUND)
def test_what_is_named_gives_way_to_its_label(text: str) -> None:
    assert redact(text, ALL, ()) == FOUND[text]


@pytest.mark.parametrize("text", KEPT)
def test_what_only_looks_alike_stays(text: str) -> None:
    assert redact(text, ALL, ()) == text


def test_words_are_found_in_capitals_or_not_and_mean_themselves() -> None:
    assert (
        redact("Project X.Y and project xay", (), ["project x.y"]) == "[redacted] and project xay"
    )
    assert redact("İSTANBUL ÉTÉ été", (), ["été"]) == "İSTANBUL [redacted] [redacted]"
    assert redact("aaa", (), ["aa", "a"]) == "[redacted][redacted]"


def test_two_that_overlap_have_the_label_of_the_first() -> None:
    assert redact("ann@example.org", ALL, ["example"]) == "[email]"
    assert redact("the ann@example.org", ALL, ["the ann"]) == "[redacted]"


def test_texts_and_numbers_within_json_are_redacted() -> None:
    value = {"a": ["ann@example.org", 4111111111111111, 5, True, None, 1.5], "b": {"c": "x"}}

    assert redact_value(value, ALL, ["x"]) == {
        "a": ["[email]", "[card]", 5, True, None, 1.5],
        "b": {"c": "[redacted]"},
    }


HOSTILE = ("a@", "a.", "1", "1 ", "12 ", "DE12 ", "DE89", "+1", "sk-", "(555) ", "@", "00", "4 1-")


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_hostile_text_is_searched(piece: str) -> None:
    """It would take hours where one search had a cost that grows as the square."""
    text = piece * ((1 << 16) // len(piece))

    left = redact(text, ALL, ["a" * 199 + "b"])

    assert len(left) <= 4 * len(text)


@given(st.text("0123456789 -", max_size=60))
def test_every_card_is_the_longest_number_with_a_right_check_digit(text: str) -> None:
    for begin, end in PATTERNS["card"](text):
        digits = [int(one) for one in text[begin:end] if one.isdigit()]
        total = sum(
            digit if place % 2 == 0 else sum(divmod(2 * digit, 10))
            for place, digit in enumerate(reversed(digits))
        )
        assert 13 <= len(digits) <= 19
        assert total % 10 == 0


@given(st.text(max_size=200))
def test_any_text_can_be_redacted(text: str) -> None:
    left = redact(text, ALL, ["a", "0"])

    assert isinstance(left, str)
