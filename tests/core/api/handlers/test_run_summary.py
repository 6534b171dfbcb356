"""Sums of runs through the front door: by agent, model, user and hour, and of whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from legation.store import listed_runs
from legation.store.failures import Unavailable
from legation.store.listed_runs import ListRuns
from legation_testing import Client

from ....paused_runs import Office, begin, token

EVERY = token("operator", "runs:read")
MODULE = "legation.api.handlers.run_summary"


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Client(Office().platform) as client:
        for who, component in (
            ("ada", "agents/echo"),
            ("bob", "agents/echo"),
            ("ada", "agents/slow"),
            ("bob", "agents/broken"),
            ("ada", "agents/keeper"),
            ("~eve", "teams/desk"),
        ):
            begin(client, who, component)
            client.advance(1_000)
        yield client


def summary(client: Client, who: str = EVERY, **query: Any) -> Any:
    response = client.get("/runs/summary", query=query, token=who)
    assert response.status == 200, response.body
    return response.json()


def counts(client: Client, who: str = EVERY, **query: Any) -> dict[str | None, int]:
    return {one["key"]: one["runs"] for one in summary(client, who, **query)["data"]}


def test_runs_are_summed_up_by_what_is_asked_for(client: Client) -> None:
    assert counts(client) == {
        "agent:echo": 2,
        "agent:broken": 1,
        "agent:keeper": 1,
        "agent:slow": 1,
        "team:desk": 1,
    }
    assert counts(client, by="user") == {"ada": 3, "bob": 2, "~eve": 1}
    assert counts(client, by="model") == {"echo": 2, "scripted": 3, "slow": 1}
    assert list(counts(client, by="hour").items()) == [
        ("2026-01-01T00:00:00Z", 4),
        ("2026-01-01T01:00:00Z", 2),
    ]


def test_a_sum_has_states_tokens_and_times(client: Client) -> None:
    found = summary(client)
    slow = next(one for one in found["data"] if one["key"] == "agent:slow")
    broken = next(one for one in found["data"] if one["key"] == "agent:broken")

    assert (slow["states"]["COMPLETED"], slow["errors"]) == (1, 0)
    assert slow["seconds_p50"] == slow["seconds_p95"] == 5.0
    assert (broken["states"]["ERROR"], broken["errors"]) == (1, 1)
    total = found["total"]
    assert (total["runs"], total["errors"], total["states"]["PAUSED"]) == (6, 1, 2)
    assert total["seconds_p50"] == 0.0
    assert total["seconds_p95"] == 5.0
    assert total["input_tokens"] == sum(one["input_tokens"] for one in found["data"]) > 0
    assert found["meta"] == {"by": "agent", "truncated": False, "groups": 5}


def test_a_run_under_way_took_no_time_yet() -> None:
    with Client(Office().platform) as client:
        form = {"message": "hi", "background": True}
        client.post("/agents/slow/runs", form=form, token=token("ada")).expect_success()
        total = summary(client)["total"]

        assert (total["runs"], total["seconds_p50"]) == (1, None)


def test_without_the_scope_ones_own_are_summed_up(client: Client) -> None:
    assert counts(client, token("ada"), by="user") == {"ada": 3}
    assert counts(client, token("ada", "agents:slow:run")) == {"agent:slow": 1}
    nothing = summary(client, token("carol", "sessions:read"))
    assert nothing["data"] == []
    assert nothing["total"]["seconds_p50"] is None
    assert counts(client, token("operator", "runs:read", session_id="none")) == {}


def test_of_a_database_and_of_a_time(client: Client) -> None:
    assert counts(client, db_id="second") == {"agent:keeper": 1}
    first = 1_767_225_600
    assert sum(counts(client, since=first + 500, until=first + 2_500).values()) == 2
    assert counts(client, until=0) == {}


@pytest.mark.parametrize("query", ["by=week", "since=x", "until=-1", "db_id=none", "limit=1"])
def test_a_query_that_cannot_be_read_is_422(client: Client, query: str) -> None:
    assert client.get(f"/runs/summary?{query}", token=EVERY).status == 422


def test_what_is_more_than_can_be_read_is_said(
    monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    monkeypatch.setattr(f"{MODULE}._BATCH", 1)
    assert sum(counts(client).values()) == 6
    monkeypatch.setattr(f"{MODULE}.MOST", 4)  # two of each database
    found = summary(client)
    assert found["meta"]["truncated"]
    assert found["total"]["runs"] == 3
    monkeypatch.setattr(f"{MODULE}.WINDOW", 2)
    monkeypatch.setattr(listed_runs, "WINDOW", 2)
    monkeypatch.setattr(listed_runs, "FEW", 0)
    assert summary(client, token("ada", "agents:none:run"))["meta"]["truncated"]


def test_groups_are_bounded(monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    monkeypatch.setattr(f"{MODULE}.GROUPS", 2)
    found = summary(client)
    assert [one["runs"] for one in found["data"]] == [2, 1]
    assert found["meta"]["groups"] == 5
    assert found["total"]["runs"] == 6


def test_a_database_that_does_not_answer_is_named(client: Client) -> None:
    client.fail_at(ListRuns, Unavailable("away"))
    assert summary(client)["meta"]["absent"] == ["main"]
    client.fail_at(ListRuns, Unavailable("away"), times=2)
    assert client.get("/runs/summary", token=EVERY).status == 503
