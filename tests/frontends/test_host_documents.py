"""The text of documents, and documents that are none, or that would have no end."""

from __future__ import annotations

import logging
import zipfile
from collections.abc import Callable, Generator
from io import BytesIO

import pytest
from pypdf import PdfWriter

from legation.runs.files import UnreadableFile
from legation_host.document_text import MOST_BYTES, Unreadable, main
from legation_host.document_text import read_docx as read_docx_here
from legation_host.document_text import read_pdf as read_pdf_here
from legation_host.documents import read_docx, read_in_process
from legation_host.pdf import read_pdf

from ..providers.documents import make_docx, make_pdf


@pytest.fixture(autouse=True)
def _logging() -> Generator[None]:
    """Let the next test log: a PDF is read in silence, in a process that has nothing else to do."""
    yield
    logging.disable(logging.NOTSET)


def encrypted() -> bytes:
    with BytesIO() as buffer:
        writer = PdfWriter()
        writer.append(BytesIO(make_pdf()))
        writer.encrypt("secret", algorithm="AES-256")
        writer.write(buffer)
        return buffer.getvalue()


def zipped(name: str, content: bytes) -> bytes:
    with BytesIO() as buffer:
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
        return buffer.getvalue()


def test_a_document_is_read_in_a_process_of_its_own() -> None:
    assert read_pdf(make_pdf("In all: 42 EUR")).strip() == "In all: 42 EUR"
    assert read_docx(make_docx("Dear Ada,", "in all: 42 \u20ac")) == "Dear Ada,\nin all: 42 \u20ac"


@pytest.mark.parametrize(
    ("read", "content", "reason"),
    [
        (read_pdf_here, b"%PDF-1.7\nno more", "PdfReadError|PdfStreamError"),
        (read_pdf_here, encrypted(), "FileNotDecryptedError"),
        (read_docx_here, b"PK\3\4", "BadZipFile"),
        (read_docx_here, zipped("a.txt", b"a"), "KeyError"),
        (read_docx_here, zipped("word/document.xml", b"<a"), "ParseError"),
        (read_docx_here, zipped("word/document.xml", b"<!DOCTYPE a><a/>"), "a document type"),
        (read_docx_here, zipped("word/document.xml", bytes(MOST_BYTES + 1)), "too large"),
    ],
    ids=["cut", "encrypted", "no zip", "no document", "no XML", "entities", "bomb"],
)
def test_what_cannot_be_read_says_why(
    read: Callable[[bytes], str], content: bytes, reason: str
) -> None:
    with pytest.raises(Unreadable, match=reason):
        read(content)


def test_the_reason_comes_out_of_the_process() -> None:
    with pytest.raises(UnreadableFile, match="FileNotDecryptedError"):
        read_pdf(encrypted())


def test_a_process_that_takes_too_long_is_ended() -> None:
    with pytest.raises(UnreadableFile, match="it took too long"):
        read_in_process("pdf", make_pdf(), seconds=0.001)


def test_a_process_that_breaks_has_no_text() -> None:
    with pytest.raises(UnreadableFile, match="its process ended with 1"):
        read_in_process("xls", b"")


def test_tabs_and_breaks_are_read() -> None:
    document = make_docx("a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c")

    assert read_docx_here(document) == "a\tb\nc"
    assert callable(main)
