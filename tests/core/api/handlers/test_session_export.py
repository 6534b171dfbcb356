"""The export of a session: all of it, in two forms, streamed, and for its owner alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from legation import Agent
from legation.store.failures import Unavailable
from legation.store.run_reads import FetchEvents
from legation_testing import Client, ScriptedModel
from legation_testing.exchange import BadResponse

from ....callers import Issuer, demo
from ....two_databases import IN_MEMORY

ISSUER: Final = Issuer()
HOSTILE: Final = "\u2028\u2029</script>\"\\'\U0001f600\x7f"


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(demo(None)) as client:
        yield client


def export(client: Client, session: str = "s1", **query: Any) -> Any:
    answer = client.get(f"/sessions/{session}/export", query=query).expect_success()
    assert answer.header("content-type") == "application/json"
    return answer.json()


def lines(client: Client, session: str = "s1") -> list[dict[str, Any]]:
    answer = client.get(f"/sessions/{session}/export?format=ndjson").expect_success()
    assert answer.header("content-type") == "application/x-ndjson"
    assert answer.header("content-disposition") == 'attachment; filename="session.ndjson"'
    assert answer.text.endswith("\n")
    return [json.loads(line) for line in answer.text.split("\n")[:-1]]


def test_a_session_is_exported_with_its_runs_and_their_events(client: Client) -> None:
    first = client.run("alpha", HOSTILE, session_id="s1")
    second = client.run("alpha", "again", session_id="s1")
    client.run("alpha", "of another", session_id="s2")
    found = export(client)

    assert found["session"]["session_id"] == "s1"
    assert [one["run"]["run_id"] for one in found["runs"]] == [first["run_id"], second["run_id"]]
    for one, run in zip(found["runs"], (first, second), strict=True):
        assert one["run"]["content"] == run["content"]
        assert [event["seq"] for event in one["events"]] == list(range(1, len(one["events"]) + 1))
        assert one["events"][0]["event"]["event"] == "RunStarted"
        assert one["events"][-1]["event"]["event"] == "RunCompleted"


def test_both_forms_say_the_same(client: Client) -> None:
    for _ in range(3):
        client.run("alpha", HOSTILE, session_id="s1")
    whole, told = export(client), lines(client)

    assert told[0] == {"session": whole["session"]}
    assert [one["run"] for one in told if "run" in one] == [one["run"] for one in whole["runs"]]
    events = [
        {"run_id": run["run"]["run_id"], **event}
        for run in whole["runs"]
        for event in run["events"]
    ]
    assert [one for one in told if "event" in one] == events
    assert told[-1] == {"end": {"runs": 3, "events": len(events)}}


def test_the_runs_of_members_are_in_it(client: Client) -> None:
    run = client.run_team("crew", "hi", session_id="s1")
    found = export(client, type="team")

    assert found["runs"][0]["run"]["run_id"] == run["run_id"]
    assert {one["run"].get("parent_run_id") for one in found["runs"]} <= {None, run["run_id"]}


def test_a_session_without_runs_is_whole(client: Client) -> None:
    client.post(
        "/sessions", json={"session_id": "s1", "session_name": HOSTILE[:3]}
    ).expect_success()

    assert export(client)["runs"] == []
    assert lines(client)[1:] == [{"end": {"runs": 0, "events": 0}}]


def test_more_runs_and_longer_ones_than_a_page_holds_are_all_there() -> None:
    model = ScriptedModel(["x" * 300_000] * 8)
    agents = (Agent("alpha", model=model), Agent("beta"))
    with Client(demo(None, agents=agents)) as client:
        for _ in range(8):
            client.run("alpha", "hi", session_id="s1")
        found = export(client)

    assert len(found["runs"]) == 8
    assert {len(one["run"]["content"]) for one in found["runs"]} == {300_000}


def test_a_run_that_goes_on_is_exported_as_far_as_it_is(client: Client) -> None:
    form = {"message": "hi", "session_id": "s1", "background": "true", "stream": "false"}
    client.post("/agents/alpha/runs", form=form).expect_success()
    (run,) = export(client)["runs"]

    assert run["run"]["status"] in {"PENDING", "RUNNING", "COMPLETED"}


def test_where_the_database_fails_the_client_sees_that_it_is_not_whole(client: Client) -> None:
    client.run("alpha", "hi", session_id="s1")
    client.fail_at(FetchEvents, Unavailable(), times=None)
    for form in ("json", "ndjson"):
        with pytest.raises(BadResponse, match="not whole"):
            client.get(f"/sessions/s1/export?format={form}")


@pytest.mark.parametrize("query", ["format=xml", "format=", "what=1", "type=x"])
def test_what_is_no_form_is_refused(client: Client, query: str) -> None:
    client.run("alpha", "hi", session_id="s1")

    assert client.get(f"/sessions/s1/export?{query}").status == 422


def test_an_export_is_its_owners_alone() -> None:
    with Client(demo(ISSUER)) as client:
        tokens = {
            name: ISSUER.token("agents:run", "sessions:read", sub=name) for name in ("ann", "eve")
        }
        for name, token in tokens.items():
            client.token = token
            client.run("alpha", f"of {name}", session_id=f"s-{name}")

        def status(session: str, token: str) -> int:
            return client.get(f"/sessions/{session}/export", token=token).status

        assert status("s-ann", tokens["ann"]) == 200
        assert status("s-ann", tokens["eve"]) == 404
        assert status("s-ann", ISSUER.token("sessions:read", sub="ann", session_id="other")) == 404
        assert status("s-ann", ISSUER.token("agents:read", sub="ann")) == 403
        assert status("s-ann", ISSUER.token("platform:admin", sub="root")) == 200
        assert status("no-such", tokens["ann"]) == 404


def test_of_two_databases_one_is_named() -> None:
    with Client(demo(None, databases=IN_MEMORY)) as client:
        client.run("alpha", "hi", session_id="s1")

        assert client.get("/sessions/s1/export").status == 400
        assert client.get("/sessions/s1/export?db_id=second").status == 404
        assert len(export(client, db_id="main")["runs"]) == 1
