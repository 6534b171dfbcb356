"""Tokens of the shapes of Keycloak, Auth0 and Entra, on every host."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import urlencode

import pytest

from legation import Agent, Database, Platform

from ..callers import Issuer
from .conformance import Frontend, Reply
from .served import HOSTS

ISSUER: Final = Issuer()
TENANT: Final = "https://front-office.test/tenant"
BARE: Final[dict[str, Any]] = {"scopes": None, "exp": None, "iat": None}

PROVIDERS: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "Keycloak": (
        {
            "scopes_claim": ["/resource_access/front-office/roles", "scope"],
            "dependencies_claims": ["/organization/name"],
        },
        {
            "iss": "https://id.test/realms/staff",
            "aud": ["front-office", "account"],
            "resource_access": {"front-office": {"roles": ["agents:concierge:run"]}},
            "scope": "openid agents:read",
            "organization": {"name": "Adlon"},
        },
    ),
    "Auth0": (
        {"scopes_claim": "permissions", "dependencies_claims": [TENANT]},
        {
            "iss": "https://company.eu.auth0.test/",
            "aud": ["front-office", "https://company.eu.auth0.test/userinfo"],
            "permissions": ["agents:read", "agents:concierge:run"],
            "scope": "openid profile",
            TENANT: "Adlon",
        },
    ),
    "Entra": (
        {
            "scopes_claim": ["scp", "roles"],
            "user_id_claim": "oid",
            "dependencies_claims": ["tid"],
        },
        {
            "iss": "https://login.microsoftonline.test/tenant/v2.0",
            "aud": "front-office",
            "oid": "ada",
            "sub": "pairwise",
            "scp": "agents:read",
            "roles": ["agents:concierge:run"],
            "tid": "Adlon",
        },
    ),
}


def answer(user_id: str, dependencies: dict[str, Any]) -> list[Any]:
    """Say what the run was given."""
    return [user_id, *dependencies.values()]


def platform(options: dict[str, Any], issuer: str) -> Platform:
    authorization = ISSUER.authorization(verify_audience=True, issuer=issuer, **options)
    return Platform(
        id="front-office",
        authorization=True,
        authorization_config=authorization,
        databases=[Database("main", "sqlite://")],
        agents=[Agent(id="concierge", run=answer)],
    )


def ask(host: Frontend, token: str, method: str, target: str, form: Any = None) -> Reply:
    headers = ((b"authorization", b"Bearer " + token.encode()),)
    if form is None:
        return host.send(method, target, headers)
    kind = (b"content-type", b"application/x-www-form-urlencoded")
    return host.send(method, target, (*headers, kind), urlencode(form).encode())


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("named", HOSTS)
def test_a_token_of_a_provider_is_good_for_what_it_says(named: str, provider: str) -> None:
    options, claims = PROVIDERS[provider]
    name = options["dependencies_claims"][0]
    forged = {"stream": "false", "message": "m", "dependencies": json.dumps({name: "eve"})}
    good = ISSUER.token(**{**BARE, **claims})
    with HOSTS[named](platform(options, claims["iss"])) as host:
        listed = ask(host, good, "GET", "/agents")
        run = ask(host, good, "POST", "/agents/concierge/runs", forged)
        hidden = ask(host, good, "GET", "/sessions")
        others: list[dict[str, Any]] = [{"iss": "https://x.test"}, {"aud": "other"}, {"iss": None}]
        refused = [
            ask(host, ISSUER.token(**{**BARE, **claims, **other}), "GET", "/agents").status
            for other in others
        ]

    assert [one["id"] for one in listed.json()] == ["concierge"]
    assert run.json()["content"] == ["ada", "Adlon"]
    assert (hidden.status, refused) == (403, [401, 401, 401])
