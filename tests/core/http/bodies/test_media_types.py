"""The files that a run takes."""

from __future__ import annotations

from base64 import b64decode

import pytest

from legation.http.bodies.media_types import MEDIA_TYPES, encode_file


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
