"""Files given inline: what a `data:` URL may be, and what becomes of it."""

from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.http.bodies.data_urls import (
    MOST_BYTES,
    encode_inline,
    is_data_url,
    is_public_url,
)
from legation.http.bodies.media_types import MEDIA_TYPES

PNG = b"\x89PNG\r\n\x1a\n"


def url_of(data: bytes, mime_type: str = "image/png", scheme: str = "data") -> str:
    return f"{scheme}:{mime_type};base64,{b64encode(data).decode()}"


@pytest.mark.parametrize(
    "url",
    [
        url_of(PNG),
        url_of(PNG, "IMAGE/Png", "DATA"),
        url_of(PNG, "image/png;charset=utf-8;x-n="),
    ],
)
def test_a_picture_is_kept_as_an_upload_is(url: str) -> None:
    kept = {"mime_type": "image/png", "size": 8, "content": b64encode(PNG).decode()}

    assert is_data_url(url)
    assert encode_inline(url, "images") == kept


@given(st.sampled_from(sorted(MEDIA_TYPES)), st.binary(min_size=1, max_size=40))
def test_every_type_of_an_upload_is_taken_under_its_own_kind(mime_type: str, data: bytes) -> None:
    url = url_of(data, mime_type)

    for kind in set(MEDIA_TYPES.values()):
        kept = encode_inline(url, kind)
        assert isinstance(kept, dict) == (kind == MEDIA_TYPES[mime_type])


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("data:", "must begin with"),
        ("data:;base64,aGk=", "must begin with"),
        ("data:image/png", "must begin with"),
        ("data:image/png;base64", "must begin with"),
        ("data:image/png,hi", "must begin with"),
        ("data:image/png;base64;x=1,aGk=", "must begin with"),
        ("data: image/png;base64,aGk=", "must begin with"),
        (f"data:image/png;x={'y' * 256};base64,aGk=", "must begin with"),
        ("data:image/svg+xml;base64,aGk=", "media type"),
        ("data:text/plain;base64,aGk=", "media type"),
        ("data:image/png;base64,", "must have content"),
        ("data:image/png;base64,aGk", "must be base64"),
        ("data:image/png;base64,aGl=", "must be base64"),
        ("data:image/png;base64,aGk=\n", "must be base64"),
        ("data:image/png;base64,aG k=", "must be base64"),
        ("data:image/png;base64,aGk=aGk=", "must be base64"),
        ("data:image/png;base64,_-k=", "must be base64"),
        ("data:image/png;base64,aG%3D", "must be base64"),
        ("data:image/png;base64,Grüß", "must be base64"),
    ],
)
def test_what_is_wrong_is_told(url: str, wrong: str) -> None:
    told = encode_inline(url, "images")

    assert isinstance(told, str)
    assert told.startswith(wrong) or wrong in told


def test_a_file_has_a_largest_size() -> None:
    assert isinstance(encode_inline(url_of(bytes(MOST_BYTES)), "images"), dict)
    for more in (1, 2, 100):
        told = encode_inline(url_of(bytes(MOST_BYTES + more)), "images")
        assert told == f"must have at most {MOST_BYTES} bytes"


@pytest.mark.parametrize(
    "value", ["https://example.org/data:", "file:///x", "", None, 7, ["data:"]]
)
def test_what_is_another_url_or_none_is_not_looked_at(value: object) -> None:
    assert not is_data_url(value)


TEXTS = st.text(st.sampled_from("data:image/png;base64,=+ ü\0x"), max_size=40)


@given(TEXTS | TEXTS.map("data:image/png;base64,".__add__) | st.text())
def test_any_text_is_a_file_or_has_something_wrong(text: str) -> None:
    kept = encode_inline(text, "images")

    if isinstance(kept, dict):
        assert is_data_url(text)
        assert text.endswith(kept["content"])
    else:
        assert kept


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("https://example.com/a.png", True),
        ("https://files.example.com:8443/a?b=c#d", True),
        ("http://example.com/a.png", False),
        ("https://localhost/a.png", False),
        ("https://10.0.0.1/a.png", False),
        ("https://db.internal/a.png", False),
        ("https://ada:secret@example.com/", False),
        ("", False),
    ],
)
def test_a_public_url_has_the_name_of_a_host(url: str, public: bool) -> None:
    assert is_public_url(url) is public
