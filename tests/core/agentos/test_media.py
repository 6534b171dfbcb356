"""The files of foreign runs: content as base64, public URLs, and what is elsewhere."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from legation.agentos.media import MOST_CONTENT, MOST_FILES, FileReader

PIXEL = b64encode(b"\x89PNG").decode()


def test_files_are_kept_as_the_input_of_a_run_has_them() -> None:
    reader = FileReader()
    found = reader.read(
        {
            "images": [
                {"id": "i", "mime_type": "image/png", "content": PIXEL, "detail": "low"},
                {"url": "https://example.com/a.png"},
            ],
            "audios": [{"format": "wav", "content": PIXEL, "sample_rate": 24000}],
            "audio": [{"transcript": "hello"}],
            "files": [{"content": "Hello", "filename": "a.txt", "mime_type": "text/plain"}],
            "videos": "none",
        }
    )

    assert found == {
        "images": [
            {"id": "i", "detail": "low", "mime_type": "image/png", "size": 4, "content": PIXEL},
            {"url": "https://example.com/a.png"},
        ],
        "audio": [{"format": "wav", "size": 4, "content": PIXEL}, {"transcript": "hello"}],
        "files": [
            {
                "filename": "a.txt",
                "mime_type": "text/plain",
                "size": 5,
                "content": b64encode(b"Hello").decode(),
            }
        ],
    }
    assert (reader.faults, reader.count) == ([], 5)


@pytest.mark.parametrize(
    ("item", "fault"),
    [
        ({"filepath": "/srv/a.png"}, "images: on a disk of the other server"),
        ({"media_reference": {"storage_key": "k"}}, "images: in an object store"),
        ({"url": "http://127.0.0.1/a.png", "name": "a"}, "a: its URL is not a public one"),
        ({"content": "no base64!", "mime_type": "image/png"}, "images: its content is not base64"),
        ({"content": 7, "url": 8}, None),
    ],
)
def test_what_is_elsewhere_is_noted(item: Any, fault: str | None) -> None:
    reader = FileReader()
    found = reader.read({"images": [item, 3]})

    assert "content" not in found["images"][0]
    assert "url" not in found["images"][0]
    assert reader.faults == ([] if fault is None else [fault])


def test_a_data_url_is_its_content() -> None:
    item = {"url": f"data:image/png;base64,{PIXEL}", "mime_type": "image/png"}

    assert FileReader().read({"images": [item]})["images"][0]["content"] == PIXEL


def test_content_and_numbers_are_bounded() -> None:
    reader = FileReader()
    large = "A" * MOST_CONTENT
    kept = reader.read({"images": [{"content": large}, {"content": PIXEL}]})["images"]
    many = reader.read({"files": [{}] * (MOST_FILES + 1)})

    assert [len(one.get("content", "")) for one in kept] == [MOST_CONTENT, 0]
    assert kept[1] == {"size": 4}
    assert len(many["files"]) == MOST_FILES
    assert reader.faults == ["images: more than 8 MiB of content in a run", "files: more than 100"]
