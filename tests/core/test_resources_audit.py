"""The audit trail through the front door: what is recorded, when, and who may read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import given, settings
from hypothesis import strategies as st

from legation.effects import Program, Record, Transact
from legation.resources.audit import verify_trail
from legation.resources.call import resource_of
from legation.store.audit import (
    AppendAudit,
    Audited,
    AuditEntry,
    AuditRow,
    Broken,
    Intact,
    ReadChain,
)
from legation.store.failures import Busy, CommitLost
from legation.store.runs import FetchRun, ListRuns, StartRun
from legation_testing import Client, Crashed

from ..callers import Issuer, demo

ISSUER: Final = Issuer(ed25519.Ed25519PrivateKey.generate())
READER: Final = ISSUER.token("audit:read", sub="auditor")
ADA: Final = ISSUER.token("agents:alpha:run", "sessions:read", sub="ada")


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(demo(ISSUER)) as client:
        yield client


def ask(effect: Transact[Any]) -> Program[Any]:
    return (yield from effect)


def trail(client: Client, database: str = "main") -> tuple[AuditRow, ...]:
    """Return the rows of a database, once every batch is written."""
    client.settle()
    rows: tuple[AuditRow, ...] = client.simulation.run(
        ask(Transact(database, ReadChain("", 0, 10_000)))
    )
    return rows


def page(client: Client, **query: Any) -> Any:
    response = client.get("/audit", query=query, token=READER)
    assert response.status == 200, response.body
    return response.json()


def start(client: Client, **form: Any) -> Any:
    return client.post("/agents/alpha/runs", form={"message": "hi", "stream": "false", **form})


# --- What is recorded ---------------------------------------------------------------------------

REQUESTS: Final[dict[str, tuple[str, str, str, dict[str, Any], tuple[Any, ...]]]] = {
    "a read": ("GET", "/sessions", ADA, {}, ("get_sessions", "", "allow", "sessions:read", 200)),
    "HEAD": ("HEAD", "/sessions", ADA, {}, ("get_sessions", "", "allow", "sessions:read", 200)),
    "a missing scope": (
        *("GET", "/databases", ADA, {}),
        ("get_databases", "", "deny", "databases:read", 403),
    ),
    "no token": ("GET", "/agents/alpha", "", {}, ("get_agent", "alpha", "deny", "", 401)),
    "a bad token": ("GET", "/me", ADA + "x", {}, ("get_me", "", "deny", "", 401)),
    "nothing there": (
        *("GET", "/sessions/none", ADA, {}),
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
    known = entry.status != 401
    assert entry.subject == ("ada" if known else None)
    assert bool(entry.key_id) == known
    assert (entry.request_id, entry.client) == ("mine", "127.0.0.1")


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
        with Client(lambda: demo(ISSUER), token=ADA) as client:
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
    sessions = client.get("/sessions", token=ADA).json()["data"]
    runs: list[Any] = []
    for session in sessions:
        listed = ListRuns("ada", session["session_id"])
        runs += client.simulation.run(ask(Transact("main", listed)))
    return tuple(runs)


def test_a_change_that_fails_leaves_one_row_with_what_was_answered(client: Client) -> None:
    client.token = ADA
    client.fail_at(StartRun, Busy())
    response = start(client)

    (row,) = trail(client)
    assert response.status == row.entry.status == 503
    assert row.entry.decision == "allow"


def test_a_commit_whose_answer_was_lost_is_told_both_ways(client: Client) -> None:
    client.token = ADA
    client.fail_at(StartRun, CommitLost(), after=True)
    start(client)

    assert [row.entry.status for row in trail(client)] == [200, 503]


def test_what_fails_behind_a_kept_change_is_told_as_well(client: Client) -> None:
    client.token = ADA
    client.fail_at(FetchRun, ZeroDivisionError())
    response = start(client, headers=())

    rows = trail(client)
    assert response.status == 500
    assert [row.entry.status for row in rows] == [200, 500]
    assert len({row.entry.request_id for row in rows}) == 1


def test_a_bug_in_a_handler_is_recorded_with_its_status(client: Client) -> None:
    client.fail_at(FetchRun, ZeroDivisionError())
    client.get("/agents/alpha/runs/r1", token=ADA)

    (row,) = trail(client)
    assert row.entry.status == 500


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
    client.get("/sessions", token=ADA)
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
            "writer": "node-1",
            "seq": 1,
            "previous": "",
            "hash": row.hash,
        }
    ]
    assert told["meta"] == {"limit": 50, "next_cursor": None}


def keep(client: Client, database: str, at_us: int, name: str, node: str = "n") -> None:
    entry = AuditEntry(at_us, name, None, None, "kept", "", "allow", "", 200, "")
    client.simulation.run(ask(Transact(database, AppendAudit(node, (entry,)))))


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
        ({"db_id": "second"}, 0),
        ({"limit": 1}, 1),
    ],
    ids=str,
)
def test_filters_narrow_the_page(client: Client, query: dict[str, Any], count: int) -> None:
    client.token = ADA
    start(client)
    client.get("/agents/alpha")
    client.get("/agents/beta", token="")
    client.get("/sessions")
    client.settle()

    assert len(page(client, **query)["data"]) == count


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", "0"),
        ("limit", "1001"),
        ("since", "yesterday"),
        ("since", "-1"),
        ("until", "99999999999999"),
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


@settings(max_examples=200)
@given(st.text(), st.sampled_from(["cursor", "subject", "resource", "operation"]))
def test_any_text_is_a_filter_or_refused(text: str, name: str) -> None:
    with Client(demo(ISSUER)) as client:
        response = client.get(
            "/audit", query={name: text.encode("utf-8", "replace").decode()}, token=READER
        )
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
    client.get(f"/sessions?session_name={CANARY}")
    client.get("/sessions", token=f"{CANARY}.{CANARY}.{CANARY}")
    client.post("/me/explain", json={"method": "GET", "path": f"/agents?x={CANARY}"})
    for failing in (StartRun, ListRuns):
        client.fail_at(failing, ValueError(CANARY))
    start(client, message=CANARY)
    client.get("/sessions/s1/runs")
    for headers in ((), (("x-hub-signature-256", f"sha256={CANARY}"),)):
        client.post("/chat/webhook", json={"text": CANARY}, headers=headers)
    client.get(f"/chat/webhook?hub.mode=subscribe&hub.verify_token={CANARY}&hub.challenge=1")

    rows = trail(client)
    assert len(rows) >= 8
    told = f"{rows} {client.logs} {client.audit}"
    assert "incident" in told
    for secret in (CANARY, token, token.rpartition(".")[2], "an app secret", "a-verify-token"):
        assert secret not in told


HOSTILE: Final = ("a\r\nb", "\x1b[31mred", "a\u2028b", "\u202eevil", "𝒜", "';drop table audit;--")


@pytest.mark.parametrize("text", HOSTILE)
def test_a_subject_is_recorded_as_it_is_or_refused(client: Client, text: str) -> None:
    response = client.get("/sessions", token=ISSUER.token("sessions:read", sub=text))

    (row,) = trail(client)
    assert row.entry.subject == (text if response.status == 200 else None)
    assert response.status in (200, 401)


def test_a_subject_of_a_mebibyte_is_refused_before_anything_is_kept_of_it(client: Client) -> None:
    response = client.get("/sessions", token=ISSUER.token(sub="a" * (1 << 20)))

    (row,) = trail(client)
    assert response.status == row.entry.status == 401
    assert len(str(row)) < 1000


# --- Proving it ---------------------------------------------------------------------------------


def test_the_trail_of_a_working_platform_is_intact(client: Client) -> None:
    client.token = ADA
    for _ in range(5):
        start(client)
        client.get("/agents/beta")
    rows = trail(client)

    verdict = client.simulation.run(verify_trail("main"))
    assert isinstance(verdict, Intact)
    assert verdict.count == len(rows) == 10
    assert client.simulation.run(verify_trail("main", verdict.heads)) == verdict


@pytest.mark.parametrize("size", [999, 1000, 1001, 2500])
def test_a_long_trail_is_read_to_its_end(client: Client, size: int) -> None:
    entry = AuditEntry(1, "r", None, None, "o", "", "allow", "", 200, "")
    client.simulation.run(ask(Transact("main", AppendAudit("n", (entry,) * size))))

    verdict = client.simulation.run(verify_trail("main"))
    assert isinstance(verdict, Intact)
    assert verdict.count == size


def test_a_broken_trail_is_told(client: Client, figures: Callable[[str], None]) -> None:
    keep(client, "main", 1, "first")
    (row,) = trail(client)
    program = verify_trail("main")
    next(program)
    with pytest.raises(StopIteration) as ended:
        program.send((row, row))

    assert ended.value.value == Broken("n", 1, "rows are missing: it follows number 1")


def test_a_change_is_asked_for_with_its_record(client: Client) -> None:
    client.token = ADA
    start(client)

    units = [done.effect.unit for done in client.effects if isinstance(done.effect, Transact)]
    (audited,) = [unit for unit in units if isinstance(unit, Audited)]
    assert isinstance(audited.unit, StartRun)
    assert audited.node == "node-1"
