"""The files of a conversation that a model takes, and what it reads of all others.

A model names the media types that it takes in `accepts`: `application/pdf`, or `image/*` for all
pictures.  One that does not is sent pictures, and nothing else.  With `document_urls` it also takes
documents by their address.  Of a file that it is not sent, it reads the text that was read out
before, else that there is such a file: it must not guess what is in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from attrs import evolve

from .conversation import Document, Image, Message, ModelProtocol

__all__ = ["accepts_of", "describe", "fit", "is_accepted", "takes_document", "takes_image"]

_PICTURES: Final = ("image/*",)
# A text that closed its own tag would go on as if the person had written it.
_END: Final = re.compile(r"<(?=\s{0,8}/\s{0,8}file\b)", re.IGNORECASE)
_UNSEEN: Final = "(Its content is not shown to you.)"


def accepts_of(model: ModelProtocol) -> tuple[str, ...]:
    """Return the media types that `model` takes; `*` stands for any subtype, or for any type."""
    return tuple(getattr(model, "accepts", _PICTURES))


def is_accepted(media_type: str, accepts: Iterable[str]) -> bool:
    """Return whether a file of `media_type` is among those that `accepts` names."""
    family = media_type.partition("/")[0]
    return any(one in (media_type, f"{family}/*", "*/*") for one in accepts)


def fit(messages: tuple[Message, ...], model: ModelProtocol) -> tuple[Message, ...]:
    """Return `messages` with those files alone that `model` takes, and words in place of others."""
    for message in messages:
        if message.images or message.documents:
            return tuple(_fit_message(message, model) for message in messages)
    return messages


def _fit_message(message: Message, model: ModelProtocol) -> Message:
    images = tuple(image for image in message.images if takes_image(model, image))
    documents = tuple(one for one in message.documents if takes_document(model, one))
    words = [
        *(describe(document) for document in message.documents if document not in documents),
        *(_describe_image(image) for image in message.images if image not in images),
    ]
    if not words:
        return message
    content = "\n\n".join(filter(None, (message.content, *words)))
    return evolve(message, content=content, images=images, documents=documents)


def takes_image(model: ModelProtocol, image: Image) -> bool:
    """Return whether `model` is sent `image`; of one elsewhere nobody here knows the type."""
    accepts = accepts_of(model)
    if image.url:
        return any(one.startswith(("image/", "*/")) for one in accepts)
    return is_accepted(image.media_type, accepts)


def takes_document(model: ModelProtocol, document: Document) -> bool:
    """Return whether `model` is sent `document`, as a file."""
    there = document.data or (document.url and getattr(model, "document_urls", False))
    return bool(there) and is_accepted(document.media_type, accepts_of(model))


def describe(document: Document) -> str:
    """Return a document in words: the text of it, else that there is one."""
    head = f'<file name="{_quote(document.name)}" type="{_quote(document.media_type)}">'
    if document.text is None:
        return f"{head}{_UNSEEN}</file>"
    return f"{head}\n{_END.sub('&lt;', document.text)}\n</file>"


def _describe_image(image: Image) -> str:
    return describe(Document("image", image.media_type or "image/*"))


def _quote(value: str) -> str:
    return value.replace('"', "'")
