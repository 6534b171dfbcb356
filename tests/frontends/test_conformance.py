"""Every frontend passes the same suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from attrs import frozen

from .conformance import CASES, WIRE_CASES, Conformance, Frontend, Wire
from .served import FRONTENDS, SERVED


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
