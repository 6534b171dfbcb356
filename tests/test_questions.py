"""Twenty questions of a newcomer are answered within two clicks from the first page."""

from __future__ import annotations

import pytest

from .questions import Question, answer, links, questions, section

QUESTIONS = questions()


def test_there_are_twenty_questions() -> None:
    assert len({one.question for one in QUESTIONS}) == 20
    assert all(one.question.endswith("?") and one.search for one in QUESTIONS)


@pytest.mark.parametrize("one", QUESTIONS, ids=lambda one: one.question)
def test_answer_is_two_clicks_away(one: Question) -> None:
    page = "index"

    assert 1 <= len(one.clicks) <= 2
    for click in one.clicks:
        assert click in links(page), f"{page} does not link to {click}"
        page = click


@pytest.mark.parametrize("one", QUESTIONS, ids=lambda one: one.question)
def test_answer_stands_below_its_anchor(one: Question) -> None:
    text = answer(one)

    assert text is not None, f"no #{one.anchor} on {one.page}"
    assert one.phrase in text


def test_section_ends_at_the_next_heading_of_its_level() -> None:
    text = section("concepts", "session")

    assert text is not None
    assert "is one conversation" in text
    assert "**run**" not in text


def test_anchor_that_is_gone_is_found_out() -> None:
    assert section("concepts", "nothing-of-this-name") is None


def test_links_are_those_of_the_text_and_of_the_contents() -> None:
    assert {"concepts", "howto/tools", "howto/index"} <= links("index")
    assert {"explanation/comparison"} <= links("explanation/index")
