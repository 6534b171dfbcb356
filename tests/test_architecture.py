"""The map of the source has every package on it, and nothing that is not there."""

from __future__ import annotations

import re
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
    table = PAGE[PAGE.index("## Where does X go?") :]
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
