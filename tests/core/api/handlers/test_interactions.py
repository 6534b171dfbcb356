"""Pressed buttons that come as forms: what is stored, what is said, what is refused."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from attrs import evolve

from legation.effects import ReadBody, Transact
from legation.store.failures import Unavailable
from legation.store.inbox import PutMessages
from legation_testing import Client

from ....providers.deliveries import KINDS, Delivery, platform, signed
from ....providers.presses import form, slack_actions
from ....providers.strict import SlackApi

NOW = 1_767_225_600_000_000
LIMIT = 256 << 10
PRESS = "approve:0198c5f2-7d3a-7b11-9a53-1c5d2f6a8e90.12"


def pressed(number: int = 1, now_us: int = NOW, **more: Any) -> Delivery:
    return form({**slack_actions(PRESS, number, "U1"), **more}, now_us)


def post(c: Client, sent: Delivery) -> Any:
    return c.post(sent.target, headers=sent.headers, body=sent.body)


def stored(c: Client) -> int:
    """Return how many messages are stored."""
    c.settle()
    states = ("ready", "done", "dead")
    pages = [c.get(f"/channels/slack/messages?state={state}").json() for state in states]
    return sum(len(page["data"]) for page in pages)


def test_a_press_is_stored_once_and_answered_with_nothing() -> None:
    provider = SlackApi()
    with Client(platform, fetch=provider) as c:
        first, second = (post(c, pressed()) for _ in range(2))

        assert (first.status, first.body) == (second.status, second.body) == (200, b"")
        assert stored(c) == 1
        post(c, pressed(2))
        assert stored(c) == 2
    assert provider.refused == []


def test_a_press_is_no_message_to_an_agent() -> None:
    provider = SlackApi()
    with Client(platform, fetch=provider) as c:
        post(c, pressed())
        c.advance(2)

        (message,) = c.get("/channels/slack/messages?state=done").json()["data"]
        assert message["run_id"] is None
    assert provider.seen == []
    assert [act.method for act in provider.acts] == ["chat.postEphemeral"]


@pytest.mark.parametrize("kind", ["view_submission", "shortcut", "dialog_submission"])
def test_other_interactions_are_taken_and_dropped(kind: str) -> None:
    with Client(platform) as c:
        answer = post(c, pressed(type=kind))

        assert (answer.status, answer.body) == (200, b"")
        assert stored(c) == 0


def test_a_form_that_is_not_signed_is_refused_before_anything_is_stored() -> None:
    with Client(platform) as c:
        sent = pressed()
        unsigned = c.post(sent.target, body=sent.body)
        changed = post(c, evolve(sent, body=sent.body + b"&x=1"))
        late = post(c, pressed(now_us=NOW - 301_000_000))

        assert [answer.status for answer in (unsigned, changed, late)] == [403] * 3
        assert not [p for p in c.effects if isinstance(p.effect, Transact) and "inter" in p.program]
        assert stored(c) == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"payload",
        b"payload=",
        b"payload=%7B",
        b"payload=%ff",
        b"payload=NaN",
        b"payload=%7B%7D&payload=%7B%7D",
        b"other=%7B%7D",
        b'{"type":"block_actions"}',
        b"&" * 1000,
        urlencode({"payload": "[" * 10_000}).encode(),
    ],
)
def test_a_signed_form_that_cannot_be_read_is_a_bad_request(body: bytes) -> None:
    with Client(platform) as c:
        answer = post(c, evolve(signed("slack", body, NOW), target="/slack/interactions"))

        assert answer.status == 400
        assert answer.json()["detail"].startswith("The body has to be a form whose payload is JSON")
        assert stored(c) == 0


@pytest.mark.parametrize("payload", ["[]", "null", "1", '"x"', "{}", '{"type": "block_actions"}'])
def test_a_payload_of_another_shape_is_taken_and_dropped(payload: str) -> None:
    with Client(platform) as c:
        assert post(c, form(payload, NOW)).status == 200
        assert stored(c) == 0


def test_a_value_of_ten_kilobytes_is_taken_and_dropped() -> None:
    with Client(platform) as c:
        root = slack_actions("approve:" + "9" * 10_240 + ".1", 1, "U1")

        assert post(c, form(root, NOW)).status == 200
        assert stored(c) == 0


def test_a_press_of_the_longest_question_is_taken_and_a_longer_form_is_not() -> None:
    message = {"ts": "1.1", "text": "\u00fc" * 4000, "blocks": ["\u00fc" * 4500]}
    with Client(platform) as c:
        assert post(c, pressed(message=message)).status == 200
        assert stored(c) == 1
        assert post(c, pressed(2, text="x" * LIMIT)).status == 413
        reads = [p.effect.limit for p in c.effects if isinstance(p.effect, ReadBody)]
        assert reads == [LIMIT] * 2


@pytest.mark.parametrize("kind", sorted({*KINDS, "nobody"} - {"slack"}))
def test_kinds_without_forms_have_no_such_address(kind: str) -> None:
    with Client(platform) as c:
        sent = evolve(pressed(), target=f"/{kind}/interactions")

        assert post(c, sent).status == 404
        assert c.get("/slack/interactions").status == 405


def test_a_press_that_is_not_stored_is_not_acknowledged() -> None:
    with Client(platform) as c:
        c.fail_at(
            lambda effect: isinstance(getattr(effect, "unit", None), PutMessages), Unavailable("x")
        )

        assert post(c, pressed()).status == 503
        assert post(c, pressed()).status == 200
        assert stored(c) == 1


def test_the_document_has_the_address_of_each_channel_with_forms() -> None:
    with Client(platform) as c:
        paths = json.loads(c.get("/openapi.json").body)["paths"]

    assert [path for path in paths if path.endswith("/interactions")] == ["/slack/interactions"]
    described = paths["/slack/interactions"]["post"]
    assert described["operationId"] == "receive_interaction_slack"
    assert [*described["requestBody"]["content"]] == ["application/x-www-form-urlencoded"]
