"""The files of a conversation that a model takes, and what it reads of all others.

A model names the media types that it takes in `accepts`: `application/pdf`, or `image/*` for all
pictures.  One that does not is sent pictures, and nothing else.  With `document_urls` it also takes
documents by their address.  Of a file that it is not sent, it reads the text that was read out
before, else that there is such a file: it must not guess what is in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from attrs import evolve

from .conversation import Document, Image, Message, ModelProtocol

__all__ = ["accepts_of", "describe", "fit", "is_accepted", "takes_urls"]

_PICTURES: Final = ("image/*",)
_UNSEEN: Final = "(Its content is not shown to you.)"


def accepts_of(model: ModelProtocol) -> tuple[str, ...]:
    """Return the media types that `model` takes; `*` stands for any subtype, or for any type."""
    return tuple(getattr(model, "accepts", _PICTURES))


def takes_urls(model: ModelProtocol) -> bool:
    """Return whether `model` takes documents by their address."""
    return bool(getattr(model, "document_urls", False))


def is_accepted(media_type: str, accepts: Iterable[str]) -> bool:
    """Return whether a file of `media_type` is among those that `accepts` names."""
    family = media_type.partition("/")[0]
    return any(one in (media_type, f"{family}/*", "*/*") for one in accepts)


def fit(messages: tuple[Message, ...], model: ModelProtocol) -> tuple[Message, ...]:
    """Return `messages` with those files alone that `model` takes, and words in place of others."""
    if not any(message.images or message.documents for message in messages):
        return messages
    return tuple(_fit_message(message, model) for message in messages)


def _fit_message(message: Message, model: ModelProtocol) -> Message:
    accepts, urls = accepts_of(model), takes_urls(model)
    images = tuple(image for image in message.images if _is_shown(image, accepts))
    documents = tuple(
        document
        for document in message.documents
        if (document.data or (urls and document.url)) and is_accepted(document.media_type, accepts)
    )
    words = [
        *(describe(document) for document in message.documents if document not in documents),
        *(_describe_image(image) for image in message.images if image not in images),
    ]
    if not words:
        return message
    content = "\n\n".join(filter(None, (message.content, *words)))
    return evolve(message, content=content, images=images, documents=documents)


def _is_shown(image: Image, accepts: tuple[str, ...]) -> bool:
    if image.url:  # of which nobody here knows the type
        return any(one.startswith(("image/", "*/")) for one in accepts)
    return is_accepted(image.media_type, accepts)


def describe(document: Document) -> str:
    """Return a document in words: the text of it, else that there is one."""
    head = f'<file name="{_quote(document.name)}" type="{_quote(document.media_type)}">'
    if document.text is None:
        return f"{head}{_UNSEEN}</file>"
    return f"{head}\n{document.text}\n</file>"


def _describe_image(image: Image) -> str:
    return describe(Document("image", image.media_type or "image/*"))


def _quote(value: str) -> str:
    return value.replace('"', "'")
