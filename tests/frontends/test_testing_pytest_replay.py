"""The plugin of pytest: recordings in a folder are tests, and a failure is the divergence alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from attrs import frozen

from legation_testing import Client

from ..recordings import encode, record
from ..transcripts import ROOT

PLATFORM: Final = '''
from legation import Agent, Platform
from legation_testing import ScriptedModel, call


def look(room: int) -> str:
    """Look at a room."""
    print("look was called")
    return f"Room {room} is free."


model = ScriptedModel([call("look", room=7), "It is free."])
platform = Platform(
    agents=[Agent(id="clerk", instructions="Be brief.", model=model, tools=[look])]
)
changed = Platform(
    agents=[Agent(id="clerk", instructions="Be kind.", model=model, tools=[look])]
)
'''


@frozen
class Ran:
    """The outcome of a run of pytest."""

    code: int
    text: str


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a platform, a test, and a folder of recordings."""
    (tmp_path / "shop.py").write_text(PLATFORM)
    (tmp_path / "test_other.py").write_text("def test_other() -> None:\n    pass\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    named: dict[str, object] = {"__name__": "shop"}
    exec(PLATFORM, named)  # the same text as in the file
    with Client(named["platform"]) as client:  # type: ignore[arg-type]
        data = encode(record(client, client.run("clerk", "Is it free?")))
    recordings = tmp_path / "recordings"
    (recordings / "below").mkdir(parents=True)
    (recordings / "one.run.jsonl").write_bytes(data)
    (recordings / "below" / "two.run.jsonl").write_bytes(data)
    (recordings / "notes.jsonl").write_text("{}\n")
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Callable[..., Ran]:
    def run(*arguments: str, plugin: bool = True) -> Ran:
        loaded = ["-p", "legation_testing.pytest_replay"] if plugin else []
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *loaded, *arguments]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            timeout=120,
            env={"PYTHONPATH": f"{ROOT / 'core'}:{ROOT / 'frontends'}", "PATH": ""},
        )
        return Ran(done.returncode, done.stdout + done.stderr)

    return run


NAMED: Final = ("--replay", "recordings", "--replay-platform", "shop:platform")


def test_each_recording_of_the_folder_is_a_test(run: Callable[..., Ran]) -> None:
    ran = run(*NAMED, "-v")

    assert ran.code == 0, ran.text
    assert "recordings/one.run.jsonl::replay PASSED" in ran.text
    assert "recordings/below/two.run.jsonl::replay PASSED" in ran.text
    assert "2 passed" in ran.text
    assert "look was called" not in ran.text


def test_recordings_stand_beside_tests_that_are_named(run: Callable[..., Ran]) -> None:
    assert "3 passed" in run(*NAMED, "test_other.py").text
    assert "1 passed" in run("--replay", "recordings/one.run.jsonl", *NAMED[2:]).text
    assert "1 passed" in run().text


def test_failure_is_the_divergence_alone(run: Callable[..., Ran]) -> None:
    ran = run(*NAMED[:3], "shop:changed")

    assert ran.code == 1
    assert "Place 1: The instructions differ\n--- recorded\n+++ now" in ran.text
    assert "-Be brief.\n+Be kind." in ran.text
    assert "Traceback" not in ran.text
    assert "pytest_replay.py" not in ran.text


def test_file_that_cannot_be_read_is_one_failing_test(
    run: Callable[..., Ran], folder: Path
) -> None:
    (folder / "recordings" / "one.run.jsonl").write_text("{}\n")

    ran = run(*NAMED)

    assert "1 failed, 1 passed" in ran.text
    assert "one.run.jsonl: Line 1 cannot be read: " in ran.text
    assert "Traceback" not in ran.text


def test_tools_may_be_live(run: Callable[..., Ran]) -> None:
    ran = run(*NAMED, "--replay-tools", "live", "-s")

    assert "2 passed" in ran.text
    assert "look was called" in ran.text


def test_settings_name_the_platform(run: Callable[..., Ran], folder: Path) -> None:
    (folder / "pytest.ini").write_text("[pytest]\nreplay_platform = shop:platform\n")
    plugins = 'pytest_plugins = ["legation_testing.pytest_replay"]\n'
    (folder / "conftest.py").write_text(plugins)

    assert "2 passed" in run(*NAMED[:2], plugin=False).text


def test_what_is_missing_is_one_sentence(run: Callable[..., Ran]) -> None:
    assert "ERROR: --replay: there is no records" in run("--replay", "records").text
    assert "ERROR: --replay needs a platform: --replay-platform" in run(*NAMED[:2]).text
    ran = run(*NAMED[:3], "shop:other")
    assert ran.code == 4
    assert "ERROR: --replay-platform: shop:other" in ran.text.replace("'", "")


def test_no_other_module_of_the_package_imports_pytest() -> None:
    modules = (ROOT / "frontends" / "legation_testing").rglob("*.py")
    importing = [path.name for path in modules if "import pytest" in path.read_text("utf-8")]

    assert sorted(importing) == ["pytest_replay.py", "pytest_storm.py"]
