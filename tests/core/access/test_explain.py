"""What `POST /me/explain` says of a request is what becomes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from legation import Agent, Platform
from legation.api.routes import ROUTES
from legation.effects import Effect, Now, Program, RandomBytes, ReadBody, ThisNode, Transact
from legation.http.messages import Answer, Request, Response
from legation.shares.limits import PlatformLimits
from legation.store.failures import StatementFailed
from legation_testing import NEW_YEAR_2026

from ...callers import Issuer, demo

pytestmark = pytest.mark.enumeration

ISSUER: Final = Issuer(ed25519.Ed25519PrivateKey.generate())
ALPHABET: Final = (
    *("agents:read", "agents:run", "agents:write", "agents:alpha:read", "agents:alpha:run"),
    *("agents:beta:run", "agents:*:read", "agents:*:run", "agents::run", "AGENTS:READ", "agents:*"),
    *("teams:read", "teams:run", "teams:crew:run", "teams:*:read", "teams:alpha:run"),
    *("sessions:read", "sessions:write", "sessions:delete", "sessions:*:read"),
    *("databases:read", "databases:main:read", "databases:migrate", "databases:main:migrate"),
    *("channels:read", "channels:write", "audit:read", "config:read", "config:write"),
    *("system:read", "platform:admin", "platform:adm", "*", "*:*"),
)
IDS: Final = ("alpha", "crew", "main", "chat", "ghost", "al%70ha", "a:b")


def performed(effect: Effect, body: bytes) -> Any:
    """Return the answer of a world without databases."""
    match effect:
        case Now():
            return NEW_YEAR_2026
        case RandomBytes(size):
            return bytes(size)
        case ReadBody(limit):
            return body if len(body) <= limit else None
        case ThisNode():
            return "node"
        case Transact():
            return StatementFailed()
        case _:
            return None


def answered(platform: Platform, method: str, target: str, token: str, body: bytes = b"") -> Answer:
    headers = (
        (b"authorization", b"Bearer " + token.encode()),
        (b"content-type", b"application/json"),
    )
    program: Program[Answer] = platform.answer(Request(method, target, headers))
    reply: Any = None
    while True:
        try:
            failed = isinstance(reply, Exception)
            effect = program.throw(reply) if failed else program.send(reply)
        except StopIteration as stop:
            answer: Answer = stop.value
            return answer
        reply = performed(effect, body)


def explained(platform: Platform, method: str, target: str, token: str) -> dict[str, Any]:
    body = json.dumps({"method": method, "path": target}).encode()
    answer = answered(platform, "POST", "/me/explain", token, body)
    assert isinstance(answer, Response)
    assert answer.status == 200
    told: dict[str, Any] = json.loads(answer.body)
    return told


def targets() -> list[tuple[str, str]]:
    """Return every route with every id in each place of its path, and HEAD where GET is."""
    found: dict[tuple[str, str], None] = {}
    for route in ROUTES:
        for one in IDS:
            parts = [one if part.startswith("{") else part for part in route.template.split("/")]
            methods = (route.method, "HEAD") if route.method == "GET" else (route.method,)
            found.update(dict.fromkeys((method, "/".join(parts)) for method in methods))
    return list(found)


@pytest.mark.parametrize(
    "options", [{}, {"excluded_routes": ("/agents", "/me", "/databases/{db_id}")}], ids=str
)
def test_allowed_is_what_is_not_answered_401_or_403(
    options: dict[str, Any], figures: Callable[[str], None]
) -> None:
    platform = demo(ISSUER, options=options, limits=PlatformLimits(requests_per_second=0))
    cases = refused = 0
    sets = [(), *((scope,) for scope in ALPHABET), *list(combinations(ALPHABET, 2))[::90]]
    for scopes in sets:
        token = ISSUER.token(*scopes)
        for method, target in targets():
            told = explained(platform, method, target, token)
            status = answered(platform, method, target, token).status
            if told.get("reason") == "signature" and status == 404:
                continue  # no channel has this name: nobody's signature would do
            allowed = status not in (401, 403)
            assert told["allowed"] == allowed, (method, target, scopes, told, status)
            cases += 1
            refused += not allowed
    assert 0 < refused < cases
    figures(f"explain: {cases:,} requests are answered as explained, {refused:,} of them refused")


@pytest.mark.parametrize(
    ("method", "target", "status", "told"),
    [
        ("GET", "/nowhere", 404, {"allowed": False, "reason": "no route"}),
        ("GET", "/agents//x", 404, {"allowed": False, "reason": "no route"}),
        ("PUT", "/agents", 405, {"allowed": False, "reason": "method"}),
        ("OPTIONS", "/agents", 204, {"allowed": True, "by": "no token needed"}),
    ],
)
def test_what_leads_nowhere_is_said_to(
    method: str, target: str, status: int, told: dict[str, Any]
) -> None:
    platform = demo(ISSUER)
    token = ISSUER.token("platform:admin")

    assert answered(platform, method, target, token).status == status
    said = explained(platform, method, target, token)
    assert {name: said.get(name) for name in told} == told


def test_without_authorization_everything_is_allowed_but_what_needs_a_signature() -> None:
    platform = demo(None)

    for method, target in targets():
        told = explained(platform, method, target, "")
        status = answered(platform, method, target, "").status
        assert told["allowed"] == (told.get("reason") != "signature")
        assert status != 401
        assert (status == 403) <= (told.get("reason") == "signature")


def test_the_command_line_and_the_route_say_the_same() -> None:
    platform = demo(ISSUER, limits=PlatformLimits(requests_per_second=0))

    for scopes in ((), ("agents:alpha:run",), ("platform:admin",)):
        token = ISSUER.token(*scopes)
        for method, target in targets():
            said = platform.explain(token.encode(), method, target, NEW_YEAR_2026)
            assert json.loads(json.dumps(said)) == explained(platform, method, target, token)


def test_a_token_that_is_none_is_said_to_be_refused_where_one_is_needed() -> None:
    platform = demo(ISSUER)

    for method, target in targets():
        said = platform.explain(b"a.b.c", method, target, NEW_YEAR_2026)
        status = answered(platform, method, target, "a.b.c").status
        if said.get("reason") != "signature":
            assert said["allowed"] == (status != 401)


@pytest.mark.parametrize(("spare", "status"), [(0, 200), (1, 413)])
def test_what_is_to_be_explained_is_short(spare: int, status: int) -> None:
    platform = Platform(agents=[Agent(id="a")])
    said = b'{"method":"GET","path":"/agents"}'
    sent = said + b" " * ((16 << 10) - len(said) + spare)

    answer = answered(platform, "POST", "/me/explain", "", sent)

    assert isinstance(answer, Response)
    assert answer.status == status
