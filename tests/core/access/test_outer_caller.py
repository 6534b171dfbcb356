"""Callers for whom an outer application vouches: admitted, decided on, recorded as tokens are."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from attrs import asdict, evolve

from legation import Database, Platform, Principal
from legation.access.authenticator import TRUSTED, TokenRefused
from legation.access.claims import Claims
from legation.access.decide import ANONYMOUS, principal_of
from legation.access.outer_caller import admit, is_nobody
from legation.api.routes import ROUTES
from legation.effects import Log, Now, Record
from legation.http.messages import Request
from legation.store.audit import AuditEntry
from legation_testing import NEW_YEAR_2026, Client, RunFields, close_at_every_effect

from ...callers import Issuer, demo

ISSUER: Final = Issuer()
ADMIN: Final = "platform:admin"
SCOPES: Final = ("agents:*:run", "agents:read", "sessions:read", "sessions:write")
ANN: Final = Principal("ann", SCOPES)
BOB: Final = Principal("bob", SCOPES)
ROOT: Final = Principal("root", [ADMIN, "audit:read"])


def platforms(**more: Any) -> list[Platform]:
    """Authorization on, and off: for an outer caller they are the same."""
    return [demo(ISSUER, **more), demo(None, **more)]


# --- admitted ----------------------------------------------------------------------------------


def test_a_caller_is_admitted_as_it_stands() -> None:
    found = admit(Principal("ann", ["agents:read"], session_id="s"), ADMIN)

    assert found == Principal(
        "ann", frozenset({"agents:read"}), session_id="s", key_id="outer application"
    )


def test_the_admin_scope_is_the_platforms() -> None:
    for caller, scope, admin in (
        (ROOT, ADMIN, True),
        (ROOT, "root", False),
        (Principal("eve", [""]), "", False),
        (Principal("eve", admin_scope=ADMIN), ADMIN, False),
        (evolve(ROOT, admin_scope="root"), ADMIN, True),
    ):
        found = admit(caller, scope)
        assert isinstance(found, Principal)
        assert found.admin is admin


def test_a_caller_whom_a_token_named_elsewhere_is_one_of_the_outer_application() -> None:
    claims = Claims("ann", None, frozenset({ADMIN}), "their-key")

    found = admit(principal_of(claims), ADMIN)

    assert found == Principal("ann", [ADMIN], ADMIN, key_id="outer application")


def test_one_text_is_no_set_of_scopes() -> None:
    wrong: Any = "agents:read"
    with pytest.raises(TypeError, match=r"write \['agents:read'\]"):
        Principal("ann", wrong)


def nested(depth: int) -> dict[str, Any]:
    inner: Any = []
    for _ in range(depth):
        inner = [inner]
    return {"deep": inner}


def as_any(value: object) -> Any:
    return value


@pytest.mark.parametrize(
    ("caller", "reason"),
    [
        (Principal(""), "sub is not a text of 1 to 256 characters"),
        (Principal("a" * 257), "sub is not a text of 1 to 256 characters"),
        (Principal(as_any(7)), "sub is not a text of 1 to 256 characters"),
        (Principal("a\0b"), "sub has a character that is not accepted"),
        (Principal("\ud800"), "sub has a character that is not accepted"),
        (Principal("ann", ["\udfff"]), "scopes has a character that is not accepted"),
        (Principal("ann", as_any([7])), "scopes holds something else than texts"),
        (Principal("ann", session_id=""), "session_id is not a text of 1 to 256 characters"),
        (Principal("ann", session_id="\0"), "session_id has a character that is not accepted"),
        (Principal("ann", dependencies={"a": object()}), "dependencies cannot be written as JSON"),
        (Principal("ann", dependencies=nested(1_000)), "dependencies is no JSON object"),
        (Principal("ann", dependencies=nested(200_000)), "dependencies cannot be written as JSON"),
        (Principal("ann", dependencies=as_any([])), "dependencies is no JSON object"),
        (Principal("ann", session_state={"a": "\0"}), "session_state is no JSON object"),
        (Principal("ann", session_state={"a": float("nan")}), "session_state is no JSON object"),
        (TRUSTED, "trusted is set by the platform alone"),
        (Principal("ann", [ADMIN], trusted=True), "trusted is set by the platform alone"),
        ("ann", "it is no Principal, but of the type str"),
        ({"subject": "ann"}, "it is no Principal, but of the type dict"),
        (True, "it is no Principal, but of the type bool"),
    ],
)
def test_what_could_not_stand_in_a_token_is_refused(caller: object, reason: str) -> None:
    found = admit(caller, ADMIN)

    assert isinstance(found, TokenRefused)
    assert found.reason.startswith(reason)
    assert (found.refusal.status, found.refusal.detail) == (401, "Invalid caller")


@pytest.mark.parametrize("caller", [ANONYMOUS, Principal(session_id="s"), Principal(scopes=[])])
def test_who_has_neither_a_name_nor_a_scope_is_nobody(caller: Principal) -> None:
    found = admit(caller, ADMIN)

    assert is_nobody(caller)
    assert isinstance(found, TokenRefused)
    assert (found.refusal.detail, found.refusal.sent) == ("Authentication required", False)
    assert not is_nobody(Principal("ann"))
    assert not is_nobody(Principal(scopes=["agents:read"]))
    assert not is_nobody(None)


# --- decided on --------------------------------------------------------------------------------


def first_effect(platform: Platform, request: Request, caller: Principal | None) -> Any:
    """Return what is done once the decision has been made: a record, another effect, a status."""
    program = platform.answer(request, caller)
    program.send(None)
    program.send(NEW_YEAR_2026)
    try:
        effect = program.send(bytes(16))
    except StopIteration as stop:
        return stop.value.status
    finally:
        program.close()
    return {**asdict(effect.entry), "key_id": ""} if isinstance(effect, Record) else type(effect)


GRANTED: Final = (
    (),
    ("agents:read",),
    ("agents:agent_id:run", "teams:team_id:read"),
    ("sessions:write", "databases:*:read"),
    (ADMIN,),
)


@pytest.mark.parametrize("scopes", GRANTED, ids=" ".join)
@pytest.mark.parametrize("subject", ["ann", None])
def test_an_outer_caller_may_what_a_token_of_the_same_words_may(
    scopes: tuple[str, ...], subject: str | None
) -> None:
    """On every route; but a token of no words is somebody, and a caller of none is nobody."""
    closed, opened = platforms()
    caller = Principal(subject, scopes)
    bearer = f"Bearer {ISSUER.token(*scopes, sub=subject)}".encode()
    for route in ROUTES:
        target = route.template.replace("{channel}", "chat").replace("{", "").replace("}", "")
        by_token = Request(route.method, target, ((b"authorization", bearer),))
        if is_nobody(caller):
            by_token = Request(route.method, target)
        wanted = first_effect(closed, by_token, None)
        for platform in (closed, opened):
            found = first_effect(platform, Request(route.method, target), caller)
            assert found == wanted, (route.operation, scopes)


def test_nobody_is_let_in_where_authorization_is_off() -> None:
    for platform in platforms():
        with Client(platform, caller=ANONYMOUS) as client:
            for target in ("/agents", "/sessions", "/me", "/a"):
                refused = client.get(target)
                assert (refused.status, refused.json()["detail"]) == (
                    401,
                    "Authentication required",
                )
            assert client.get("/health").status == 200
            assert client.get("/ready").status == 200
            assert client.post("/chat/webhook", json={}).status == 403  # of the signature
            assert client.post("/agents/alpha/runs", form={"message": "hi"}).status == 401
            assert not [log for log in client.logs if log.event == "caller_refused"]


def test_what_is_wrong_with_a_caller_is_told_to_the_log_alone() -> None:
    for platform in platforms():
        with Client(platform, caller=Principal("a\0b", [ADMIN])) as client:
            for target in ("/agents", "/nowhere", "/ready"):
                assert client.get(target).json()["detail"] == "Invalid caller"
            assert client.get("/health").status == 200
            refused = [log for log in client.logs if log.event == "caller_refused"]

        assert len(refused) == 3
        assert refused[0].fields[1] == ("reason", "sub has a character that is not accepted")


@pytest.mark.parametrize(
    ("token", "caller", "status"),
    [
        (ISSUER.token(ADMIN, sub="root"), ANN, 403),
        (ISSUER.token(sub="bob"), ROOT, 200),
        ("of.another.issuer", ROOT, 200),
        (ISSUER.token(ADMIN, sub="root"), ANONYMOUS, 401),
    ],
)
def test_a_token_beside_a_caller_is_not_looked_at(
    token: str, caller: Principal, status: int
) -> None:
    """It neither gives rights to a caller who has none, nor takes those of one who has them."""
    for platform in platforms():
        with Client(platform, token=token, caller=caller) as client:
            assert client.get("/audit").status == status
            assert [log.event for log in client.logs] == ["database_migrated"]


def test_callers_see_their_own_alone() -> None:
    for platform in platforms():
        with Client(platform, caller=ANN) as ann:
            run = ann.run("alpha", "hi", session_id="hers")
            path = f"/agents/alpha/runs/{run['run_id']}"
            token = ISSUER.token(*SCOPES, sub="ann")
            closed = platform.config.authorization

            assert ann.get("/sessions/hers").status == 200
            assert ann.get(f"{path}/events").events()[-1].name == "RunCompleted"
            assert ann.get("/sessions/hers", caller=BOB).status == 404
            assert ann.get(f"{path}/events", caller=BOB).status == 404
            assert ann.delete("/sessions/hers", caller=BOB).status == 403
            assert ann.get("/sessions/hers", caller=Principal(None, SCOPES)).status == 404
            assert ann.get("/sessions/hers", caller=Principal("~ann", SCOPES)).status == 404
            assert ann.get("/sessions/hers", caller=evolve(ANN, session_id="x")).status == 404
            assert ann.get("/sessions/hers", caller=ROOT).status == 200
            assert ann.get("/agents/alpha", caller=Principal("ann")).status == 403
            # Who comes with a token of the same name is the same user.
            by_token: Any = {"caller": None, "token": token if closed else None}
            assert ann.get("/sessions/hers", **by_token).status == 200


def test_the_trail_names_the_caller_and_who_vouched() -> None:
    databases = (Database("main", "sqlite://"), Database("other", "sqlite://"))
    for platform in platforms(databases=databases):
        with Client(platform, caller=ANN) as client:
            client.run("alpha", "hi", session_id="hers")
            client.get("/sessions/hers?db_id=main", caller=BOB)
            client.get("/agents", caller=ANONYMOUS)
            client.settle()
            client.advance(1)
            found = client.get("/audit?db_id=main&order=asc", caller=ROOT).json()["data"]
        rows = [(r["subject"], r["key_id"], r["decision"], r["scope"], r["status"]) for r in found]

        assert rows == [
            ("ann", "outer application", "allow", "agents:*:run", 200),
            ("bob", "outer application", "allow", "sessions:read", 404),
        ]
        assert platform.telemetry.refusals.totals == {401: 1}


def test_the_entry_of_a_caller_is_that_of_its_token_but_for_the_key() -> None:
    entries: list[AuditEntry] = []
    for token, caller in ((ISSUER.token("agents:read", sub="ann"), None), (None, ANN)):
        with Client(demo(ISSUER), token=token, caller=caller) as client:
            client.get("/agents")
            entries += client.audit

    assert entries[1] == evolve(entries[0], key_id="outer application")


def test_what_an_outer_application_says_for_its_runs_no_caller_can_overwrite() -> None:
    caller = evolve(ANN, dependencies={"tenant": "acme"}, session_state={"plan": "gold"})
    sent: RunFields = {
        "session_id": "s",
        "dependencies": {"tenant": "evil"},
        "session_state": {"plan": "free", "a": 1},
    }
    for platform in platforms():
        with Client(platform, caller=caller) as client:
            run = client.run("alpha", "hi", **sent)
            state = client.get("/sessions/s").json()["session_state"]

        assert run["status"] == "COMPLETED"
        assert state == {"a": 1, "plan": "gold"}


def test_a_caller_learns_its_own_rights() -> None:
    for platform in platforms():
        with Client(platform, caller=ANN) as client:
            told = client.get("/me").json()
        needs = {(right["method"], right["route"]): right for right in told["routes"]}

        assert (told["sub"], told["authorization"], told["admin"]) == ("ann", True, False)
        assert needs["GET", "/agents"]["needs"].startswith("agents:read or ")
        assert needs["GET", "/audit"]["missing"] == "audit:read"


# --- pages of other origins --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        (None, True),
        ("https://app.example.com", True),  # its own page: of this host
        ("http://localhost:3000", True),  # on the list
        ("https://evil.example.net", False),
        ("https://app.example.com.evil.net", False),
        ("https://app.example.com:8443", False),
        ("null", False),
    ],
)
def test_a_foreign_page_changes_nothing_for_a_user_whom_a_cookie_names(
    origin: str | None, allowed: bool
) -> None:
    headers = {"host": "app.example.com", **({} if origin is None else {"origin": origin})}
    for platform in platforms():
        with Client(platform, caller=ANN) as client:
            form = {"message": "hi", "stream": "false"}
            answer = client.post("/agents/alpha/runs", form=form, headers=headers)
            assert answer.status == (200 if allowed else 403)
            if not allowed:
                words = "This origin is not among cors_allowed_origins"
                assert answer.json() == {"detail": words, "error_code": "FORBIDDEN"}
            assert client.get("/agents", headers=headers).status == 200


def test_the_answer_to_a_caller_can_be_closed_at_every_effect() -> None:
    request = Request("GET", "/agents", ((b"x-request-id", b"r"),))
    bad = Principal("\0")
    ended: tuple[Any, int] = (Now(), NEW_YEAR_2026)
    script: list[Any] = [ended, (Log, None), ended]
    for platform in platforms():
        seen = close_at_every_effect(
            lambda platform=platform: platform.answer(request, bad),  # type: ignore[misc]
            script,
        )
        assert seen == 3


def test_what_an_application_changes_afterwards_reaches_no_run() -> None:
    given: dict[str, Any] = {"tenant": ["acme"]}
    found = admit(Principal("ann", dependencies=given), ADMIN)
    given["tenant"].append("evil")

    assert isinstance(found, Principal)
    assert json.dumps(found.dependencies) == '{"tenant": ["acme"]}'
