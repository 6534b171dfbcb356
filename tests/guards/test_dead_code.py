"""Code that nothing uses is found, also when it is exported or when a test uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..dead_code import report

USED = '''"""A module of the core."""

from __future__ import annotations

__all__ = ["answer"]


def answer() -> int:
    """Return the answer."""
    return 42


print(answer())
'''
PLANTED = {
    "function": ("def question() -> None:\n    ...\n", "the function question"),
    "class": ("class Question:\n    ...\n", "the class Question"),
    "method": (
        "class Answer:\n    def question(self) -> None:\n        ...\n\n\nprint(Answer())\n",
        "the method question",
    ),
    "property": (
        "class Answer:\n    @property\n    def question(self) -> int: ...\n\n\nprint(Answer())\n",
        "the property question",
    ),
    "constant": ("QUESTION = 6 * 9\n", "the variable QUESTION"),
    "statement": (
        "def question():\n    return 1\n    yield\n\n\nquestion()\n",
        "the code after return",
    ),
    "alias": ("Question = int | str\n", "the variable Question"),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree in which everything is used."""
    for name in ("core/legation", "frontends/legation_host", "tests"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "core/legation/answers.py").write_text(USED)
    return tmp_path


def test_what_is_used_is_not_reported(root: Path) -> None:
    assert report(root, ()) == []


@pytest.mark.parametrize("folder", ["core/legation", "frontends/legation_host"])
@pytest.mark.parametrize("kind", PLANTED)
def test_planted_dead_code_is_found(root: Path, kind: str, folder: str) -> None:
    body, words = PLANTED[kind]
    (root / folder / "planted.py").write_text(body)

    (line,) = report(root, ())

    assert line.startswith(f"{folder}/planted.py:")
    assert line.endswith(f": nothing uses {words}")


def test_an_export_or_a_test_is_no_use(root: Path) -> None:
    exported = '__all__ = [\n    "question",\n]\n\n\ndef question() -> None:\n    ...\n'
    (root / "core/legation/planted.py").write_text(exported)
    (root / "tests/test_planted.py").write_text("from legation.planted import question\nquestion()")

    assert report(root, ()) == ["core/legation/planted.py:6: nothing uses the function question"]


def test_a_package_exports_what_its_users_call(root: Path) -> None:
    (root / "core/legation/questions.py").write_text("def question() -> None:\n    ...\n")
    package = "from .questions import question\n\n__all__ = ['question']\n"
    (root / "core/legation/__init__.py").write_text(package)

    assert report(root, ()) == []


def test_a_parameter_of_a_statement_uses_the_field_of_its_name(root: Path) -> None:
    (root / "core/legation/store").mkdir()
    fields = "class Place:\n    seq: int\n    other: int\n\n\nprint(Place, 'where seq = :seq')\n"
    (root / "core/legation/store/places.py").write_text(fields)

    assert report(root, ()) == ["core/legation/store/places.py:3: nothing uses the variable other"]


def test_an_excuse_is_for_one_name_in_one_file_and_excuses_something(root: Path) -> None:
    (root / "core/legation/planted.py").write_text("def question() -> None:\n    ...\n")

    assert report(root, ["core/legation/planted.py:question"]) == []
    assert report(root, ["core/legation/other.py:question"]) == [
        "core/legation/planted.py:1: nothing uses the function question",
        "core/legation/other.py:question is excused, and is used or gone",
    ]
