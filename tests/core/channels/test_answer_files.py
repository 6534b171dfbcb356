"""The files of an answer: what counts as one, and the form that uploads it."""

from __future__ import annotations

from base64 import b64encode
from email import message_from_bytes
from email.policy import HTTP
from typing import Any

import pytest

from legation import RunFile
from legation.channels.answer_files import AnswerFile, find_files, post_form
from legation.http.bodies.json_text import parse_json
from legation.tools import render

PNG = b"\x89PNG\r\n\x1a\n\0\xff--legation"
SHOWN: dict[str, Any] = {
    "name": "room.png",
    "media_type": "image/png",
    "content": b64encode(PNG).decode(),
}
FILE = AnswerFile("room.png", "image/png", b64encode(PNG).decode())


def test_a_file_that_a_function_returned_is_found_in_the_content_of_its_run() -> None:
    content = parse_json((render(RunFile("room.png", "image/png", PNG)) or "").encode())

    assert find_files(content) == ("", (FILE,))
    assert FILE.data == PNG


@pytest.mark.parametrize(
    ("content", "text", "names"),
    [
        ([SHOWN, SHOWN], "", ["room.png", "room.png"]),
        ([" Two rooms.\n", SHOWN, "", "Which one?"], "Two rooms.\n\nWhich one?", ["room.png"]),
        ([{**SHOWN, "name": "\0../a\r\n.png"}], "", ["../a  .png"]),
        ([{**SHOWN, "name": ""}], "", ["file"]),
    ],
)
def test_a_list_of_texts_and_files_is_both(content: Any, text: str, names: list[str]) -> None:
    found = find_files(content)

    assert found is not None
    assert (found[0], [file.name for file in found[1]]) == (text, names)


@pytest.mark.parametrize(
    "content",
    [
        None,
        "text",
        7,
        [],
        ["text"],
        {},
        ["text", SHOWN, 7],
        {**SHOWN, "size": 1},
        {"name": "a", "content": ""},
        {**SHOWN, "content": ""},
        {**SHOWN, "content": "no base64"},
        {**SHOWN, "content": "\u00e4"},
        {**SHOWN, "content": 7},
        {**SHOWN, "name": None},
    ],
)
def test_any_other_answer_is_no_file(content: Any) -> None:
    assert find_files(content) is None


def test_neither_name_nor_content_is_shown() -> None:
    assert "room" not in repr(FILE)
    assert SHOWN["content"] not in repr(FILE)


@pytest.mark.parametrize("name", ["room.png", 'a"b.png', "Zürich.png", "a; filename=b", "a\r\nb"])
def test_the_form_is_read_as_it_was_written(name: str) -> None:
    sent = AnswerFile(name, "image/png", FILE.content)
    fetch = post_form("https://a.example/x", {"chat_id": "7"}, "photo", sent, "key", (("a", "b"),))
    headers = dict(fetch.headers)
    head = f"content-type: {headers['content-type']}\r\n\r\n".encode()
    parsed = message_from_bytes(head + fetch.body, policy=HTTP)
    field, file = parsed.iter_parts()

    assert headers["idempotency-key"] == "key"
    assert headers["a"] == "b"
    assert field.get_payload(decode=True) == b"7"
    assert file.get_content_type() == "image/png"
    assert file.get_payload(decode=True) == PNG
    assert len(file["content-disposition"].split("\r\n")) == 1
