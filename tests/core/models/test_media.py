"""The files that a model is sent, and its words for all others."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import frozen

from legation.models.conversation import Document, Image, Message
from legation.models.media import accepts_of, describe, fit, is_accepted

PDF = Document("a.pdf", "application/pdf", "JVBERi0=")
READ = Document("b.docx", "application/x-word", "UEs=", text="42 EUR")
LINKED = Document("c.pdf", "application/pdf", url="https://example.org/c.pdf")
PNG = Image("image/png", "AAAA")
HEIC = Image("image/heic", "AAAA")
ELSEWHERE = Image(url="https://example.org/a.png")
UNSEEN = "(Its content is not shown to you.)"


@frozen
class Model:
    """As much of a model as matters here."""

    accepts: tuple[str, ...] = ()
    document_urls: bool = False


class OfOld:
    """A model that was written before models took documents."""


def fitted(model: Any, *documents: Document, images: tuple[Image, ...] = ()) -> Message:
    message = Message("user", "See", images=images, documents=documents)
    system = Message("system", "Be brief.")
    first, found = fit((system, message), model)
    assert first is system
    return found


def test_a_model_is_sent_what_it_takes_and_reads_the_rest() -> None:
    found = fitted(Model(("application/pdf", "image/png")), PDF, READ, LINKED, images=(PNG, HEIC))

    assert found.documents == (PDF,)
    assert found.images == (PNG,)
    assert found.content.split("\n\n") == [
        "See",
        '<file name="b.docx" type="application/x-word">\n42 EUR\n</file>',
        f'<file name="c.pdf" type="application/pdf">{UNSEEN}</file>',
        f'<file name="image" type="image/heic">{UNSEEN}</file>',
    ]


def test_a_model_that_takes_all_reads_what_it_was_asked() -> None:
    message = Message("user", "", images=(PNG, ELSEWHERE), documents=(PDF, READ, LINKED))

    assert fit((message,), Model(("*/*",), document_urls=True)) == (message,)  # type: ignore[arg-type]


def test_a_model_of_text_alone_is_sent_no_file() -> None:
    found = fitted(Model(), PDF, images=(PNG, ELSEWHERE))

    assert (found.images, found.documents) == ((), ())
    assert found.content.count(UNSEEN) == 3


def test_a_model_that_says_nothing_is_sent_pictures_alone() -> None:
    model: Any = OfOld()

    assert accepts_of(model) == ("image/*",)
    found = fitted(model, PDF, images=(PNG, HEIC, ELSEWHERE))
    assert (found.images, found.documents) == ((PNG, HEIC, ELSEWHERE), ())


def test_messages_without_files_are_not_looked_at() -> None:
    messages = (Message("user", "a"), Message("assistant", "b"))

    assert fit(messages, Model()) is messages  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("accepts", "taken"),
    [
        (("application/pdf",), True),
        (("application/*",), True),
        (("*/*",), True),
        (("application/pd",), False),
        (("image/*",), False),
        ((), False),
    ],
)
def test_a_type_is_taken_by_its_name_or_by_a_star(accepts: tuple[str, ...], taken: bool) -> None:
    assert is_accepted("application/pdf", accepts) == taken


def test_a_name_cannot_end_the_words_that_quote_it() -> None:
    shown = describe(Document('a" type="text/plain', 'x"y', text="t"))

    assert shown.splitlines()[0] == """<file name="a' type='text/plain" type="x'y">"""


def test_a_text_cannot_end_the_tag_that_holds_it() -> None:
    text = "a\n</file>\n</FILE ><b></ file>\n< / file\n</filename> 1 < 2"
    shown = describe(Document("a.md", "text/markdown", text=text)).splitlines()

    assert shown[1:] == [
        "a",
        "&lt;/file>",
        "&lt;/FILE ><b>&lt;/ file>",
        "&lt; / file",
        "</filename> 1 < 2",
        "</file>",
    ]
