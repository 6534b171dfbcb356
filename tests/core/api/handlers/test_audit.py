"""The audit trail through the front door: what is recorded, when, and who may read it."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any, Final, cast

import pytest
from attrs import evolve
from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from legation import Database, Platform
from legation.api.call import resource_of
from legation.api.handlers.audit import AuditQuery, _Cursor, _cut_page, verify_trail
from legation.api.routes import ROUTES
from legation.effects import AwaitOutcome, Program, Record, Transact
from legation.store.audit import AppendAudit, OldPlace, OldRows, ReadOldRows
from legation.store.audit_entries import AuditEntry, OldRow
from legation.store.audit_lists import BUDGET, AuditRow, ListAudit, Place
from legation.store.audit_pages import Head, seal_page
from legation.store.audit_verify import Broken, Intact
from legation.store.failures import Busy, CommitLost
from legation.store.inbox import INBOX, FailMessage, NewMessage, PutMessages
from legation.store.leased_queue import ClaimItems
from legation.store.refusals import RefusalCount
from legation.store.run_pages import ReadRuns
from legation.store.run_reads import FetchRun
from legation.store.runs import StartRun
from legation.store.units import Unit
from legation_testing import Client, Crashed
from legation_testing.matching import is_audited

from ....callers import Issuer, demo

ISSUER: Final = Issuer(ed25519.Ed25519PrivateKey.generate())
DATABASES: Final = (Database("main", "sqlite://"), Database("second", "sqlite://"))
READER: Final = ISSUER.token("audit:read", sub="auditor")
ALL: Final = ("agents:run", "teams:run", "sessions:read", "sessions:write", "sessions:delete")
ADA: Final = ISSUER.token("agents:alpha:run", "sessions:read", sub="ada")


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(demo(ISSUER, databases=DATABASES)) as client:
        yield client


def ask(effect: Transact[Any]) -> Program[Any]:
    return (yield from effect)


def store(client: Client, unit: Unit[Any]) -> Any:
    return client.simulation.run(ask(Transact("main", unit)))


def trail(client: Client, database: str = "main") -> tuple[AuditRow, ...]:
    """Return the rows of a database, once every batch is written."""
    client.settle()
    everything = ListAudit(Place(0), False, 10_000, 0, 1 << 60)
    rows: tuple[AuditRow, ...] = client.simulation.run(ask(Transact(database, everything))).rows
    return rows


def refusals(client: Client) -> tuple[RefusalCount, ...]:
    """Return what the process has counted."""
    return cast("Platform", client.platform).telemetry.refusals.take()


def page(client: Client, **query: Any) -> Any:
    response = client.get("/audit", query=query, token=READER)
    assert response.status == 200, response.body
    return response.json()


def start(client: Client, **form: Any) -> Any:
    return client.post("/agents/alpha/runs", form={"message": "hi", "stream": "false", **form})


# --- What is recorded ---------------------------------------------------------------------------

REQUESTS: Final[dict[str, tuple[str, str, str, dict[str, Any], tuple[Any, ...]]]] = {
    "a read": (
        "GET",
        "/sessions?db_id=main",
        ADA,
        {},
        ("get_sessions", "", "allow", "sessions:read", 200),
    ),
    "HEAD": (
        "HEAD",
        "/sessions?db_id=main",
        ADA,
        {},
        ("get_sessions", "", "allow", "sessions:read", 200),
    ),
    "a missing scope": (
        *("GET", "/databases", ADA, {}),
        ("get_databases", "", "deny", "databases:read", 403),
    ),
    "nothing there": (
        *("GET", "/sessions/none?db_id=main", ADA, {}),
        ("get_session_by_id", "none", "allow", "sessions:read", 404),
    ),
    "a form with faults": (
        *("POST", "/agents/alpha/runs", ADA, {"form": {"nonsense": "1"}}),
        ("create_agent_run", "alpha", "allow", "agents:alpha:run", 422),
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_leaves_one_row(client: Client, name: str) -> None:
    method, target, token, options, expected = REQUESTS[name]
    response = client.request(
        method, target, token=token, headers=[("x-request-id", "mine")], **options
    )

    (row,) = trail(client)
    entry = row.entry
    assert response.status == expected[-1]
    told = (entry.operation, entry.resource, entry.decision, entry.scope, entry.status)
    assert told == expected
    assert entry.subject == "ada"
    assert entry.key_id
    assert (entry.request_id, entry.client) == ("mine", "127.0.0.1")


UNKNOWN: Final[dict[str, tuple[str, str, str, tuple[str, int]]]] = {
    "no token": ("GET", "/agents/alpha", "", ("/agents/{agent_id}", 401)),
    "a bad token": ("GET", "/me", ADA + "x", ("/me", 401)),
    "no route": ("GET", "/nowhere", "", ("*", 401)),
    "no method": ("DELETE", "/info", "", ("*", 405)),
    "no signature": ("POST", "/chat/webhook", "", ("/{channel}/webhook", 403)),
    "no channel": ("POST", "/none/webhook", "", ("/{channel}/webhook", 404)),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_refusal_of_which_nobody_knows_who_asked_is_counted_and_not_recorded(
    client: Client, name: str
) -> None:
    method, target, token, (route, status) = UNKNOWN[name]
    answers = [client.request(method, target, token=token).status for _ in range(3)]

    assert answers == [status] * 3
    assert trail(client) == ()
    (counted,) = refusals(client)
    assert counted == RefusalCount(counted.minute, "127.0.0.1", route, status, 3)


@pytest.mark.parametrize("target", ["/agents", "/nowhere", "/metrics/prometheus", "/agents/none"])
def test_a_refusal_of_a_known_caller_is_not_counted(client: Client, target: str) -> None:
    """Whose token has no subject is known by its key."""
    response = client.get(target, token=ISSUER.token("sessions:read", sub=None))

    assert response.status in (403, 404)
    assert refusals(client) == ()
    recorded = {row.entry.status for row in trail(client)}
    assert recorded == (set() if target == "/nowhere" else {response.status})


@pytest.mark.parametrize("target", ["/health", "/ready", "/metrics/prometheus"])
@pytest.mark.parametrize("issuer", [ISSUER, None], ids=["authorized", "open"])
def test_a_probe_that_is_let_in_is_not_recorded(target: str, issuer: Issuer | None) -> None:
    with Client(demo(issuer)) as client:
        client.get(target, token=ISSUER.token("metrics:read")).expect_success()

        assert trail(client) == ()


def test_where_nobody_is_known_at_all_refusals_are_counted() -> None:
    with Client(demo(None)) as client:
        assert client.get("/agents/none").status == 404
        assert client.get("/agents/alpha").status == 200

        assert [row.entry.status for row in trail(client)] == [200]
        (counted,) = refusals(client)
    assert (counted.route, counted.status) == ("/agents/{agent_id}", 404)


@pytest.mark.parametrize(
    "sent", ["x" * 7_900, "x" * 1_025, "%E2%80%A8"], ids=["long", "longer than an id", "a line end"]
)
def test_what_can_be_no_id_does_not_enter_the_trail(client: Client, sent: str) -> None:
    client.get(f"/agents/{sent}", token=ISSUER.token("agents:read"))
    client.get(f"/agents/{sent}", token=ADA)
    client.get(f"/agents/alpha/runs/{sent}?session_id=s", token=ADA)

    assert [row.entry.resource for row in trail(client)] == ["*", "*", "alpha/*"]


def test_the_longest_id_is_in_the_trail(client: Client) -> None:
    sent = "x" * 1_024
    client.get(f"/sessions/{sent}?db_id=main", token=ADA)

    assert [row.entry.resource for row in trail(client)] == [sent]


@pytest.mark.parametrize("target", ["/health", "/", "/nowhere", "/chat/webhook"])
def test_where_nobodys_rights_are_asked_nothing_is_recorded(client: Client, target: str) -> None:
    client.get(target)

    assert trail(client) == ()


def test_without_authorization_the_decision_is_open() -> None:
    with Client(demo(None)) as client:
        client.get("/agents")
        (row,) = trail(client)

    assert (row.entry.decision, row.entry.subject) == ("open", None)


@pytest.mark.parametrize("background", [False, True])
def test_the_start_of_a_run_is_recorded_once_and_with_the_run(
    client: Client, background: bool
) -> None:
    client.token = ADA
    response = start(client, background=str(background).lower())

    (row,) = trail(client)
    assert response.status == row.entry.status == (202 if background else 200)
    assert row.entry.resource == f"alpha/{response.json()['run_id']}"
    assert not [done for done in client.effects if isinstance(done.effect, Record)]
    assert client.audit == [row.entry]


def test_at_every_crash_the_run_and_its_record_are_both_there_or_neither() -> None:
    seen: set[int] = set()
    number = 0
    while True:
        with Client(lambda: demo(ISSUER, databases=DATABASES), token=ADA) as client:
            number += 1
            client.crash_at(number)
            try:
                start(client)
            except Crashed:
                client.restart()
                crashed = True
            else:
                crashed = False
                client.forget_crash()
            runs = stored_runs(client)
            rows = [r.entry for r in trail(client) if r.entry.operation == "create_agent_run"]
            assert len(rows) == len(runs) == len({entry.resource for entry in rows})
            seen.add(len(runs))
            client.simulation.take_failures()
            if not crashed:
                break
    assert seen == {0, 1}
    assert number > 10


def stored_runs(client: Client) -> tuple[Any, ...]:
    sessions = client.get("/sessions?db_id=main", token=ADA).json()["data"]
    runs: list[Any] = []
    for session in sessions:
        listed = ReadRuns("ada", session["session_id"], attrgetter("run_id"))
        runs += client.simulation.run(ask(Transact("main", listed))).items
    return tuple(runs)


def test_a_change_that_fails_leaves_one_row_with_what_was_answered(client: Client) -> None:
    client.token = ADA
    client.fail_at(StartRun, Busy(), times=None)
    response = start(client)

    (row,) = trail(client)
    assert response.status == row.entry.status == 503
    assert row.entry.decision == "allow"


def test_a_commit_whose_answer_was_lost_is_recorded_at_least_once(client: Client) -> None:
    client.token = ADA
    client.fail_at(StartRun, CommitLost(), after=True)
    response = start(client)

    resource = f"alpha/{response.json()['run_id']}"
    assert [row.entry.resource for row in trail(client)] == [resource, "alpha"]


def test_what_fails_behind_a_kept_change_is_told_as_well(client: Client) -> None:
    client.token = ADA
    client.fail_at(AwaitOutcome, ZeroDivisionError())
    response = start(client)

    rows = trail(client)
    assert response.status == 500
    assert [row.entry.status for row in rows] == [200, 500]
    assert len({row.entry.request_id for row in rows}) == 1


def test_a_bug_in_a_handler_is_recorded_with_its_status(client: Client) -> None:
    client.fail_at(FetchRun, ZeroDivisionError())
    client.get("/agents/alpha/runs/r1", token=ADA)

    (row,) = trail(client)
    assert row.entry.status == 500


MESSAGE: Final = {"session_ids": ["s1"], "session_types": ["agent"]}
CHANGES: Final[dict[str, tuple[str, str, dict[str, Any], int, str]]] = {
    "create_agent_run": ("POST", "/agents/alpha/runs", {"form": {"message": "x"}}, 200, "alpha/*"),
    "create_team_run": ("POST", "/teams/crew/runs", {"form": {"message": "x"}}, 200, "crew/*"),
    "cancel_agent_run": ("POST", "/agents/alpha/runs/{run}/cancel", {}, 200, "alpha/*"),
    "fork_agent_run": (
        *("POST", "/agents/alpha/runs/{run}/fork", {"form": {"stream": "false"}}, 200),
        "alpha/{run}/*",
    ),
    "fork_session": ("POST", "/sessions/s1/fork?db_id=main", {"json": {}}, 201, "s1/*"),
    "create_session": ("POST", "/sessions?db_id=main", {"json": {"session_id": "s2"}}, 201, "s2"),
    "rename_session": (
        *("POST", "/sessions/s1/rename?db_id=main", {"json": {"session_name": "n"}}, 200),
        "s1",
    ),
    "update_session": ("PATCH", "/sessions/s1?db_id=main", {"json": {"metadata": {}}}, 200, "s1"),
    "delete_session": ("DELETE", "/sessions/s1?db_id=main", {}, 204, "s1"),
    "delete_session_run": (
        *("DELETE", "/sessions/s1/runs/{run}?db_id=main", {}, 204),
        "s1/{run}",
    ),
    "delete_sessions": ("DELETE", "/sessions?db_id=main", {"json": MESSAGE}, 204, "s1"),
}
NOT_IN_THE_TRAIL_ALONE: Final = {
    "cancel_team_run",  # as that of an agent
    "fork_team_run",
    "explain_request",  # changes nothing
    "explain_access",
    "continue_agent_run",  # refuses, as no run waits for a person yet
    "continue_team_run",
    "resume_agent_run",  # reads
    "resume_team_run",
    "migrate_database",  # its record is the ledger's row, which outlives the trail's table
    "migrate_all_databases",
    "retry_channel_message",  # in `test_a_retry_is_recorded_with_it`
    "retry_channel_letters",  # in `test_letters`, and the next three
    "discard_channel_letters",
    "retry_channel_reply",
    "send_channel_test",
    "send_channel_message",  # in `test_outgoing`
    "resolve_approval_approvals__approval_id__resolve_post",  # in `test_approvals`
    "delete_approval_approvals__approval_id__delete",
    "receive_webhook",  # nobody's request: its record is the inbox
    "receive_interaction",
    "erase_user",  # in `test_users`
}


def test_every_route_that_changes_something_is_looked_at() -> None:
    changing = {route.operation for route in ROUTES if route.method != "GET"}

    assert changing == {*CHANGES, *NOT_IN_THE_TRAIL_ALONE}


@pytest.mark.parametrize("operation", CHANGES)
def test_a_change_is_recorded_in_its_own_transaction_and_nowhere_else(
    client: Client, operation: str
) -> None:
    method, target, options, status, resource = CHANGES[operation]
    client.token = ISSUER.token(*ALL, sub="ada")
    run = client.run("alpha", "hi", session_id="s1")["run_id"]
    client.settle()
    before, asked = len(trail(client)), len(client.effects)
    response = client.request(method, target.replace("{run}", run), **options)

    (row,) = trail(client)[before:]
    assert response.status == row.entry.status == status
    assert (row.entry.operation, row.entry.subject) == (operation, "ada")
    resource = resource.replace("{run}", run)
    assert row.entry.resource.rpartition("/")[0] == resource.rpartition("/")[0]
    assert resource.endswith("*") or row.entry.resource == resource
    effects = [done.effect for done in client.effects[asked:]]
    assert not [effect for effect in effects if isinstance(effect, Record)]
    assert [one for one in effects if isinstance(one, Transact) and is_audited(one.unit)]


@pytest.mark.parametrize("operation", [name for name in CHANGES if "create" not in name])
def test_a_change_of_what_is_not_there_is_recorded_as_what_was_answered(
    client: Client, operation: str
) -> None:
    method, target, options, _, _ = CHANGES[operation]
    client.token = ISSUER.token(*ALL, sub="ada")
    response = client.request(method, target.replace("{run}", "none"), **options)

    (row,) = trail(client)
    assert row.entry.status == response.status
    assert response.status == (204 if operation.startswith("delete_session") else 404)


def test_a_migration_is_in_the_ledger_with_who_asked_for_it(client: Client) -> None:
    scopes = ("databases:migrate", "databases:destroy", "databases:read")
    client.token = ISSUER.token(*scopes, sub="ada")
    target = "/databases/second/migrate?target_version=2.5.0&allow_data_loss=true"
    response = client.post(target, headers=[("x-request-id", "mine")])
    ledger = client.get("/databases/second/migrations").json()["data"]

    assert response.status == 200
    assert (ledger[0]["actor"], ledger[0]["request_id"]) == ("ada", "mine")
    (row,) = trail(client, "second")
    assert (row.entry.request_id, row.entry.resource) == ("mine", "second/2.5.0/allow_data_loss")


def test_a_retry_is_recorded_with_it(client: Client) -> None:
    client.token = ISSUER.token("channels:write", sub="ada")
    target = "/channels/chat/messages/m/retry"
    store(client, PutMessages("chat", (NewMessage("m", "s", "{}"),), 1))
    (claimed,) = store(client, ClaimItems(INBOX, client.node.name, 9, 20)).items
    store(client, FailMessage(claimed.lease, "no", None, 3))

    statuses = [client.post(target).status, client.post(target.replace("/m/", "/x/")).status]
    rows = [row.entry for row in trail(client)]
    assert [(entry.resource, entry.status) for entry in rows] == [
        ("chat/m", statuses[0]),
        ("chat/x", 404),
    ]
    assert statuses == [200, 404]
    assert [type(error) for error in client.take_errors()] == [KeyError]  # `{}` is no message


@pytest.mark.parametrize(
    ("ids", "resource"),
    [
        ((), ""),
        (("a",), "a"),
        (("a", "b"), "a/b"),
        (("a/b",), "a%2Fb"),
        (("a%2Fb",), "a%252Fb"),
    ],
)
def test_ids_make_one_resource_that_no_other_ids_make(ids: tuple[str, ...], resource: str) -> None:
    assert resource_of(ids) == resource


# --- Reading it ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scopes", "status"),
    [
        (("audit:read",), 200),
        (("platform:admin",), 200),
        ((), 403),
        (("audit:write", "audit:*:read", "agents:read"), 403),
    ],
    ids=str,
)
def test_the_trail_needs_its_scope(client: Client, scopes: tuple[str, ...], status: int) -> None:
    assert client.get("/audit", token=ISSUER.token(*scopes)).status == status


def test_a_page_tells_everything_the_hash_is_over(client: Client) -> None:
    client.get("/sessions?db_id=main", token=ADA)
    (row,) = trail(client)

    told = page(client)
    assert told["data"] == [
        {
            "at": "2026-01-01T00:00:00Z",
            "at_us": row.entry.at_us,
            "request_id": row.entry.request_id,
            "subject": "ada",
            "key_id": row.entry.key_id,
            "operation": "get_sessions",
            "resource": "",
            "decision": "allow",
            "scope": "sessions:read",
            "status": 200,
            "client": "127.0.0.1",
            "db_id": "main",
            "writer": "chained/node-1",
            "seq": 1,
            "previous": "",
            "hash": row.hash,
            "signed_by": None,
        }
    ]
    assert told["meta"] == {"limit": 50, "next_cursor": None}


def keep(client: Client, database: str, at_us: int, name: str, node: str = "n") -> None:
    entry = AuditEntry(at_us, name, None, None, "kept", "", "allow", "", 200, "")
    client.simulation.run(ask(Transact(database, AppendAudit(node, (entry,), None))))


def test_a_page_links_to_the_next(client: Client) -> None:
    for number in range(3):
        keep(client, "main", number, f"row {number}")
    link: str | None = "<?limit=2&operation=kept>"
    found: list[str] = []
    while link is not None:
        answer = client.get(f"/audit{link[1 : link.index('>')]}", token=READER)
        found += [row["request_id"] for row in answer.json()["data"]]
        link = answer.header("link")

    assert found == ["row 2", "row 1", "row 0"]


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_pages_over_two_databases_are_disjoint_and_complete_while_others_append(
    client: Client, limit: int, order: str
) -> None:
    databases = ("main", "second")
    for number in range(24):
        # The same times and the same places in both.
        keep(client, databases[number % 2], number // 8, f"before {number}")
    found: list[dict[str, Any]] = []
    cursor = ""
    for number in range(100):
        told = page(client, limit=limit, order=order, operation="kept", cursor=cursor)
        found += told["data"]
        assert len(told["data"]) <= limit
        cursor = told["meta"]["next_cursor"]
        if cursor is None:
            break
        if number < 20:
            keep(client, databases[number % 2], number % 4, f"after {number}")

    names = [row["request_id"] for row in found]
    assert len(names) == len(set(names))
    assert {f"before {number}" for number in range(24)} <= set(names)
    order_of = [(row["at_us"], row["db_id"], row["writer"], row["seq"]) for row in found]
    assert order_of == sorted(order_of, reverse=order == "desc")


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({}, 4),
        ({"subject": "ada"}, 3),
        ({"subject": "eve"}, 0),
        ({"operation": "get_agent"}, 2),
        ({"resource": "alpha"}, 2),
        ({"resource": "alp"}, 0),
        ({"decision": "deny"}, 2),
        ({"decision": "deny", "subject": "ada"}, 1),
        ({"since": 1_767_225_600}, 4),
        ({"since": 1_767_225_601}, 0),
        ({"until": 1_767_225_601}, 4),
        ({"until": 1_767_225_600}, 0),
        ({"since": "2026-01-01"}, 4),
        ({"since": "2026-01-01T00:00:01Z"}, 0),
        ({"until": "2026-01-01T01:00:01+01:00"}, 4),
        ({"until": "2026-01-01T00:00:00Z"}, 0),
        ({"request_id": "none"}, 0),
        ({"db_id": "second"}, 0),
        ({"limit": 1}, 1),
    ],
    ids=str,
)
def test_filters_narrow_the_page(client: Client, query: dict[str, Any], count: int) -> None:
    client.token = ADA
    start(client)
    client.get("/agents/alpha")
    client.get("/agents/beta", token=ISSUER.token(sub="bob"))
    client.get("/sessions?db_id=main")
    client.settle()

    assert len(page(client, **query)["data"]) == count


def test_a_request_is_found_by_its_id(client: Client) -> None:
    client.token = ADA
    start(client)
    wanted = client.get("/agents/alpha").header("x-request-id")
    client.settle()

    (row,) = page(client, request_id=wanted)["data"]
    assert (row["request_id"], row["operation"]) == (wanted, "get_agent")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", "0"),
        ("limit", "1001"),
        ("since", "yesterday"),
        ("since", "-1"),
        ("until", "99999999999999"),
        ("since", "2026-02-30"),
        ("until", "2026-01-01T00:00:00"),
        ("request_id", "x" * 1025),
        ("decision", "maybe"),
        ("order", "up"),
        ("db_id", "third"),
        ("cursor", "?"),
        ("cursor", "A"),
        ("cursor", "bnVsbA"),
        ("cursor", "WzEsIm1haW4iLCJuIiwtMV0"),
        ("subject", "x" * 1025),
        ("unknown", "1"),
    ],
)
def test_a_bad_query_is_refused_with_the_name_of_what_is_bad(
    client: Client, name: str, value: str
) -> None:
    response = client.get("/audit", query={name: value}, token=READER)

    assert response.status == 422
    assert [error["path"] for error in response.json()["errors"]] == [f"query.{name}"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(),
    name=st.sampled_from(["cursor", "subject", "resource", "operation", "request_id", "since"]),
)
def test_any_text_is_a_filter_or_refused(client: Client, text: str, name: str) -> None:
    response = client.get("/audit", query={name: text}, token=READER)

    assert response.status in (200, 422)


def test_a_name_twice_is_refused(client: Client) -> None:
    response = client.get("/audit?subject=a&subject=b", token=READER)

    assert response.status == 422


def test_a_broken_query_is_refused(client: Client) -> None:
    assert client.get("/audit?subject=%00", token=READER).status == 422


# --- Nothing in it that must not be --------------------------------------------------------------

CANARY: Final = "canary-7f3a"


def test_no_token_no_message_and_no_secret_is_recorded_or_logged(client: Client) -> None:
    token = ISSUER.token("agents:alpha:run", "sessions:read", sub="ada", jti=CANARY)
    client.token = token
    start(client, message=f"message {CANARY}", session_id="s1")
    start(client, message=f"message {CANARY}", nonsense=CANARY)
    client.stream("alpha", f"streamed {CANARY}")
    client.get(f"/sessions?db_id=main&session_name={CANARY}")
    client.get("/sessions?db_id=main", token=f"{CANARY}.{CANARY}.{CANARY}")
    client.post("/me/explain", json={"method": "GET", "path": f"/agents?x={CANARY}"})
    for failing in (StartRun, ReadRuns):
        client.fail_at(failing, ValueError(CANARY))
    start(client, message=CANARY)
    client.get("/sessions/s1/runs?db_id=main")
    for headers in ((), (("x-hub-signature-256", f"sha256={CANARY}"),)):
        client.post("/chat/webhook", json={"text": CANARY}, headers=headers)
    client.get(f"/chat/webhook?hub.mode=subscribe&hub.verify_token={CANARY}&hub.challenge=1")

    rows = trail(client)
    assert len(rows) >= 7
    told = f"{rows} {client.logs} {client.audit} {refusals(client)}"
    assert "incident" in told
    for secret in (CANARY, token, token.rpartition(".")[2], "an app secret", "a-verify-token"):
        assert secret not in told


HOSTILE: Final = ("a\r\nb", "\x1b[31mred", "a\u2028b", "\u202eevil", "𝒜", "';drop table audit;--")


@pytest.mark.parametrize("text", HOSTILE)
def test_a_subject_is_recorded_as_it_is_or_refused(client: Client, text: str) -> None:
    response = client.get("/sessions?db_id=main", token=ISSUER.token("sessions:read", sub=text))

    rows = trail(client)
    assert [row.entry.subject for row in rows] == ([text] if response.status == 200 else [])
    assert response.status in (200, 401)


def test_a_subject_of_a_mebibyte_is_refused_before_anything_is_kept_of_it(client: Client) -> None:
    response = client.get("/sessions?db_id=main", token=ISSUER.token(sub="a" * (1 << 20)))

    assert response.status == 401
    assert trail(client) == ()
    assert len(str(refusals(client))) < 1000


# --- Proving it ---------------------------------------------------------------------------------


def test_the_trail_of_a_working_platform_is_intact(client: Client) -> None:
    client.token = ADA
    for _ in range(5):
        start(client)
        client.get("/agents/beta")
    rows = trail(client)

    verdict = client.simulation.run(verify_trail("main"))
    assert isinstance(verdict, Intact)
    assert verdict.entries == len(rows) == 10
    assert client.simulation.run(verify_trail("main", verdict.heads)) == verdict


@pytest.mark.parametrize("size", [63, 64, 65, 130])
def test_a_long_trail_is_read_to_its_end(client: Client, size: int) -> None:
    entry = AuditEntry(1, "r", None, None, "o", "", "allow", "", 200, "")
    for _ in range(size):
        client.simulation.run(ask(Transact("main", AppendAudit("n", (entry,), None))))

    verdict = client.simulation.run(verify_trail("main"))
    assert isinstance(verdict, Intact)
    assert verdict.pages == size


def test_a_broken_trail_is_found_where_it_is_broken() -> None:
    entry = AuditEntry(1, "r", None, None, "o", "", "allow", "", 200, "")
    page = seal_page(Head("chained/n", 0, ""), (entry,), None)
    program = verify_trail("main")
    next(program)
    program.send(OldRows((), None))
    with pytest.raises(StopIteration) as ended:
        program.send((page, page))

    reason = "entries are missing: it follows number 1"
    assert ended.value.value == Broken("chained/n", 1, reason)


def test_a_broken_row_that_was_not_moved_is_found() -> None:
    entry = AuditEntry(1, "r", None, None, "o", "", "allow", "", 200, "")
    program = verify_trail("main")
    assert next(program) == Transact("main", ReadOldRows(OldPlace(), 1000))
    row = OldRow("n", 1, "", "00", entry)
    with pytest.raises(StopIteration) as ended:
        program.send(OldRows((row,), OldPlace(kept=1)))

    assert ended.value.value == Broken("n", 1, "it is not as it was written")


def test_a_page_that_found_little_goes_on_where_it_stopped(client: Client) -> None:
    found = AuditEntry(5_000_000, "r", None, None, "o", "", "allow", "", 200, "")
    query = AuditQuery(None, None, None, None, None, None, None, "desc", 2, None)
    cursors = [_Cursor(at, "main", "n", seq) for at, seq in ((5, 1), (4, 1), (3, 1))]
    rows = [(cursor, AuditRow("n", cursor.seq, "", "", found)) for cursor in cursors]

    assert _cut_page(rows[:2], [], query) == (rows[:2], None)
    assert _cut_page(rows, [], query) == (rows[:2], cursors[1])
    assert _cut_page(rows, [4, 2], query) == (rows[:1], _Cursor(5, "", "", 0))
    upwards = evolve(query, order="asc")
    assert _cut_page(rows, [4, 9], upwards) == ([rows[2]], _Cursor(4, "", "", 0))
    assert _cut_page(rows, [9], upwards) == (rows[:0:-1], cursors[1])


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pages_of_a_rare_operation_in_two_databases_hold_all_of_it(
    client: Client, order: str
) -> None:
    def put(database: str, operation: str, *seconds: int) -> None:
        entries = tuple(
            AuditEntry(at * 2_000_000, "r", None, None, operation, "", "allow", "", 200, "")
            for at in seconds
        )
        client.simulation.run(ask(Transact(database, AppendAudit("n", entries, None))))

    put("main", "often", *range(BUDGET + 70))  # a page for each: none covers two seconds
    put("second", "rare", *range(0, 3_000, 500))
    put("main", "rare", 0, 9_000)

    rows: list[str] = []
    query = {"order": order, "operation": "rare", "limit": "3"}
    seen, cursor = 0, ""
    while cursor is not None:
        some = page(client, **query, cursor=cursor)
        rows += [row["at"] for row in some["data"]]
        cursor, seen = some["meta"]["next_cursor"], seen + 1
    assert len(rows) == 8
    assert rows == sorted(rows, reverse=order == "desc")
    assert 3 <= seen < 9


def test_a_change_is_asked_for_with_its_record(client: Client) -> None:
    client.token = ADA
    start(client)

    units = [done.effect.unit for done in client.effects if isinstance(done.effect, Transact)]
    (audited,) = [unit for unit in units if is_audited(unit)]
    assert isinstance(audited.unit, StartRun)
    assert audited.node == "node-1"
