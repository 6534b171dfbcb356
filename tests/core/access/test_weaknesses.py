"""What a server in wide use (AgentOS 2.5.6) got wrong about access, as facts about this one.

The numbers are those of the list of weaknesses that was observed there.  Every request goes
through the whole door, with tokens signed by RS256.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any, Final

import pytest

from legation import AuthorizationConfig, ConfigurationError, Platform
from legation.access.scopes import Scoped, Signed
from legation.api.routes import ROUTES
from legation.effects import Record
from legation.store.health import Condition
from legation_testing import Client, ClientResponse

from ...callers import ENVIRON, Issuer, demo

FORM: Final = {"message": "hi", "stream": False}


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def client(issuer: Issuer) -> Generator[Client]:
    with Client(demo(issuer)) as client:
        yield client


def run(client: Client, token: str, agent: str = "alpha", **form: Any) -> dict[str, Any]:
    sent = client.post(f"/agents/{agent}/runs", form={**FORM, **form}, token=token)
    answer: dict[str, Any] = sent.expect_success().json()
    return answer


def refused(response: ClientResponse, status: int, code: str, detail: str) -> None:
    assert response.status == status
    assert response.json() == {"detail": detail, "error_code": code}
    assert response.header("x-request-id")


# 1: any valid token may migrate.


@pytest.mark.parametrize("target", ["/databases/main/migrate", "/databases/all/migrate"])
@pytest.mark.parametrize("version", ["", "?target_version=0", "?target_version=2.0.0"])
def test_1_a_token_without_the_scope_cannot_migrate(
    client: Client, issuer: Issuer, target: str, version: str
) -> None:
    effects = len(client.effects)
    token = issuer.token("agents:read", "sessions:write", "databases:read", "config:read")
    response = client.post(target + version, token=token)

    refused(response, 403, "FORBIDDEN", "Insufficient permissions")
    assert not [done for done in client.effects[effects:] if "Transact" in str(done.effect)[:8]]


@pytest.mark.parametrize("scope", ["databases:migrate", "config:write", "platform:admin"])
def test_1_a_token_with_the_scope_can(client: Client, issuer: Issuer, scope: str) -> None:
    assert client.post("/databases/main/migrate", token=issuer.token(scope)).status == 200
    assert client.post("/databases/main/migrate").status == 401


# 2: a door beside the door.


@pytest.mark.parametrize("path", ["/workflows/ws", "/ws", "/agents/alpha/ws"])
def test_2_an_upgrade_opens_nothing(client: Client, issuer: Issuer, path: str) -> None:
    fields = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}

    assert client.get(path, headers=fields).status == 401
    assert client.get(path, headers=fields, token=issuer.token("agents:read")).status == 404


# 3: paths that merely look like others, and routes that nobody mapped.


@pytest.mark.parametrize("session", ["agents-1", "agents", "teams", "workflows", "agents-x"])
@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
def test_3_a_session_that_is_called_like_a_resource_needs_the_scope_of_sessions(
    client: Client, issuer: Issuer, session: str, method: str
) -> None:
    for scopes in ((), ("agents:read", "agents:run", "teams:read")):
        token = issuer.token(*scopes)
        assert client.request(method, f"/sessions/{session}", token=token).status in (403, 405)


def test_3_no_route_but_those_for_any_token_answers_one_without_scopes(
    client: Client, issuer: Issuer
) -> None:
    token = issuer.token()
    answered = {
        route.template
        for route in ROUTES
        if route.template != "/runs/events"  # it has no end
        and client.request(route.method, _filled(route.template), token=token).status < 400
    }

    documents = {"/docs", "/redoc", "/openapi.json", "/docs/oauth2-redirect", "/console"}
    empty = {"/runs", "/runs/summary", "/approvals", "/approvals/count"}
    assert answered - documents - empty <= {
        "/",
        "/health",
        "/info",
        "/ready",
        "/me",
        "/{channel}/status",
    }


def test_3_what_any_token_is_told_holds_nothing_that_asks_for_a_scope(
    client: Client, issuer: Issuer
) -> None:
    def ready(*scopes: str) -> Any:
        return client.get("/ready", token=issuer.token(*scopes)).expect_success().json()

    bare = {"main": {"id": "main", "state": "current", "serving": True}}
    assert ready() == {"status": "ready", "databases": bare}
    assert ready("channels:other:read", "databases:other:read") == ready()
    for name in ("chat", "*"):
        told = ready(f"channels:{name}:read", "databases:main:read")
        assert [channel["id"] for channel in told["channels"]] == ["chat"]
        assert told["databases"]["main"]["engine"] == "sqlite"
    assert ready("platform:admin") == ready("channels:read", "databases:read")


@pytest.mark.parametrize("excluded", [("/ready",), ("/health",)], ids=["excluded", "not excluded"])
def test_3_readiness_without_a_token_tells_no_more_than_states(
    issuer: Issuer, excluded: tuple[str, ...]
) -> None:
    with Client(demo(issuer, options={"excluded_routes": excluded})) as client:
        bare = {"main": {"id": "main", "state": "current", "serving": True}}
        assert client.get("/ready").json() == {"status": "ready", "databases": bare}
        client.platform.schema_guard.conditions["main"] = Condition.FULL  # type: ignore[attr-defined]
        refused = client.get("/ready")
        bare = {"main": {"id": "main", "state": "unreachable", "serving": False}}
        assert refused.status == 503
        assert refused.json() == {"status": "not ready", "databases": bare}


def test_3_readiness_tells_those_who_may_read_a_database_what_is_wrong_with_it(
    client: Client, issuer: Issuer
) -> None:
    client.platform.schema_guard.conditions["main"] = Condition.SILENT  # type: ignore[attr-defined]
    refused = client.get("/ready", token=issuer.token("databases:main:read", "channels:read"))
    told = refused.json()
    assert refused.status == 503
    assert (told["databases"]["main"]["state"], told["databases"]["main"]["detail"]) == (
        "silent",
        "It does not answer",
    )
    assert [channel["messages"] for channel in told["channels"]] == [None]
    bare = {"main": {"id": "main", "state": "unreachable", "serving": False}}
    assert client.get("/ready", token=issuer.token()).json()["databases"] == bare


def test_3_a_token_that_does_not_verify_is_refused_where_none_is_needed(
    client: Client, issuer: Issuer
) -> None:
    assert client.get("/ready").status == 200
    assert client.get("/ready", token="forged").status == 401
    assert client.post("/ready").status == 405
    head = client.request("HEAD", "/ready")
    assert (head.status, head.text) == (200, "")


def test_3_a_session_does_not_tell_of_an_agent_that_the_caller_may_not_know(
    client: Client, issuer: Issuer
) -> None:
    def told(kind: str, name: str, *scopes: str) -> Any:
        token = issuer.token("sessions:write", *scopes)
        made = client.post(f"/sessions?type={kind}", json={f"{kind}_id": name}, token=token)
        return made.expect_success().json()[f"{kind}_data"]

    for kind, hosted in (("agent", "alpha"), ("team", "crew")):
        for name in (hosted, "ghost"):
            assert told(kind, name) == {f"{kind}_id": name}
            assert told(kind, name, f"{kind}s:beta:run") == {f"{kind}_id": name}
        for scope in (f"{kind}s:{hosted}:run", f"{kind}s:read"):
            assert told(kind, hosted, scope)["name"] == hosted


def _filled(template: str) -> str:
    names = {"agent_id": "alpha", "team_id": "crew", "db_id": "main", "channel": "chat"}
    parts = template.split("/")
    return "/".join(names.get(p[1:-1], "x") if p.startswith("{") else p for p in parts)


@pytest.mark.parametrize("path", ["/components", "/registry", "/traces/search", "/nowhere"])
def test_3_a_path_without_a_route_is_nothing_to_anybody(
    client: Client, issuer: Issuer, path: str
) -> None:
    refused(client.get(path), 401, "UNAUTHENTICATED", "Authorization header missing")
    refused(client.get(path, token=issuer.token()), 404, "NOT_FOUND", "Not Found")


# 4: below a prefix.  A frontend strips the mount point; whatever is left over matches nothing.


@pytest.mark.parametrize("prefix", ["/api", "/v1", "/agents/alpha", "/health", "/docs"])
def test_4_a_prefix_that_was_not_stripped_leads_nowhere(
    client: Client, issuer: Issuer, prefix: str
) -> None:
    assert client.get(f"{prefix}/agents").status == 401
    assert client.get(f"{prefix}/agents", token=issuer.token()).status in (403, 404)
    assert client.get(f"{prefix}/sessions", token=issuer.token("agents:read")).status == 404


# 5: other people's runs and sessions.


def test_5_another_ones_runs_are_as_if_they_were_not(client: Client, issuer: Issuer) -> None:
    ada = issuer.token("agents:run", "sessions:read", sub="ada")
    eve = issuer.token("agents:run", "agents:read", "sessions:read", sub="eve")
    told = run(client, ada, session_id="private")
    run_id = told["run_id"]

    for path in (
        f"/agents/alpha/runs/{run_id}",
        f"/agents/alpha/runs/{run_id}?session_id=private",
        f"/agents/alpha/runs/{run_id}?session_id=private&user_id=ada",
        f"/agents/alpha/runs/{run_id}/events",
        "/sessions/private",
        "/sessions/private?user_id=ada",
        "/sessions/private/runs",
        f"/sessions/private/runs/{run_id}",
    ):
        mine, absent = client.get(path, token=eve), path.replace(run_id, "0" * 36)
        assert client.get(path, token=ada).status in (200, 404)
        assert mine.status == 404
        other = client.get(absent.replace("private", "nothing"), token=eve)
        assert other.status == 404
        assert mine.body.replace(b"private", b"").replace(run_id.encode(), b"") == (
            other.body.replace(b"nothing", b"").replace(b"0" * 36, b"")
        )
    assert client.get("/agents/alpha/runs?session_id=private", token=eve).json() == []
    assert client.get("/sessions", token=eve).json()["data"] == []
    assert client.get("/sessions?user_id=ada", token=eve).json()["data"] == []
    assert client.get("/sessions/private", token=ada).status == 200


def test_5_a_run_in_another_ones_session_is_the_callers_own_affair(
    client: Client, issuer: Issuer
) -> None:
    ada = issuer.token("agents:run", "sessions:read", sub="ada")
    eve = issuer.token("agents:run", "sessions:read", sub="eve")
    run(client, ada, session_id="private", message="a secret")
    response = client.post(
        "/agents/alpha/runs",
        form={**FORM, "session_id": "private", "user_id": "ada", "message": "mine"},
        token=eve,
    )

    assert "a secret" not in response.text
    history = client.get("/sessions/private", token=ada).json()["chat_history"]
    assert "mine" not in json.dumps(history)


# 6: a token without a subject; an administrator with one.


def test_6_a_token_without_a_subject_owns_nothing_and_sees_nothing(
    client: Client, issuer: Issuer
) -> None:
    run(client, issuer.token("agents:run", sub="ada"), session_id="private")
    nobody = issuer.token("agents:run", "agents:read", "sessions:read", sub=None)
    own = run(client, nobody, session_id="public", user_id="ada")

    assert client.get("/sessions", token=nobody).json()["data"] == []
    assert client.get("/sessions?user_id=ada", token=nobody).json()["data"] == []
    assert client.get("/sessions/private", token=nobody).status == 404
    assert client.get("/sessions/public", token=nobody).status == 404
    assert client.get(f"/agents/alpha/runs/{own['run_id']}", token=nobody).status == 404
    ada = issuer.token("sessions:read", sub="ada")
    assert client.get("/sessions/public", token=ada).status == 404


@pytest.mark.parametrize(
    ("subject", "shown"),
    [
        ("~nobody:x", "~~nobody:x"),
        ("~channel:chat:1", "~~channel:chat:1"),
        ("~", "~"),
        ("~~", "~~"),
    ],
)
def test_6_no_subject_is_a_name_of_the_platforms_own(
    client: Client, issuer: Issuer, subject: str, shown: str
) -> None:
    told = run(client, issuer.token("agents:run", sub=subject), session_id="s")
    admin = issuer.token("platform:admin", sub="root")
    session = client.get("/sessions/s", token=admin).json()

    assert session["user_id"] == shown
    assert client.get(f"/agents/alpha/runs/{told['run_id']}", token=admin).status == 200


def test_6_an_administrator_sees_everybodys_data_whatever_the_subject(
    client: Client, issuer: Issuer
) -> None:
    run(client, issuer.token("agents:run", sub="ada"), session_id="hers")
    run(client, issuer.token("agents:run", sub="eve"), session_id="his")

    for subject in ("root", None):
        admin = issuer.token("platform:admin", sub=subject)
        listed = client.get("/sessions", token=admin).json()["data"]
        assert {item["session_id"] for item in listed} == {"hers", "his"}
        mine = client.get("/sessions?user_id=ada", token=admin).json()["data"]
        assert [item["session_id"] for item in mine] == ["hers"]


# 15: limits.


@pytest.mark.parametrize("target", ["/agents/alpha/runs", "/me/explain", "/chat/webhook"])
def test_15_a_body_over_the_limit_is_not_taken(client: Client, issuer: Issuer, target: str) -> None:
    token = issuer.token("agents:run")
    response = client.post(target, body=b"x" * ((10 << 20) + 1), token=token)

    assert response.status == 413
    assert response.json()["error_code"] == "PAYLOAD_TOO_LARGE"


def test_15_nothing_is_read_of_a_request_that_is_refused(client: Client, issuer: Issuer) -> None:
    before = len(client.effects)
    client.post("/agents/alpha/runs", body=b"x" * 1_000_000)
    client.post("/agents/alpha/runs", body=b"x" * 1_000_000, token=issuer.token("agents:read"))
    asked = [str(done.effect) for done in client.effects[before:]]

    assert not [effect for effect in asked if effect.startswith("ReadBody")]


def test_15_a_token_over_8_kib_is_refused(client: Client, issuer: Issuer) -> None:
    assert client.get("/agents", token=issuer.token("agents:read", x="y" * 9000)).status == 401


# 16: the contract of errors.


def test_16_every_error_has_the_envelope(client: Client, issuer: Issuer) -> None:
    expired = issuer.token("agents:read", exp=1)
    some, all_ = issuer.token("agents:read", "agents:run"), issuer.token("platform:admin")

    missing = client.get("/agents")
    refused(missing, 401, "UNAUTHENTICATED", "Authorization header missing")
    assert missing.header("www-authenticate") == "Bearer"
    for token, detail in ((expired, "Token has expired"), ("a.b.c", "Invalid token")):
        bad = client.get("/agents", token=token)
        refused(bad, 401, "UNAUTHENTICATED", detail)
        assert bad.header("www-authenticate") == 'Bearer error="invalid_token"'
        assert bad.header("cache-control") == "no-store"
    denied = client.get("/sessions", token=some)
    refused(denied, 403, "FORBIDDEN", "Insufficient permissions")
    challenge = 'Bearer error="insufficient_scope", scope="sessions:read"'
    assert denied.header("www-authenticate") == challenge
    refused(client.get("/agents/ghost", token=some), 404, "NOT_FOUND", "Agent not found")
    refused(client.get("/teams/ghost", token=all_), 404, "NOT_FOUND", "Team not found")
    refused(client.get("/databases/x", token=all_), 404, "NOT_FOUND", "Database not found")
    wrong = client.delete("/agents", token=some)
    refused(wrong, 405, "METHOD_NOT_ALLOWED", "Method Not Allowed")
    assert wrong.header("allow") == "GET, HEAD, OPTIONS"
    invalid = client.post("/agents/alpha/runs", form={"strea": "1"}, token=some)
    assert invalid.status == 422
    assert invalid.json()["error_code"] == "VALIDATION_ERROR"
    assert isinstance(invalid.json()["detail"], str)
    assert {e["path"] for e in invalid.json()["errors"]} == {"body.message", "body.strea"}


def test_16_errors_are_for_the_allowed_origin_too(client: Client) -> None:
    origin = {"origin": "http://localhost:3000"}
    for path in ("/agents", "/nowhere"):
        response = client.get(path, headers=origin)
        assert response.status == 401
        assert response.header("access-control-allow-origin") == "http://localhost:3000"


def test_16_an_error_of_ours_tells_an_incident_and_nothing_else(
    client: Client, issuer: Issuer
) -> None:
    client.fail_at(lambda effect: "ListSessions" in str(effect), ZeroDivisionError("a secret"))
    response = client.get("/sessions", token=issuer.token("sessions:read"))

    assert response.status == 500
    assert response.json()["error_code"] == "INTERNAL_SERVER_ERROR"
    log = next(log for log in client.logs if log.event == "request_failed")
    incident = str(dict(log.fields)["incident"])
    assert response.json()["detail"] == f"Internal server error (incident {incident})"
    assert "a secret" not in response.text + str(log)
    assert client.audit[-1].status == 500


# 17: fields that nobody asked for.


@pytest.mark.parametrize(
    "field", ["run_id", "yield_run_output", "knowledge_filters", "sub", "scopes", "agent_id"]
)
def test_17_an_unknown_field_is_refused_by_name(client: Client, issuer: Issuer, field: str) -> None:
    token = issuer.token("agents:run")
    response = client.post("/agents/alpha/runs", form={**FORM, field: "x"}, token=token)

    assert response.status == 422
    assert [error["path"] for error in response.json()["errors"]] == [f"body.{field}"]


def test_17_the_session_of_a_token_is_the_session_of_its_runs(
    client: Client, issuer: Issuer
) -> None:
    pinned = issuer.token("agents:run", "sessions:read", session_id="pinned")

    assert run(client, pinned, session_id="chosen")["session_id"] == "pinned"
    assert run(client, pinned)["session_id"] == "pinned"
    assert client.get("/sessions/chosen", token=pinned).status == 404


def test_17_a_token_for_one_session_changes_no_other(client: Client, issuer: Issuer) -> None:
    scopes = ("agents:run", "sessions:read", "sessions:write", "sessions:delete")
    for sub, held in (("ada", scopes), ("root", ("platform:admin",))):
        told = run(client, issuer.token("agents:run"), session_id="private")
        pinned = issuer.token(*held, sub=sub, session_id="pinned")
        path = f"/agents/alpha/runs/{told['run_id']}"

        for action in ("cancel", "continue", "resume"):
            for form in ({}, {"session_id": "private"}):
                assert client.post(f"{path}/{action}", form=form, token=pinned).status == 404
        for target in (path, f"{path}?session_id=private", f"{path}/events", "/sessions/private"):
            assert client.get(target, token=pinned).status == 404
        rename = {"session_name": "mine"}
        assert client.patch("/sessions/private", json=rename, token=pinned).status == 404
        assert client.post("/sessions/private/rename", json=rename, token=pinned).status == 404
        assert client.delete("/sessions/private", token=pinned).status == 204
        both = {"session_ids": ["private", "pinned"], "session_types": ["agent", "agent"]}
        assert client.request("DELETE", "/sessions", json=both, token=pinned).status == 204
        kept = client.get("/sessions/private", token=issuer.token("sessions:read")).json()
        assert kept["session_name"] == "hi" and kept["user_id"] == "ada"


@pytest.mark.parametrize("name", ["Äpfel", "äpfel", "ÄPFEL", "pf", "P%", "_", "\\"])
def test_17_a_token_for_one_session_finds_it_by_what_others_find_it(
    client: Client, issuer: Issuer, name: str
) -> None:
    scopes = ("agents:run", "sessions:read", "sessions:write")
    pinned = issuer.token(*scopes, session_id="pinned")
    run(client, pinned)
    client.patch("/sessions/pinned", json={"session_name": "Äpfel_%"}, token=pinned)

    pages = [
        client.get("/sessions", query={"session_name": name}, token=token).json()
        for token in (pinned, issuer.token(*scopes))
    ]

    assert pages[0] == pages[1]


def test_17_a_token_for_one_session_does_there_whatever_its_scopes_allow(
    client: Client, issuer: Issuer
) -> None:
    pinned = issuer.token(
        *("agents:run", "sessions:read", "sessions:write", "sessions:delete"), session_id="pinned"
    )
    created = client.post("/sessions", json={"session_id": "chosen"}, token=pinned)
    told = run(client, pinned)
    run(client, issuer.token("agents:run"), session_id="other")

    assert created.json()["session_id"] == "pinned"
    for name in ("pinned", "chosen"):  # what the request says of the session does not count
        named = f"/agents/alpha/runs/{told['run_id']}?session_id={name}"
        assert client.get(named, token=pinned).json()["session_id"] == "pinned"
        listed = client.get(f"/agents/alpha/runs?session_id={name}", token=pinned).json()
        assert [item["run_id"] for item in listed] == [told["run_id"]]
    for query, found in (
        ("", 1),
        ("?limit=1&page=2", 0),
        ("?type=team", 0),
        ("?component_id=alpha", 1),
        ("?component_id=beta", 0),
        ("?session_name=H", 1),
        ("?session_name=hello", 0),
    ):
        page = client.get(f"/sessions{query}", token=pinned).json()
        assert len(page["data"]) == found, query
        assert page["meta"]["total_count"] == (1 if "page" in query else found)
    renamed = client.patch("/sessions/pinned", json={"session_name": "Hers"}, token=pinned)
    assert renamed.json()["session_name"] == "Hers"
    both = {"session_ids": ["other", "pinned"], "session_types": ["agent", "agent"]}
    assert client.request("DELETE", "/sessions", json=both, token=pinned).status == 204
    assert client.get("/sessions", token=pinned).json()["data"] == []
    rest = client.get("/sessions", token=issuer.token("sessions:read")).json()["data"]
    assert [item["session_id"] for item in rest] == ["other"]


def test_17_no_key_gives_the_answer_of_another_session(client: Client, issuer: Issuer) -> None:
    def ask(session: str) -> Any:
        token = issuer.token("agents:run", session_id=session)
        headers = {"idempotency-key": "k"}
        return client.post("/agents/alpha/runs", form=FORM, token=token, headers=headers)

    assert ask("first").json()["session_id"] == ask("first").json()["session_id"] == "first"
    assert ask("second").status == 422


# 20: a key that protects only a part.


@pytest.mark.parametrize("name", ["OS_SECURITY_KEY", "JWT_VERIFICATION_KEY"])
def test_20_the_environment_of_a_platform_opens_nothing(issuer: Issuer, name: str) -> None:
    environ = {**ENVIRON, name: "x" * 64}
    with Client(demo(issuer, environ=environ)) as client:
        for route in ROUTES:
            path = _filled(route.template)
            response = client.request(route.method, path, headers={"authorization": "x" * 64})
            open_ = route.template in ("/", "/health", "/info") or isinstance(route.need, Signed)
            documents = route.template.startswith(("/docs", "/redoc", "/openapi", "/console"))
            assert (response.status != 401) == (open_ or documents), route.template


def test_20_authorization_without_a_key_does_not_start() -> None:
    with pytest.raises(ConfigurationError, match="there is no key"):
        Platform(authorization=True)
    with pytest.raises(ConfigurationError, match="was not read"):
        Platform(authorization=True, authorization_config=AuthorizationConfig(jwks_file="x.json"))


# 21: without authorization.


def test_21_where_authorization_is_off_it_says_so(issuer: Issuer) -> None:
    with Client(demo(None)) as open_, Client(demo(issuer)) as closed:
        assert open_.get("/info").json()["auth_mode"] == "none"
        assert closed.get("/info").json()["auth_mode"] == "jwt"
        assert open_.get("/me").json()["authorization"] is False
        open_.get("/agents")
        assert open_.audit[-1].decision == "open"


# 22: nobody says who he is.


def test_22_the_audit_trail_names_the_subject_of_the_token_and_the_decision(
    client: Client, issuer: Issuer
) -> None:
    before = len(client.audit)
    client.get("/agents/alpha", token=issuer.token("agents:read", sub="ada"))
    client.get("/agents/beta", token=issuer.token("agents:alpha:read", sub="eve"))
    client.get("/agents/beta?user_id=ada", headers={"x-user": "ada"})
    entries = client.audit[before:]

    assert [
        (e.subject, e.operation, e.resource, e.decision, e.scope, e.status) for e in entries
    ] == [
        ("ada", "get_agent", "alpha", "allow", "agents:read", 200),
        ("eve", "get_agent", "beta", "deny", "agents:beta:read", 403),
    ]
    platform = client.platform
    assert isinstance(platform, Platform)
    assert platform.telemetry.refusals.totals == {401: 1}  # nobody is known for it: it is counted


def test_22_a_token_never_reaches_the_audit_trail_or_the_log(
    client: Client, issuer: Issuer
) -> None:
    token = issuer.token("agents:read")
    for bearer in (token, token[:-4] + "AAAA", "x.y.z"):
        client.get("/agents", token=bearer)

    recorded = [str(d.effect) for d in client.effects if isinstance(d.effect, Record)]
    kept = " ".join([*recorded, *map(str, client.logs)])
    assert recorded
    assert all(part not in kept for part in token.split(".")[1:])


# 25: keys that change.


def test_25_keys_are_replaced_as_a_whole_and_a_broken_set_changes_nothing() -> None:
    old, new = Issuer(kid="old"), Issuer(kid="new")

    def jwks(*issuers: Issuer) -> bytes:
        return json.dumps({"keys": [issuer.jwk for issuer in issuers]}).encode()

    config = AuthorizationConfig(jwks_file="jwks.json")
    platform = demo(None, authorization=True, authorization_config=config, jwks=jwks(old))
    with Client(platform) as client:

        def statuses() -> list[int]:
            tokens = (issuer.token("agents:read") for issuer in (old, new))
            return [client.get("/agents", token=token).status for token in tokens]

        assert statuses() == [200, 401]
        for broken in (b"{", b"{}", None):
            assert platform.load_jwks(broken) != ()
            assert statuses() == [200, 401]
        assert platform.load_jwks(jwks(old, new)) == ()
        assert statuses() == [200, 200]
        assert platform.load_jwks(jwks(new)) == ()
        assert statuses() == [401, 200]
        assert platform.load_jwks(b'{"keys": []}') == ()
        assert statuses() == [401, 401]


def test_25_a_kid_of_the_jwks_never_falls_back_to_another_key(issuer: Issuer) -> None:
    named = Issuer(kid="named")
    document = json.dumps({"keys": [named.jwk]}).encode()
    with Client(demo(issuer, jwks=document)) as client:
        forged = Issuer(issuer.key, kid="named").token("agents:read")
        assert client.get("/agents", token=forged).status == 401
        assert client.get("/agents", token=named.token("agents:read")).status == 200
        assert client.get("/agents", token=issuer.token("agents:read")).status == 200


# 26: instructions are not for readers.


@pytest.mark.parametrize("path", ["/agents", "/agents/alpha", "/teams", "/teams/crew"])
def test_26_instructions_are_shown_to_administrators_alone(
    client: Client, issuer: Issuer, path: str
) -> None:
    reader = client.get(path, token=issuer.token("agents:read", "teams:read"))
    admin = client.get(path, token=issuer.token("platform:admin"))

    assert "the secret of alpha" not in reader.expect_success().text
    assert "the secret of alpha" in admin.expect_success().text


def test_26_a_run_does_not_repeat_the_instructions(client: Client, issuer: Issuer) -> None:
    token = issuer.token("agents:run", "sessions:read")
    told = run(client, token, session_id="s")
    session = client.get("/sessions/s", token=token)

    assert "the secret of alpha" not in json.dumps(told) + session.text


# --- the routes that are excluded ---------------------------------------------------------------


def test_the_excluded_routes_are_those_of_the_configuration_and_no_others(issuer: Issuer) -> None:
    options = {"excluded_routes": ("/agents", "/health")}
    with Client(demo(issuer, options=options)) as client:
        assert client.get("/agents").status == 200
        assert client.get("/agents/alpha").status == 401
        assert client.get("/health").status == 200
        assert client.get("/").status == client.get("/info").status == 401
        assert client.get("/info", token=issuer.token()).status == 200


def test_an_excluded_route_knows_nobody_even_with_a_token(issuer: Issuer) -> None:
    options = {"excluded_routes": ("/sessions", "/agents/{agent_id}/runs", "/me")}
    with Client(demo(issuer, options=options)) as client:
        admin = issuer.token("platform:admin")
        client.post("/agents/alpha/runs", form=FORM).expect_success()

        assert client.get("/sessions", token=admin).json()["data"] == []
        assert client.get("/me", token=admin).json()["sub"] is None


def test_an_excluded_route_that_is_no_route_does_not_start(issuer: Issuer) -> None:
    with pytest.raises(ConfigurationError, match="'/agents/\\*' is no route"):
        demo(issuer, options={"excluded_routes": ("/agents/*",)})


def test_the_admin_scope_is_the_one_that_is_configured(issuer: Issuer) -> None:
    with Client(demo(issuer, options={"admin_scope": "agent_os:admin"})) as client:
        assert client.get("/sessions", token=issuer.token("agent_os:admin")).status == 200
        assert client.get("/sessions", token=issuer.token("platform:admin")).status == 403


def test_an_audience_is_verified_where_that_is_configured(issuer: Issuer) -> None:
    with Client(demo(issuer, options={"verify_audience": True}, id="demo")) as client:
        for audience, status in (("demo", 200), (["x", "demo"], 200), ("x", 401), (None, 401)):
            token = issuer.token("agents:read", aud=audience)
            assert client.get("/agents", token=token).status == status
    with pytest.raises(ConfigurationError, match=r"platform\.id: '' is not an id"):
        demo(issuer, options={"verify_audience": True}, id="")


@pytest.mark.parametrize("origin", ["null", "http://evil.test", "http://legation.test"])
def test_where_authorization_is_off_no_page_of_another_origin_changes_anything(origin: str) -> None:
    headers = {"origin": origin, "host": "legation.test"}
    with Client(demo(None)) as client:
        for route in ROUTES:
            if route.method != "GET" and isinstance(route.need, Scoped):
                path = _filled(route.template)
                response = client.request(route.method, path, headers=headers)
                detail = "Authorization is off, and this origin is not among cors_allowed_origins"
                refused(response, 403, "FORBIDDEN", detail)
        assert client.get("/sessions").json()["data"] == []
        assert client.get("/agents", headers=headers).header("access-control-allow-origin") is None
        allowed = {"origin": "http://localhost:3000"}
        assert client.post("/agents/alpha/runs", form=FORM, headers=allowed).status == 200
        assert client.post("/agents/alpha/runs", form=FORM).status == 200
        assert client.post("/chat/webhook", headers=headers).json()["detail"] == "Invalid signature"


def test_a_token_proves_its_sender_whatever_the_page(client: Client, issuer: Issuer) -> None:
    headers = {"origin": "http://evil.test"}
    token = issuer.token("agents:run")
    response = client.post("/agents/alpha/runs", form=FORM, headers=headers, token=token)

    assert response.status == 200
    assert response.header("access-control-allow-origin") is None


@pytest.mark.parametrize("origin", ["null", "*", "http://evil.test", "http://localhost:3000.x"])
def test_no_page_of_another_origin_may_read(issuer: Issuer, origin: str) -> None:
    platform = demo(issuer, cors_allowed_origins=("null", "*", "https://app.test"))
    with Client(platform) as client:
        preflight = {"origin": origin, "access-control-request-method": "GET"}
        for method in ("GET", "OPTIONS"):
            response = client.request(method, "/agents", headers=preflight)
            assert response.header("access-control-allow-origin") is None
            assert response.header("access-control-allow-credentials") is None


def test_options_names_the_methods_of_a_path_and_asks_for_nothing(client: Client) -> None:
    response = client.request("OPTIONS", "/agents/alpha/runs")

    assert response.status == 204
    assert response.header("allow") == "GET, HEAD, OPTIONS, POST"
    assert client.request("OPTIONS", "/nowhere").status == 401


def test_head_of_a_stream_has_its_headers_and_no_body(client: Client, issuer: Issuer) -> None:
    token = issuer.token("agents:run")
    path = f"/agents/alpha/runs/{run(client, token)['run_id']}/events"
    response = client.request("HEAD", path, token=token)

    assert response.status == 200
    assert response.header("content-type") == "text/event-stream; charset=utf-8"
    assert response.body == b""
    for target, status in (("/agents/ghost", 403), ("/nowhere", 404)):
        refusal = client.request("HEAD", target, token=token)
        assert (refusal.status, refusal.body) == (status, b"")
        assert int(refusal.header("content-length") or 0) > 0
