"""What would be over a limit of what is stored is refused, each by the words of its own."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any, Final

import pytest

from legation import Agent, Database, LimitOverrides, Platform, PlatformLimits
from legation.api.handlers.limits import over_limit, storage_full
from legation.http.refusals import Refusal, StateTooLarge, StorageFull, TooManyRequests, respond
from legation.shares.exceeded import Exceeded
from legation.shares.limits import Limits
from legation_testing import Client, ScriptedModel

DAY_US: Final = 86_400_000_000
HOUR_US: Final = 3_600_000_000
LIMITS: Final = Limits(waiting=3, stored_bytes=5_000, tokens_per_day=70, state_bytes=40)


@pytest.mark.parametrize(
    ("over", "refusal"),
    [
        ("state_bytes", StateTooLarge(40)),
        ("stored_bytes", StorageFull(Exceeded("stored_bytes", 5_000))),
        ("waiting", TooManyRequests(Exceeded("waiting", 3))),
        ("tokens", TooManyRequests(Exceeded("tokens", 70, 3_600, 86_400))),
    ],
)
def test_each_limit_has_its_refusal(over: str, refusal: Refusal) -> None:
    assert over_limit(over, LIMITS, 5 * DAY_US - HOUR_US) == refusal


def test_a_limit_that_is_gone_meanwhile_is_told_as_nothing_left() -> None:
    assert storage_full(Limits()) == StorageFull(Exceeded("stored_bytes", 0))
    assert over_limit("tokens", Limits(), 0) == TooManyRequests(
        Exceeded("tokens", 0, 86_400, 86_400)
    )


def test_who_has_no_tokens_is_told_to_come_back_at_midnight() -> None:
    refusal = over_limit("tokens", LIMITS, 5 * DAY_US - 1)
    response = respond(refusal)

    assert (response.status, refusal.error_code) == (429, "TOO_MANY_REQUESTS")
    fields = dict(response.headers)
    assert fields[b"retry-after"] == b"1"
    assert fields[b"ratelimit"] == b'"tokens";r=0;t=1'
    assert fields[b"ratelimit-policy"] == b'"tokens";q=70;qu="tokens";w=86400'
    assert "midnight UTC" in refusal.detail


@pytest.mark.parametrize("over", ["state_bytes", "stored_bytes"])
def test_what_no_waiting_helps_against_is_not_answered_as_if_it_did(over: str) -> None:
    response = respond(over_limit(over, LIMITS, 0))

    assert response.status == 413
    assert not {b"retry-after", b"ratelimit"} & dict(response.headers).keys()


# --- Through the routes ------------------------------------------------------------------------


def platform() -> Platform:
    """Two databases, in which one caller may keep less than others."""
    return Platform(
        databases=(Database("main", "sqlite://"), Database("second", "sqlite://")),
        agents=(
            Agent(id="clerk", model=ScriptedModel(["y"] * 30)),
            Agent(id="other", model=ScriptedModel(["y"] * 30), database="second"),
        ),
        limits=PlatformLimits(
            state_bytes=100, subjects={"ada": LimitOverrides(stored_bytes=2_000)}
        ),
    )


@pytest.fixture
def client() -> Generator[Client]:
    with Client(platform()) as client:
        yield client


def ask(client: Client, agent: str, user: str, session_id: str, **fields: Any) -> int:
    form = {"message": "x", "stream": False, "session_id": session_id, "user_id": user, **fields}
    return client.post(f"/agents/{agent}/runs", form=form).status


def fill(client: Client, agent: str, user: str) -> int:
    """Have runs of `user` until one is refused; return how many were not."""
    for number in range(20):
        if ask(client, agent, user, f"s{number}") != 200:
            return number
    return 20


def test_who_keeps_too_much_is_refused_until_it_deletes_and_nobody_else_is(
    client: Client,
) -> None:
    stored = fill(client, "clerk", "ada")
    assert 0 < stored < 10
    form = {"message": "x", "stream": True, "user_id": "ada"}
    refused = client.post("/agents/clerk/runs", form=form)
    assert (refused.status, refused.json()["error_code"]) == (413, "STORAGE_FULL")
    assert "2000 bytes" in refused.json()["detail"]
    made = client.post(
        "/sessions?user_id=ada&db_id=main", json={"agent_id": "clerk", "metadata": {}}
    )
    assert (made.status, made.json()["error_code"]) == (413, "STORAGE_FULL")
    change = {"metadata": {"x": "y" * 2_000}}
    assert client.patch("/sessions/s0?user_id=ada&db_id=main", json=change).status == 413
    assert len(client.get("/sessions?user_id=ada&db_id=main").json()["data"]) == stored

    assert ask(client, "clerk", "bob", "s") == 200
    assert ask(client, "other", "ada", "s") == 200, "each database counts its own"
    assert client.delete("/sessions/s0?user_id=ada&db_id=main").status == 204
    assert ask(client, "clerk", "ada", "new") == 200
    assert ask(client, "clerk", "ada", "newer") == 413


def test_a_state_over_its_limit_is_refused_wherever_it_is_sent(client: Client) -> None:
    long = {"k": "x" * 200}
    made = client.post("/sessions?db_id=main", json={"agent_id": "clerk", "session_state": long})
    assert (made.status, made.json()["error_code"]) == (413, "STATE_TOO_LARGE")
    assert "more than 100 bytes" in made.json()["detail"]
    body = {"agent_id": "clerk", "session_id": "s", "session_state": {"k": 1}}
    assert client.post("/sessions?db_id=main", json=body).status == 201
    change = {"session_state": long}
    assert client.patch("/sessions/s?db_id=main", json=change).status == 413
    state = json.dumps({"l": "x" * 200})
    form = {"message": "x", "stream": False, "session_id": "s", "session_state": state}
    answer = client.post("/agents/clerk/runs", form=form)
    assert (answer.status, answer.json()["error_code"]) == (413, "STATE_TOO_LARGE")

    assert client.get("/sessions/s?db_id=main").json()["session_state"] == {"k": 1}
    assert client.get("/sessions/s/runs?db_id=main").json() == []
