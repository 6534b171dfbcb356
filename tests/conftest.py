"""What every test may ask for: PostgreSQL, and a place for the figures it has counted."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings

from legation_testing import watching

from .contract import check, counted
from .engines import Cluster, NoPostgres, cluster

__all__ = ["contract", "figures", "golden", "postgres", "postgres_cluster", "postgres_database"]

_GOLDEN: Final = Path(__file__).with_name("golden")
_FIGURES: Final = pytest.StashKey[list[str]]()

# A machine shared with others is slow at times; the suite bounds its examples, not their time.
# What CI says of a change must not depend on luck: there the examples are the same each time, and
# new ones are drawn wherever else the suite runs.
settings.register_profile(
    "legation", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("legation")


@pytest.fixture(scope="session", autouse=True)
def contract(request: pytest.FixtureRequest) -> Generator[None]:
    """Compares every response that a `Client` gets from a platform with the platform's document."""
    with watching(check):
        yield
    if counted[0]:
        figure = f"{counted[0]:,} responses are as the OpenAPI document says"
        request.config.stash[_FIGURES].append(figure)


@pytest.fixture(scope="session")
def postgres_cluster() -> Generator[Cluster]:
    """A PostgreSQL cluster of this run, or a skip that says why there is none."""
    with ExitStack() as stack:
        try:
            running = stack.enter_context(cluster())
        except NoPostgres as reason:
            pytest.skip(str(reason))
        yield running


@pytest.fixture
def postgres(postgres_cluster: Cluster) -> Generator[str]:
    """The URL of an empty schema of PostgreSQL, for this test alone."""
    with postgres_cluster.new_schema() as url:
        yield url


@pytest.fixture
def postgres_database(postgres_cluster: Cluster) -> Generator[str]:
    """The URL of an empty database of PostgreSQL, for this test alone."""
    with postgres_cluster.new_database() as url:
        yield url


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Takes one line; the lines of all tests are printed when the run is over."""
    return request.config.stash[_FIGURES].append


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Takes the name of a file in tests/golden and the text that has to be in it."""

    def check(name: str, text: str) -> None:
        path = _GOLDEN / name
        if request.config.getoption("--write-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return check


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--write-golden`."""
    parser.addoption(
        "--write-golden",
        action="store_true",
        help="write the files in tests/golden anew instead of comparing with them",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make room for the figures."""
    config.stash[_FIGURES] = []


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the figures that the tests have counted."""
    lines = config.stash[_FIGURES]
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.write_line(line)
