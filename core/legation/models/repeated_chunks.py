"""Chunks of an answer that differ in their text alone.

An endpoint writes the same id, time and model into each chunk, around a few letters of text.  To
parse them takes longer than all else that is done with a token.  Where a chunk begins and ends as
one that was parsed, letter for letter, only the string in between is read: JSON that has another
string in the place of one has the same value but for that string.
"""

from __future__ import annotations

import re
from typing import Any, Final

from attrs import field

from ..json_encoding import scan_string
from ..values import define
from .provider_json import is_array, is_table, json_value

__all__ = ["RepeatedChunk"]

_CONTENT: Final = re.compile(r'"content"[ ]?:[ ]?"')
_KNOWN: Final = {"content", "role"}
_MARK: Final = "\N{WHITE SQUARE}"
# For an endpoint whose chunks are all different, as they are with padding or a number in each.
_TRIES: Final = 4


@define
class RepeatedChunk:
    """The last chunk with a text and nothing else, without the text."""

    _before: str = field(default="", init=False)  # up to the text, with its first quote
    _behind: str = field(default="", init=False)  # behind its last quote
    _tries: int = field(default=_TRIES, init=False)

    def read(self, data: str) -> str | None:
        """Return the text of a chunk that is as the one learned; None where it may not be."""
        before, behind = self._before, self._behind
        if not before or not data.startswith(before) or not data.endswith(behind):
            return None
        try:
            text, end = scan_string(data, len(before))
        except ValueError:
            return None
        if end + len(behind) != len(data):
            return None
        self._tries = _TRIES
        return text

    def learn(self, data: str, chunk: dict[str, Any]) -> None:
        """Learn `data`, of which `chunk` is the value, where it has a text and nothing else.

        Whether the text is where it seems to be shows with another one in its place.  After a few
        chunks in a row that never came again, there is nothing to be learned of this answer.
        """
        if not self._tries or _find_text(chunk) is None:
            return
        self._tries -= 1
        self._before = ""
        found = _CONTENT.search(data)
        if found is None:
            return
        _, end = scan_string(data, found.end())  # a quote behind a colon begins a string
        before, behind = data[: found.end()], data[end:]
        if _find_text(json_value(f'{before}{_MARK}"{behind}')) == _MARK:
            self._before, self._behind = before, behind


def _find_text(chunk: Any) -> str | None:
    """Return the text of a chunk that has one and nothing else; None of any other value."""
    if not is_table(chunk) or chunk.get("usage") is not None:
        return None
    choices = chunk.get("choices")
    if not is_array(choices) or len(choices) != 1 or not is_table(choices[0]):
        return None
    choice = choices[0]
    if choice.get("index") or choice.get("finish_reason") is not None:
        return None
    delta = choice.get("delta")
    if not is_table(delta) or any(delta[name] is not None for name in delta.keys() - _KNOWN):
        return None
    text = delta.get("content")
    return text if isinstance(text, str) else None
