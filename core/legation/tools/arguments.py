"""The arguments of a tool call, read strictly from the text that the model gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..http.bodies.json_text import BadJson, JsonObject, parse_json
from .definition import Tool
from .shape_reader import Problems, read

__all__ = ["MAX_ARGUMENTS", "plain_arguments", "read_arguments"]

MAX_ARGUMENTS: Final = 1 << 18
"""How long the text of the arguments may be, in characters."""

_MOST_PROBLEMS: Final = 8  # of one sentence; a model that reads these can mend the rest


def read_arguments(tool: Tool, text: str) -> Mapping[str, Any] | str:
    """Return the keywords to call `tool` with, of the hinted types.

    A sentence for the model, with every problem in it, where they do not fit.
    """
    value = plain_arguments(text)
    if isinstance(value, str):
        return value
    problems: Problems = []
    arguments: Mapping[str, Any] = read(tool.accepts, value, "", problems)
    return _sentence(problems) if problems else arguments


def plain_arguments(text: str) -> JsonObject | str:
    """Return the arguments as JSON has them, or a sentence for the model.

    A model that has nothing to say about the arguments sends an object without members, or nothing.
    """
    if len(text) > MAX_ARGUMENTS:
        return f"The arguments are too long: at most {MAX_ARGUMENTS} characters are read."
    value = parse_json(text.encode("utf-8", "surrogatepass")) if text.strip() else {}
    if isinstance(value, BadJson):
        return f"The arguments must be a JSON object; this is {value.reason}."
    if not isinstance(value, dict):
        return "The arguments must be a JSON object."
    return value


def _sentence(problems: Problems) -> str:
    parts = [f"{where} {what}" if where else what for where, what in problems[:_MOST_PROBLEMS]]
    more = len(problems) - len(parts)
    tail = f"; and {more} more" if more else ""
    return f"The arguments do not fit: {'; '.join(parts)}{tail}."
