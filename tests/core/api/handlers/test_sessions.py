from __future__ import annotations

from collections.abc import Generator
from typing import Any
from urllib.parse import quote

import pytest

from legation import Platform
from legation.config import Agent, Channel, Model, Team
from legation.http.messages import compact_json
from legation.store.audit import Changed
from legation.store.failures import Unavailable
from legation.store.session_counts import MOST_COUNTED, KeepSessionCount
from legation.store.sessions import Deleted, DeleteSessions, UpdateSession
from legation_testing import Client


def platform() -> Platform:
    return Platform(
        id="demo",
        models=(Model("slow", "echo", delay_seconds=5.0),),
        agents=(Agent(id="quick", name="Quick"), Agent(id="sloth", model="slow")),
        teams=(Team(id="desk", members=("quick",)),),
    )


@pytest.fixture
def client() -> Generator[Client]:
    with Client(platform) as client:
        yield client


def create(client: Client, **body: Any) -> Any:
    return client.post("/sessions", json=body)


def test_a_created_session_has_what_was_given(client: Client) -> None:
    made = create(
        client,
        session_id="s",
        session_name="My S",
        session_state={"a": 1},
        metadata={"m": 1},
        agent_id="quick",
    )

    assert made.status == 201
    assert made.json() == {
        "user_id": "",
        "agent_session_id": "s",
        "session_id": "s",
        "session_name": "My S",
        "session_state": {"a": 1},
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z",
        "agent_id": "quick",
        "total_tokens": 0,
        "agent_data": {
            "name": "Quick",
            "agent_id": "quick",
            "model": {"name": "Echo", "provider": "Legation", "id": "echo"},
        },
        "metrics": {},
        "metadata": {"m": 1},
        "chat_history": [],
    }


def test_creating_an_existing_session_leaves_its_history(client: Client) -> None:
    client.run("quick", "hello", session_id="s")

    assert create(client, session_id="s").status == 409
    assert len(client.get("/sessions/s/runs").json()) == 1


def test_a_session_without_a_component_takes_the_one_of_its_first_run(client: Client) -> None:
    session_id = create(client).json()["session_id"]
    assert "agent_data" not in client.get(f"/sessions/{session_id}").json()
    client.post("/teams/desk/runs", form={"message": "x", "session_id": session_id}).events()

    found = client.get(f"/sessions/{session_id}?type=team").json()
    assert (found["team_id"], found["team_data"]["name"]) == ("desk", "desk")
    assert [run["team_id"] for run in client.get(f"/sessions/{session_id}/runs").json()] == ["desk"]


def test_the_component_of_a_session_may_be_hosted_no_more(client: Client) -> None:
    create(client, session_id="s", agent_id="gone")

    assert client.get("/sessions/s").json()["agent_data"] == {"agent_id": "gone"}


def test_the_kind_that_is_asked_for_is_checked(client: Client) -> None:
    create(client, session_id="s")

    assert client.get("/sessions/s?type=agent").status == 200
    assert client.get("/sessions/s?type=team").status == 404
    assert client.get("/sessions/s?type=bogus").status == 422
    assert client.get("/sessions?type=workflow").json()["data"] == []
    assert client.post("/sessions?type=workflow", json={}).status == 400


def test_a_detail_has_the_conversation_and_what_it_cost(client: Client) -> None:
    client.run("quick", "hello there", session_id="s")
    client.run("quick", "once more", session_id="s")
    found = client.get("/sessions/s").json()

    assert [(m["role"], m["content"]) for m in found["chat_history"]] == [
        ("user", "hello there"),
        ("assistant", "hello there"),
        ("user", "once more"),
        ("assistant", "once more"),
    ]
    # The second run was told the first, and a word that the model hears is a token.
    assert found["metrics"] == {"input_tokens": 8, "output_tokens": 4, "total_tokens": 12}
    assert found["session_name"] == "hello there"


def test_links_lead_through_the_sessions_however_long_their_states(client: Client) -> None:
    for number in range(7):
        state = {"a": "x" * (400_000 if number % 2 else 1)}
        create(client, session_id=f"s{number}", session_name="Named", session_state=state)
        client.advance(1)
    whole = client.get("/sessions")
    assert whole.header("content-length") is None
    assert whole.header("link") is None
    assert whole.body == compact_json(whole.json()).encode()
    assert whole.json()["meta"] == {
        "page": 1,
        "limit": 20,
        "total_pages": 1,
        "total_count": 7,
        "search_time_ms": 0.0,
    }

    found: list[Any] = []
    link: str | None = "<?limit=2&session_name=name&sort_order=asc>"
    while link is not None:
        page = client.get(f"/sessions{link[1 : link.index('>')]}").expect_success()
        assert page.json()["meta"]["total_count"] == 7
        found += page.json()["data"]
        link = page.header("link")
    assert found == whole.json()["data"][::-1]
    assert client.get("/sessions?cursor=x").status == 422
    assert client.request("HEAD", "/sessions").headers[:1] == whole.headers[:1]


def test_runs_are_filtered_by_the_time_they_were_asked_for(client: Client) -> None:
    for _ in range(3):
        client.run("quick", "x", session_id="s")
        client.advance(10)
    start = client.clock.start_us // 1_000_000

    def runs(query: str) -> int:
        return len(client.get(f"/sessions/s/runs?{query}").json())

    assert runs("") == 3
    assert runs(f"created_after={start + 5}") == 2
    assert runs(f"created_after={start + 5}&created_before={start + 15}") == 1
    assert (runs("limit=2"), runs("limit=2&page=2")) == (2, 1)


def test_one_run_of_a_session(client: Client) -> None:
    run = client.run("quick", "x", session_id="s")
    other = client.run("quick", "x", session_id="t")

    assert client.get(f"/sessions/s/runs/{run['run_id']}").json()["content"] == "x"
    for run_id in (other["run_id"], "nope"):
        assert client.get(f"/sessions/s/runs/{run_id}").json()["detail"] == (
            f"Run with ID {run_id} not found in session s"
        )


def test_a_list_is_filtered_sorted_and_paged(client: Client) -> None:
    for n, name in enumerate(("Alpha 100%", "beta", "Gamma")):
        create(client, session_id=f"s{n}", session_name=name, agent_id="quick")
        client.advance(10)

    def ids(query: str) -> list[str]:
        return [row["session_id"] for row in client.get(f"/sessions?{query}").json()["data"]]

    assert ids("") == ["s2", "s1", "s0"]
    assert ids("sort_order=asc&sort_by=updated_at") == ["s0", "s1", "s2"]
    assert ids("session_name=%25") == ["s0"]
    assert ids("session_name=BETA") == ["s1"]
    assert ids("component_id=sloth") == []
    assert ids("limit=2&page=2") == ["s0"]
    assert client.get("/sessions?limit=2").json()["meta"] == {
        "page": 1,
        "limit": 2,
        "total_pages": 2,
        "total_count": 3,
        "search_time_ms": 0.0,
    }


def test_the_number_of_many_sessions_is_kept_by_the_first_list_that_can_write(
    client: Client,
) -> None:
    for n in range(MOST_COUNTED + 1):
        create(client, session_id=f"s{n}", user_id="ada")

    def total() -> int:
        count: int = client.get("/sessions?limit=1&user_id=ada").json()["meta"]["total_count"]
        return count

    failing = client.fail_at(KeepSessionCount, Unavailable())
    assert (total(), failing.hits) == (MOST_COUNTED + 1, 1)
    assert total() == MOST_COUNTED + 1
    unasked = client.fail_at(KeepSessionCount, Unavailable())
    create(client, session_id="new", user_id="ada")
    assert (total(), unasked.hits) == (MOST_COUNTED + 2, 0)


@pytest.mark.parametrize("query", ["page=0", "limit=0", "limit=1001", "sort_by=state", "x=1"])
def test_a_query_beyond_its_bounds_is_refused(client: Client, query: str) -> None:
    assert client.get(f"/sessions?{query}").status == 422


def test_values_are_replaced_one_by_one(client: Client) -> None:
    create(client, session_id="s", session_name="a", session_state={"a": 1})

    assert client.patch("/sessions/s", json={}).status == 200
    changed = client.patch("/sessions/s", json={"session_state": {}, "summary": {"x": 1}}).json()
    assert (changed["session_name"], changed["session_state"]) == ("a", {})
    assert changed["session_summary"] == {"x": 1}
    assert client.post("/sessions/s/rename", json={"session_name": ""}).json()["session_name"] == ""


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/sessions", {"session_id": 1}, 422),
        ("POST", "/sessions", {"session_id": "a\x01"}, 422),
        ("POST", "/sessions", {"session_name": "a\x01"}, 422),
        ("POST", "/sessions", {"session_id": ".."}, 422),
        ("POST", "/sessions", {"session_id": "CORP\\ada"}, 422),
        ("POST", "/sessions", {"session_id": "a;b"}, 422),
        ("POST", "/sessions", {"session_state": []}, 422),
        ("POST", "/sessions", {"x": 1}, 422),
        ("POST", "/sessions?x=1", {}, 422),
        ("POST", "/sessions?db_id=nope", {}, 404),
        ("PATCH", "/sessions/s", {"session_name": 1}, 422),
        ("PATCH", "/sessions/nope", {}, 404),
        ("POST", "/sessions/s/rename", {}, 422),
        ("POST", "/sessions/nope/rename", {"session_name": "x"}, 404),
        ("GET", "/sessions?db_id=nope", None, 404),
        ("GET", "/sessions/s?db_id=nope", None, 404),
        ("GET", "/sessions/nope", None, 404),
        ("GET", "/sessions/nope/runs", None, 404),
        ("GET", "/sessions/nope/runs/r", None, 404),
        ("GET", "/sessions/s?x=1", None, 422),
        ("DELETE", "/sessions/nope", None, 204),
        ("DELETE", "/sessions", {"session_ids": [], "session_types": []}, 422),
        ("DELETE", "/sessions", {"session_ids": ["s"], "session_types": ["x"]}, 422),
        ("DELETE", "/sessions", {"session_ids": ["s"], "session_types": ["agent"] * 2}, 400),
        ("DELETE", "/sessions?db_id=nope", {"session_ids": ["s"], "session_types": ["agent"]}, 404),
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(
    client: Client, method: str, path: str, body: Any, status: int
) -> None:
    create(client, session_id="s", session_name="S")
    before = client.get("/sessions/s").json()

    assert client.request(method, path, json=body).status == status
    assert client.get("/sessions/s").json() == before


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/sessions"),
        ("POST", "/sessions"),
        ("DELETE", "/sessions"),
        ("GET", "/sessions/s"),
        ("PATCH", "/sessions/s"),
        ("DELETE", "/sessions/s"),
        ("GET", "/sessions/s/runs"),
        ("GET", "/sessions/s/runs/r"),
    ],
)
def test_a_query_that_does_not_decode_is_refused(client: Client, method: str, path: str) -> None:
    assert client.request(method, f"{path}?%ff").status == 422


@pytest.mark.parametrize(("method", "path"), [("POST", ""), ("DELETE", ""), ("PATCH", "/s")])
def test_a_body_that_is_no_object_is_refused(client: Client, method: str, path: str) -> None:
    assert client.request(method, f"/sessions{path}", body=b"{").status == 400


def test_a_deleted_session_is_gone_with_its_runs_and_the_id_begins_anew(client: Client) -> None:
    run = client.run("quick", "x", session_id="s")

    assert client.delete("/sessions/s").status == 204
    assert client.get("/sessions/s").status == 404
    assert client.get(f"/agents/quick/runs/{run['run_id']}").status == 404
    assert client.run("quick", "y", session_id="s")["status"] == "COMPLETED"
    assert len(client.get("/sessions/s/runs").json()) == 1


def test_a_session_that_is_gone_is_deleted_as_often_as_somebody_asks(client: Client) -> None:
    client.run("quick", "x", session_id="s")

    for path in ("/sessions/s", "/sessions/s", "/sessions/never", f"/sessions/{'x' * 300}"):
        assert client.delete(path).status == 204


def test_deleting_a_session_breaks_off_the_run_that_is_executed(client: Client) -> None:
    form = {"message": "x", "session_id": "s"}
    exchange = client.begin("POST", "/agents/sloth/runs", form=form)
    client.settle()
    client.delete("/sessions/s")
    exchange.response()

    assert client.clock.elapsed < 5
    assert client.run("quick", "y", session_id="s")["status"] == "COMPLETED"


def test_a_deleted_run_is_gone_and_its_session_goes_on(client: Client) -> None:
    first, second = (client.run("quick", text, session_id="s")["run_id"] for text in ("a", "b"))
    assert client.delete(f"/sessions/s/runs/{first}").status == 204

    assert [run["run_id"] for run in client.get("/sessions/s/runs").json()] == [second]
    assert client.run("quick", "c", session_id="s")["status"] == "COMPLETED"


@pytest.mark.parametrize("path", ["s/runs/none", "none/runs/none", f"{'s' * 1025}/runs/none"])
def test_a_run_that_is_gone_is_deleted_as_often_as_somebody_asks(client: Client, path: str) -> None:
    create(client, session_id="s")

    assert client.delete(f"/sessions/{path}").status == 204


def test_deleting_a_run_breaks_it_off(client: Client) -> None:
    exchange = client.begin(
        "POST", "/agents/sloth/runs", form={"message": "a", "stream": False, "session_id": "s"}
    )
    client.settle()
    (run,) = client.get("/sessions/s/runs").json()
    assert client.delete(f"/sessions/s/runs/{run['run_id']}").status == 204
    client.advance(60)

    assert exchange.response().status == 409
    assert client.get("/sessions/s/runs").json() == []


def test_many_are_deleted_at_once_those_of_the_kind_that_is_named(client: Client) -> None:
    for name in ("a", "b", "c"):
        create(client, session_id=name)
    body = {"session_ids": ["a", "b", "x"], "session_types": ["agent", "team", "agent"]}

    assert client.request("DELETE", "/sessions", json=body).status == 204
    left = [row["session_id"] for row in client.get("/sessions").json()["data"]]
    assert sorted(left) == ["b", "c"]


def test_a_session_that_goes_meanwhile_is_not_found(client: Client) -> None:
    create(client, session_id="s")
    client.fail_at(UpdateSession, Changed(None, kept=False))

    assert client.patch("/sessions/s", json={}).status == 404


def test_a_session_that_goes_meanwhile_is_deleted(client: Client) -> None:
    create(client, session_id="s")
    client.fail_at(DeleteSessions, Changed(Deleted(0, ()), kept=False))

    assert client.delete("/sessions/s").status == 204


def test_config_and_models_list_what_is_hosted() -> None:
    channel = Channel(
        id="chat", kind="standard", agent="quick", secret_env="S", reply_url="https://x"
    )
    with Client(
        lambda: Platform(
            id="demo",
            agents=(Agent(id="quick"),),
            teams=(Team(id="desk", members=("quick",)),),
            channels=(channel,),
            environ={"S": "whsec_" + "A" * 32},
        )
    ) as client:
        config = client.get("/config").json()

        assert config["agents"] == [{"id": "quick", "name": "quick", "db_id": "main"}]
        assert config["teams"][0]["mode"] == "coordinate"
        assert config["interfaces"] == [{"type": "standard", "version": "1.0", "route": "/chat"}]
        assert client.get("/models").json() == [{"id": "echo", "provider": "Legation"}]


@pytest.mark.parametrize("session_id", ["a/b", "a%2Fb", "...", "a b", "?#", ":", "é", "x" * 255])
def test_a_session_is_found_under_the_id_that_was_chosen(client: Client, session_id: str) -> None:
    assert create(client, session_id=session_id).status == 201

    found = client.get(f"/sessions/{quote(session_id, safe='')}")
    assert found.json()["session_id"] == session_id


def test_an_id_that_none_can_have_does_not_swell_the_audit_trail(client: Client) -> None:
    create(client, session_id="s")
    body = {"session_ids": ["s", "x" * 1_000_000], "session_types": ["agent", "agent"]}

    assert client.request("DELETE", "/sessions", json=body).status == 204
    deleted = [entry for entry in client.audit if entry.operation == "delete_sessions"]
    assert [entry.resource for entry in deleted] == ["s"]


# --- what the list says of runs ------------------------------------------------------------------


def test_a_listed_session_has_its_component_and_the_state_of_its_newest_run(client: Client) -> None:
    create(client, session_id="empty")
    client.run("quick", "hi", session_id="s1")
    client.run_team("desk", "hi", session_id="s2")
    client.post(
        "/agents/sloth/runs", form={"message": "x", "session_id": "s3", "background": "true"}
    )
    agents = {row["session_id"]: row for row in client.get("/sessions").json()["data"]}
    (team,) = client.get("/sessions?type=team").json()["data"]

    assert agents.keys() == {"empty", "s1", "s3"}
    assert "last_status" not in agents["empty"] and "agent_id" not in agents["empty"]
    assert [agents["s1"]["agent_id"], agents["s1"]["last_status"]] == ["quick", "COMPLETED"]
    assert [agents["s3"]["agent_id"], agents["s3"]["last_status"]] == ["sloth", "RUNNING"]
    assert [team["team_id"], team["last_status"]] == ["desk", "COMPLETED"]
    client.advance(6)
    agents = {row["session_id"]: row for row in client.get("/sessions").json()["data"]}
    assert agents["s3"]["last_status"] == "COMPLETED"
