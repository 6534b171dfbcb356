"""The documentation is in plain English: short sentences, the subject first, nouns in headings."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from .prose import ROOT, Page, lacks_term, measure, pages, read, terms

MEAN: Final = 17  # words in a sentence, on the average of a page
LONGEST: Final = 40  # words in a sentence
WORDS_FOR_A_CLAUSE: Final = 200  # one "what …" in so many words

# Headings without a term, each with its reason.
EXCEPTIONS: Final = frozenset(
    {
        "Terms",  # the glossary's table of them
        "Next steps",  # the usual end of a tutorial
    }
)

# Pages that are not rewritten yet.
PENDING: Final[frozenset[str]] = frozenset()


def findings(page: Page) -> list[str]:
    """Return the sentences and figures of a page that break a rule."""
    found = [f"too long: {part}" for part in page.over if len(part.split()) > LONGEST]
    found += [f"begins with a clause: {part}" for part in page.openings]
    found += [f"mannered: {part}" for part in page.mannered]
    found += [f"no term in: {part}" for part in page.bare if part not in EXCEPTIONS]
    if page.mean > MEAN:
        found.append(f"{page.mean} words a sentence")
    if page.clauses > 1 + page.words // WORDS_FOR_A_CLAUSE:
        found.append(f"{page.clauses} clauses with 'what' in {page.words} words")
    return found


@pytest.mark.parametrize("file", pages(), ids=lambda file: str(file.relative_to(ROOT)))
def test_a_page_is_in_plain_english(file: Path) -> None:
    name = str(file.relative_to(ROOT))
    page = measure(name, file.read_text(encoding="utf-8"), terms())

    assert name in PENDING or findings(page) == []


def test_every_pending_page_is_there() -> None:
    assert {ROOT / name for name in PENDING} <= set(pages())


@pytest.mark.parametrize(
    ("markdown", "finding"),
    [
        ("What comes in is stored.", "begins with a clause: What comes in is stored."),
        (
            "It is stored. Whose run it is, the row says.",
            "begins with a clause: Whose run it is, the row says.",
        ),
        ("| a | b |\n|---|---|\n| x | who asked |", "begins with a clause: who asked"),
        ("* The node is told of it.", "mannered: The node is told of it."),
        ("# Sending it again", "no term in: Sending it again"),
        ("word " * 41 + "end.", "42.0 words a sentence"),
        (
            "It does what it says, what it promises and what it wants.",
            "3 clauses with 'what' in 12 words",
        ),
    ],
)
def test_a_mannered_page_is_found_out(markdown: str, finding: str) -> None:
    assert finding in findings(measure("page", markdown, terms()))


@pytest.mark.parametrize(
    "markdown",
    [
        "# Human approval\n\nThe run pauses, and a person answers.",
        "# What is a run?\n\nWhat is a session?  It is a conversation.",
        "```python\nwhat = 'is told'  # whose\n```",
        "(told)=\nUse `what is told` and `plainly` in code.\n\n[^note]: What a footnote says.",
    ],
)
def test_plain_english_is_left_in_peace(markdown: str) -> None:
    assert findings(measure("page", markdown, terms())) == []


def test_a_sentence_that_is_too_long_is_found_out() -> None:
    page = measure("page", "word " * 40 + "end.\n\nShort.\n\nShort.", terms())

    assert findings(page)[0].startswith("too long: ")


def test_the_sentences_of_a_page_are_its_paragraphs_and_lists() -> None:
    text = read(
        "# One `x y`\n\nFirst, e.g. this.  Then `a`, `b` and `c` do\nthat.\n\n"
        "* third\n\n|h|\n|-|\n|cell|"
    )

    assert text == (("One `x_y`",), ("First, e.g, this.", "Then `…` do that.", "third"), ("cell",))


@pytest.mark.parametrize(
    ("heading", "lacks"),
    [
        ("Rate limits and quotas", False),
        ("Retries", False),
        ("The `serve` command", False),
        ("legation_asgi", False),
        ("Words that are chosen", True),
    ],
)
def test_a_heading_needs_a_term_or_a_name_of_the_code(heading: str, lacks: bool) -> None:
    assert lacks_term(heading, terms()) is lacks
