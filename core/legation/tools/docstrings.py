"""The description of a function and its parameters, read from its docstring.

Two styles are read: Google's (`Args:` with an indented entry each) and Sphinx's (`:param name:`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Final

from ..values import frozen

__all__ = ["Explanation", "explain"]

_SECTION: Final = re.compile(
    r"(Args|Arguments|Parameters|Attributes|Returns?|Yields?|Raises|Examples?|Notes?|See Also"
    r"|Todo|Warnings?|Keyword Args|Keyword Arguments):\s*"
)
_OF_PARAMETERS: Final = frozenset(
    ("Args", "Arguments", "Parameters", "Attributes", "Keyword Args", "Keyword Arguments")
)
_ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?:\s*(.*)")
_FIELD: Final = re.compile(r":(\w++)\s*+([^:]*+):\s*(.*)")
_PARAMETER_FIELDS: Final = frozenset(("param", "parameter", "arg", "argument", "key", "keyword"))


@frozen
class Explanation:
    """The content of a docstring: the text before any section, and a text for each parameter."""

    description: str
    parameters: Mapping[str, str]


def explain(docstring: str | None) -> Explanation:
    """Read `docstring`.  Total: what is in neither style is description."""
    lines = inspect.cleandoc(docstring or "").split("\n")
    end = next((i for i, line in enumerate(lines) if _begins_section(line)), len(lines))
    return Explanation("\n".join(lines[:end]).strip(), _parameters(lines[end:]))


def _begins_section(line: str) -> bool:
    return _SECTION.fullmatch(line) is not None or _FIELD.match(line) is not None


def _parameters(lines: list[str]) -> dict[str, str]:
    """Return the text of each parameter, its lines joined by spaces."""
    found: dict[str, list[str]] = {}
    section, margin, current = "", 0, list[str]()
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if not line.strip():
            continue
        if indent == 0:
            head, text = _SECTION.fullmatch(line), _FIELD.match(line)
            section, margin, current = (head[1] if head else ""), 0, []
            if text and text[1] in _PARAMETER_FIELDS and text[2]:
                current = found[text[2].split()[-1]] = [text[3]]
            continue
        margin = margin or indent
        entry = _ENTRY.fullmatch(line.strip()) if indent == margin else None
        if section in _OF_PARAMETERS and entry:
            current = found[entry[1]] = [entry[2]]
        else:
            current.append(line.strip())
    return {name: " ".join(filter(None, texts)) for name, texts in found.items()}
