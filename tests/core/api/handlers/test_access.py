"""Access as those see it who look after it: keys by their names, and reasons for decisions."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from jwt import PyJWS

from legation import AuthorizationConfig
from legation_testing import Client

from ....callers import ENVIRON, NOW, Issuer, demo

ISSUER: Final = Issuer()
NAMED: Final = Issuer(kid="k-2026")
OFFICER: Final = ISSUER.token("access:read", sub="officer")
CANARY: Final = "canary-91ab-of-thirty-two-bytes-or-more"


def jwks(*issuers: Issuer) -> bytes:
    return json.dumps({"keys": [issuer.jwk for issuer in issuers]}).encode()


def keys(client: Client) -> Any:
    return client.get("/access/keys").expect_success().json()


def explain(client: Client, token: str | None = None, **body: Any) -> Any:
    asked = {"method": "get", "path": "/agents/alpha", **body}
    return client.post("/access/explain", json=asked, token=token).expect_success().json()


def test_keys_are_shown_by_their_names_and_places() -> None:
    environ = {**ENVIRON, "JWT_VERIFICATION_KEY": ISSUER.pem}
    platform = demo(ISSUER, jwks=jwks(NAMED), environ=environ, options={"jwks_file": "k.json"})
    with Client(platform, token=OFFICER) as client:
        found = keys(client)

        assert [(one["kid"], one["source"]) for one in found["data"]] == [
            (None, "environment"),
            ("k-2026", "jwks"),
        ]
        assert found["data"][1]["key_id"] == "k-2026"
        assert found["meta"]["algorithm"] == "RS256"
        assert found["meta"]["loaded_at"] == "2026-01-01T00:00:00Z"
        assert found["meta"]["trouble"] is None

        platform.load_jwks(None, (NOW + 60) * 1_000_000)
        trouble = keys(client)["meta"]["trouble"]
        assert trouble["at"] == "2026-01-01T00:01:00Z"
        assert trouble["reasons"][0]["message"] == "cannot be read"
        assert platform.load_jwks(jwks(Issuer(kid="next"))) == ()
        found = keys(client)
        assert [one["kid"] for one in found["data"]] == [None, "next"]
        assert found["meta"]["trouble"] is found["meta"]["loaded_at"] is None, "nobody said when"


def test_a_key_of_the_configuration_is_one() -> None:
    with Client(demo(ISSUER), token=OFFICER) as client:
        assert [one["source"] for one in keys(client)["data"]] == ["configuration"]


def test_where_authorization_is_off_there_are_no_keys() -> None:
    with Client(demo(None)) as client:
        found = keys(client)

        assert found["data"] == []
        assert found["meta"]["authorization"] is False
        assert explain(client, claims={"sub": "x"})["by"] == "authorization is off"


def test_nothing_of_a_secret_is_shown() -> None:
    token = PyJWS().encode(
        json.dumps({"sub": "a", "scopes": ["access:read", "config:read"]}).encode(),
        CANARY,
        "HS256",
    )
    authorization = AuthorizationConfig(verification_keys=(CANARY,), algorithm="HS256")
    platform = demo(None, authorization=True, authorization_config=authorization)
    with Client(platform, token=token) as client:
        shown = client.get("/access/keys").text + client.get("/config/effective").text

    assert CANARY not in shown
    assert CANARY.encode().hex() not in shown
    assert '"key_id":"secret-' in shown


def test_of_a_token_is_said_what_it_opens_and_by_which_scope() -> None:
    with Client(demo(ISSUER), token=OFFICER) as client:
        reader = ISSUER.token("agents:alpha:read", sub="ann", session_id="s9")
        told = explain(client, token=OFFICER, path="/agents/alpha")
        assert told["reason"] == "scope"
        assert told["caller"]["sub"] == "officer"

        asked = {"method": "GET", "path": "/agents/alpha", "token": reader}
        told = client.post("/access/explain", json=asked).expect_success().json()
        assert told["by"] == "agents:alpha:read"
        assert told["caller"]["session_id"] == "s9"
        assert not told["caller"]["admin"]
        assert told["caller"]["key_id"]
        other = client.post("/access/explain", json={**asked, "path": "/agents/beta"}).json()
        assert [other["allowed"], other["missing"]] == [False, "agents:beta:read"]


@pytest.mark.parametrize(
    ("token", "because"),
    [
        ("no-token", "not a compact JWS"),
        (ISSUER.token(exp=NOW - 60), "expired"),
        (Issuer().token("platform:admin"), "no key verifies the signature"),
        ("ü", None),
        ("a b", None),
    ],
    ids=["none", "expired", "forged", "not ASCII", "two words"],
)
def test_of_a_token_that_is_refused_is_said_why(token: str, because: str | None) -> None:
    with Client(demo(ISSUER), token=OFFICER) as client:
        asked = {"method": "GET", "path": "/me", "token": token}
        told = client.post("/access/explain", json=asked).expect_success().json()

    assert [told["allowed"], told["reason"], told["caller"]] == [False, "token", None]
    assert because is None or told["because"] == because


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"scopes": ["platform:admin"]}, {"allowed": True, "by": "platform:admin"}),
        ({"scopes": ["agents:*:read"]}, {"allowed": True, "by": "agents:*:read"}),
        ({"scopes": []}, {"allowed": False, "missing": "agents:alpha:read"}),
        ({"scopes": "agents:read"}, {"allowed": False, "because": "scopes is not an array"}),
        ({"exp": 1}, {"allowed": False, "because": "expired"}),
    ],
)
def test_claims_are_read_as_those_of_a_token(claims: Any, told: dict[str, Any]) -> None:
    with Client(demo(ISSUER), token=OFFICER) as client:
        found = explain(client, token=OFFICER, claims=claims)

    assert told.items() <= found.items()


def test_token_and_claims_together_are_one_too_many() -> None:
    with Client(demo(ISSUER), token=OFFICER) as client:
        asked: dict[str, Any] = {"method": "GET", "path": "/", "token": "x", "claims": {}}
        refused = client.post("/access/explain", json=asked)

    assert refused.status == 422
    assert refused.json()["errors"][0]["path"] == "body.claims"


def test_a_token_that_is_explained_is_in_no_trail_and_in_no_log() -> None:
    secret = ISSUER.token("agents:read", sub="ann", jti=CANARY)
    with Client(demo(ISSUER), token=OFFICER) as client:
        explain(client, token=OFFICER, claims={"sub": CANARY})
        asked = {"method": "GET", "path": "/", "token": secret}
        client.post("/access/explain", json=asked).expect_success()
        client.settle()
        trail = client.get("/audit", token=ISSUER.token("audit:read")).text

    assert "explain_access" in trail
    assert CANARY not in trail
    assert secret not in trail
    assert CANARY not in str(client.logs)


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/access/keys", "access:read"),
        ("POST", "/access/explain", "access:read"),
        ("GET", "/config/effective", "config:read"),
    ],
)
def test_each_has_its_scope(method: str, path: str, scope: str) -> None:
    body = {"method": "GET", "path": "/"} if method == "POST" else None
    with Client(demo(ISSUER)) as client:
        assert client.request(method, path, json=body, token=ISSUER.token(scope)).status == 200
        other = ISSUER.token("agents:read", "audit:read", "databases:read")
        assert client.request(method, path, json=body, token=other).status == 403
        assert client.request(method, path, json=body).status == 401


def test_the_effective_configuration_has_the_databases_that_are_hosted() -> None:
    with Client(demo(ISSUER), token=ISSUER.token("config:read")) as client:
        data = client.get("/config/effective").expect_success().json()["data"]

    shown = {one["path"]: one["value"] for one in data}
    assert shown["databases.main.url"] == "sqlite://"
    assert shown["agents[0].instructions"] == "[redacted]"
    assert "the secret of" not in json.dumps(data)


def test_stale_keys_show_in_readiness_and_in_the_metrics_and_void_ones_end_it() -> None:
    officer = ISSUER.token("access:read", "config:read", "system:read", exp=NOW + 10**6)
    options = {"jwks_file": "k.json", "revocations_file": "r.json", "keys_stale_seconds": 60.0}
    platform = demo(ISSUER, jwks=jwks(NAMED), revocations=b"{}", options=options)
    with Client(platform, token=officer) as client:

        def ready() -> tuple[int, Any]:
            answer = client.get("/ready")
            return answer.status, {
                name: answer.json()[name] for name in ("status", "keys", "revocations")
            }

        def stale() -> list[str]:
            lines = client.get("/metrics/prometheus").text.splitlines()
            return [line for line in lines if "_stale_seconds " in line and line[0] != "#"]

        current = {"keys": "current", "revocations": "current"}
        assert ready() == (200, {"status": "ready", **current})
        assert stale() == [
            "legation_keys_stale_seconds 0.0",
            "legation_revocations_stale_seconds 0.0",
        ]

        platform.load_jwks(None, NOW * 1_000_000)
        client.advance(30.0)
        assert ready() == (200, {"status": "ready", **current, "keys": "stale"})
        assert stale()[0] == "legation_keys_stale_seconds 30.0"
        client.advance(30.0)
        assert ready() == (503, {"status": "not ready", **current, "keys": "void"})

        platform.load_jwks(jwks(NAMED), (NOW + 61) * 1_000_000)
        assert ready()[0] == 200


def test_readiness_names_only_the_files_that_are_configured() -> None:
    with Client(demo(ISSUER)) as client:
        assert client.get("/ready").json().keys() == {"status", "databases"}
