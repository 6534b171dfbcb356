"""Approvals through the front door: who sees and answers which, once, and what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from legation.effects import Program, Transact
from legation.shares.limits import PlatformLimits
from legation.store import listed_runs
from legation.store.failures import CommitLost, Unavailable
from legation.store.listed_runs import FindListed, ListRuns
from legation.store.pauses import FetchPauses
from legation.store.run_reads import FetchRun
from legation.store.run_steering import ContinueRun
from legation_testing import Client, ClientResponse, Crashed

from ....paused_runs import ISSUER, Office, begin, token

READS = token("desk", "approvals:read")
WRITES = token("boss", "approvals:write")
ADMIN = token("root", "platform:admin")


@pytest.fixture
def office() -> Office:
    return Office()


@pytest.fixture
def client(office: Office) -> Iterator[Client]:
    with Client(office.platform) as client:
        yield client


def waiting(client: Client, who: str = "ada", component: str = "agents/clerk", **form: Any) -> str:
    """Return the approval of a new run that waits."""
    run = begin(client, who, component, **form)
    assert run["status"] == "PAUSED", run
    for shown in listed(client, ADMIN, run_id=run["run_id"]):
        found: str = shown["id"]
        return found
    raise AssertionError(run)


def page(client: Client, who: str = READS, **query: Any) -> Any:
    response = client.get("/approvals", query=query, token=who)
    assert response.status == 200, response.body
    return response.json()


def listed(client: Client, who: str = READS, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = page(client, who, **query)["data"]
    return found


def get(client: Client, approval: str, who: str = ADMIN) -> Any:
    response = client.get(f"/approvals/{approval}", token=who)
    return response.json() if response.status == 200 else response.status


def resolve(
    client: Client, approval: str, who: str = WRITES, status: str = "approved", **data: Any
) -> ClientResponse:
    body: dict[str, Any] = {"status": status}
    if data:
        body["resolution_data"] = data
    response = client.post(f"/approvals/{approval}/resolve", json=body, token=who)
    client.settle()
    return response


def run_of(client: Client, approval: str, component: str = "agents/clerk") -> Any:
    path = f"/{component}/runs/{approval.rpartition('.')[0]}"
    return client.get(path, token=ADMIN).json()


# --- what is shown


def test_a_paused_run_is_an_approval_in_the_shape_of_agentos(client: Client) -> None:
    approval = waiting(client, session_id="s")

    (shown,) = listed(client)

    run_id, _, events = approval.rpartition(".")
    (requirement,) = shown.pop("requirements")
    assert requirement["tool_execution"]["tool_name"] == "delete"
    assert requirement["tool_execution"]["result"] is None
    created = shown.pop("created_at")
    assert created == shown.pop("updated_at") > 1_700_000_000
    assert int(events) > 1
    assert shown == {
        "id": approval,
        "run_id": run_id,
        "session_id": "s",
        "status": "pending",
        "source_type": "agent",
        "approval_type": "required",
        "pause_type": "confirmation",
        "tool_name": "delete",
        "tool_args": {"path": "/x"},
        "expires_at": None,
        "agent_id": "clerk",
        "team_id": None,
        "workflow_id": None,
        "user_id": "ada",
        "schedule_id": None,
        "schedule_run_id": None,
        "source_name": "The clerk",
        "context": {"db_id": "main"},
        "resolution_data": None,
        "resolved_by": None,
        "resolved_at": None,
        "run_status": "PAUSED",
    }


def test_nothing_of_a_run_but_what_is_asked_is_shown(client: Client) -> None:
    approval = waiting(client, message="a secret of ada's")
    resolve(client, approval, note="go on")

    for who in (READS, WRITES, ADMIN):
        for path in ("", f"/{approval}", f"/{approval}/status", "/count"):
            response = client.get(f"/approvals{path}", token=who)
            assert response.status == 200
            assert "secret" not in response.text
            assert "is gone" not in response.text


def test_runs_of_both_databases_and_of_teams_are_listed_the_latest_first(client: Client) -> None:
    for who, component in (
        ("ada", "agents/clerk"),
        ("bob", "agents/keeper"),
        ("~eve", "teams/desk"),
        ("ada", "agents/hand"),
    ):
        begin(client, who, component)
        client.advance(1)

    names = [
        (one["user_id"], one["source_type"], one["source_name"], one["context"]["db_id"])
        for one in listed(client)
    ]

    assert names == [
        ("ada", "agent", "hand", "main"),
        ("~eve", "team", "desk", "main"),
        ("bob", "agent", "keeper", "second"),
        ("ada", "agent", "The clerk", "main"),
    ]
    assert [one["pause_type"] for one in listed(client)] == [
        "external_execution",
        *["confirmation"] * 3,
    ]


# --- who sees and answers what

TOKENS: dict[str, tuple[str, tuple[int, int]]] = {
    # of ada's approval: the status of reading it, and of answering it
    "admin": (ADMIN, (200, 200)),
    "reads": (READS, (200, 403)),
    "writes": (WRITES, (200, 200)),
    "reads those of the agent": (token("desk", "approvals:clerk:read"), (200, 403)),
    "writes those of the agent": (token("desk", "approvals:clerk:write"), (200, 200)),
    "writes those of another": (token("desk", "approvals:keeper:write"), (404, 404)),
    "deletes": (token("desk", "approvals:delete"), (404, 404)),
    "reads runs": (token("desk", "runs:read", "agents:run"), (404, 404)),
    "herself": (token("ada"), (200, 200)),
    "herself, who may read": (token("ada", "agents:read"), (200, 403)),
    "herself, who may run another": (token("ada", "agents:hand:run"), (404, 404)),
    "herself, of the session": (token("ada", session_id="s"), (200, 200)),
    "herself, of another session": (token("ada", session_id="t"), (404, 404)),
    "admin of another session": (token("root", "platform:admin", session_id="t"), (404, 404)),
    "somebody else": (token("bob"), (404, 404)),
    "nobody": (ISSUER.token("agents:run", sub=None), (404, 404)),
}


@pytest.mark.parametrize(("who", "statuses"), TOKENS.values(), ids=TOKENS)
def test_who_sees_and_answers_a_run(client: Client, who: str, statuses: tuple[int, int]) -> None:
    approval = waiting(client, session_id="s")
    waiting(client, "carol", "agents/hand", session_id="u")
    seen, answered = statuses

    ids = [one["id"] for one in listed(client, who)]
    assert (approval in ids) == (seen == 200)
    count = client.get("/approvals/count", token=who).json()["count"]
    assert count == len(ids) == page(client, who)["meta"]["total_count"]
    for path in ("", "/status"):
        assert client.get(f"/approvals/{approval}{path}", token=who).status == seen
    assert resolve(client, approval, who).status == answered
    expected = "COMPLETED" if answered == 200 else "PAUSED"
    assert run_of(client, approval)["status"] == expected


def test_without_a_token_there_is_nothing(client: Client) -> None:
    approval = waiting(client)

    for path in ("", "/count", f"/{approval}", f"/{approval}/status"):
        assert client.get(f"/approvals{path}").status == 401
    assert client.post(f"/approvals/{approval}/resolve", json={}).status == 401


def test_own_ones_and_those_of_an_agent_are_listed_once(client: Client) -> None:
    approval = waiting(client)
    other = waiting(client, "bob", "agents/keeper")
    mine = waiting(client, component="agents/hand")
    begin(client, "carol", "teams/desk")
    both = token("ada", "approvals:clerk:read", "approvals:keeper:write", "agents:run")

    assert {one["id"] for one in listed(client, both)} == {approval, other, mine}
    assert {one["id"] for one in listed(client, both, user_id="bob")} == {other, approval, mine}
    assert [one["id"] for one in listed(client, READS, user_id="bob")] == [other]


# --- answering


def test_an_approved_run_goes_on_and_keeps_its_owner(client: Client, office: Office) -> None:
    approval = waiting(client)
    client.advance(5)

    answer = resolve(client, approval, note="it is fine")

    assert answer.status == 200
    shown = answer.json()
    assert (shown["status"], shown["resolved_by"]) == ("approved", "boss")
    assert shown["run_status"] == "RUNNING"
    assert office.deleted == ["/x"]
    done = run_of(client, approval)
    assert (done["status"], done["user_id"]) == ("COMPLETED", "ada")
    assert done["tools"][0]["confirmation_note"] == "it is fine"
    (later,) = listed(client)
    assert later == get(client, approval)
    assert later["status"] == "approved"
    assert later["resolved_at"] == shown["resolved_at"] >= later["created_at"] + 5
    assert later["updated_at"] == later["resolved_at"]
    assert later["resolution_data"]["calls"] == [
        {
            "tool_call_id": done["tools"][0]["tool_call_id"],
            "tool_name": "delete",
            "confirmed": True,
            "confirmation_note": "it is fine",
        }
    ]
    status = client.get(f"/approvals/{approval}/status", token=READS).json()
    assert status == {
        "approval_id": approval,
        **{name: later[name] for name in ("status", "run_id", "resolved_at", "resolved_by")},
    }


def test_a_rejected_run_goes_on_without_the_call(client: Client, office: Office) -> None:
    for component in ("agents/clerk", "agents/hand", "teams/desk"):
        approval = waiting(client, "ada", component)
        answer = resolve(client, approval, status="rejected", note="not today")

        assert answer.json()["status"] == "rejected"
        done = run_of(client, approval, component)
        assert done["status"] == "COMPLETED"
        if component != "teams/desk":
            assert "not today" in done["tools"][0]["result"]
        assert get(client, approval)["status"] == "rejected"
    assert office.deleted == []


def test_the_result_of_a_call_of_the_client_comes_with_the_answer(client: Client) -> None:
    for named in (0, 1):
        approval = waiting(client, component="agents/hand")
        (requirement,) = get(client, approval)["requirements"]
        name = (requirement["id"], requirement["tool_execution"]["tool_call_id"])[named]

        assert resolve(client, approval, results={name: {"files": 3}}).status == 200
        done = run_of(client, approval, "agents/hand")
        assert done["tools"][0]["result"] == '{"files":3}'


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no status": ({}, "body.status"),
    "pending": ({"status": "pending"}, "body.status"),
    "a number": ({"status": 1}, "body.status"),
    "data": ({"status": "approved", "resolution_data": []}, "body.resolution_data"),
    "note": (
        {"status": "approved", "resolution_data": {"note": 1}},
        "body.resolution_data.note",
    ),
    "results": (
        {"status": "rejected", "resolution_data": {"results": []}},
        "body.resolution_data.results",
    ),
    "no result": ({"status": "approved"}, "body.resolution_data.results"),
    "result of another": (
        {"status": "approved", "resolution_data": {"results": {"x" * 200: 1, "call_1": None}}},
        "body.resolution_data.results",
    ),
    "unknown": ({"status": "approved", "approved": True}, "body.approved"),
}


@pytest.mark.parametrize(("body", "path"), BAD.values(), ids=BAD)
def test_an_answer_that_cannot_be_taken_leaves_the_run_waiting(
    client: Client, body: dict[str, Any], path: str
) -> None:
    approval = waiting(client, component="agents/hand")

    refused = client.post(f"/approvals/{approval}/resolve", json=body, token=WRITES)

    assert refused.status == 422
    assert path in [fault["path"] for fault in refused.json()["errors"]]
    assert get(client, approval)["status"] == "pending"


def test_a_result_for_a_call_that_is_executed_here_is_refused(client: Client) -> None:
    approval = waiting(client)
    (requirement,) = get(client, approval)["requirements"]

    refused = resolve(client, approval, results={requirement["id"]: "done"})

    assert refused.status == 422
    assert get(client, approval)["status"] == "pending"


def test_who_answers_is_who_the_token_says(client: Client) -> None:
    approval = waiting(client)
    body = {"status": "approved", "resolved_by": "somebody else"}

    answer = client.post(f"/approvals/{approval}/resolve", json=body, token=WRITES)

    assert answer.json()["resolved_by"] == "boss"


def test_the_trail_names_who_answered_and_whose_run_it_is(client: Client) -> None:
    approval = waiting(client)
    resolve(client, approval)
    client.settle()

    rows = client.get("/audit", query={"subject": "boss"}, token=ADMIN).json()["data"]

    (row,) = [row for row in rows if row["operation"].startswith("resolve_approval")]
    assert (row["status"], row["resource"]) == (200, f"{approval}/user_id=ada")


# --- once


def test_a_second_answer_is_told_what_the_first_was(client: Client) -> None:
    for status in ("approved", "rejected"):
        approval = waiting(client)
        assert resolve(client, approval, status=status).status == 200

        late = resolve(client, approval, token("late", "approvals:write"))

        assert late.status == 409
        sentence = f"Approval is already '{status}' and cannot be resolved"
        assert late.json()["detail"] == sentence
        assert get(client, approval)["resolved_by"] == "boss"


def test_an_answer_to_the_first_pause_is_none_to_the_second(client: Client, office: Office) -> None:
    first = waiting(client, component="agents/twice")
    assert resolve(client, first).status == 200
    (second,) = listed(client, status="pending")

    late = resolve(client, first)

    assert second["id"] != first
    assert second["tool_args"] == {"path": "/y"}
    assert late.status == 409
    assert office.deleted == ["/x"]
    assert get(client, first)["status"] == "approved"
    assert get(client, first)["resolved_by"] == "boss"
    assert resolve(client, second["id"], token("deputy", "approvals:write")).status == 200
    assert office.deleted == ["/x", "/y"]
    # Of the pause before the last it is known how it was answered, and not by whom any more.
    assert get(client, first)["status"] == "approved"
    assert get(client, first)["resolved_by"] is None
    assert get(client, second["id"])["resolved_by"] == "deputy"


def test_a_pause_that_was_answered_with_no_is_known_after_the_next(client: Client) -> None:
    first = waiting(client, component="agents/twice")
    resolve(client, first, status="rejected")
    (second,) = listed(client, status="pending")
    resolve(client, second["id"])

    assert get(client, first)["status"] == "rejected"
    assert resolve(client, first).status == 409


def test_of_two_who_answer_at_once_one_is_first(client: Client, office: Office) -> None:
    approval = waiting(client)
    body = {"status": "approved"}
    others = [
        client.begin("POST", f"/approvals/{approval}/resolve", json=body, token=who)
        for who in (WRITES, token("ada"), token("deputy", "approvals:write"))
    ]
    client.settle()

    statuses = sorted(other.response().status for other in others)

    assert statuses == [200, 409, 409]
    assert office.deleted == ["/x"]


def test_an_answer_on_another_node_counts_as_well(client: Client, office: Office) -> None:
    approval = waiting(client)
    peer = client.peer()
    peer.open()

    assert resolve(peer, approval).status == 200
    client.settle()
    assert resolve(client, approval).status == 409
    assert run_of(client, approval)["status"] == "COMPLETED"
    assert office.deleted == ["/x"]


@pytest.mark.parametrize("after", [False, True], ids=["not stored", "stored"])
def test_an_answer_whose_commit_is_lost_is_given_once(
    client: Client, office: Office, *, after: bool
) -> None:
    approval = waiting(client)
    client.fail_at(ContinueRun, CommitLost("gone"), after=after)

    assert resolve(client, approval).status == 200
    assert office.deleted == ["/x"]
    assert get(client, approval)["resolved_by"] == "boss"


@pytest.mark.parametrize("number", range(1, 40, 3))
def test_a_crash_while_it_is_answered_loses_nothing_and_repeats_nothing(number: int) -> None:
    office = Office()
    with Client(office.platform) as client:
        approval = waiting(client)
        client.crash_at(number)
        answer = client.begin(
            "POST", f"/approvals/{approval}/resolve", json={"status": "approved"}, token=WRITES
        )
        with suppress(Crashed):
            client.settle()
        client.forget_crash()
        if not client.node.alive:
            client.restart()
            client.advance(200)
        elif answer.response().status != 200:
            raise AssertionError(answer.response())
        shown = get(client, approval)
        again = resolve(client, approval)
        client.advance(200)

        assert again.status == (200 if shown["status"] == "pending" else 409)
        answered = 1
        while run_of(client, approval)["status"] == "PAUSED":  # the call may have been under way
            (doubt,) = listed(client, status="pending")
            assert doubt["id"] != approval
            assert resolve(client, doubt["id"]).status == 200
            answered += 1
            client.advance(5)
        assert run_of(client, approval)["status"] == "COMPLETED"
        assert 1 <= office.deleted.count("/x") <= answered <= 3


def test_a_run_that_is_cancelled_needs_no_answer(client: Client) -> None:
    approval = waiting(client)
    path = f"/agents/clerk/runs/{approval.rpartition('.')[0]}/cancel"
    client.post(path, form={}, token=token("ada")).expect_success()

    assert get(client, approval)["status"] == "cancelled"
    assert resolve(client, approval).status == 409
    assert listed(client) == []


def test_a_run_that_goes_on_between_two_looks_is_told_so(client: Client) -> None:
    approval = waiting(client)
    client.fail_at(FetchRun, None)
    assert resolve(client, approval).status == 404
    row = stored(client, approval)
    client.fail_at(FetchRun, evolve(row, status="COMPLETED"))
    assert resolve(client, approval).status == 409
    client.fail_at(FetchRun, evolve(row, events=row.events + 1))
    assert resolve(client, approval).status == 409
    client.fail_at(FetchRun, evolve(row, input='{"message":"x"}'))
    assert resolve(client, approval).json()["detail"].startswith("run waits for what")
    client.fail_at(FetchRun, evolve(row, status="RUNNING"))
    client.fail_at(FindListed, (), skip=1)
    assert resolve(client, approval).status == 404


def stored(client: Client, approval: str) -> Any:
    def fetch() -> Program[Any]:
        return (yield from Transact("main", FetchRun(approval.rpartition(".")[0], None, True)))

    return client.simulation.run(fetch())


# --- filters, pages, and what is away

FILTERS: dict[str, tuple[dict[str, str], int]] = {
    "none": ({}, 4),
    "pending": ({"status": "pending"}, 3),
    "approved": ({"status": "approved"}, 1),
    "rejected": ({"status": "rejected"}, 0),
    "expired": ({"status": "expired"}, 0),
    "agents": ({"source_type": "agent"}, 3),
    "teams": ({"source_type": "team"}, 1),
    "workflows": ({"source_type": "workflow"}, 0),
    "required": ({"approval_type": "required"}, 4),
    "audit": ({"approval_type": "audit"}, 0),
    "to confirm": ({"pause_type": "confirmation"}, 3),
    "of the client": ({"pause_type": "external_execution"}, 1),
    "input": ({"pause_type": "user_input"}, 0),
    "an agent": ({"agent_id": "hand"}, 1),
    "a team": ({"team_id": "desk"}, 1),
    "a team of an agent's name": ({"team_id": "hand"}, 0),
    "a user": ({"user_id": "bob"}, 1),
    "a workflow": ({"workflow_id": "x"}, 0),
    "a schedule": ({"schedule_id": "x"}, 0),
    "a run": ({"run_id": "x"}, 0),
    "empty": ({"agent_id": "", "workflow_id": "", "run_id": ""}, 4),
}


@pytest.fixture(scope="module")
def office_of_four() -> Iterator[Client]:
    with Client(Office().platform) as client:
        resolve(client, waiting(client))
        for who, component in (
            ("bob", "agents/keeper"),
            ("ada", "agents/hand"),
            ("ada", "teams/desk"),
        ):
            begin(client, who, component)
        yield client


@pytest.mark.parametrize(("query", "count"), FILTERS.values(), ids=FILTERS)
def test_a_filter_leaves_out_the_others(
    office_of_four: Client, query: dict[str, str], count: int
) -> None:
    found = page(office_of_four, **query)

    assert len(found["data"]) == found["meta"]["total_count"] == count


def test_pages_are_together_the_list(office_of_four: Client) -> None:
    whole = listed(office_of_four)
    pages = [page(office_of_four, limit="3", page=str(number)) for number in (1, 2, 3)]

    assert [one for each in pages for one in each["data"]] == whole
    assert [len(each["data"]) for each in pages] == [3, 1, 0]
    assert pages[0]["meta"] == {
        "page": 1,
        "limit": 3,
        "total_pages": 2,
        "total_count": 4,
        "search_time_ms": 0.0,
    }


def test_a_long_list_is_read_in_parts(
    monkeypatch: pytest.MonkeyPatch, office_of_four: Client
) -> None:
    monkeypatch.setattr("legation.api.handlers.approvals._BATCH", 1)
    monkeypatch.setattr("legation.api.handlers.approvals._PAUSES_AT_ONCE", 1)
    assert len(listed(office_of_four, status="pending")) == 3
    monkeypatch.setattr("legation.api.handlers.approvals.WINDOW", 1)
    monkeypatch.setattr(listed_runs, "WINDOW", 2)
    assert len(listed(office_of_four, status="pending")) == 2  # of each database


def test_a_database_that_is_away_is_named_or_keeps_an_answer_back(client: Client) -> None:
    approval = waiting(client, "bob", "agents/keeper")
    waiting(client)
    client.fail_at(ListRuns, Unavailable("away"))
    found = page(client)
    assert [one["id"] for one in found["data"]] == [approval]
    assert found["meta"]["absent"] == ["main"]
    client.fail_at(ListRuns, Unavailable("away"), times=None)
    assert client.get("/approvals", token=READS).status == 503


def test_an_approval_may_be_in_a_database_that_is_away(client: Client) -> None:
    approval = waiting(client, "bob", "agents/keeper")
    client.fail_at(FindListed, Unavailable("away"))
    assert get(client, approval)["status"] == "pending"  # the other has it
    client.fail_at(FindListed, Unavailable("away"), skip=1)
    assert get(client, approval) == 503
    client.fail_at(FetchPauses, {})
    assert get(client, approval) == 404


def test_a_pause_that_is_gone_meanwhile_is_left_out(client: Client) -> None:
    waiting(client)
    client.fail_at(FetchPauses, {})
    assert listed(client) == []
    client.fail_at(FetchPauses, {})
    assert listed(client, pause_type="confirmation") == []


IDS = ("x", "x.", ".1", "x.1", "x.01", "x.-1", "x.1x", f"x.{'9' * 19}", "x" * 300 + ".1", "%2E.1")


@pytest.mark.parametrize("approval", IDS)
def test_an_id_that_is_none_is_not_found(client: Client, approval: str) -> None:
    assert get(client, approval) == 404
    assert resolve(client, approval).status == 404
    deleted = client.request("DELETE", f"/approvals/{approval}", token=ADMIN)
    assert deleted.status == 404


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(number=st.integers(0, 60))
def test_a_run_has_an_approval_where_it_paused_alone(office_of_four: Client, number: int) -> None:
    for one in listed(office_of_four):
        run_id, _, events = one["id"].rpartition(".")
        found = get(office_of_four, f"{run_id}.{number}")
        assert (found == 404) == (number != int(events))


def test_a_waiting_run_that_has_to_wait_again_says_so(office: Office) -> None:
    for on_busy, status in (("queue", 200), ("reject", 409)):
        with Client(lambda: office.platform(on_busy=on_busy)) as client:  # noqa: B023
            approval = waiting(client, session_id="s")
            busy = client.begin(
                "POST",
                "/agents/slow/runs",
                form={"message": "hi", "stream": False, "session_id": "s"},
                token=token("ada"),
            )
            client.settle()

            answer = resolve(client, approval)

            assert answer.status == status
            if status == 200:
                assert answer.json()["run_status"] == "PENDING"
                shown = get(client, approval)
                assert (shown["status"], shown["resolution_data"]) == ("approved", None)
            else:
                assert answer.json()["detail"] == "Another run of the session is not over yet"
            client.advance(20)
            assert busy.response().status == 200


def test_too_many_runs_of_the_owner_wait_already(office: Office) -> None:
    limits = PlatformLimits(runs=1, waiting=1)
    with Client(lambda: office.platform(limits=limits)) as client:
        approval = waiting(client)
        for session in ("a", "b"):
            client.begin(
                "POST",
                "/agents/slow/runs",
                form={"message": "hi", "stream": False, "session_id": session},
                token=token("ada"),
            )
        client.settle()

        assert resolve(client, approval).status == 429
        assert get(client, approval)["status"] == "pending"


# --- forgetting


def test_who_answered_is_forgotten_where_that_is_asked_for(client: Client) -> None:
    approval = waiting(client)
    delete = token("cleaner", "approvals:delete")
    path = f"/approvals/{approval}"

    kept = client.request("DELETE", path, token=delete)
    assert (kept.status, kept.json()["detail"]) == (
        409,
        "Approval is 'pending' and cannot be deleted",
    )
    resolve(client, approval)
    assert client.request("DELETE", path, token=WRITES).status == 403
    other = token("cleaner", "approvals:delete", session_id="other")
    assert client.request("DELETE", path, token=other).status == 404

    assert client.request("DELETE", path, token=delete).status == 204
    rows = client.get("/audit", query={"subject": "cleaner"}, token=ADMIN).json()["data"]
    assert (rows[0]["status"], rows[0]["resource"]) == (204, f"{approval}/user_id=ada")
    assert client.request("DELETE", path, token=delete).status == 404
    assert get(client, approval) == 404
    assert listed(client) == []
    assert run_of(client, approval)["status"] == "COMPLETED"


def test_of_an_earlier_pause_there_is_nothing_to_forget(client: Client) -> None:
    first = waiting(client, component="agents/twice")
    resolve(client, first)
    (second,) = listed(client, status="pending")
    resolve(client, second["id"])

    gone = client.request("DELETE", f"/approvals/{first}", token=ADMIN)

    assert gone.status == 404
    client.request("DELETE", f"/approvals/{second['id']}", token=ADMIN).expect_success()
    assert get(client, first) == 404  # nothing is known of the run's answers any more
