from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from legation.http.bodies.media_types import WORD
from legation.models.conversation import Document, Image, Message, ToolCall, Usage
from legation.runs.prompt import FILE_BYTES, begin, history, question
from legation.store.run_rows import ClaimedRun

RUN = ClaimedRun("o", "s", "r", "agent", "a", "{}", 5, 1)
ASKED = {"message": "hello"}


def said(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def test_a_turn_begins_with_instructions_the_history_and_the_message() -> None:
    before = (Message("user", "before"),)
    state = begin(RUN, ASKED, "Be brief.", before, Usage(3, 4))

    assert state.messages == (Message("system", "Be brief."), *before, Message("user", "hello"))
    assert (state.said[0].at_us, state.usage) == (5, Usage(3, 4))


def test_a_turn_without_either_begins_with_the_message() -> None:
    assert begin(RUN, ASKED, None).messages == (Message("user", "hello"),)


def test_the_history_has_the_messages_of_runs_as_they_were() -> None:
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    output = {
        "messages": [
            said("system", "old instructions"),
            said("user", "before"),
            said("assistant", "", tool_calls=calls),
            said("tool", "rain", tool_call_id="1"),
            said("assistant", "It rains."),
        ]
    }

    assert history(((2, json.dumps(output)), (3, "{}"))) == [
        Message("user", "before"),
        Message("assistant", "", (ToolCall("1", "f", "{}"),)),
        Message("tool", "rain", call_id="1"),
        Message("assistant", "It rains."),
    ]


def test_the_summary_of_a_recording_is_told_again() -> None:
    output = {"messages": [said("system", "A summary", summary=True), said("user", "before")]}

    assert [m.role for m in history(((1, json.dumps(output)),))] == ["system", "user"]


def encoded(text: str | bytes) -> str:
    return b64encode(text.encode() if isinstance(text, str) else text).decode()


@pytest.mark.parametrize(
    ("item", "image"),
    [
        ({"mime_type": "image/jpeg", "content": "aGk="}, Image("image/jpeg", "aGk=")),
        ({"mime_type": "image/jpg", "content": "aGk="}, Image("image/jpeg", "aGk=")),
        ({"format": "jpg", "content": "aGk="}, Image("image/jpeg", "aGk=")),
        ({"format": "webp", "content": "aGk="}, Image("image/webp", "aGk=")),
        ({"content": "aGk="}, Image("image/png", "aGk=")),
        ({"mime_type": 7, "content": "aGk="}, Image("image/png", "aGk=")),
        ({"url": "https://example.com/x.png"}, Image(url="https://example.com/x.png")),
        ({"url": "file:///etc/passwd"}, None),
        ({"filepath": "/etc/passwd"}, None),
    ],
)
def test_a_picture_is_its_bytes_or_its_address(item: Any, image: Image | None) -> None:
    images = question({"message": "see", "images": [item]}).images

    assert images == (() if image is None else (image,))


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (
            {"filename": "a.csv", "mime_type": "text/csv", "content": encoded("1,2")},
            '<file name="a.csv" type="text/csv">\n1,2\n</file>',
        ),
        (
            {"name": "b", "mime_type": "application/json; x=1", "content": "{not base64}"},
            '<file name="b" type="application/json; x=1">\n{not base64}\n</file>',
        ),
        (
            {"mime_type": "text/plain", "content": encoded("a\0b")},
            '<file name="file" type="text/plain">\na\ufffdb\n</file>',
        ),
    ],
)
def test_a_file_of_text_is_read_out(item: Any, text: str) -> None:
    asked = question({"message": "read", "files": [item]})

    assert asked.content == f"read\n\n{text}"
    assert asked.documents == ()


@pytest.mark.parametrize(
    ("item", "document"),
    [
        (
            {"filename": 'x"\n>', "mime_type": "Application/PDF; a=b", "content": encoded("%PDF")},
            Document('x" >', "application/pdf", encoded("%PDF")),
        ),
        (
            {"name": "a.docx", "mime_type": WORD, "content": "UEs=", "text": "42 EUR"},
            Document("a.docx", WORD, "UEs=", text="42 EUR"),
        ),
        (
            {"url": "https://example.org/a.pdf", "mime_type": "application/pdf"},
            Document("file", "application/pdf", url="https://example.org/a.pdf"),
        ),
        ({"filepath": "/etc/passwd", "url": "file:///etc/passwd"}, Document("file", "")),
        ({"mime_type": "text/plain"}, Document("file", "text/plain")),
        ({"content": encoded("x"), "mime_type": 7}, Document("file", "", encoded("x"))),
        (
            {"mime_type": "text/plain", "content": encoded(b"\xff\xfea")},
            Document("file", "text/plain"),
        ),
        (
            {"mime_type": "text/plain", "content": encoded("x" * (FILE_BYTES + 1))},
            Document("file", "text/plain"),
        ),
    ],
)
def test_any_other_file_stands_beside_the_text(item: Any, document: Document) -> None:
    asked = question({"message": "read", "files": [item]})

    assert asked == Message("user", "read", documents=(document,))


def test_of_sound_and_moving_pictures_there_is_the_name() -> None:
    sent = {"filename": "a.ogg", "mime_type": "audio/ogg", "content": "T2dn"}
    asked = question({"message": "hear", "audio": [sent], "videos": [{"mime_type": "video/mp4"}]})

    assert asked.documents == (Document("a.ogg", "audio/ogg"), Document("file", "video/mp4"))
