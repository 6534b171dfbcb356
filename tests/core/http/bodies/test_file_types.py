"""The type of a file, whatever its sender says of it."""

from __future__ import annotations

import zipfile
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.http.bodies.file_types import Unidentified, identify, signature_of
from legation.http.bodies.media_types import MEDIA_TYPES, PDF, WORD

OCTETS = "application/octet-stream"
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
JPEG = b"\xff\xd8\xff\xe0\0\x10JFIF\0"
MINIMAL = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n"
MP4 = b"\0\0\0\x18ftypisom\0\0\2\0"


def zipped(*names: str) -> bytes:
    with BytesIO() as buffer:
        with zipfile.ZipFile(buffer, "w") as archive:
            for name in names:
                archive.writestr(zipfile.ZipInfo(name), "x")
        return buffer.getvalue()


DOCX = zipped("[Content_Types].xml", "word/document.xml")


@pytest.mark.parametrize(
    ("name", "content", "media_type"),
    [
        ("t.csv", b"a,b\n1,2\n", "text/csv"),
        ("t.md", b"# Title", "text/markdown"),
        ("t.json", b"{}", "application/json"),
        ("T.PY", b"print()", "text/x-python"),
        ("t.docx", DOCX, WORD),
        ("t.pdf", MINIMAL, PDF),
        ("scan.pdf", b"\r\n" * 9 + MINIMAL, PDF),
        ("t.log", b"10:00 started", "text/plain"),
        ("Makefile", "all: grün".encode(), "text/plain"),
        ("t.csv", "a;ü".encode("utf-16"), "text/csv"),
        ("voice.opus", b"OggS\0\2", "audio/ogg"),
        ("song.mp3", b"\xff\xfb\x90\0", "audio/mpeg"),
        ("photo", JPEG, "image/jpeg"),
        ("bits", b"BM\x0a\0\0\0\0\0\0\0", "image/bmp"),
    ],
)
def test_a_file_that_curl_sends_is_known_by_its_name_or_its_content(
    name: str, content: bytes, media_type: str
) -> None:
    for declared in (OCTETS, "", "pdf", "application/vnd.ms-excel"):
        assert identify(name, declared, content) == media_type


@pytest.mark.parametrize(
    ("name", "declared", "content", "media_type"),
    [
        ("x.pdf", "application/pdf", MINIMAL, PDF),
        ("x.png", "image/png", JPEG, "image/jpeg"),
        ("x.jpg", "image/jpg", JPEG, "image/jpg"),
        ("x.png", "IMAGE/PNG; a=b", b"\x89PN", "image/png"),
        ("x.txt", "text/plain", PNG, "image/png"),
        ("x.csv", "text/plain; charset=utf-8", b"1,2", "text/csv"),
        ("x.pdf", "text/plain", b"no PDF", "text/plain"),
        ("a.m4a", "audio/mp4", MP4, "audio/mp4"),
        ("a.mov", "", b"\0\0\0\x14ftypqt  ", "video/quicktime"),
        ("x", "text/yaml", b"a: 1", "text/plain"),
        ("x", "image/png", MINIMAL, PDF),
    ],
)
def test_what_the_content_says_counts_more_than_what_is_said_of_it(
    name: str, declared: str, content: bytes, media_type: str
) -> None:
    assert identify(name, declared, content) == media_type


@pytest.mark.parametrize(
    ("name", "declared", "content", "reason"),
    [
        ("x.pdf", "application/pdf", b"<html>", f"calls itself {PDF}, and is not"),
        ("x.pdf", OCTETS, zipped("a.txt"), f"calls itself {PDF}, and is not"),
        ("x.pdf", "application/pdf", DOCX, f"calls itself {PDF}, and is not"),
        ("x.pdf", "application/pdf", b"\0" * 1025 + MINIMAL, f"calls itself {PDF}, and is not"),
        ("x.docx", "", zipped("xl/workbook.xml"), f"calls itself {WORD}, and is not"),
        ("x.docx", WORD, MINIMAL, f"calls itself {WORD}, and is not"),
        ("x.png", "image/png", zipped("a"), "calls itself image/png, and is not"),
        ("x.zip", "application/zip", zipped(), "is application/zip, which no run takes"),
        (
            "x.csv",
            "text/csv",
            b"\xff\xfea",
            "calls itself text/csv, and is no text in UTF-8 or UTF-16",
        ),
        (
            "x.txt",
            "",
            b"\1\2\3",
            "is of no type that is known: neither its name nor its content shows one",
        ),
        ("x.gz", "application/gzip", b"\x1f\x8b", "is application/gzip, which no run takes"),
        (
            "x",
            OCTETS,
            bytes(9),
            "is of no type that is known: neither its name nor its content shows one",
        ),
        (
            "x",
            "application/\x1b[31m",
            b"\xff",
            "is of no type that is known: neither its name nor its content shows one",
        ),
    ],
)
def test_what_lies_or_is_not_known_is_refused_with_the_reason(
    name: str, declared: str, content: bytes, reason: str
) -> None:
    assert identify(name, declared, content) == Unidentified(reason)


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\0\0\0\0WAVEfmt ", "audio/wav"),
        (b"RIFF\0\0\0\0AVI LIST", None),
        (b"\0\0\0\x1cftypheic", "image/heic"),
        (b"\0\0\0\x1cftypavif", "image/avif"),
        (b"\0\0\0\x1cftypM4A ", "audio/mp4"),
        (b"\0\0\0\x1cftyp", "video/mp4"),
        (b"BMW is a car", None),
        (b"", None),
    ],
)
def test_a_container_is_looked_into(content: bytes, media_type: str | None) -> None:
    assert signature_of(content) == media_type


@given(
    st.text(max_size=12) | st.sampled_from(["a.pdf", "a.docx", "a.csv", "a.png", "a."]),
    st.text(max_size=12) | st.sampled_from([*sorted(MEDIA_TYPES), OCTETS]),
    st.binary(max_size=40) | st.sampled_from([PNG, JPEG, MINIMAL, DOCX, MP4]),
)
def test_any_file_has_a_type_that_a_run_takes_or_a_reason(
    name: str, declared: str, content: bytes
) -> None:
    found = identify(name, declared, content)

    if isinstance(found, Unidentified):
        assert found.reason.isprintable()
    else:
        assert found in MEDIA_TYPES
