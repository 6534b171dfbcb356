"""A kind of channel of an application: hostile input, two channels, two senders, a crash."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

import pytest
from attrs import evolve

from legation import Agent, Channel, Platform
from legation.effects import Fetch, FetchReply
from legation_testing import Client, crash_everywhere

from ..providers.deliveries import ENVIRON, Delivery, channels, loopback, platform, signed
from ..providers.loopback import Loopback, LoopbackApi
from .cluster_kit import NIGHTLY

BASE: Final = "http://127.0.0.1:9"
BATCH: Final = (("ann", "a", "one"), ("bob", "b", "two"), ("ann", "c", "three"))


def send(client: Client, sent: Delivery) -> Any:
    """Deliver `sent`."""
    return client.post(sent.target, headers=sent.headers, body=sent.body)


def said(api: LoopbackApi, who: str) -> list[str]:
    """Return what `who` was sent, in order, each text once."""
    return list(dict.fromkeys(seen.text for seen in api.seen if seen.recipient == who))


def test_two_senders_are_answered_each_in_order() -> None:
    api = LoopbackApi()
    with Client(platform, fetch=api) as client:
        assert send(client, loopback(*BATCH)).json() == {"status": "processing"}
        client.advance(60)

    assert api.refused == []
    assert (said(api, "ann"), said(api, "bob")) == (["one", "three"], ["two"])


def test_long_answer_comes_in_parts_that_the_provider_takes() -> None:
    api = LoopbackApi()
    with Client(platform, fetch=api) as client:
        send(client, loopback(("ann", "a", "x" * 2500)))
        client.advance(60)

    assert api.refused == []
    assert [len(seen.text) for seen in api.seen] == [1000, 1000, 500]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff", 400),
        (b"[]", 200),
        (b"3", 200),
        (b"{}", 200),
        (b'{"messages": 3}', 200),
        (b'{"messages": [3, null, {"id": []}, {"id": "a", "from": {}}]}', 200),
        (b'{"messages": [{"id": "a", "from": "", "text": 3}]}', 200),
        (b'{"messages": [{"id": "a\\u0000", "from": "ann"}]}', 200),
        (b"[" * 100_000, 400),
        (b'{"messages": [' + b'{"id":"","from":"x"},' * 100_000 + b"{}]}", 200),
    ],
    ids=str,
)
def test_hostile_delivery_is_judged_as_those_of_our_kinds(body: bytes, status: int) -> None:
    with Client(platform) as client:
        assert send(client, signed("loopback", body, 0)).status == status
        refused = client.post("/loopback/webhook", body=body)
        client.settle()

        assert refused.status == 403
        assert client.get("/channels/loopback/messages?state=ready").json()["data"] == []
        assert client.get("/channels/loopback/messages?state=dead").json()["data"] == []


def two_lines() -> Platform:
    """Return a platform with two channels of the kind, each with a secret and an agent."""
    (one,) = (c for c in channels(BASE) if c.kind == "loopback")
    settings = {"line": "two", "endpoint": f"{BASE}/loop", "secret_env": "SLACK_SECRET"}
    two = evolve(one, id="second", agent="other", settings=settings)
    agents = [Agent(id="concierge"), Agent(id="other")]
    return platform(agents=agents, channels=[one, two])


def test_two_channels_of_the_kind_have_their_own_secret_and_line() -> None:
    lines: list[str] = []

    def fetch(effect: Fetch) -> FetchReply:
        lines.append(json.loads(effect.body)["line"])
        return FetchReply(200, {}, b"{}")

    with Client(two_lines, fetch=fetch) as client:
        sent = loopback(("ann", "a", "hi"))
        assert send(client, evolve(sent, target="/second/webhook")).status == 403
        assert send(client, sent).status == 200
        client.advance(60)

        assert client.get("/second/status").status == 200
        assert {c["kind"] for c in client.get("/channels").json()} == {"loopback"}
    assert lines == ["one"]


@pytest.mark.enumeration
def test_crash_anywhere_loses_nothing_and_answers_nothing_twice() -> None:
    api = LoopbackApi()

    def make() -> Client:
        api.seen.clear()
        api.refused.clear()
        api._known.clear()
        return Client(only, fetch=api)

    def act(client: Client) -> None:
        while send(client, loopback(*BATCH)).status != 200:
            client.advance(1)
        client.advance(1)

    def check(client: Client) -> None:
        act(client)
        client.advance(60)
        assert (said(api, "ann"), said(api, "bob")) == (["one", "three"], ["two"])
        assert set(Counter(seen.key for seen in api.seen).values()) == {1}
        assert api.refused == []

    tried = crash_everywhere(make, act, check, every=1 if NIGHTLY else 3)
    assert tried.points > 20


def only() -> Platform:
    """Return a platform with the one channel."""
    return platform(channels=[c for c in channels(BASE) if c.kind == "loopback"])


class Broken(Loopback):
    """A codec with bugs in it."""

    kind = "broken"

    def encode(self, reply: Any, now_us: int) -> Fetch:
        raise ZeroDivisionError("secret")


def test_bug_of_a_kind_ends_one_reply_and_not_the_channels() -> None:
    api = LoopbackApi()
    (right,) = (c for c in channels(BASE) if c.kind == "loopback")
    wrong = Channel(
        id="broken",
        kind="broken",
        agent="concierge",
        settings={"line": "bad", "endpoint": BASE, "secret_env": "LOOPBACK"},
    )
    made = platform(channels=[wrong, right], channel_kinds=[Broken, Loopback], environ=ENVIRON)
    with Client(made, fetch=api) as client:
        sent = loopback(("ann", "a", "hi"))
        assert send(client, evolve(sent, target="/broken/webhook")).status == 200
        assert send(client, sent).status == 200
        client.advance(60)
        logs = repr(client.logs)

    assert said(api, "ann") == ["hi"]
    assert "ZeroDivisionError" in logs
    assert "secret'" not in logs
