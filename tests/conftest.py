"""What every test may ask for: PostgreSQL, and a place for the figures it has counted."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import settings

from legation_testing import watch_responses

from .contract import check, counted
from .engines import Cluster, NoPostgres, cluster

__all__ = [
    "contract",
    "figures",
    "golden",
    "new_second_database",
    "postgres",
    "postgres_cluster",
    "postgres_database",
    "running_postgres",
    "second_database",
]

_GOLDEN: Final = Path(__file__).with_name("golden")
_FIGURES: Final = pytest.StashKey[list[str]]()

# A machine shared with others is slow at times; the suite bounds its examples, not their time.
# What CI says of a change must not depend on luck: there the examples are the same each time, and
# new ones are drawn wherever else the suite runs.
settings.register_profile(
    "legation", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI"))
)
settings.register_profile("quick", settings.get_profile("legation"), max_examples=20)
settings.load_profile("legation")


@pytest.fixture(scope="session", autouse=True)
def contract(request: pytest.FixtureRequest) -> Generator[None]:
    """Compares every response that a `Client` gets from a platform with the platform's document."""
    with watch_responses(check):
        yield
    if counted[0]:
        figure = f"{counted[0]:,} responses are as the OpenAPI document says"
        request.config.stash[_FIGURES].append(figure)


@pytest.fixture(scope="session")
def running_postgres() -> Generator[Cluster | NoPostgres]:
    """A PostgreSQL cluster of this run, or why there is none."""
    with ExitStack() as stack:
        found: Cluster | NoPostgres
        try:
            found = stack.enter_context(cluster())
        except NoPostgres as reason:
            found = reason
        yield found


@pytest.fixture(scope="session")
def postgres_cluster(running_postgres: Cluster | NoPostgres) -> Cluster:
    """A PostgreSQL cluster of this run, or a skip that says why there is none."""
    if isinstance(running_postgres, NoPostgres):
        pytest.skip(str(running_postgres))
    return running_postgres


@pytest.fixture(scope="session")
def new_second_database(
    request: pytest.FixtureRequest,
    running_postgres: Cluster | NoPostgres,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[], AbstractContextManager[str]]:
    """Makes what stands beside a SQLite database: a schema of PostgreSQL, else another file."""
    if isinstance(running_postgres, Cluster):
        return running_postgres.new_schema
    request.config.stash[_FIGURES].append(
        "platforms of two databases: two of SQLite, no PostgreSQL"
    )

    def new_file() -> AbstractContextManager[str]:
        return nullcontext(f"sqlite:///{tmp_path_factory.mktemp('second')}/second.db")

    return new_file


@pytest.fixture
def second_database(
    new_second_database: Callable[[], AbstractContextManager[str]],
) -> Generator[str]:
    """The URL of a second database, empty, for this test alone."""
    with new_second_database() as url:
        yield url


@pytest.fixture
def postgres(postgres_cluster: Cluster) -> Generator[str]:
    """The URL of an empty schema of PostgreSQL, for this test alone."""
    with postgres_cluster.new_schema() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database of each engine, for this test alone."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/main.db"
    found: str = request.getfixturevalue("postgres")
    return found


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


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the figures of a worker of pytest-xdist over to the process that prints them."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["figures"] = session.config.stash[_FIGURES]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the figures of a worker of pytest-xdist that has ended."""
    node.config.stash[_FIGURES] += getattr(node, "workeroutput", {}).get("figures", ())


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the figures that the tests have counted."""
    lines = config.stash[_FIGURES]
    if lines:
        terminalreporter.section("figures")
        for line in sorted(lines):
            terminalreporter.write_line(line)
