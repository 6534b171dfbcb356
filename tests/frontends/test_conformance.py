"""Every frontend passes the same suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from attrs import frozen

from .conformance import CASES, RUN_CASES, WIRE_CASES, Conformance, Frontend, Wire, two_databases
from .served import FRONTENDS, HOSTS, SERVED


@frozen
class Running:
    frontend: Frontend
    platform: Conformance


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    platform = Conformance()
    with FRONTENDS[request.param](platform) as frontend:
        yield Running(frontend, platform)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("running", FRONTENDS, indirect=True)
def test_every_frontend(running: Running, case: Callable[[Frontend], None]) -> None:
    case(running.frontend)


@pytest.mark.parametrize("case", WIRE_CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("running", SERVED, indirect=True)
def test_every_frontend_with_connections(
    running: Running, case: Callable[[Wire, Conformance], None]
) -> None:
    assert isinstance(running.frontend, Wire)
    case(running.frontend, running.platform)


@pytest.fixture(scope="module")
def hosting(
    request: pytest.FixtureRequest,
    new_second_database: Callable[[], AbstractContextManager[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Frontend]:
    first = f"sqlite:///{tmp_path_factory.mktemp('two')}/first.db"
    with (
        new_second_database() as second,
        HOSTS[request.param](two_databases(first, second)) as host,
    ):
        yield host


@pytest.mark.parametrize("case", RUN_CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("hosting", HOSTS, indirect=True)
def test_every_host_of_two_databases(hosting: Frontend, case: Callable[[Frontend], None]) -> None:
    case(hosting)
