"""The contract of a host is written down whole: its examples run, its names are public."""

from __future__ import annotations

import ast
import importlib
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final, get_args, get_origin, get_type_hints

import attrs
import pytest

from legation.effects import AwaitNudge, Effect, Now, Program, Sleep
from legation.store.audit import AuditEntry
from legation.store.failures import Conflict, StatementFailed
from legation.store.health import Inspection
from legation.store.run_rows import StoredEvent
from legation.store.units import Unit

from .frontends.host_units import Add, All, Create, Fault, Missing, Move, Put
from .test_docs import load
from .transcripts import DOCS, ROOT, blocks

PAGE: Final = DOCS / "howto/hosting.md"
EFFECTS: Final = tuple(get_origin(member) or member for member in get_args(Effect))
SOURCES: Final = ("threads", "outside", "wsgi", "test_wsgi")


@pytest.fixture
def page(tmp_path: Path) -> dict[str, Path]:
    """Return the files that the page shows."""
    files = {block.caption: block.text for block in blocks(PAGE) if block.caption}
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")
    return {name: tmp_path / name for name in files}


def test_the_host_that_is_there_answers_a_thread(page: dict[str, Path]) -> None:
    answer = load(page["portal.py"]).answer

    assert answer.status == 200
    assert answer.body.startswith(b'[{"id":"concierge"')


def test_the_loop_drives_a_program(page: dict[str, Path]) -> None:
    loop = load(page["loop.py"])
    left: list[object] = []

    def fail(_: Effect) -> None:
        raise loop.Thrown(Conflict("taken"))

    def program(last: Any) -> Program[object]:
        try:
            now = yield from Now()
            try:
                yield from Sleep(1.0)
            except Conflict as failure:
                left.append(failure.args)
            yield last
            return now
        finally:
            left.append("closed")

    def tell(_: Effect) -> int:
        return 7

    performers: dict[type[Any], Any] = {Now: tell, Sleep: fail}

    assert loop.run(program(Now()), performers) == 7
    assert left == [("taken",), "closed"]
    for odd in (3, AwaitNudge("topic", 1.0)):
        left.clear()
        with pytest.raises(TypeError, match="is not an effect"):
            loop.run(program(odd), performers)
        assert left == [("taken",), "closed"]


def test_a_unit_is_run_as_the_page_shows(page: dict[str, Path]) -> None:
    run_unit = load(page["units.py"]).run_unit
    connection = sqlite3.connect(":memory:", isolation_level=None)

    run_unit(connection, Create())
    run_unit(connection, Put("ada", 5))
    for unit, error in (
        (Put("ada"), Conflict),
        (Add("ada", -9), StatementFailed),
        (Missing(), StatementFailed),
        (Fault("eve"), ZeroDivisionError),
    ):
        with pytest.raises(error):
            run_unit(connection, unit)
        assert not connection.in_transaction
    assert run_unit(connection, Move("ada", "nobody", 3)) == "nobody there"  # an `Undo`
    assert run_unit(connection, All()) == (("ada", 5),)
    connection.close()


# --- the table of the effects ---------------------------------------------------------------------


def test_table_has_a_row_for_each_effect() -> None:
    text = (DOCS / "reference/effects.md").read_text("utf-8")
    section = text.partition("## Duties of a host")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)`( ·)? \| ([^|]+) \|", section, re.MULTILINE)

    assert sorted(name for name, _, _ in rows) == sorted(effect.__name__ for effect in EFFECTS)
    immediate = {effect.__name__ for effect in EFFECTS if effect.immediate}
    assert {name for name, point, _ in rows if point} == immediate


# --- the names that are public --------------------------------------------------------------------


NAMED: Final = re.compile(r"^\.\. auto(?:class|function|data|exception):: (\S+)$", re.MULTILINE)
MODULES: Final = re.compile(r"^\.\. automodule:: (\S+)\n((?:   :.*\n)*)", re.MULTILINE)


def listed() -> set[str]:
    """Return every name that the pages on Python and on effects list, from its root."""
    names: set[str] = set()
    for page in ("python", "effects"):
        text = (DOCS / f"reference/{page}.md").read_text("utf-8")
        names |= set(NAMED.findall(text))
        for module, options in MODULES.findall(text):
            names |= {f"{module}.{name}" for name in members(module, options)}
    return names


def members(module: str, options: str) -> Iterator[str]:
    """Return the members of a module that the options of its directive show."""
    if named := re.search(r":members: (.+)", options):
        yield from re.split(r",\s*", named[1])
    elif ":members:" in options:
        yield from importlib.import_module(module).__all__


LISTED: Final = listed()


def find(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def test_what_is_listed_is_there() -> None:
    assert len(LISTED) > 150
    for name in sorted(LISTED):
        find(name)


def is_listed(thing: Any) -> bool:
    """Whether a page lists `thing`, by whatever name."""
    return any(find(name) is thing for name in LISTED)


@pytest.mark.parametrize("package", ["legation", "legation_asgi", "legation_host"])
def test_all_that_a_package_exports_is_listed(package: str) -> None:
    module: ModuleType = importlib.import_module(package)
    names = [name for name in module.__all__ if name != "__version__"]
    missing = [name for name in names if not is_listed(getattr(module, name))]

    assert missing == []


CARRIED: Final = {kind.__name__: kind for kind in (AuditEntry, Inspection, StoredEvent, Unit)}
"""The types that effects import for a type checker alone."""


def carried(kind: Any) -> Iterator[Any]:
    """Return the classes of ours that `kind` names, if need be within."""
    if isinstance(kind, type) and kind.__module__.startswith("legation"):
        yield kind
    for argument in get_args(kind):
        yield from carried(argument)


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: effect.__name__)
def test_all_types_that_an_effect_carries_are_listed(effect: type[Any]) -> None:
    hints = get_type_hints(effect, localns=CARRIED)
    kinds = [hints[field.name] for field in attrs.fields(effect)]
    answers = [get_args(base)[0] for base in effect.__orig_bases__ if get_args(base)]
    missing = [kind for one in (*kinds, *answers) for kind in carried(one) if not is_listed(kind)]

    assert missing == []


def imported(text: str) -> Iterator[tuple[str, str]]:
    """Return each name of ours that a source imports, with its module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("legation"):
            yield from ((node.module or "", alias.name) for alias in node.names)


def sources() -> Iterator[tuple[str, str]]:
    for name in SOURCES:
        yield name, (ROOT / f"examples/{name}.py").read_text("utf-8")
    for block in blocks(PAGE):
        if block.caption:
            yield block.caption, block.text


def test_no_source_is_left_out() -> None:
    assert {name for name, _ in sources()} > {"threads", "portal.py", "loop.py", "units.py"}


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in sources()])
def test_a_host_needs_public_names_alone(text: str) -> None:
    found = list(imported(text))
    private = [
        f"{module}.{word}"
        for module, word in found
        if f"{module}.{word}" != "legation.effects" and not is_listed(find(f"{module}.{word}"))
    ]

    assert found
    assert private == []
