"""Markdown of models, as a person reads it in a channel."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from legation.channels.markup import TextSpan, mark_up, spans
from legation.channels.replies import utf16_length


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain *and* _simple_ 2 * 3", "plain *and* _simple_ 2 * 3"),
        ("This is **very good**, ~~bad~~.", "This is *very good*, ~bad~."),
        ("# Rooms\n\ntext\n### **Prices** ##", "*Rooms*\n\ntext\n*Prices*"),
        ("***both***, **a*b**", "*both*, *a*b*"),
        ("# C#\n**C#**", "*C#*\n*C#*"),
        ("# a # #\t##  \n# #\n# b ## c\n# d \t ", "*a # #*\n*#*\n*b ## c*\n*d*"),
        ("[the page](https://a.example/x)", "the page (https://a.example/x)"),
        ("[a.example](https://a.example/)", "https://a.example/"),
        ("**[here](http://a.example)**", "*here (http://a.example)*"),
        ("[x](javascript:alert)", "[x](javascript:alert)"),
        ("`**x**` and\n```python\n# **x**\n```\n**y**", "`**x**` and\n```\n# **x**\n```\n*y*"),
        ("```py\nx = 1", "```\nx = 1"),
        ("2**3**4, f(**a, **b), ** x **, ****", "2**3**4, f(**a, **b), ** x **, ****"),
        ("#hashtag\n# **\n```\n\n```", "#hashtag\n# **\n```\n\n```"),
        ("", ""),
    ],
)
def test_markdown_is_written_as_whatsapp_and_slack_write_it(text: str, shown: str) -> None:
    assert mark_up(text) == shown


def test_markup_is_told_apart_from_the_text() -> None:
    text = "# \U0001f44d Title\n**bold** ~~old~~ `c` [a](http://b.c)\n```py\nx = 1\n```\nend"

    assert spans(text) == (
        "\U0001f44d Title\nbold old c a (http://b.c)\nx = 1\nend",
        (
            TextSpan("bold", 0, 8),
            TextSpan("bold", 9, 4),
            TextSpan("strikethrough", 14, 3),
            TextSpan("code", 18, 1),
            TextSpan("pre", 35, 5, "py"),
        ),
    )


def test_a_text_without_markup_stays_as_it_is() -> None:
    assert spans("2 * 3 < 7 _x_") == ("2 * 3 < 7 _x_", ())


TEXTS = st.lists(
    st.sampled_from(
        ["**", "~~", "`", "```", "# ", "\n", "[", "](http://a.b)", " ", "x", "\U0001f44d"]
    )
    | st.text(max_size=3),
    max_size=40,
).map("".join)


@given(TEXTS)
@example("` `")
def test_no_text_grows_or_is_lost_and_every_span_lies_within_it(text: str) -> None:
    plain, found = spans(text)

    assert utf16_length(mark_up(text)) <= utf16_length(text)
    assert utf16_length(plain) <= utf16_length(text)
    assert bool(plain.strip()) == bool(mark_up(text).strip()) == bool(text.strip())
    at = 0
    for span in found:
        assert at <= span.offset
        assert span.length > 0
        at = span.offset + span.length
    assert at <= utf16_length(plain)


@pytest.mark.parametrize("piece", ["**a ", "[", "~~a", "# ", "```\n ", "`", "**[", "\n```\n"])
def test_a_part_full_of_unfinished_markup_is_read_at_once(piece: str) -> None:
    text = (piece * 4096)[:4096]

    assert len(mark_up(text)) <= 4096
