"""The description of a function and its parameters, read from its docstring.

Three styles are read: Google's (`Args:` with an indented entry each), NumPy's (`Parameters`,
underlined, with an entry at the margin each) and Sphinx's (`:param name:`).

docstring-parser reads more styles.  It costs `from legation import Agent` 5 % of its time (4.4 of
81 ms), of which every part has at most 3 %; so it judges in the tests what is read here.
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
# numpydoc, "Sections"; a line of dashes is under each.
_UNDERLINED: Final = (
    r"(Parameters|Other Parameters|Attributes|Returns|Yields|Receives|Raises|Warns|Warnings|Methods"
    r"|See Also|Notes|References|Examples)\s*"
)
_LISTING: Final = frozenset(("Parameters", "Other Parameters", "Attributes"))
_RULE: Final = r"-{3,}\s*"
_PARAMETER_FIELDS: Final = frozenset(("param", "parameter", "arg", "argument", "key", "keyword"))


@frozen
class Explanation:
    """The content of a docstring: the text before any section, and a text for each parameter."""

    description: str
    parameters: Mapping[str, str]


def explain(docstring: str | None) -> Explanation:
    """Read `docstring`.  Total: what is in neither style is description."""
    lines = inspect.cleandoc(docstring or "").split("\n")
    end = next((i for i in range(len(lines)) if _begins_section(lines, i)), len(lines))
    parameters = _numpy_parameters(lines[end:]) | _parameters(lines[end:])
    return Explanation("\n".join(lines[:end]).strip(), parameters)


def _begins_section(lines: list[str], index: int) -> bool:
    line = lines[index]
    if _SECTION.fullmatch(line) or _FIELD.match(line):
        return True
    return _is_underlined(lines, index)


def _is_underlined(lines: list[str], index: int) -> bool:
    below = lines[index + 1] if index + 1 < len(lines) else ""
    return bool(
        below.startswith("---")
        and re.fullmatch(_RULE, below)
        and re.fullmatch(_UNDERLINED, lines[index])
    )


def _numpy_parameters(lines: list[str]) -> dict[str, str]:
    """Return the text of each parameter in NumPy's style; several may share an entry."""
    found: dict[str, list[str]] = {}
    section, current = "", list[str]()
    for index, line in enumerate(lines):
        if _is_underlined(lines, index):
            section, current = line.strip(), []
        elif section not in _LISTING or not line.strip():
            continue
        elif line[0].isspace():
            current.append(line.strip())
        else:
            current = []
            names = (name.strip().lstrip("*") for name in line.partition(":")[0].split(","))
            found |= {name: current for name in names if name.isidentifier()}
    return {name: " ".join(texts) for name, texts in found.items()}


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
