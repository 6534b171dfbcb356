"""A plugin of pytest: each recording of a run in a folder is a test of a platform.

    pytest -p legation_testing.pytest_replay --replay recordings --replay-platform shop:platform

`pytest_plugins = ["legation_testing.pytest_replay"]` in the `conftest.py` at the root loads it as
well.  No other module of the package imports pytest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from legation import Platform
from legation_host.loading import LoadError, load_platform

from .replaying import NotARecording, Recording

__all__ = [
    "ReplayFile",
    "ReplayTest",
    "RunDiffers",
    "pytest_addoption",
    "pytest_collect_file",
    "pytest_collection",
    "pytest_configure",
]

SUFFIX: Final = ".run.jsonl"
_FOLDERS: Final = pytest.StashKey[tuple[Path, ...]]()
_PLATFORM: Final = pytest.StashKey[Platform]()
_NO_PLATFORM: Final = (
    "--replay needs a platform: --replay-platform module:attribute, or replay_platform in the"
    " settings of pytest"
)


class RunDiffers(AssertionError):
    """A run is no longer what was recorded; the text has the divergences."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("legation", "recorded runs as tests")
    group.addoption(
        "--replay",
        action="append",
        default=[],
        metavar="FOLDER",
        help=f"replay each *{SUFFIX} in this folder, or this file; may be repeated",
    )
    group.addoption(
        "--replay-platform",
        metavar="PLATFORM",
        help="module:attribute of the platform, or its TOML file",
    )
    group.addoption(
        "--replay-tools",
        choices=("recorded", "live"),
        default="recorded",
        help="live: call the functions of tools, agents and instructions (default: recorded)",
    )
    parser.addini("replay_platform", "the platform of --replay", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Have the folders collected: alone, if no other path was named."""
    named: list[str] = config.getoption("--replay") or []
    for one in named:
        if not Path(one).exists():
            raise pytest.UsageError(f"--replay: there is no {one}")
    config.stash[_FOLDERS] = tuple(Path(one).resolve() for one in named)
    if named:
        others = config.args if config.args_source is config.ArgsSource.ARGS else []
        config.args = [*others, *named]


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Load the platform, where there is something to replay."""
    config = session.config
    if not config.stash[_FOLDERS]:
        return
    target = config.getoption("--replay-platform") or config.getini("replay_platform")
    if not target:
        raise pytest.UsageError(_NO_PLATFORM)
    try:
        config.stash[_PLATFORM] = load_platform(target, os.environ)
    except LoadError as error:
        raise pytest.UsageError(f"--replay-platform: {error}") from None


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> ReplayFile | None:
    """Return the tests of a recording, if it is in one of the folders."""
    if not file_path.name.endswith(SUFFIX):
        return None
    path, folders = file_path.resolve(), parent.config.stash[_FOLDERS]
    if not any(path.is_relative_to(folder) for folder in folders):
        return None
    made: Any = ReplayFile  # the parameters of what makes one have no types
    file: ReplayFile = made.from_parent(parent, path=file_path)
    return file


class ReplayFile(pytest.File):
    """A recording."""

    def collect(self) -> Iterator[ReplayTest]:
        """Yield its one test."""
        made: Any = ReplayTest
        yield made.from_parent(self, name="replay")


class ReplayTest(pytest.Item):
    """The test that a run is what was recorded."""

    def runtest(self) -> None:
        """Take the run once more."""
        config = self.config
        recording = Recording.read(self.path)
        tools: Any = config.getoption("--replay-tools")
        replayed = recording.replay(config.stash[_PLATFORM], tools=tools)
        if not replayed.same:
            raise RunDiffers(str(replayed))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return what differs, without the way to it."""
        if isinstance(excinfo.value, RunDiffers | NotARecording):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the name of the test for people."""
        return self.path, None, f"replay of {self.path.name}"
