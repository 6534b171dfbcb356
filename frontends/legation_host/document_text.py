"""The program that reads the text out of one document: its bytes come in, and its text goes out.

Documents are a stranger's, and readers of them can be led to compute for hours or to take all
memory.  So each is read in a process of its own, which has little of both and is killed in time.
It is run by its path, and imports nothing but the standard library and `pypdf`.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import Final
from xml.etree import ElementTree as ET

__all__ = ["READERS", "UNREADABLE", "Unreadable", "main", "read_docx", "read_pdf"]

CPU_SECONDS: Final = 20
MEMORY_BYTES: Final = 1 << 30
UNREADABLE: Final = 3
"""The exit status for a document without text that can be read."""

MOST_PAGES: Final = 2000
MOST_BYTES: Final = 64 << 20
"""Of the part of a Word file that has its text, unpacked."""

_PART: Final = "word/document.xml"
_W: Final = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_WORDS: Final[Mapping[str, str]] = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n"}


class Unreadable(Exception):
    """The document has no text that can be read; the text says why, and quotes nothing of it."""


def read_pdf(content: bytes) -> str:
    """Return the text of a PDF, page by page."""
    # The process is a PDF's only here, and its package takes 0.3 s and 58 MB.
    from pypdf import PdfReader  # noqa: PLC0415
    from pypdf.errors import PyPdfError  # noqa: PLC0415

    logging.disable()  # it warns of what is unusual, and quotes it
    try:
        pages = PdfReader(BytesIO(content)).pages
        if len(pages) > MOST_PAGES:
            raise Unreadable(f"it has more than {MOST_PAGES} pages")
        return "\n\n".join(page.extract_text() for page in pages)
    except PyPdfError as error:
        raise Unreadable(type(error).__name__) from None


def read_docx(content: bytes) -> str:
    """Return the text of a Word file (ISO/IEC 29500-1 section 17), paragraph by paragraph."""
    try:
        with zipfile.ZipFile(BytesIO(content)) as archive, archive.open(_PART) as part:
            document = part.read(MOST_BYTES + 1)
    except (zipfile.BadZipFile, KeyError, NotImplementedError, RuntimeError, OSError) as error:
        raise Unreadable(type(error).__name__) from None
    if len(document) > MOST_BYTES:
        raise Unreadable("it is too large")
    if b"<!DOCTYPE" in document:  # which could define entities without end; Word writes none
        raise Unreadable("it has a document type")
    try:
        root = ET.fromstring(document)  # noqa: S314 (it has no entities)
    except ET.ParseError as error:
        raise Unreadable(type(error).__name__) from None
    return "\n".join("".join(_texts(paragraph)) for paragraph in root.iter(f"{_W}p"))


def _texts(paragraph: ET.Element) -> Iterator[str]:
    for element in paragraph.iter():
        if element.tag == f"{_W}t":
            yield element.text or ""
        else:
            yield _WORDS.get(element.tag, "")


READERS: Final[Mapping[str, Callable[[bytes], str]]] = {"docx": read_docx, "pdf": read_pdf}


def main(kind: str) -> int:
    """Read a document of `kind` from the standard input; `UNREADABLE` where it is none."""
    _limit()
    try:
        text = READERS[kind](sys.stdin.buffer.read())
    except Unreadable as error:
        sys.stderr.write(str(error))
        return UNREADABLE
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    return 0


def _limit() -> None:
    """Take no more time and memory than a document is worth, where the system can say so."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 (not on Windows)

        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
