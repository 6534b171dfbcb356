"""The model that repeats what it is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.effects import Sleep
from legation.models.conversation import Document, Message, Prompt, Reply, Usage
from legation.models.echo import Echo
from legation_testing import play

from ..model_kit import SETTLED, Ear


@given(st.text(max_size=60))
def test_it_says_what_the_user_said_word_by_word(text: str) -> None:
    ear = Ear()

    reply = play(Echo().respond(Prompt((Message("user", text),)), ear), [])

    assert reply.content == text
    assert "".join(ear.pieces) == text
    assert len(ear.pieces) == max(1, len(text.split()))


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        (" " * 100_000, 1021),
        ("a b" + "\n" * 4000, 2),
        ("a " * 2048, 2048),
        ("a " * 2049, 820),
        ("a " * 500_000, 1024),
    ],
    ids=["white space", "behind", "by words", "one more", "very many"],
)
def test_a_long_text_comes_in_few_pieces(text: str, pieces: int) -> None:
    ear = Ear()

    reply = play(Echo().respond(Prompt((Message("user", text),)), ear), [])

    assert reply.content == text
    assert "".join(ear.pieces) == text
    assert len(ear.pieces) == pieces


@pytest.mark.parametrize(
    ("messages", "content"),
    [
        ((), ""),
        ((Message("system", "Be brief."),), ""),
        ((Message("user", "a b"), Message("assistant", "c"), Message("tool", "d")), "a b"),
    ],
)
def test_it_is_the_last_message_of_the_user(messages: tuple[Message, ...], content: str) -> None:
    assert play(Echo().respond(Prompt(messages), Ear()), []).content == content


def test_a_token_is_a_word() -> None:
    prompt = Prompt((Message("system", "Be brief."), Message("user", "Good morning, all")))

    assert play(Echo().respond(prompt, Ear()), []) == Reply("Good morning, all", Usage(5, 3))


def test_before_it_waits_it_settles() -> None:
    prompt = Prompt((Message("user", "a"),))
    script = [(SETTLED, None), (Sleep(2.0), None)]

    assert play(Echo("slow", 2.0).respond(prompt, Ear()), script).content == "a"


def test_how_it_is_shown() -> None:
    assert (Echo().id, Echo().name, Echo().provider) == ("echo", "Echo", "Legation")


def test_it_names_the_files_that_it_was_sent() -> None:
    documents = (
        Document("a.pdf", "application/pdf", "JVBERi0="),
        Document("b.docx", "application/x", text="In all: 42"),
    )
    prompt = Prompt((Message("user", "How much?", documents=documents),))

    reply = play(Echo().respond(prompt, Ear()), [])

    assert reply.content == (
        'How much?\n\n<file name="a.pdf" type="application/pdf">(Its content is not shown to you.)'
        '</file>\n\n<file name="b.docx" type="application/x">\nIn all: 42\n</file>'
    )
