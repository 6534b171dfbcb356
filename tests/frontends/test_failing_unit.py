"""A failing unit, and a host that fails, are answered with the same bytes by every frontend."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Final, TypeAlias

import pytest
from attrs import frozen

from legation import Agent, Database, Platform, Request
from legation.access.decide import Principal
from legation.effects import Program, RandomBytes, Transact
from legation.http.cors import respond_instead
from legation.http.messages import Answer
from legation.http.refusals import internal_error
from legation.programs import Handlers, intercept
from legation.store.session_pages import ListSessions
from legation.store.units import Dialect, Sql, Statements, Unit
from legation_asgi import asgi
from legation_host.hosting import open_platform

from .conformance import Frontend, OpenPlatform, Reply
from .served import hypercorn_trio, in_process, trio_server, uvicorn_asyncio

ONE: Final = Sql("select 1")
INCIDENT: Final = "ab" * 8
REQUEST_ID: Final = (b"x-request-id", b"mine")


class Broken(Unit[Any]):
    """Shows to be wrong after a statement of its own."""

    writes: ClassVar[bool] = False

    def statements(self, dialect: Dialect) -> Statements[Any]:
        yield ONE()
        raise ZeroDivisionError("select secret from internals")


Plant: TypeAlias = Callable[[Transact[Any]], Program[Any]]


def lists_sessions(unit: object) -> bool:
    return isinstance(unit, ListSessions)


def plant_a_failing_unit(effect: Transact[Any]) -> Program[Any]:
    if lists_sessions(effect.unit):
        effect = Transact(effect.database, Broken())
    return (yield from effect)


def plant_a_failing_host(effect: Transact[Any]) -> Program[Any]:
    if lists_sessions(effect.unit):
        effect = Transact("a database that is not there", effect.unit)
    return (yield from effect)


def draw(effect: RandomBytes) -> Program[bytes]:
    """Draw the same bytes always, so that the incident is the same."""
    yield from effect
    return b"\xab" * effect.size


@frozen
class Failing:
    """The bug that a platform has."""

    plant: Plant

    def platform(self) -> Platform:
        handlers: Handlers = {Transact: self.plant, RandomBytes: draw}

        class WithBug(Platform):
            def answer(self, request: Request, caller: Principal | None = None) -> Program[Answer]:
                return intercept(super().answer(request, caller), handlers)

        return WithBug(agents=[Agent(id="a")], databases=[Database("main", "sqlite://")])


OPEN: Final[dict[str, OpenPlatform]] = {
    "in process": partial(in_process, raise_errors=False),
    "trio server": lambda platform: trio_server(platform, partial(open_platform, platform)),
    "asgi under uvicorn": lambda platform: uvicorn_asyncio(asgi(platform)),
    "asgi under hypercorn": lambda platform: hypercorn_trio(asgi(platform)),
}


def list_sessions(frontend: Frontend) -> Reply:
    return frontend.send("GET", "/sessions?type=agent&user_id=ann", (REQUEST_ID,))


def shown(reply: Reply) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Return all of a reply but what belongs to a server and to its connections.

    The order of headers with different names says nothing (RFC 9110 section 5.3).
    """
    servers = (b"date", b"server", b"connection")
    headers = sorted(pair for pair in reply.headers if pair[0] not in servers)
    return reply.status, headers, reply.body


def expected(incident: str) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    response = respond_instead(internal_error(incident), "mine")
    return response.status, sorted(response.headers), response.body


@pytest.mark.parametrize("name", OPEN)
def test_a_failing_unit_is_answered_with_the_same_bytes_everywhere(name: str) -> None:
    with OPEN[name](Failing(plant_a_failing_unit).platform()) as frontend:
        reply = list_sessions(frontend)
        other = frontend.send("GET", "/agents")

    assert shown(reply) == expected(INCIDENT)
    assert reply.body == (
        b'{"detail":"Internal server error (incident abababababababab)",'
        b'"error_code":"INTERNAL_SERVER_ERROR"}'
    )
    assert other.status == 200


@pytest.mark.parametrize("name", [name for name in OPEN if name != "in process"])
def test_a_host_that_fails_is_answered_with_the_same_bytes(name: str) -> None:
    """In a test it is the test's to see, as `Misuse`."""
    with OPEN[name](Failing(plant_a_failing_host).platform()) as frontend:
        reply = list_sessions(frontend)

    found = re.search(rb"\(incident ([0-9a-f]{16})\)", reply.body)
    assert found is not None
    assert shown(reply) == expected(found[1].decode())
