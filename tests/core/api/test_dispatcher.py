from __future__ import annotations

import json
from typing import Any, Final

import pytest
from attrs import evolve

from legation import Platform
from legation.access.authenticator import Authenticator, TokenRefused
from legation.access.decide import Principal
from legation.access.posture import Door
from legation.api.routes import ROUTES
from legation.effects import Log, Now, RandomBytes, Record, Transact
from legation.http.messages import Answer, Headers, Request, Response
from legation.shares.limits import LimitOverrides, PlatformLimits
from legation.store.failures import NotServed, Unavailable
from legation_testing import NEW_YEAR_2026, Script, close_at_every_effect, effects_of, play

from ...callers import Issuer, demo

ISSUER: Final = Issuer()
OPEN: Final = demo(None)
CLOSED: Final = demo(ISSUER)
ARRIVED: Final = [(Now(), NEW_YEAR_2026), (RandomBytes(16), bytes(16))]
EXCUSED: Final = [(RandomBytes(8), b"incident"), (Log, None)]
RECORDED: Final = [(Record, None)]
ENDED: Final = (Now(), NEW_YEAR_2026)


def asking(method: str, target: str, *scopes: str, **more: Any) -> Request:
    bearer = f"Bearer {ISSUER.token(*scopes, **more)}".encode()
    return Request(method, target, ((b"authorization", bearer),), "192.0.2.1")


def played(platform: Platform, request: Request, script: Script) -> Response:
    """Play a request, and close it at every effect besides."""
    script = (*script, ENDED)
    assert close_at_every_effect(lambda: platform.answer(request), script) == len(script)
    answer: Answer = play(platform.answer(request), script)
    assert isinstance(answer, Response)
    return answer


def entries(platform: Platform, request: Request, answers: Script = ()) -> list[Any]:
    """Return what is recorded of a request."""
    kept: list[Any] = []

    def keeps(effect: object) -> bool:
        if isinstance(effect, Record):
            kept.append(effect.entry)
        return isinstance(effect, Record)

    play(platform.answer(request), [*ARRIVED, *answers, (keeps, None), ENDED])
    return kept


def test_an_answer_is_recorded_once_it_is_known() -> None:
    answer = played(OPEN, Request("GET", "/agents"), [*ARRIVED, *RECORDED])

    assert answer.status == 200
    assert [agent["id"] for agent in json.loads(answer.body)] == ["alpha", "beta"]


def test_what_is_public_is_not_recorded() -> None:
    for platform in (OPEN, CLOSED):
        assert played(platform, Request("GET", "/health"), ARRIVED).status == 200


@pytest.mark.parametrize("target", ["/agents", "/nowhere", "/ready?x"])
@pytest.mark.parametrize(
    ("token", "reason", "detail"),
    [
        (ISSUER.token(exp=1), "expired", "Token has expired"),
        (ISSUER.token(aud=1), "aud is not an array", "Invalid token"),
        ("secret.of.mine", "not canonical base64url", "Invalid token"),
    ],
    ids=["expired", "claim", "rubbish"],
)
def test_what_is_wrong_with_a_token_is_told_to_the_log_alone(
    target: str, token: str, reason: str, detail: str
) -> None:
    headers: Headers = ((b"authorization", b"Bearer " + token.encode()),)
    logged = Log("info", "token_refused", (("request_id", bytes(16).hex()), ("reason", reason)))
    answer = played(demo(ISSUER), Request("GET", target, headers), [*ARRIVED, (logged, None)])

    assert json.loads(answer.body) == {"detail": detail, "error_code": "UNAUTHENTICATED"}


@pytest.mark.parametrize(
    "headers", [(), ((b"authorization", b"Basic abc"),)], ids=["nothing", "another scheme"]
)
def test_who_sends_no_token_is_not_told_to_the_log(headers: Headers) -> None:
    request = Request("GET", "/agents", headers)

    assert played(CLOSED, request, ARRIVED).status == 401


def test_of_a_flood_of_bad_tokens_the_log_has_a_hundred_lines() -> None:
    platform = demo(ISSUER)
    platform.telemetry.keep_lines()
    request = Request("GET", "/agents", ((b"authorization", b"Bearer a.b.c"),))
    for number in range(500):  # each has two: what is wrong with its token, and that of a request
        logged = [(Log, None)] if number < 50 else []
        play(platform.answer(request), [*ARRIVED, *logged, ENDED])

    assert len(platform.telemetry.take_lines()) == 50
    assert platform.telemetry.refusals.totals == {401: 500}
    assert platform.telemetry.refusals.unlogged == 900


def test_the_record_says_who_asked_for_what_and_what_came_of_it() -> None:
    [entry] = entries(CLOSED, asking("GET", "/agents/alpha", "agents:alpha:read", sub="ada"))

    assert entry.at_us == NEW_YEAR_2026
    assert entry.request_id == bytes(16).hex()
    assert (entry.subject, entry.client) == ("ada", "192.0.2.1")
    assert (entry.operation, entry.resource) == ("get_agent", "alpha")
    assert (entry.decision, entry.scope, entry.status) == ("allow", "agents:alpha:read", 200)
    assert entry.key_id


@pytest.mark.parametrize(
    ("platform", "request_", "decision", "scope", "status"),
    [
        (OPEN, Request("GET", "/agents/alpha"), "open", "", 200),
        (CLOSED, asking("GET", "/agents/ghost", "agents:read"), "allow", "agents:read", 404),
        (CLOSED, asking("GET", "/agents/alpha"), "deny", "agents:alpha:read", 403),
        (CLOSED, asking("GET", "/agents", "agents:alpha:run"), "allow", "agents:read", 200),
    ],
)
def test_every_decision_on_whoever_is_known_is_recorded(
    platform: Platform, request_: Request, decision: str, scope: str, status: int
) -> None:
    [entry] = entries(platform, request_)

    assert (entry.decision, entry.scope, entry.status) == (decision, scope, status)


def test_a_webhook_is_a_matter_of_its_signature_and_not_of_the_record() -> None:
    request = asking("GET", "/chat/webhook?hub.mode=subscribe", "platform:admin")

    assert played(CLOSED, request, ARRIVED).status == 403


def test_nothing_leads_nowhere() -> None:
    for target in ("/nowhere", "/a//b", "/%2e%2e", "nowhere"):
        assert played(OPEN, Request("GET", target), ARRIVED).status == 404
        assert played(CLOSED, Request("GET", target), ARRIVED).status == 401
        assert played(CLOSED, asking("GET", target), ARRIVED).status == 404


def test_a_method_that_is_not_taken_is_told_which_are() -> None:
    for platform, request in (
        (OPEN, Request("DELETE", "/agents")),
        (CLOSED, asking("BREW", "/agents")),
        (CLOSED, asking("get", "/agents", "agents:read")),
    ):
        answer = played(platform, request, ARRIVED)
        assert answer.status == 405
        assert dict(answer.headers)[b"allow"] == b"GET, HEAD, OPTIONS"
    assert played(CLOSED, Request("DELETE", "/agents"), ARRIVED).status == 401
    for target in ("/health", "/chat/webhook"):  # everybody may know that these are there
        assert played(CLOSED, Request("DELETE", target), ARRIVED).status == 405


def test_head_is_where_get_is() -> None:
    answer = played(OPEN, Request("HEAD", "/agents"), [*ARRIVED, *RECORDED])

    assert (answer.status, answer.body) == (200, b"")
    assert int(dict(answer.headers)[b"content-length"]) > 2
    posted = played(OPEN, Request("OPTIONS", "/me/explain"), ARRIVED)
    assert dict(posted.headers)[b"allow"] == b"OPTIONS, POST"


def test_options_and_preflights_need_nobody() -> None:
    origin: Headers = ((b"origin", b"http://localhost:3000"),)
    preflight = (*origin, (b"access-control-request-method", b"POST"))

    plain = played(CLOSED, Request("OPTIONS", "/agents", origin), ARRIVED)
    assert (plain.status, plain.body) == (204, b"")
    answer = played(CLOSED, Request("OPTIONS", "/agents", preflight), ARRIVED)
    assert dict(answer.headers)[b"access-control-allow-methods"] == b"GET, HEAD, OPTIONS"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ZeroDivisionError("a secret"), 500, "INTERNAL_SERVER_ERROR"),
        (Unavailable("a secret"), 503, "SERVICE_UNAVAILABLE"),
    ],
)
def test_what_a_handler_did_not_foresee_is_answered_and_recorded(
    error: Exception, status: int, code: str
) -> None:
    request = asking("GET", "/sessions", "sessions:read")
    script = [*ARRIVED, (Transact, error), *EXCUSED, *RECORDED]
    answer = played(CLOSED, request, script)

    assert answer.status == status
    told = json.loads(answer.body)
    assert told["error_code"] == code
    assert b"incident".hex() in told["detail"]
    assert "secret" not in told["detail"]
    [entry] = entries(CLOSED, request, [(Transact, error), *EXCUSED])
    assert entry.status == status


def test_a_database_that_is_not_served_says_when_to_come_back() -> None:
    script = [*ARRIVED, (Transact, NotServed("Not now")), *EXCUSED, *RECORDED]
    answer = played(CLOSED, asking("GET", "/sessions", "sessions:read"), script)

    assert answer.status == 503
    assert json.loads(answer.body)["detail"] == "Not now"
    assert dict(answer.headers)[b"retry-after"] == b"5"


def test_the_log_has_the_place_of_an_error_and_not_its_text() -> None:
    logged: list[Log] = []

    def keeps(effect: object) -> bool:
        if isinstance(effect, Log):
            logged.append(effect)
        return isinstance(effect, Log)

    failure = (Transact, ZeroDivisionError("a secret"))
    script = [*ARRIVED, failure, (RandomBytes(8), b"incident"), (keeps, None), *RECORDED, ENDED]
    play(OPEN.answer(Request("GET", "/sessions")), script)
    fields = dict(logged[0].fields)

    assert (logged[0].level, logged[0].event) == ("error", "request_failed")
    assert fields["incident"] == b"incident".hex()
    assert fields["request_id"] == bytes(16).hex()
    assert str(fields["error"]).startswith("ZeroDivisionError in ")
    assert "secret" not in str(logged)


class Broken(Authenticator):
    """A authenticator with a bug."""

    def caller(self, request: Request, now_us: int) -> Principal | TokenRefused:
        raise LookupError("a secret")


def test_a_bug_before_the_handler_lets_nobody_in() -> None:
    platform = demo(ISSUER)
    authenticator = platform._dispatcher.authenticator
    assert authenticator is not None
    files = (authenticator.key_file, authenticator.revocation_file)
    broken = Broken(authenticator.config, authenticator.rules, authenticator.keys, *files)
    platform._dispatcher = evolve(platform._dispatcher, authenticator=broken)
    answer = played(platform, Request("GET", "/agents"), [*ARRIVED, *EXCUSED])

    assert answer.status == 500
    assert b"secret" not in answer.body


# --- asking about it ----------------------------------------------------------------------------

ADA: Final = Principal("ada", frozenset({"agents:alpha:run", "sessions:read"}))
ROOT: Final = Principal("root", admin_scope="platform:admin")


@pytest.mark.parametrize(
    ("principal", "method", "target", "told"),
    [
        (ADA, "GET", "/nowhere", {"allowed": False, "reason": "no route"}),
        (ADA, "GET", "/a//b", {"allowed": False, "reason": "no route"}),
        (ADA, "PUT", "/agents", {"allowed": False, "reason": "method"}),
        (ADA, "OPTIONS", "/agents", {"allowed": True}),
        (ADA, "GET", "/chat/webhook", {"allowed": False, "reason": "signature"}),
        (ADA, "GET", "/health", {"allowed": True, "by": "excluded route"}),
        (ADA, "GET", "/me", {"allowed": True, "by": "any valid token"}),
        (ADA, "GET", "/agents", {"allowed": True, "by": "agents:read", "only": ["alpha"]}),
        (ADA, "HEAD", "/agents", {"allowed": True, "method": "GET"}),
        (ADA, "POST", "/agents/alpha/runs", {"allowed": True, "by": "agents:alpha:run"}),
        (
            ADA,
            "POST",
            "/agents/beta/runs?x=1",
            {"allowed": False, "reason": "scope", "missing": "agents:beta:run"},
        ),
        (ADA, "GET", "/sessions/x", {"allowed": True, "by": "sessions:read"}),
        (ROOT, "GET", "/sessions/x", {"allowed": True, "by": "platform:admin"}),
    ],
)
def test_where_a_request_would_lead(
    principal: Principal, method: str, target: str, told: dict[str, Any]
) -> None:
    explained = CLOSED._dispatcher.explain(principal, method, target)

    assert {name: explained.get(name) for name in told} == told


def test_what_is_explained_is_what_happens() -> None:
    for route in ROUTES:
        target = route.template.replace("{channel}", "nobody").replace("{", "").replace("}", "")
        for scopes in ((), ("agents:agent_id:run",), ("databases:read",), ("platform:admin",)):
            token = ISSUER.token(*scopes)
            said = CLOSED.explain(token.encode(), route.method, target, NEW_YEAR_2026)
            if said.get("reason") == "signature":
                continue
            request = asking(route.method, target, *scopes)
            program = CLOSED.answer(request)
            program.send(None)
            program.send(NEW_YEAR_2026)
            try:
                effect = program.send(bytes(16))
            except StopIteration as stop:
                allowed = stop.value.status not in (401, 403)
            else:
                allowed = not isinstance(effect, Record) or effect.entry.decision == "allow"
                program.close()
            assert said["allowed"] == allowed, (route.operation, scopes, said)


def test_the_rights_of_a_caller_are_told_route_by_route() -> None:
    rights = {(r["method"], r["route"]): r for r in CLOSED._dispatcher.rights(ADA)}

    assert len(rights) == len(ROUTES)
    run = rights["POST", "/agents/{agent_id}/runs"]
    assert (run["allowed"], run["only"]) == (True, ["alpha"])
    assert rights["GET", "/teams/{team_id}"]["missing"] == "teams:read"
    trusted = OPEN._dispatcher.rights(Principal(trusted=True))
    by = {right.get("by") for right in trusted if right.get("reason") != "signature"}
    assert by <= {"excluded route", "authorization is off"}


# --- rates

TWO: Final = PlatformLimits(
    requests_per_second=0.5,
    request_burst=2,
    anonymous=LimitOverrides(request_burst=1),
    scopes={"agents:beta:read": LimitOverrides(request_burst=3)},
    subjects={"eve": LimitOverrides(requests_per_second=0)},
)


def give(effect: object) -> object:
    match effect:
        case Now():
            return NEW_YEAR_2026
        case RandomBytes(size):
            return bytes(size)
        case Transact():
            return Unavailable("")
        case _:
            return None


def sent(platform: Platform, request: Request, caller: Principal | None = None) -> Response:
    """Return the answer to a request, whatever it takes; no database answers."""
    _, answer = effects_of(platform.answer(request, caller), give)
    assert isinstance(answer, Response)
    return answer


def count_answers(platform: Platform, request: Request) -> int:
    """Return how many requests are answered before one is refused; 20 are enough."""
    for number in range(20):
        if sent(platform, request).status == 429:
            return number
    return 20


def test_who_asks_too_often_is_refused_before_anything_is_read_or_recorded() -> None:
    platform = demo(ISSUER, limits=TWO)
    request = asking("GET", "/sessions", "sessions:read")
    for _ in range(2):
        entries(platform, request, [(Transact, Unavailable("")), *EXCUSED])

    answer = played(platform, request, ARRIVED)

    headers = dict(answer.headers)
    assert answer.status == 429
    assert json.loads(answer.body) == {
        "detail": "Too many requests: the share is 2 in 4 s; try again in 2 s",
        "error_code": "TOO_MANY_REQUESTS",
    }
    assert headers[b"retry-after"] == b"2"
    assert headers[b"ratelimit-policy"] == b'"requests";q=2;w=4'
    assert headers[b"ratelimit"] == b'"requests";r=0;t=2'


BOB: Final[dict[str, Any]] = {"sub": "bob"}


RATED: Final[dict[str, tuple[Request, int]]] = {
    "a name": (asking("GET", "/agents", "agents:read", **BOB), 2),
    "a scope": (asking("GET", "/agents", "agents:read", "agents:beta:read", **BOB), 3),
    "a name without a limit": (asking("GET", "/agents", "agents:read", sub="eve"), 20),
    "a name that may not": (asking("GET", "/agents", **BOB), 2),
    "a name, nowhere": (asking("GET", "/nowhere", **BOB), 2),
    "a name, by another method": (asking("DELETE", "/agents", **BOB), 2),
    "a token without a name": (asking("GET", "/agents", "agents:read", sub=None), 1),
    "a bad token": (asking("GET", "/agents", exp=1), 1),
    "a bad token, nowhere": (asking("GET", "/nowhere", exp=1), 1),
    "no token": (Request("GET", "/agents", client="192.0.2.1"), 1),
    "no token, nowhere": (Request("GET", "/nowhere"), 1),
    "what is public": (Request("GET", "/info"), 1),
    "HEAD": (Request("HEAD", "/info"), 1),
    "health": (Request("GET", "/health"), 20),
    "readiness": (Request("GET", "/ready"), 20),
    "measurements": (asking("GET", "/metrics/prometheus", "metrics:read", **BOB), 20),
    "a webhook": (Request("GET", "/chat/webhook"), 20),
    "OPTIONS": (Request("OPTIONS", "/agents"), 20),
}


@pytest.mark.parametrize("who", RATED)
def test_each_caller_has_its_rate(who: str) -> None:
    request, answers = RATED[who]

    assert count_answers(demo(ISSUER, limits=TWO), request) == answers


def test_where_authorization_is_off_addresses_have_rates() -> None:
    platform = demo(None, limits=TWO)

    assert count_answers(platform, Request("GET", "/agents", client="2001:db8::1")) == 1
    assert count_answers(platform, Request("GET", "/agents", client="2001:db8::2")) == 0
    assert count_answers(platform, Request("GET", "/agents", client="2001:db8:1::")) == 1


def test_whoever_an_outer_application_names_has_a_rate_of_its_own() -> None:
    platform = demo(None, limits=TWO)

    def status(caller: Principal) -> int:
        return sent(platform, Request("GET", "/agents"), caller).status

    ann, eve = (Principal(name, frozenset({"agents:read"})) for name in ("ann", "eve"))
    assert [status(ann) for _ in range(3)] == [200, 200, 429]
    assert [status(eve) for _ in range(3)] == [200, 200, 200]
    assert [status(Principal()) for _ in range(2)] == [401, 429]


def test_an_address_that_is_over_its_rate_does_not_stop_who_has_a_token() -> None:
    platform = demo(ISSUER, limits=TWO)
    assert count_answers(platform, asking("GET", "/agents", exp=1)) == 1

    assert count_answers(platform, asking("GET", "/agents", "agents:read", **BOB)) == 2


def test_refusals_are_counted_by_share_for_those_who_watch() -> None:
    platform = demo(None, limits=evolve(TWO, requests_per_second=0.001))
    metrics = Request("GET", "/metrics/prometheus")
    assert b"share_refusals" not in sent(platform, metrics).body
    assert count_answers(platform, Request("GET", "/agents")) == 1

    for _ in range(2):
        assert sent(platform, Request("GET", "/agents")).status == 429
    assert b'legation_share_refusals_total{share="requests"} 3\n' in sent(platform, metrics).body


def test_each_living_node_has_its_part_of_a_rate() -> None:
    platform = demo(None, limits=PlatformLimits(requests_per_second=8, request_burst=8))
    platform.context.shares.note_others("main", 3)

    assert count_answers(platform, Request("GET", "/agents")) == 2


# --- who is trusted where authorization is off ---------------------------------------------------


def status(platform: Platform, request: Request, caller: Principal | None = None) -> int:
    """Return the status of the answer, whatever it asks for on its way."""
    program = platform.answer(request, caller)
    answers: dict[type[Any], Any] = {Now: NEW_YEAR_2026, RandomBytes: bytes(16)}
    try:
        effect: Any = next(program)
        while True:
            effect = program.send(answers.get(effect.__class__))
    except StopIteration as stop:
        answer: Answer = stop.value
        return answer.status


def named(host: bytes, client: str = "", target: str = "/agents") -> Request:
    return Request("GET", target, ((b"accept", b"*/*"), (b"host", host)), client)


def test_a_host_that_a_stranger_can_own_is_refused_where_authorization_is_off() -> None:
    platform = demo(None, allowed_hosts=["app.example"])
    hosts = (b"evil.example", b"localhost:1", b"localhost:1", b"app.example:443")

    assert [status(platform, named(host)) for host in hosts] == [403, 200, 200, 200]
    assert status(platform, Request("GET", "/agents")) == 200
    assert status(platform, named(b"evil.example", target="/health")) == 200
    assert status(platform, named(b"evil.example"), Principal("ann", ["agents:read"])) == 200


def test_hosts_that_are_listed_bind_where_authorization_is_on() -> None:
    bearer = (b"authorization", f"Bearer {ISSUER.token('agents:read')}".encode())
    hosts = (b"evil.example", b"app.example")
    asked = [Request("GET", "/agents", (bearer, (b"host", host))) for host in hosts]

    assert [status(CLOSED, one) for one in asked] == [200, 200]
    listed = demo(ISSUER, allowed_hosts=["app.example"])
    assert [status(listed, one) for one in asked] == [403, 200]


def test_other_machines_are_refused_at_a_door_that_is_local() -> None:
    platform = demo(None)
    near, far = named(b"localhost", "127.0.0.1"), named(b"localhost", "192.0.2.1")
    before = status(platform, far)
    platform.door = Door(local_only=True)

    assert (before, status(platform, far), status(platform, near)) == (200, 403, 200)
    assert status(platform, far, Principal("ann", ["agents:read"])) == 200
    assert (platform.door.local_only, platform.find_unsafe()[0].severity) == (True, "low")


def test_a_local_door_leaves_tokens_alone() -> None:
    platform = demo(ISSUER)
    platform.door = Door(local_only=True)

    assert status(platform, asking("GET", "/agents", "agents:read")) == 200
    listed = demo(ISSUER, allowed_hosts=["app.example"])
    listed.door = Door(local_only=True)
    assert status(listed, asking("GET", "/agents", "agents:read")) == 200
