"""Markdown of models, as a person reads it in a channel."""

from __future__ import annotations

import re
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from legation.channels.markup import compose_marks, compose_spans, mark_up, spans
from legation.channels.replies import Part, TextSpan, utf16_length

LIMIT = 4096


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("an *italic* and _another_, 2 * 3 * 4", "an _italic_ and _another_, 2 * 3 * 4"),
        ("This is **very good**, ~~bad~~.", "This is *very good*, ~bad~."),
        ("__strong__, snake_case_name", "*strong*, snake_case_name"),
        ("**bold _both_ bold**, ***both***", "*bold _both_ bold*, _*both*_"),
        ("**bold **bolder** bold**", "*bold bolder bold*"),
        ("a**b**c, **a**b, a**b**", "abc, ab, ab"),
        ("**two\nlines**", "*two*\n*lines*"),
        ("# Rooms\n\ntext\n### **Prices** ##", "*Rooms*\n\ntext\n*Prices*"),
        ("***", "***"),
        ("above\n---\nbelow", "above\n---\nbelow"),
        ("[the page](https://a.example/x)", "the page (https://a.example/x)"),
        ("[a.example](https://a.example/)", "https://a.example/"),
        ("[](https://a.example/)", "https://a.example/"),
        ("<https://a.example/>", "https://a.example/"),
        (
            "![a](https://u.example) ![](https://v.example)",
            "a (https://u.example) https://v.example",
        ),
        ("look! [a](https://u.example)", "look! a (https://u.example)"),
        ("x![a](https://u.example)", "xa (https://u.example)"),
        ("**[here](http://a.example)**", "*here (http://a.example)*"),
        ("[x](javascript:alert), f[a](b), [x]: y", "[x](javascript:alert), f[a](b), [x]: y"),
        ("[a]: http://b.example 'c'", "[a]: http://b.example 'c'"),
        ("<b>x</b> &amp; \\*y\\*", "<b>x</b> & *y*"),
        ("`**x**` and\n```python\n# **x**\n```\n**y**", "`**x**` and\n```\n# **x**\n```\n*y*"),
        ("**a `b` c**", "*a* `b` *c*"),
        ("```py\nx = 1", "```\nx = 1\n```"),
        ("> a **b**\n> c\n> > d\n\nend", "> a *b*\n> c\n> > d\n\nend"),
        ("> ```\n> a\n> ```\n> b", "```\na\n```\n> b"),
        ("- a\n- *b*\n  c\n  1. d\n  2. e\n\n     f", "• a\n• _b_\n  c\n  1. d\n  2. e\n\n     f"),
        ("- ```\n  a\n  ```\n- b", "• \n```\na\n```\n• b"),
        ("-\n- x", "• \n\n• x"),
        ("- - x", "• • x"),
        ("7) a\n8) b", "7) a\n8) b"),
        ("|a|b|\n|-|-|\n|**1**|日|\n\nend", "```\na | b\n--+---\n1 | 日\n```\n\nend"),
        ("|a|" + "b" * 70 + "|\n|-|-|\n|1|2|", "a | " + "b" * 70 + "\n1 | 2"),
        ("a\n```\n```\nb", "a\n\nb"),
        ("```\n\n```", "```\n\n```"),
        ("&nbsp;", "&nbsp;"),
        ("> " * 40 + "x\n\n*y*", "> " * 40 + "x\n\n_y_"),
        ("", ""),
    ],
)
def test_markdown_is_written_as_whatsapp_and_slack_write_it(text: str, shown: str) -> None:
    assert mark_up(text, LIMIT) == shown


def test_spans_stand_apart_from_the_text() -> None:
    text = (
        "# \U0001f44d Title\n**bold *both*** ~~old~~ `c` [a](http://b.c)\n\n> said **so**\n\n"
        "```py\nx = 1\n```\nend"
    )

    assert spans(text, LIMIT) == Part(
        "\U0001f44d Title\nbold both old c a (http://b.c)\n\nsaid so\n\nx = 1\nend",
        (
            TextSpan("bold", 0, 8),
            TextSpan("bold", 9, 9),
            TextSpan("italic", 14, 4),
            TextSpan("strikethrough", 19, 3),
            TextSpan("code", 23, 1),
            TextSpan("blockquote", 41, 7),
            TextSpan("bold", 46, 2),
            TextSpan("pre", 50, 5, "py"),
        ),
    )


def test_a_language_that_is_none_is_left_out() -> None:
    assert spans(f"```{'long' * 9}\nx\n```", LIMIT).spans == (TextSpan("pre", 0, 1),)


def test_what_markup_makes_too_long_for_one_part_stays_as_it_is() -> None:
    table = "|a|b|\n|-|-|\n|1|2|"

    assert mark_up(table, len(table)) == table


def test_a_style_that_is_cut_begins_again_in_the_next_part() -> None:
    text = "**" + "word " * 30 + "end**"

    first, second = compose_marks(text, 100)
    assert first.text.startswith("*word") and first.text.endswith("word*")
    assert second.text.startswith("*word") and second.text.endswith("end*")
    one, other = compose_spans(text, 100)
    assert one.spans == (TextSpan("bold", 0, utf16_length(one.text)),)
    assert other.spans == (TextSpan("bold", 0, utf16_length(other.text)),)


def test_a_block_of_code_that_fits_is_not_cut() -> None:
    code = "\n".join(["x = 1"] * 12)
    text = "word " * 12 + "\n```py\n" + code + "\n```"

    assert [part.text for part in compose_marks(text, 100)] == [
        ("word " * 12).strip(),
        f"```\n{code}\n```",
    ]


def test_a_block_of_code_that_is_cut_is_closed_and_opened() -> None:
    parts = list(compose_marks("```\n" + "x = 1\n" * 60 + "```", 100))

    assert len(parts) > 3
    assert all(part.text.startswith("```\n") and part.text.endswith("\n```") for part in parts)


def test_a_part_that_would_be_mostly_marks_has_none() -> None:
    parts = list(compose_marks("***~~a~~*** " * 40, 100))

    assert "".join(part.text for part in parts).count("a") == 40
    assert all(utf16_length(part.text) <= 100 for part in parts)


def test_an_answer_that_is_too_long_to_read_stays_as_it_is() -> None:
    parts = list(compose_marks("**a** " * 20_000, LIMIT))

    assert parts[0].text.startswith("**a** **a**")
    assert len(parts) == 30


def test_at_most_a_hundred_spans_are_in_a_part() -> None:
    (part,) = compose_spans("**a** b " * 200, LIMIT)

    assert len(part.spans or ()) == 100


# --- any text ------------------------------------------------------------------------------------

MARKS = (
    *("**", "*", "_", "__", "***", "~~", "`", "```", "\n```\n", "\n```py\n", "# ", "> ", "\n> "),
    *("\n", "\n\n", "\n- ", "\n1. ", "    ", "|", "\n|-|-|\n", "|a|b|\n", "[", "](http://a.b)"),
    *("![", "](", ")", "<", "\\", " ", "x", "word ", "\U0001f44d", "\U0001f1e9\U0001f1ea"),
)
TEXTS = st.lists(st.sampled_from(MARKS) | st.text(max_size=3), max_size=60).map("".join)
WORDS = st.lists(
    st.sampled_from(
        [mark for mark in MARKS if "http" not in mark and "py" not in mark and "1" not in mark]
    )
    | st.from_regex(r"[a-z]{1,9} ?", fullmatch=True),
    max_size=80,
).map("".join)


def lies_well(found: tuple[TextSpan, ...], text: str) -> bool:
    """Tell whether spans lie in each other or apart, as Telegram wants, and cut no character."""
    encoded = text.encode("utf-16-le")
    for span in found:
        encoded[2 * span.offset : 2 * (span.offset + span.length)].decode("utf-16-le")
        if not 0 <= span.offset < span.offset + span.length <= len(encoded) // 2:
            return False
    for one, other in combinations(found, 2):
        apart = other.offset >= one.offset + one.length
        within = other.offset + other.length <= one.offset + one.length
        code = one.kind in ("code", "pre") or (
            other.kind in ("code", "pre") and one.kind != "blockquote"
        )
        if not apart and (not within or code or one.kind == other.kind):
            return False
    return True


@given(TEXTS, st.integers(40, 200))
@example("** **", 40)
@example("**a _b_**_c_", 40)
@example("# \n>", 40)
@example("\r\n\x0b\x0c\x85\u2028", 40)
def test_no_part_is_empty_or_too_long_or_has_spans_that_overlap(text: str, limit: int) -> None:
    for compose in (compose_spans, compose_marks):
        parts = list(compose(text, limit))

        assert bool(parts) == bool(text.strip())
        assert all(part.text.strip() for part in parts)
        assert all(utf16_length(part.text) <= limit for part in parts)
        assert all(lies_well(part.spans or (), part.text) for part in parts)


@given(WORDS, st.integers(60, 200))
def test_every_letter_is_still_there_in_its_order(text: str, limit: int) -> None:
    letters = re.sub(r"[^a-z\U0001f44d]", "", re.sub("```[^\n`]*", "", text))
    for compose in (compose_spans, compose_marks):
        whole = "".join(part.text for part in compose(text, limit))
        assert_in_order(letters, whole)


def assert_in_order(letters: str, whole: str) -> None:
    rest = iter(whole)
    assert all(letter in rest for letter in letters)


@pytest.mark.parametrize(
    "piece",
    ["**a ", "[", "~~a", "# ", "```\n ", "`", "**[", "> ", "- ", "![", "*", "](http://a.b)"],
)
def test_an_answer_full_of_unfinished_markup_is_composed(piece: str) -> None:
    text = (piece * 4096)[:4096]

    for compose in (compose_spans, compose_marks):
        assert all(0 < utf16_length(part.text) <= LIMIT for part in compose(text, LIMIT))
