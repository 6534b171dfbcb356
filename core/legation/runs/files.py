"""The files of a run before it starts: their text for models that take none, and who takes what.

A file reaches a run where something in it can have it: a function that answers, a tool that is
given the `Run`, a model that takes its type, or one that reads its text.  Of a team one member is
enough; whoever else is asked reads that its content is not shown.  What nothing can have is refused
before the run starts: nobody should pay for an answer about a file that was never read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from ..effects import CallFunction, CloseStream, Log, Program, Raised, Returned, Yielding
from ..hosted.registry import Component
from ..http.bodies.media_types import TEXT, clean_name, decode_content
from ..incidents import where
from ..models.conversation import storable
from ..models.media import accepts_of, is_accepted, takes_document, takes_image
from .prompt import FILE_BYTES, document_of, image_of

__all__ = ["READ_SECONDS", "TEXT_LENGTH", "UnreadableFile", "find_unsent", "read_out"]

READ_SECONDS: Final = 30.0
"""How long the text of one file may take to be read."""

TEXT_LENGTH: Final = 1 << 20
"""How long the text of one file may be, in characters."""

Files: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]]]
"""The media of a run, by their kind."""

_UNSENT: Final = "{} ({}) cannot be sent to {} {}, which takes {}"
_TEXT: Final = f"files of text of at most {FILE_BYTES} bytes"


class UnreadableFile(Exception):
    """Raised by a reader for a file without text; the operator's log shows why."""


def read_out(component: Component, files: Files) -> Program[dict[str, list[dict[str, Any]]]]:
    """Return `files` with the text of those that a model in `component` does not take as they are.

    What cannot be read has no text then; the operator's log says why, and not which.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for kind, items in files.items():
        found[kind] = []
        for item in items:
            known = {name: value for name, value in item.items() if name != TEXT}
            text = (yield from _read(component, known)) if kind == "files" else None
            found[kind].append(known if text is None else {**known, TEXT: text})
    return found


def _read(component: Component, item: Mapping[str, Any]) -> Program[str | None]:
    document = document_of(item)
    reader = component.readers.get(document.media_type)
    if reader is None or not document.data or _is_taken_by_all(component, document.media_type):
        return None
    outcome = yield from CallFunction(reader, {"content": decode_content(item)}, READ_SECONDS)
    reason, failed = "the reader took too long", None
    match outcome:
        case Returned(str() as text) if text.strip() and len(text) <= TEXT_LENGTH:
            return storable(text)
        case Returned(str() as text):
            reason = "there is too much text" if text.strip() else "there is no text"
        case Raised(UnreadableFile() as error):
            reason = clean_name(str(error), "it cannot be read")
        case Raised(error):
            reason, failed = where(error), error
        case Returned(value):
            reason = f"the reader returned {type(value).__name__}"
        case Yielding(stream):
            yield from CloseStream(stream)
            reason = "the reader returned an iterator"
        case _:  # `TimedOut`, the last there is
            pass
    fields = (("type", document.media_type), ("reason", reason))
    yield from Log("warning", "file_unread", fields, failed)
    return None


def _walk(component: Component) -> Iterator[Component]:
    yield component
    for member in component.members:
        yield from _walk(member)


def _is_taken_by_all(component: Component, media_type: str) -> bool:
    models = (one.model for one in _walk(component) if one.run is None)
    return all(is_accepted(media_type, accepts_of(model)) for model in models)


def find_unsent(component: Component, files: Files) -> str | None:
    """Return in words the first file that nothing in `component` takes, and what is taken."""
    for kind, items in files.items():
        for item in items:
            if not any(_takes(one, kind, item) for one in _walk(component)):
                return _describe(component, item)
    return None


def _takes(component: Component, kind: str, item: Mapping[str, Any]) -> bool:
    """Return whether `component` itself has a use for a file."""
    model = component.model
    if component.takes_files or "*/*" in accepts_of(model):
        return True
    if kind == "images":
        image = image_of(item)
        return image is not None and takes_image(model, image)
    document = document_of(item)
    return document.text is not None or takes_document(model, document)


def _describe(component: Component, item: Mapping[str, Any]) -> str:
    document = document_of(item)
    shown = document.media_type or "of no type that is known"
    lack = "" if item.get("content") else ", without content"
    if not lack and document.media_type in component.readers:
        lack = ", without text that can be read"
    types = {name for one in _walk(component) for name in accepts_of(one.model)}
    taken = ", ".join([*sorted(types | component.readers.keys()), f"and {_TEXT}"])
    name = clean_name(item.get("filename") or item.get("name"), "A file")
    return _UNSENT.format(name, shown + lack, component.kind, component.id, taken)
