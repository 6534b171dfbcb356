"""The files that a run takes."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest

from legation.http.bodies.media_types import (
    MEDIA_TYPES,
    clean_name,
    decode_base64,
    decode_content,
    decode_text,
    encode_file,
    is_text_type,
)


@pytest.mark.parametrize(
    ("media_type", "kind"),
    [
        ("image/png", "images"),
        ("audio/mpeg", "audio"),
        ("video/mp4", "videos"),
        ("application/pdf", "files"),
        ("text/plain", "files"),
    ],
)
def test_a_media_type_has_its_kind(media_type: str, kind: str) -> None:
    assert MEDIA_TYPES[media_type] == kind


def test_what_a_browser_or_a_shell_would_run_is_not_taken_as_such() -> None:
    assert not {"image/svg+xml", "application/xhtml+xml", "application/x-sh"} & MEDIA_TYPES.keys()
    assert all(name == name.lower() and ";" not in name for name in MEDIA_TYPES)


@pytest.mark.parametrize("data", [b"", b"\x00\xff", bytes(range(256)) * 5])
def test_a_kept_file_gives_its_bytes_back(data: bytes) -> None:
    kept = encode_file("a b.pdf", "application/pdf", data)

    assert b64decode(kept.pop("content"), validate=True) == data
    assert kept == {"filename": "a b.pdf", "mime_type": "application/pdf", "size": len(data)}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("grün\r\n".encode(), "grün\r\n"),
        (b"\xef\xbb\xbfa", "a"),
        ("\ufeffa".encode("utf-16-be"), "a"),
        (b"a\0b", "a\ufffdb"),
        (b"\x1b[1mlog\x1b[0m\f", "\x1b[1mlog\x1b[0m\f"),
        ("grün".encode("latin-1"), None),
        (b"\x01\x02", None),
        (b"\xff\xfea", None),
        (b"", ""),
    ],
)
def test_text_is_what_unicode_says(data: bytes, text: str | None) -> None:
    assert decode_text(data) == text


@pytest.mark.parametrize(
    ("item", "data"),
    [
        ({"content": "aGk="}, b"hi"),
        ({"content": "plain text"}, b"plain text"),
        ({"content": "gr\u00fcn \ud800"}, "grün ?".encode()),
        ({"content": 7}, None),
        ({"url": "https://example.org/a.pdf"}, None),
    ],
)
def test_the_content_of_a_file_is_base64_or_its_text(item: Any, data: bytes | None) -> None:
    assert decode_content(item) == data


@pytest.mark.parametrize("content", ["aGk", "aG k=", "_-k=", "Grüß", "="])
def test_base64_is_read_strictly(content: str) -> None:
    assert decode_base64(content) is None


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("t.pdf", "t.pdf"),
        ("a\0\r\nb\x1b[2J\u202efdp.exe", "a   b [2J fdp.exe"),
        ("\ud800", "file"),
        (" \t", "file"),
        ("", "file"),
        (None, "file"),
        (["a"], "file"),
        ("x" * 9_999, "x" * 200),
    ],
)
def test_the_name_of_a_file_is_shown_without_what_could_harm(name: Any, shown: str) -> None:
    assert clean_name(name) == shown


def test_types_of_text_are_told_from_others() -> None:
    assert all(is_text_type(name) for name in ("TEXT/Any; a=b", "application/json"))
    assert not any(is_text_type(name) for name in ("", "application/pdf", "image/png"))
