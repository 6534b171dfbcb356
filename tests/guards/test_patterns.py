"""No pattern of the packages costs more than in proportion to the length of a text."""

from __future__ import annotations

import gc
import pkgutil
import re
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

import legation
import legation_asgi
import legation_cli
import legation_host
import legation_server
import legation_testing

from ..patterns import SOURCES, Found, growth, measure, patterns_of, rows, table

PACKAGES: Final = (
    legation,
    legation_asgi,
    legation_cli,
    legation_host,
    legation_server,
    legation_testing,
)

# Each with what it is used by.  An expert would call these a power, an exponent, and so on.
OFFENDERS: Final[dict[str, tuple[Any, str]]] = {
    "two repetitions that share": (r"\s*\S+\s*$|\s*\S+", "finditer"),
    "a search that begins anew": (r"[ \t]+#+[ \t]*$", "search"),
    "an end that is not there": (rb'"(?:[^"\\]++|\\.)*+"', "finditer"),
    "a quoted text or none": (r'(?:[^",]|"(?:[^"\\]|\\.)*")+', "finditer"),
    "a repetition in a repetition": (r"(?:a+)+b", "fullmatch"),
    "branches that overlap": (r"(?:\w|__?)*!", "fullmatch"),
    "behind a prefix": (r"id=[0-9]+[0-9]+;", "fullmatch"),
    "behind a part that may be absent": (r"x?(?:y)?[a-z]*[a-y]*[0-9]", "match"),
    "lazy": (r"(.*?,){3}!", "match"),
    "in a look ahead": (r"(?=(?:a|aa)+b)a", "match"),
    "a class and its complement": (r"[^:]*\s*:", "search"),
    "in two halves": (r"a*b*b*c", "search"),
    "in any case": (r"(?i:[A-Z]+)+!", "fullmatch"),
    "by a reference": (r"(a+)\1+b", "fullmatch"),
    "a comment": (r"<!--.*?-->", "finditer"),
}
INNOCENT: Final[dict[str, tuple[Any, str]]] = {
    "bounded": (r"(?:[a-z]{1,30}[a-z]{1,30})x", "search"),
    "possessive": (r"\s*+\S*+", "finditer"),
    "told apart": (r"(?:[a-z]+/)*[a-z]+", "fullmatch"),
    "any of one": (r"[^x]*x", "fullmatch"),
}


@pytest.mark.parametrize("name", OFFENDERS)
def test_a_pattern_that_grows_is_found(name: str) -> None:
    text, method = OFFENDERS[name]

    assert measure(Found("here", re.compile(text), (method,))).grows


@pytest.mark.parametrize("name", INNOCENT)
def test_a_pattern_that_does_not_is_left_alone(name: str) -> None:
    text, method = INNOCENT[name]

    assert not measure(Found("here", re.compile(text), (method,))).grows


def test_a_square_is_told_from_a_line() -> None:
    def work(rounds: int) -> None:
        for _ in range(rounds):
            pass

    def square(length: int) -> Any:
        return partial(work, length * length)

    def line(length: int) -> Any:
        return partial(work, length * 500)

    assert growth(square, (800, 1600)).grows
    assert not growth(line, (800, 1600)).grows


def plant(root: Path, source: str) -> Path:
    """Write a module of a name of its own; return the folder to be read."""
    root.joinpath(f"planted_{root.name.replace('-', '_')}.py").write_text(source)
    return root


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder of modules that can be imported."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("planted_")]:
        del sys.modules[name]


HIDDEN: Final = {
    "at the top": 'import re\nA = re.compile(r"a+a+b")\nA.fullmatch("")\n',
    "in a function": 'import re\ndef f(t):\n    return re.search(r"\\s+$", t)\n',
    "of pieces": 'import re\nB = "a+"\nA = re.compile(rf"(?:{B})+b", re.ASCII)\n',
    "in a class": 'import re\nclass C:\n    a = re.compile(b"(x+x+)+y")\n',
    "with flags by name": 'import re\ndef f(t):\n    re.sub("(x+x+)+y", "", t, flags=re.I)\n',
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_planted_offender_is_found(root: Path, name: str) -> None:
    ((place, _, measured),) = rows([plant(root, HIDDEN[name])])

    assert measured.grows
    assert place.partition(":")[0].endswith(".py")


UNKNOWN: Final = {
    "of an argument": "import re\ndef f(a, t):\n    return re.search(a, t)\n",
    "as a value": "import re\nA = tuple(map(re.compile, ('a', 'b')))\n",
    "by another name": "import re\nfrom re import compile\n",
    "by a scanner": "import re\nA = re.Scanner([('a', None)])\n",
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_pattern_that_cannot_be_judged_is_refused(root: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"\.py:\d+: "):
        list(rows([plant(root, UNKNOWN[name])]))


def test_no_pattern_of_the_packages_grows(pytestconfig: pytest.Config) -> None:
    measured = list(rows())
    if pytestconfig.pluginmanager.hasplugin("cacheprovider"):
        (pytestconfig.cache.mkdir("linear") / "patterns.txt").write_text(table(measured))

    assert len(measured) > 90
    assert not [row for row in measured if row[2].grows], table(measured)


def test_no_pattern_of_the_packages_is_overlooked() -> None:
    for package in PACKAGES:
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)
    known = {(found.pattern.pattern, found.pattern.flags) for found in patterns_of(SOURCES)}
    names = tuple(f"{package.__name__}." for package in PACKAGES)
    ours = [module for name, module in sys.modules.items() if name.startswith(names)]

    held = [each for module in ours for each in reachable(vars(module))]

    assert len(held) > 80
    assert {(each.pattern, each.flags) for each in held} <= known


def reachable(root: object) -> Iterator[re.Pattern[Any]]:
    """Yield the patterns that a module or its containers and classes hold."""
    seen, due = set[int](), [root]
    while due:
        each = due.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, re.Pattern):
            yield each
        elif isinstance(each, dict | list | tuple | set | frozenset | type):
            due += gc.get_referents(each)
