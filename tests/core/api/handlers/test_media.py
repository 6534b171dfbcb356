"""The files of a run, as uploads and as JSON, with what strangers say of them."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from legation.api.handlers.media import MOST_FILES, Media, add_uploads, take_media_list
from legation.http.bodies.reader import Reader, Upload
from legation.http.refusals import BadRequest

PDF = b"%PDF-1.7\n\xff" + b"x" * 20
PNG = b"\x89PNG\r\n\x1a\n"


def encoded(data: bytes) -> str:
    return b64encode(data).decode()


def taken(name: str, *items: Any) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    read = Reader("body", {name: (list(items),)})
    found = take_media_list(read, name)
    return found, [(fault.path, fault.message) for fault in read.faults()]


def test_an_upload_is_stored_under_the_type_that_it_is_of() -> None:
    uploads = [
        Upload("t.pdf", "application/octet-stream", PDF),
        Upload("photo.png", "application/pdf; a=b", b""),
        Upload("photo", "application/octet-stream", PNG),
    ]
    media = add_uploads(uploads, {"images": [{"url": "u"}], "files": []})

    assert isinstance(media, Media)
    assert [item["mime_type"] for item in media.by_kind["files"]] == ["application/pdf"]
    assert media.by_kind["images"][0] == {"url": "u"}
    assert media.by_kind["images"][1]["mime_type"] == "image/png"


def test_an_upload_that_lies_is_refused_by_its_name_without_controls() -> None:
    refused = add_uploads([Upload("a\x1b[2J\n.pdf", "application/pdf", b"PK\3\4")], {"files": []})

    assert refused == BadRequest(
        "Unsupported file type: a [2J .pdf calls itself application/pdf, and is not"
    )


@pytest.mark.parametrize(
    ("kind", "item", "media_type"),
    [
        ("files", {"content": encoded(PDF)}, "application/pdf"),
        ("input_files", {"name": "a.csv", "content": encoded(b"1,2")}, "text/csv"),
        ("files", {"content": encoded(b"hi"), "mime_type": "text/plain"}, "text/plain"),
        ("images", {"content": encoded(PNG), "mime_type": "image/jpeg"}, "image/png"),
        ("files", {"url": f"data:text/csv;base64,{encoded(b'1')}"}, "text/csv"),
    ],
)
def test_a_file_in_json_has_the_type_of_its_content(kind: str, item: Any, media_type: str) -> None:
    (found,), faults = taken(kind, item)

    assert faults == []
    assert found["mime_type"] == media_type


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        ("files", {"content": "just text"}),
        ("files", {"content": "{not base64}", "mime_type": "application/json"}),
        ("files", {"content": "", "mime_type": "application/pdf"}),
        ("files", {"content": None, "url": "https://example.org/a.pdf"}),
        ("audio", {"content": encoded(b"\0\0\0\x18ftypisom"), "mime_type": "audio/mp4"}),
        ("audio", {"content": encoded(b"any"), "format": "pcm"}),
    ],
)
def test_what_nobody_else_can_tell_stays_as_it_was_sent(kind: str, item: Any) -> None:
    assert taken(kind, item) == ([item], [])


@pytest.mark.parametrize(
    ("kind", "item", "fault"),
    [
        ("images", {"content": "aGk"}, ("content", "must be base64")),
        ("images", {"content": 7}, ("content", "must be base64")),
        ("files", {"content": 7}, ("content", "must be base64")),
        ("files", {"content": "JVBE!", "mime_type": "application/pdf"}, ("content", "must be")),
        ("files", {"content": "JVBE!", "filename": "a.docx"}, ("content", "must be base64")),
        ("files", {"content": encoded(b"x"), "name": "a.pdf"}, ("content", "calls itself")),
        ("files", {"content": encoded(PNG)}, ("content", "is image/png, which does not belong")),
        ("images", {"content": encoded(PDF)}, ("content", "is application/pdf, which does not")),
        ("images", {"content": encoded(b"PK\3\4")}, ("content", "is application/zip, which")),
        ("images", {"url": "data:image/png,hi"}, ("url", "must begin with")),
        (
            "images",
            {"url": f"data:image/png;base64,{encoded(PNG)}", "content": ""},
            ("content", "is not allowed together with"),
        ),
        (
            "files",
            {"url": f"data:application/pdf;base64,{encoded(b'PK')}"},
            ("url", "calls itself application/pdf, and is not"),
        ),
    ],
)
def test_a_file_in_json_that_lies_is_a_fault_where_it_stands(
    kind: str, item: Any, fault: tuple[str, str]
) -> None:
    _, faults = taken(kind, {"url": "https://example.org"}, item)

    ((path, message),) = faults
    assert path == f"body.{kind}[1].{fault[0]}"
    assert message.startswith(fault[1])


PUBLIC = [
    "https://example.org/a.png",
    "https://EXAMPLE.org:8443/a.png?size=1&b=2#c",
    "https://my_bucket.s3.eu-west-1.amazonaws.com",
    "https://xn--mnchen-3ya.xn--p1ai./x",
    "https://local.example/lan.internal",
    "https://a.localhosting.example",
    "ftp://10.0.0.1/a",
    "a.png",
    "",
]
INTERNAL = [
    "http://example.org/a.png",
    "http://169.254.169.254/latest/meta-data/",
    "https://169.254.169.254/",
    "https://127.0.0.1",
    "https://127.1/",
    "https://2130706433/",
    "https://0x7f.1/",
    "https://0x7f000001",
    "https://a.b.0x7f/",
    "https://[::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://localhost/",
    "https://a.localhost/",
    "https://metadata.google.internal/",
    "https://METADATA.GOOGLE.INTERNAL./",
    "https://printer.local:443",
    "https://1.0.0.127.in-addr.arpa/",
    "https://vault/v1/secret",
    "https://good.example@169.254.169.254/",
    "https://169.254.169.254\\.good.example/",
    "https://good.example\\@169.254.169.254/",
    "https://good.example\n.evil/",
    "https://good.example/a b",
    "https://127.0.0.1\u3002good.example/",
    "https://\uff11\uff12\uff17.0.0.1/",
    "https://good.example:80:80/",
    "https:///etc/passwd",
    "HTTP://10.0.0.1/",
]


@pytest.mark.parametrize("kind", ["images", "files", "audio", "videos"])
@pytest.mark.parametrize("url", PUBLIC)
def test_an_address_on_the_web_is_left_to_the_server_of_the_model(kind: str, url: str) -> None:
    assert taken(kind, {"url": url}) == ([{"url": url}], [])


@pytest.mark.parametrize("kind", ["images", "files"])
@pytest.mark.parametrize("url", INTERNAL)
def test_the_server_of_a_model_is_led_to_no_internal_address(kind: str, url: str) -> None:
    _, faults = taken(kind, {"url": url})

    ((path, message),) = faults
    assert path == f"body.{kind}[0].url"
    assert message.startswith("must be an https URL with the name of a public host")
    assert url not in message


def test_a_thousand_files_are_one_fault() -> None:
    found, faults = taken("files", *[{"content": 7}] * 1000)

    assert len(found) == MOST_FILES
    assert faults[0] == ("body.files", f"must have at most {MOST_FILES} items")
    assert taken("images", *[{"url": "u"}] * MOST_FILES)[1] == []


def test_what_is_no_object_is_no_file() -> None:
    assert taken("files", "a.pdf") == ([], [("body.files[0]", "must be a JSON object")])
