"""The public surface of `legation_testing`."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import legation_testing

PAGE = Path(__file__).parents[2] / "docs/reference/python.md"

MODULES = [module.name for module in pkgutil.iter_modules(legation_testing.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_what_a_module_names_as_its_own_is_there(name: str) -> None:
    module = importlib.import_module(f"legation_testing.{name}")

    assert [word for word in module.__all__ if not hasattr(module, word)] == []


def test_the_package_exports_what_it_names_and_nothing_else() -> None:
    public = {name for name in vars(legation_testing) if not name.startswith("_")}

    assert public - set(MODULES) - {"annotations"} == set(legation_testing.__all__)


def test_no_name_hides_one_of_the_core() -> None:
    core = importlib.import_module("legation")

    assert set(legation_testing.__all__) & set(core.__all__) == set()


def test_page_lists_what_is_exported_and_nothing_else() -> None:
    listed = re.findall(
        r"^\.\. (?:auto|py:)\w+:: legation_testing\.(\w+)$", PAGE.read_text("utf-8"), re.MULTILINE
    )

    assert sorted(listed) == sorted(legation_testing.__all__)
