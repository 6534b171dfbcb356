"""The program that erases a person: its order, its waits, and what it leaves to others."""

from __future__ import annotations

import hmac
import json
from base64 import b64decode, b64encode
from collections.abc import Generator
from typing import Any, Final

import pytest

from legation import Agent, Channel, Database, Platform
from legation.effects import Sleep, Transact
from legation.models.conversation import Prompt
from legation.store.erasure import (
    EndErasure,
    EraseLetters,
    EraseNotices,
    EraseRuns,
    EraseSession,
    ForgetPerson,
    ListActive,
    Tally,
)
from legation.store.run_reads import FetchRun
from legation_testing import Client, Says, ScriptedModel, call

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def answer(prompt: Prompt) -> Any:
    """Take a while, or wait for a person, where that is asked for."""
    said = str(prompt.messages[-1].content)
    if said == "pay":
        return call("pay")
    return Says(said, after_seconds=600.0) if said == "slow" else f"about {said}"


async def stubborn() -> str:
    """Do nothing."""
    return "done"


def make() -> Platform:
    return Platform(
        databases=[Database("main", "sqlite:///:memory:")],
        agents=[Agent(id="a", model=ScriptedModel([answer] * 50))],
        channels=[
            Channel(
                id="chat",
                kind="standard",
                agent="a",
                secret_env="S",
                reply_url="http://127.0.0.1:9/",
                subjects={"49": "ada", "50": "bob"},
            )
        ],
        environ={"S": SECRET},
    )


@pytest.fixture
def client() -> Generator[Client]:
    with Client(make) as made:
        yield made


def deliver(client: Client, sender: str, name: str, text: str) -> int:
    body = json.dumps({"type": "message", "data": {"sender": sender, "text": text}}).encode()
    seconds = str(client.clock.now_us // 1_000_000)
    key = b64decode(SECRET.removeprefix("whsec_"))
    digest = hmac.digest(key, f"{name}.{seconds}.".encode() + body, "sha256")
    headers = {
        "content-type": "application/json",
        "webhook-id": name,
        "webhook-timestamp": seconds,
        "webhook-signature": f"v1,{b64encode(digest).decode()}",
    }
    return client.post("/chat/webhook", body=body, headers=headers).status


def erase(client: Client, user: str = "ada") -> dict[str, int]:
    counts: dict[str, int] = client.delete(f"/users/{user}").expect_success().json()["counts"]
    return counts


def begin(client: Client, text: str, session_id: str, **more: Any) -> Any:
    form = {"message": text, "stream": False, "session_id": session_id, "user_id": "ada", **more}
    exchange = client.begin("POST", "/agents/a/runs", form=form)
    client.settle()
    return exchange


def test_a_delivery_that_is_repeated_brings_nothing_back(client: Client) -> None:
    for sender in ("49", "50"):
        assert deliver(client, sender, f"m-{sender}", "secret words") == 200
    client.advance(5)
    counted = client.delete("/users/ada?dry_run=true").json()["counts"]
    counts = erase(client)
    assert (counts["messages"], counts["replies"], counts["sessions"]) == (1, 1, 1)
    assert counted == counts
    for sender in ("49", "50"):
        assert deliver(client, sender, f"m-{sender}", "secret words") == 200
    client.advance(5)

    assert set(erase(client).values()) == {0}
    assert erase(client, "bob")["messages"] == 1


def test_a_message_under_work_is_answered_no_more(client: Client) -> None:
    deliver(client, "49", "m", "slow")
    client.advance(1)
    erase(client)
    client.advance(1200)

    assert set(erase(client).values()) == {0}


def test_runs_that_wait_and_go_on_are_cancelled_before_anything_is_erased(client: Client) -> None:
    for _ in range(3):
        begin(client, "slow", "s")
    asked = len(client.effects)
    counts = erase(client)
    units = [
        type(done.effect.unit).__name__
        for done in client.effects[asked:]
        if isinstance(done.effect, Transact)
    ]

    assert counts["runs"] == 3
    assert max(i for i, name in enumerate(units) if name == "CancelRun") < units.index("EraseRuns")


def test_a_run_that_does_not_end_is_not_waited_for_long(client: Client) -> None:
    begin(client, "hello", "s").response()
    client.fail_at(ListActive, (((("s", "gone")),), 1), times=None)
    client.fail_at(FetchRun, None)
    started_us = client.clock.now_us
    counts = erase(client)

    assert counts["runs"] == 1
    assert 1_000_000 < client.clock.now_us - started_us < 60_000_000


def test_what_comes_again_and_again_is_not_erased_for_ever(client: Client) -> None:
    for number in range(3):
        client.fail_at(EraseNotices, Tally(replies=1), skip=number)

    assert erase(client)["replies"] == 3


def test_a_run_that_waits_for_a_person_goes_without_a_word_to_them(client: Client) -> None:
    deliver(client, "49", "m", "hello")
    client.advance(5)
    counts = erase(client)

    assert counts["replies"] == 1
    assert client.get("/channels/chat/replies?state=ready").json()["data"] == []


def test_the_end_comes_last(client: Client) -> None:
    begin(client, "hello", "s")
    asked = len(client.effects)
    erase(client)
    units = [
        done.effect.unit for done in client.effects[asked:] if isinstance(done.effect, Transact)
    ]
    kinds = [type(unit) for unit in units]

    assert kinds.index(EraseLetters) < kinds.index(EraseRuns) < kinds.index(EraseSession)
    assert kinds[-1] is EndErasure
    assert kinds[-2] is ForgetPerson
    assert not [one for one in client.effects[asked:] if isinstance(one.effect, Sleep)]


def test_a_name_with_a_tilde_is_erased_under_its_older_owner_too(client: Client) -> None:
    begin(client, "hello", "s", user_id="~x")

    assert erase(client, "~x")["sessions"] == 1
