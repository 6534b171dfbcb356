"""The glossary names modules, classes and functions that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = (ROOT / "docs/explanation/glossary.md").read_text(encoding="utf-8")
BASES: Final = (ROOT / "core/legation", ROOT / "frontends")


def rows(heading: str) -> list[tuple[str, ...]]:
    """Return the cells of the table below `heading`, without its head."""
    section = re.split(r"^#+ ", PAGE.partition(f"# {heading}\n")[2], flags=re.MULTILINE)[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [tuple(cell.strip(" `") for cell in line.strip("|").split(" | ")) for line in lines[1:]]


def file_of(module: str) -> Path | None:
    """Return the file of a module as the page names it; None where there is none."""
    files = (base / f"{module}.py" for base in BASES)
    return next((file for file in files if file.is_file()), None)


def names_in(module: str) -> set[str]:
    """Return the names of the classes and functions of a module, of methods behind a dot."""
    file = file_of(module)
    assert file is not None, module
    found: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            functions = (ast.FunctionDef, ast.AsyncFunctionDef)
            found |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, functions)}
    return found


def test_every_term_has_a_sentence_and_a_module_that_exists() -> None:
    terms = rows("Terms")

    assert len(terms) > 40
    assert [term for term, sentence, _ in terms if not sentence.endswith(".")] == []
    assert [module for _, _, module in terms if file_of(module) is None] == []


def test_terms_are_in_alphabetical_order() -> None:
    terms = [term.lower() for term, _, _ in rows("Terms")]

    assert terms == sorted(terms)


def test_every_module_that_moved_is_at_its_new_place() -> None:
    moves = rows("Modules")

    assert len(moves) > 40
    assert [now for _, now in moves if file_of(now) is None] == []


def test_every_module_that_moved_has_left_its_old_place() -> None:
    moves = rows("Modules")
    taken = {now for _, now in moves}

    assert [before for before, _ in moves if before not in taken and file_of(before)] == []


def test_every_new_name_is_in_its_module() -> None:
    names = rows("Classes and functions")

    assert len(names) > 40
    assert [row for row in names if row[1] not in names_in(row[2])] == []
