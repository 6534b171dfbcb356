"""The table of ASVS in `SECURITY.md`: every item once, met or with its reason, and its files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from attrs import frozen

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = (ROOT / "SECURITY.md").read_text("utf-8")
ITEMS: Final = """
1.3.6 2.4.1 3.4.1 3.4.2 6.8.1 7.4.1 7.4.2 9.2.1 9.2.3 11.2.3 12.2.1 12.3.1 13.1.2 13.2.6 13.3.1
13.4.6 14.2.4 14.2.7 15.1.1 15.1.2 15.1.3 15.2.1 15.2.2 16.4.2 16.4.3
""".split()
_FILE: Final = re.compile(r"`([a-z0-9_/.-]+\.(?:py|md))`", re.IGNORECASE)


@frozen
class Row:
    """One item: what it is about, how it is met or why not, and the files that show it."""

    item: str
    subject: str
    answer: str
    where: str
    test: str


def rows() -> list[Row]:
    """Return the rows of the table."""
    section = PAGE.partition("of OWASP ASVS 5.0, level 2\n")[2].partition("### ")[0]
    lines = [line for line in section.splitlines() if re.match(r"\| \d", line)]
    return [Row(*(cell.strip() for cell in line.strip("|").split("|"))) for line in lines]


def test_the_table_names_each_item_once() -> None:
    assert [row.item for row in rows()] == ITEMS


def test_each_item_is_met_or_has_its_reason() -> None:
    unmet = {row.item: row.answer for row in rows() if not row.answer.startswith("Met")}

    assert list(unmet) == ["11.2.3", "13.4.6"]
    assert all(re.match(r"Not met\. .* because ", answer) for answer in unmet.values())


def test_the_files_that_the_table_names_are_there() -> None:
    for row in rows():
        named = [_FILE.findall(cell) for cell in (row.where, row.test)]
        assert all(named), row.item
        assert not [path for paths in named for path in paths if not (ROOT / path).is_file()]
        assert all(Path(path).name.startswith("test_") for path in named[1]), row.item


def test_the_times_for_fixes_are_numbers() -> None:
    """ASVS 15.1.1."""
    section = PAGE.partition("### Times for fixes")[2].partition("### ")[0]

    assert re.findall(r"(\d+) days", section) == ["7", "30", "90"]


def test_each_demanding_function_has_its_bound() -> None:
    """ASVS 15.1.3."""
    section = PAGE.partition("### Functions that take")[2].partition("### ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]

    assert len(lines) >= 8
    assert all(len(line.strip("|").split("|")) == 2 for line in lines)


def test_the_bill_of_materials_is_of_components_with_digests() -> None:
    """ASVS 15.1.2: its source is the lock of a server."""
    session = (ROOT / "noxfile.py").read_text("utf-8").partition("def sbom")[2].partition("def ")[0]
    lock = (ROOT / "requirements/server.txt").read_text("utf-8").replace("\\\n", " ")
    held = [line for line in lock.splitlines() if re.match(r"[a-z]", line, re.IGNORECASE)]

    assert '"server.txt"' in session
    assert len(held) > 10
    assert all("--hash=sha256:" in line for line in held)
