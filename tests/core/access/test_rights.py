from __future__ import annotations

from typing import Any

import pytest

from legation.access.decide import Allow, Principal, decide
from legation.access.rights import describe_need, scopes_enough
from legation.access.scopes import AnyToken, Open, Public, Scoped, Signed
from legation.api.routes import ROUTES
from legation.config import AuthorizationConfig

OFF = None
ON = AuthorizationConfig(excluded_routes=["/open"])
READ = Scoped("agents", ("read", "run"), parameter="agent_id", also=("old:read",))


@pytest.mark.parametrize(
    ("need", "template", "config", "words"),
    [
        (Signed(), "/open", ON, "the channel's own signature"),
        (Signed(), "/x", OFF, "the channel's own signature"),
        (READ, "/x", OFF, "nothing: authorization is off"),
        (READ, "/open", ON, "nothing: the route is excluded"),
        (Public(), "/open", ON, "nothing: the route is excluded"),
        (Public(), "/x", ON, "any valid token"),
        (AnyToken(), "/x", ON, "any valid token"),
        (Open(), "/x", ON, "nothing; a valid token may open more of the answer"),
        (
            READ,
            "/x",
            ON,
            f"{' or '.join(scopes_enough(READ))} or platform:admin",
        ),
        (Scoped("audit", ("read",)), "/x", ON, "audit:read or platform:admin"),
    ],
)
def test_a_need_in_words(
    need: Any, template: str, config: AuthorizationConfig | None, words: str
) -> None:
    assert describe_need(need, template, config) == words


def test_every_form_of_a_scope_is_told() -> None:
    assert scopes_enough(READ) == (
        "agents:read",
        "agents:run",
        "agents:<id>:read",
        "agents:<id>:run",
        "old:read",
    )


def test_a_list_may_be_read_by_an_id() -> None:
    need = Scoped("agents", ("read",), listing=True)

    assert scopes_enough(need) == ("agents:read", "agents:<id>:read")


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation)
def test_what_is_said_to_be_enough_is(route: Any) -> None:
    if not isinstance(route.need, Scoped):
        return
    for scope in scopes_enough(route.need):
        held = Principal("ada", frozenset({scope.replace("<id>", "a")}))
        decision = decide(route.need, held, "a")
        assert decision == Allow(scope.replace("<id>", "a")) or decision.ids == {"a"}  # type: ignore[union-attr]
