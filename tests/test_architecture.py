"""The map of the source has every package on it, and no other; no import goes round in a circle."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from graphlib import TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
TABLES: Final = PAGE[PAGE.index("## The layers") : PAGE.index("## The life of a request")]


def listed() -> set[str]:
    """Return the names in the first column of the tables of layers."""
    cells = re.findall(r"^\| (`.+?) \|", TABLES, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def on_disk() -> set[str]:
    """Return the packages and modules at the top of the core, and the packages of the frontends."""
    modules = {path.stem for path in ROOT.glob("core/legation/[a-z]*.py")}
    packages = (*ROOT.glob("core/legation/*/__init__.py"), *ROOT.glob("frontends/*/__init__.py"))
    return modules | {path.parent.name for path in packages}


def test_the_map_has_every_package_and_no_other() -> None:
    assert listed() == on_disk()


def test_the_picture_has_every_package_that_is_imported_by_its_own_name() -> None:
    picture = TABLES.split("```")[1]

    assert set(re.findall(r"\blegation\w*", picture)) == {
        *(path.parent.name for path in ROOT.glob("frontends/*/__init__.py")),
        "legation",
    }


def test_a_place_for_something_new_is_there() -> None:
    table = PAGE[PAGE.index("## Places for new features") :]
    cells = "\n".join(re.findall(r"^\|.*\|(.*)\|$", table, re.MULTILINE))
    places = re.findall(r"`(\w+(?:/\w+)*)`", cells)
    roots = (ROOT / "core/legation", ROOT / "frontends")
    missing = [
        place
        for place in places
        if not any((root / place).is_dir() or (root / f"{place}.py").is_file() for root in roots)
    ]

    assert len(places) > 10
    assert missing == []


def modules() -> dict[str, Path]:
    """Return the file of every module of the core and the frontends, by its name."""
    found: dict[str, Path] = {}
    for root in (ROOT / "core", ROOT / "frontends"):
        for path in root.glob("legation*/**/*.py"):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(name: str, path: Path, known: Collection[str]) -> set[str]:
    """Return which modules a module imports: within a function too, and for type checkers alone."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                submodule = f"{origin}.{alias.name}"
                found.add(submodule if submodule in known else origin)
    return found & set(known)


def test_no_module_imports_itself_by_way_of_others() -> None:
    known = modules()
    graph = {name: imports_of(name, path, known) for name, path in known.items()}

    assert len(graph) > 200
    assert "legation.effects" in graph["legation_host.drive"]
    TopologicalSorter(graph).prepare()  # raises `CycleError`, with the modules of the cycle


def test_the_modules_of_a_run_are_listed_in_the_order_of_its_life() -> None:
    package = ROOT / "core/legation/runs"
    listed = re.findall(r"`(\w+)`", (package / "__init__.py").read_text(encoding="utf-8"))

    assert len(listed) == len(set(listed))
    assert set(listed) == {path.stem for path in package.glob("[a-z]*.py")}
