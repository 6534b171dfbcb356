"""All that the pages and the examples import is public: it is on the page of Python's names."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

import legation
from legation import effects
from legation.store import failures

from .transcripts import DOCS, ROOT, blocks

PAGE: Final = (DOCS / "reference/python.md").read_text("utf-8")
LISTED_WHOLE: Final = (effects, failures)
"""The modules of which all is public: their own page says so."""
PROMPT: Final = re.compile(r"^(?:>>>|\.\.\.) ?", re.MULTILINE)
IMPORT: Final = re.compile(
    r"^[ ]*(?:from[ ](legation[\w.]*)[ ]import[ ](\([^)]*\)|[^\n]+)|import[ ](legation[\w.]*))",
    re.MULTILINE,
)


def listed() -> Iterator[str]:
    """Yield the whole name of what the page lists."""
    for kind, name, options in re.findall(
        r"^\.\. auto(\w+):: ([\w.]+)\n((?:   :.*\n)*)", PAGE, re.MULTILINE
    ):
        yield name
        members = re.search(r":members: (.+)", options)
        if kind == "module" and members:
            yield from (f"{name}.{member.strip()}" for member in members[1].split(","))


def imported() -> Iterator[tuple[str, str]]:
    """Yield the module and the name of what a page or an example imports."""
    for page in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))):
        for block in blocks(page):
            for module, names, alone in IMPORT.findall(PROMPT.sub("", block.text)):
                yield from ((module, name) for name in names_of(names)) if names else [(alone, "")]
    for path in sorted((ROOT / "examples").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("legation"):
                yield from ((str(node.module), alias.name) for alias in node.names)


def names_of(text: str) -> list[str]:
    """Return the names in what follows `import`, without those that they are given."""
    plain = re.sub(r"#.*", "", text).strip().strip("()")
    return [part.split()[0] for part in plain.split(",") if part.strip()]


def found(name: str) -> Any:
    """Return what the page calls `name`: a module, or a member of one."""
    module, _, member = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module or name), member)
    except (AttributeError, ModuleNotFoundError):
        return importlib.import_module(name)


@pytest.fixture(scope="module")
def public() -> list[Any]:
    whole = [getattr(module, name) for module in LISTED_WHOLE for name in module.__all__]
    return [*whole, *LISTED_WHOLE, *map(found, listed())]


def test_every_import_of_a_page_or_an_example_is_public(public: list[Any]) -> None:
    """What needs the framework of another is run with that: tests/adapters/test_page.py."""
    wanted = {one for one in imported() if not one[0].startswith("legation_adapters.")}
    hidden = [
        f"{module}.{name}".rstrip(".")
        for module, name in sorted(wanted)
        if not is_public(importlib.import_module(module), name, public)
    ]

    assert len(wanted) > 100
    assert hidden == []


def is_public(module: Any, name: str, public: list[Any]) -> bool:
    value = getattr(module, name) if name else module
    return ("." not in module.__name__ and not name) or any(value is one for one in public)


def test_every_name_of_the_package_is_on_the_page(public: list[Any]) -> None:
    hidden = [name for name in legation.__all__ if name != "__version__"]

    assert [n for n in hidden if not any(getattr(legation, n) is one for one in public)] == []


@pytest.mark.parametrize("name", [n for n in legation.__all__ if n[0].isupper()])
def test_every_field_of_a_public_class_has_a_type_that_an_editor_shows(name: str) -> None:
    cls: Any = getattr(legation, name)
    untyped = [a.name for a in attrs.fields(cls) if a.type is None] if attrs.has(cls) else []

    assert cls.__doc__
    assert untyped == []


def test_names_are_found_in_every_form_of_an_import() -> None:
    text = "import legation.effects\nfrom legation import (\n    Agent,  # one\n    tool as t,\n)\n"

    assert IMPORT.findall(text) == [
        ("", "", "legation.effects"),
        ("legation", "(\n    Agent,  # one\n    tool as t,\n)", ""),
    ]
    assert names_of("(\n    Agent,  # one\n    tool as t,\n)") == ["Agent", "tool"]
    assert names_of("Agent, tool  # both") == ["Agent", "tool"]


def test_page_and_examples_are_all_read() -> None:
    modules = {module for module, _ in imported()}

    assert {"legation", "legation.effects", "legation_testing", "legation_host"} <= modules
    assert Path(ROOT / "examples/booking.py").is_file()
