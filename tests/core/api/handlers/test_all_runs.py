"""Runs of every owner in one list, through the front door: who sees which, page by page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legation import Agent, Database, Platform
from legation.access.decide import Principal
from legation.api.listing import encode_cursor
from legation.api.visible_runs import own_components
from legation.store import listed_runs
from legation.store.failures import Unavailable
from legation.store.listed_runs import ListRuns
from legation_testing import Client

from ....paused_runs import ISSUER, Office, begin, token

EVERY = token("operator", "runs:read")
ADMIN = token("root", "platform:admin")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A platform with runs of every kind; tests read them alone."""
    with Client(Office().platform) as client:
        for who, component, session in (
            ("ada", "agents/echo", "one"),
            ("bob", "agents/clerk", "one"),
            ("ada", "agents/keeper", "two"),
            ("~eve", "teams/desk", "one"),
            ("bob", "agents/broken", "two"),
            ("ada", "agents/echo", "two"),
        ):
            begin(client, who, component, session_id=session)
            client.advance(1)
        yield client


def runs(client: Client, who: str = EVERY, **query: Any) -> list[dict[str, Any]]:
    response = client.get("/runs", query=query, token=who)
    assert response.status == 200, response.body
    listed: list[dict[str, Any]] = response.json()["data"]
    return listed


def names(listed: list[dict[str, Any]]) -> list[str]:
    return [f"{run['user_id']}/{run['component']['id']}" for run in listed]


ALL = ["ada/echo", "bob/broken", "~eve/desk", "ada/keeper", "bob/clerk", "ada/echo"]


def test_a_scope_shows_the_runs_of_every_owner_in_every_database(client: Client) -> None:
    assert names(runs(client)) == ALL
    assert names(runs(client, ADMIN)) == ALL
    assert names(runs(client, order="asc")) == ALL[::-1]
    assert [run["db_id"] for run in runs(client)].count("second") == 1


def test_without_it_one_sees_ones_own(client: Client) -> None:
    assert names(runs(client, token("ada"))) == ["ada/echo", "ada/keeper", "ada/echo"]
    assert names(runs(client, token("~eve"))) == ["~eve/desk"]
    assert runs(client, token("carol")) == []
    assert runs(client, token("ada", "sessions:read")) == []
    assert runs(client, ISSUER.token("agents:run", sub=None)) == []


def test_of_ones_own_those_alone_that_one_may_follow(client: Client) -> None:
    assert names(runs(client, token("ada", "agents:keeper:run"))) == ["ada/keeper"]
    assert names(runs(client, token("bob", "agents:read"))) == ["bob/broken", "bob/clerk"]
    assert runs(client, token("~eve", "agents:read", "teams:other:run")) == []


@pytest.mark.parametrize(
    ("scopes", "components"),
    [
        ((), ()),
        (("agents:read", "teams:run"), None),
        (("agents:*:run",), ("agent:*",)),
        (("agents:b:run", "agents:a:read", "teams:t:run"), ("agent:a", "agent:b", "team:t")),
        (("platform:admin",), ()),
    ],
)
def test_what_one_may_follow_comes_from_scopes(
    scopes: tuple[str, ...], components: tuple[str, ...] | None
) -> None:
    assert own_components(Principal("ada", scopes)) == components


def test_a_token_of_a_session_sees_that_alone(client: Client) -> None:
    everybody = token("operator", "runs:read", session_id="one")
    assert names(runs(client, everybody)) == ["~eve/desk", "bob/clerk", "ada/echo"]
    assert names(runs(client, token("ada", session_id="two"))) == ["ada/echo", "ada/keeper"]
    assert names(runs(client, token("ada", session_id="two"), session_id="one")) == [
        "ada/echo",
        "ada/keeper",
    ]


FILTERS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "state": ({"status": "PAUSED"}, ["~eve/desk", "ada/keeper", "bob/clerk"]),
    "agent": ({"component": "agent:echo"}, ["ada/echo", "ada/echo"]),
    "agent by its id": ({"agent_id": "echo"}, ["ada/echo", "ada/echo"]),
    "team by its id": ({"team_id": "desk"}, ["~eve/desk"]),
    "team of the name of an agent": ({"team_id": "echo"}, []),
    "user": ({"user_id": "bob"}, ["bob/broken", "bob/clerk"]),
    "user with a tilde": ({"user_id": "~eve"}, ["~eve/desk"]),
    "session": ({"session_id": "two"}, ["ada/echo", "bob/broken", "ada/keeper"]),
    "error": ({"error_type": "model_refused"}, ["bob/broken"]),
    "error in another state": ({"error_type": "model_refused", "status": "PAUSED"}, []),
    "another error": ({"error_type": "timeout"}, []),
    "database": ({"db_id": "second"}, ["ada/keeper"]),
    "empty texts": ({"agent_id": "", "component": "", "user_id": "", "db_id": ""}, ALL),
    "before": ({"until": 1}, []),
    "since": ({"since": 1}, ALL),
}


@pytest.mark.parametrize(("query", "listed"), FILTERS.values(), ids=FILTERS)
def test_a_filter_leaves_out_the_others(
    client: Client, query: dict[str, Any], listed: list[str]
) -> None:
    assert names(runs(client, **query)) == listed


def test_the_user_counts_for_who_sees_all_users_alone(client: Client) -> None:
    assert names(runs(client, token("bob"), user_id="ada")) == ["bob/broken", "bob/clerk"]


BAD: dict[str, tuple[str, str]] = {
    "state": ("status=paused", "query.status"),
    "component": ("component=echo", "query.component"),
    "kind": ("component=workflow:x", "query.component"),
    "both": ("agent_id=a&team_id=b", "query.team_id"),
    "thrice": ("component=agent:a&agent_id=a", "query.agent_id"),
    "database": ("db_id=none", "query.db_id"),
    "limit": ("limit=201", "query.limit"),
    "no limit": ("limit=0", "query.limit"),
    "since": ("since=-1", "query.since"),
    "order": ("order=up", "query.order"),
    "cursor": ("cursor=x", "query.cursor"),
    "cursor of another list": (f"cursor={encode_cursor((1,))}", "query.cursor"),
    "cursor without a number": (f"cursor={encode_cursor(('1', 'main', 'r'))}", "query.cursor"),
    "cursor with a zero": (f"cursor={encode_cursor((1, 'main', chr(0)))}", "query.cursor"),
    "cursor that is too late": (f"cursor={encode_cursor((1 << 63, 'main', ''))}", "query.cursor"),
    "long user": ("user_id=" + "x" * 1025, "query.user_id"),
    "zero": ("user_id=%00", "query"),
    "unknown": ("page=2", "query.page"),
}


@pytest.mark.parametrize(("query", "path"), BAD.values(), ids=BAD)
def test_a_query_that_cannot_be_read_is_422(client: Client, query: str, path: str) -> None:
    response = client.get(f"/runs?{query}", token=EVERY)

    assert response.status == 422
    assert [fault["path"] for fault in response.json()["errors"]] == [path]


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(
        st.integers(0, (1 << 62) - 1),
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9),
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9),
    )
)
def test_a_cursor_that_no_page_has_given_opens_nothing(
    cursor: tuple[int, str, str],
) -> None:
    with Client(lambda: Platform(agents=[Agent(id="echo")])) as client:
        client.run("echo", "hi")
        response = client.get("/runs", query={"cursor": encode_cursor(cursor)})

        assert response.status == 200
        assert len(response.json()["data"]) <= 1


@pytest.mark.parametrize("order", ["desc", "asc"])
@pytest.mark.parametrize("limit", [1, 2, 5])
@pytest.mark.parametrize("window", [2, 10_000])
def test_pages_lead_through_every_run_of_all_databases(
    monkeypatch: pytest.MonkeyPatch, client: Client, order: str, limit: int, window: int
) -> None:
    monkeypatch.setattr(listed_runs, "WINDOW", window)
    for who, listed in ((EVERY, ALL), (ADMIN, ALL), (token("ada"), FILTERS["agent"][1])):
        found: list[str] = []
        query = {"order": order, "limit": str(limit)}
        if who not in (EVERY, ADMIN):
            query["agent_id"] = "echo"
        while True:
            response = client.get("/runs", query=query, token=who)
            page = response.json()
            assert len(page["data"]) <= limit
            found += names(page["data"])
            following = page["meta"]["next_cursor"]
            link = dict(response.headers).get(b"link", b"").decode()
            assert link == "" if following is None else f"cursor={following}>" in link
            if following is None:
                break
            query["cursor"] = following
        assert found == (listed if order == "desc" else listed[::-1])


def test_runs_of_two_databases_at_the_same_time_come_once_each() -> None:
    with Client(Office().platform) as client:
        for _ in range(3):
            begin(client, "ada", "agents/echo")
            begin(client, "ada", "agents/keeper")
        for order in ("desc", "asc"):
            found: list[str] = []
            query = {"order": order, "limit": "1"}
            while query.get("cursor") != "None":
                page = client.get("/runs", query=query, token=EVERY).json()
                found += [run["run_id"] for run in page["data"]]
                query["cursor"] = str(page["meta"]["next_cursor"])
            assert len(found) == len(set(found)) == 6


def test_a_run_is_shown_with_what_lists_need(client: Client) -> None:
    (failed,) = runs(client, agent_id="broken")
    (paused,) = runs(client, agent_id="clerk")
    (done, _) = runs(client, agent_id="echo")

    assert (failed["error_type"], failed["status"]) == ("model_refused", "ERROR")
    assert failed["model"] == "scripted"
    incident = client.get(f"/agents/broken/runs/{failed['run_id']}", token=token("bob")).json()[
        "incident"
    ]
    assert failed["incident"] == incident
    assert failed["ended_at"] is not None
    assert "requirements" not in failed
    assert paused["component"] == {"kind": "agent", "id": "clerk", "name": "The clerk"}
    assert paused["approval_id"].startswith(f"{paused['run_id']}.")
    (requirement,) = paused["requirements"]
    assert requirement["tool_execution"]["tool_args"] == {"path": "/x"}
    assert paused["incident"] is None
    assert set(done["tokens"]) == {"input_tokens", "output_tokens", "total_tokens"}
    assert (done["error_type"], done["incident"]) == (None, None)


def test_a_run_of_what_is_hosted_no_more_has_no_name() -> None:
    office = Office()
    with Client(office.platform) as client:
        begin(client, "ada", "agents/echo")
        gone = client.peer(
            lambda: Platform(
                agents=[Agent(id="other")],
                databases=[Database("main", "sqlite://"), Database("second", "sqlite://")],
            )
        )
        gone.open()
        (run,) = gone.get("/runs").json()["data"]
        assert run["component"] == {"kind": "agent", "id": "echo", "name": None}
        assert gone.get("/runs?user_id=ada").json()["data"] == [run]


def test_a_database_that_does_not_answer_is_named() -> None:
    with Client(Office().platform) as client:
        begin(client, "ada", "agents/keeper")
        client.fail_at(ListRuns, Unavailable("away"))
        page = client.get("/runs", token=EVERY).json()
        assert names(page["data"]) == ["ada/keeper"]
        assert page["meta"]["absent"] == ["main"]
        client.fail_at(ListRuns, Unavailable("away"))
        assert client.get("/runs?db_id=main", token=EVERY).status == 503


def test_a_run_that_was_answered_says_by_whom_and_how() -> None:
    for confirmed, status in ((True, "approved"), (False, "rejected")):
        with Client(Office().platform) as client:
            run = begin(client, "ada")
            (waiting,) = runs(client)
            tools = json.dumps([{**run["tools"][0], "confirmed": confirmed}])
            client.advance(1)
            client.post(
                f"/agents/clerk/runs/{run['run_id']}/continue",
                form={"tools": tools, "stream": False},
                token=token("ada"),
            ).expect_success()
            (done,) = runs(client)

            assert waiting["resolution"] is None
            assert done["resolution"] == {
                "approval_id": waiting["approval_id"],
                "status": status,
                "resolved_by": "ada",
                "resolved_at": "2026-01-01T00:00:01Z",
            }


# --- reading one run


def test_a_scope_reads_one_run_of_anybody_and_changes_none(client: Client) -> None:
    (paused,) = runs(client, agent_id="clerk")
    path = f"/agents/clerk/runs/{paused['run_id']}"

    assert client.get(path, token=EVERY).json()["status"] == "PAUSED"
    events = client.get(f"{path}/events", token=EVERY).events()
    assert events[-1].name == "RunPaused"
    for action in ("cancel", "continue", "resume"):
        assert client.post(f"{path}/{action}", form={}, token=EVERY).status == 403
        both = token("operator", "runs:read", "agents:run")
        assert client.post(f"{path}/{action}", form={}, token=both).status == 404
    assert client.get(path, token=token("ada")).status == 404
    assert client.get(path, token=token("ada", "sessions:read")).status == 403
    other = token("operator", "runs:read", session_id="two")
    assert client.get(path, token=other).status == 404


def test_a_scope_reads_runs_of_what_is_hosted_no_more() -> None:
    with Client(Office().platform) as client:
        run = begin(client, "ada", "agents/keeper")
        path = f"/agents/keeper/runs/{run['run_id']}"
        assert client.get(path.replace("keeper", "gone"), token=EVERY).status == 404
        assert client.get(path, token=EVERY).status == 200
