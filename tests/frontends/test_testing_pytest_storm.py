"""The plugin of pytest for storms, in a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

CODE: Final = '''
from legation import Agent, Platform, tool
from legation_testing import ScriptedModel, StormWorld, call, storm


@tool(again="safe")
def charge(cents: int) -> str:
    """Charge, and claim that it may be done twice."""
    return f"{cents} charged."


def till() -> Platform:
    model = ScriptedModel([call("charge", cents=5), "Paid."], by_prompt=True)
    return Platform(id="till", agents=[Agent(id="till", model=model, tools=[charge])])


@storm(till, every=20, seeds=2)
def test_sound(world: StormWorld) -> None:
    world.run("till", "5 cents")


@storm(till, crashes="none", seeds=200)
def test_faulty(world: StormWorld) -> None:
    world.run("till", "5 cents")
    assert world.carried_out("charge") <= 1
'''
PLUGIN: Final = ("-p", "legation_testing.pytest_storm")


def run_pytest(folder: Path, *options: str) -> str:
    """Return what a pytest of its own prints."""
    (folder / "test_till.py").write_text(CODE, "utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *options]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    return done.stdout


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["one process", "a worker"])
def test_reports_stand_in_the_summary_and_failures_name_their_command(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    said = run_pytest(tmp_path, *PLUGIN, *workers)

    assert "1 failed, 1 passed" in said
    assert "= storms =" in said
    assert "test_till.py::test_sound\ntill: " in said
    assert "  charge (safe)  up to " in said
    repeat = said.split("storm: repeat it with ")[1].splitlines()[0]
    assert repeat.startswith("pytest test_till.py::test_faulty --storm-seed ")
    again = run_pytest(tmp_path, *PLUGIN, *repeat.split()[1:])
    assert repeat in again
    assert "1 failed" in again


def test_plan_is_repeated_alone(tmp_path: Path) -> None:
    said = run_pytest(tmp_path, *PLUGIN, "test_till.py::test_sound", "--storm-repeat", "9 3")

    assert "till: 1 points: all ended" in said


def test_decorator_works_without_the_plugin(tmp_path: Path) -> None:
    said = run_pytest(tmp_path)

    assert "1 failed, 1 passed" in said
    assert 'storm: repeat it with @storm(…, repeat="' in said
    assert " storms " not in said
