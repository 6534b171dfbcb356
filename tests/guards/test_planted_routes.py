"""A route without a need, and an effect that nobody performs, are told before anything runs.

Each is planted in a copy of the packages, and what is run over it is the project's own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
TABLE: Final = "core/legation/api/routes.py"
EFFECTS: Final = "core/legation/effects.py"
A_ROUTE: Final = 'Route("GET", "/", Public(), system.home, "get_api_info", "Home")'
AN_EFFECT: Final = '''
@frozen
class Launch(Asks[None]):
    """A rocket."""


Effect: TypeAlias = (
    Launch
    | Now
'''
TOTALITY: Final = {
    "host": "tests/frontends/test_host_drive.py::test_every_effect_is_performed",
    "testing": "tests/frontends/test_testing_simulation.py",
    "core": "tests/core/test_effects.py::test_the_union_holds_every_effect_of_the_module",
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the packages and the tests that are to turn red."""
    copy = tmp_path_factory.mktemp("original")
    for folder in ("core", "frontends", "tests"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


@pytest.fixture
def scratch(original: Path, tmp_path: Path) -> Path:
    """Return a copy for one test to plant in."""
    return Path(shutil.copytree(original, tmp_path / "scratch"))


def plant(root: Path, name: str, before: str, after: str) -> None:
    """Replace `before` by `after` at its one place."""
    text = (root / name).read_text("utf-8")
    assert text.count(before) == 1, f"{name} has changed: {before!r} is not there once"
    (root / name).write_text(text.replace(before, after), "utf-8")


def run(root: Path, *command: str) -> tuple[int, str]:
    """Run Python on the packages under `root`; return its exit code and words."""
    paths = os.pathsep.join(str(root / folder) for folder in ("core", "frontends"))
    done = subprocess.run(
        [sys.executable, *command],
        cwd=root,
        env=os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_copy_is_what_is_imported(scratch: Path) -> None:
    code, told = run(scratch, "-c", "import legation.api.routes as m; print(m.__file__)")

    assert code == 0, told
    assert str(scratch) in told


@pytest.mark.parametrize(
    "planted",
    [
        'Route("GET", "/", handler=system.home, operation="get_api_info", tag="Home")',
        'Route("GET", "/", None, system.home, "get_api_info", "Home")',
        'Route("GET", "/", "config:read", system.home, "get_api_info", "Home")',
        'Route("GET", "/", Public, system.home, "get_api_info", "Home")',
    ],
    ids=["left out", "None", "a text", "a class"],
)
def test_a_route_without_a_need_stops_the_import(scratch: Path, planted: str) -> None:
    plant(scratch, TABLE, A_ROUTE, planted)
    code, told = run(scratch, "-c", "from legation import Platform")

    assert code == 1
    assert "TypeError" in told
    assert "need" in told


def test_a_route_that_the_oracle_does_not_know_turns_its_test_red(scratch: Path) -> None:
    more = 'Route("GET", "/backdoor", Public(), system.health, "open_backdoor", "Health"),'
    plant(scratch, TABLE, f"{A_ROUTE},", f"{A_ROUTE},\n    {more}")
    name = "tests/core/access/test_oracle.py::test_every_route_that_is_served_stands_in_the_oracle"
    code, told = run(scratch, "-m", "pytest", "-q", "-p", "no:cacheprovider", name)

    assert code == 1, told
    assert "/backdoor" in told


def test_an_effect_that_no_host_performs_turns_the_tests_of_totality_red(scratch: Path) -> None:
    plant(scratch, EFFECTS, "\nEffect: TypeAlias = (\n    Now\n", AN_EFFECT)
    quiet = ("-q", "-p", "no:cacheprovider", "-k", "effect")
    code, told = run(scratch, "-m", "pytest", *quiet, *TOTALITY.values())

    assert code == 1, told
    assert "Launch" in told
    for name in TOTALITY.values():
        assert f"FAILED {name}" in told, told


def test_without_it_they_are_green(scratch: Path) -> None:
    quiet = ("-q", "-p", "no:cacheprovider", "-k", "effect")
    code, told = run(scratch, "-m", "pytest", *quiet, *TOTALITY.values())

    assert code == 0, told
