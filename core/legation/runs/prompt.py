"""The prompt at the beginning of a turn: instructions, history, and the question."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve

from ..http.bodies.media_types import (
    PDF,
    TEXT,
    clean_name,
    decode_content,
    decode_text,
    is_text_type,
    normalize,
)
from ..http.messages import compact_json
from ..models.conversation import NO_USAGE, Document, Image, Message, Usage
from ..models.media import describe
from ..store.run_rows import ClaimedRun
from ..store.run_states import RunState
from .payloads import recall
from .turn_state import ModelTurn, TurnState

__all__ = [
    "FILE_BYTES",
    "SUMMARY",
    "begin",
    "document_of",
    "history",
    "image_of",
    "question",
]

FILE_BYTES: Final = 256 << 10
"""How long a file of text may be to be read out to the model, in bytes."""

SUMMARY: Final = "summary"
"""The mark of a message of the system that is told again, in the history of a recording."""

_MEDIA: Final = ("files", "images", "audio", "videos")
_JPEG: Final = {"image/jpg": "image/jpeg"}  # a common name for what providers take under another


def begin(
    run: ClaimedRun,
    asked: Mapping[str, Any],
    instructions: str | None,
    before: tuple[Message, ...] = (),
    usage: Usage = NO_USAGE,
) -> TurnState:
    """Return the state of a turn at its start: the instructions, the history and the message.

    `usage` is what the making of the history cost.
    """
    first = () if instructions is None else (Message("system", instructions),)
    said = ModelTurn(question(asked), run.created_us)
    return TurnState(before=(*first, *before), said=(said,), usage=usage)


def history(recent: tuple[tuple[int, str], ...]) -> list[Message]:
    """Return the messages of earlier runs, given as their numbers and outputs.

    Of one that waits for a person there is what was asked, and that it waits: its calls have no
    results yet.
    """
    messages: list[Message] = []
    for _, output in recent:
        told = json.loads(output)
        shown = told.get("messages", ())
        if told.get("status") == RunState.PAUSED.value:
            shown = [message for message in shown if message["role"] == "user"]
            messages += [*map(recall, shown), Message("assistant", _describe_pause(told))]
        else:
            messages += [
                recall(message)
                for message in shown
                if message["role"] != "system" or SUMMARY in message
            ]
    return messages


def _describe_pause(told: Mapping[str, Any]) -> str:
    """Return what a paused run said, and the calls that it waits with."""
    calls = (one["tool_execution"] for one in told["requirements"])
    named = (f"{call['tool_name']} {compact_json(call['tool_args'])}" for call in calls)
    return "\n".join((told["content"], *named))


def question(asked: Mapping[str, Any]) -> Message:
    """Return the message of the user: the text, and files of text with it; beside it all others.

    Which of those a model is sent, it says itself (`models/media`).
    """
    if asked.keys().isdisjoint(_MEDIA):
        return Message("user", asked["message"])
    texts: list[str] = [asked["message"]]
    documents: list[Document] = []
    for item in asked.get("files", ()):
        document = document_of(item)
        if is_text_type(document.media_type) and document.text is not None:
            texts.append(describe(document))
        else:
            documents.append(document)
    for kind in ("audio", "videos"):  # which no model is sent yet
        documents += [evolve(document_of(item), data="") for item in asked.get(kind, ())]
    images = [image_of(item) for item in asked.get("images", ())]
    return Message(
        "user",
        "\n\n".join(texts),
        images=tuple(filter(None, images)),
        documents=tuple(documents),
    )


def image_of(item: Mapping[str, Any]) -> Image | None:
    """Return a picture as it was sent: its bytes, or where they are; None when it has neither."""
    content, url = item.get("content"), item.get("url")
    kind = item.get("mime_type") or (f"image/{item['format']}" if item.get("format") else "")
    media_type = kind if isinstance(kind, str) and kind.startswith("image/") else "image/png"
    if isinstance(content, str) and content:
        return Image(_JPEG.get(media_type, media_type), content)
    if isinstance(url, str) and url.startswith(("https://", "http://")):
        return Image(url=url)
    return None


def document_of(item: Mapping[str, Any]) -> Document:
    """Return a file as it was sent, with its text if it is one that is not too long."""
    name = clean_name(item.get("filename") or item.get("name"))
    kind, url = item.get("mime_type"), item.get("url")
    media_type = clean_name(kind, "")
    if is_text_type(media_type):
        return Document(name, media_type, text=_text_of(item))
    content, text = item.get("content"), item.get(TEXT)
    place = url if isinstance(url, str) and url.startswith(("https://", "http://")) else None
    by_url = PDF if place is not None and place.lower().endswith(".pdf") else ""
    return Document(
        name,
        normalize(media_type) or by_url,
        content if isinstance(content, str) else "",
        place,
        text if isinstance(text, str) else None,
    )


def _text_of(item: Mapping[str, Any]) -> str | None:
    """Return the content of a file of text; None where it is too long, elsewhere, or no text."""
    data = decode_content(item)
    return None if data is None or len(data) > FILE_BYTES else decode_text(data)
