"""Channels that their provider refuses, chats that move, and replies that do not arrive."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any, Final

import pytest

from legation import Agent
from legation.effects import Fetch, FetchReply
from legation.messaging.retry import MAX_ATTEMPTS
from legation_testing import Client, Says, ScriptedModel

from ...providers.deliveries import platform, signed, telegram, whatsapp
from ...providers.strict import TelegramApi, WhatsAppApi

Network = Callable[[Fetch], FetchReply]


class Messenger:
    """A client with a provider that may be told to answer otherwise; `sent` is what was taken."""

    def __init__(self, provider: Any, **more: Any) -> None:
        self.provider = provider
        self.otherwise: Callable[[Fetch, str], FetchReply | None] = lambda fetch, text: None
        self.client = Client(lambda: platform(**more), fetch=self.fetch)
        self.client.open()

    def fetch(self, fetch: Fetch) -> FetchReply:
        told = self.otherwise(fetch, fetch.body.decode(errors="replace"))
        return self.provider(fetch) if told is None else told

    def deliver(self, sent: Any, seconds: float = 2) -> None:
        self.client.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
        self.client.advance(seconds)

    @property
    def heard(self) -> list[tuple[str, str]]:
        """Who was sent what, in order."""
        return [(one.recipient, one.text) for one in self.provider.seen]

    def channel(self, name: str) -> Any:
        return next(one for one in self.client.get("/channels").json() if one["id"] == name)

    def lines(self, event: str) -> list[dict[str, Any]]:
        return [dict(line.fields) for line in self.client.logs if line.event == event]


@pytest.fixture
def messenger() -> Generator[Callable[..., Messenger]]:
    made: list[Messenger] = []

    def make(provider: Any, **more: Any) -> Messenger:
        made.append(Messenger(provider, **more))
        return made[-1]

    yield make
    for one in made:
        one.client.close()


Make = Callable[..., Messenger]

REFUSALS: Final = {
    "telegram": FetchReply(401, {}, b'{"ok":false,"error_code":401,"description":"Unauthorized"}'),
    "whatsapp": FetchReply(401, {}, b'{"error":{"code":190,"message":"expired"}}'),
}


def ask(kind: str, number: int, person: int = 7) -> Any:
    if kind == "telegram":
        return telegram(person, number, f"m{number}")
    return whatsapp((f"4911{person}", f"wamid.{number}", f"m{number}"))


# --- refused credentials


@pytest.mark.parametrize("kind", REFUSALS)
def test_refused_credentials_hold_a_channel_and_kill_no_reply(messenger: Make, kind: str) -> None:
    made = messenger(TelegramApi() if kind == "telegram" else WhatsAppApi())
    made.otherwise = lambda fetch, text: REFUSALS[kind]
    for number in range(1, 17):
        made.deliver(ask(kind, number, person=7 + number % 3))
    made.client.advance(200)

    held = made.channel(kind)
    assert (held["replies"]["ready"], held["replies"]["dead"]) == (16, 0)
    assert set(held["held"]) == {"since", "reason"}
    assert len(made.lines("channel_held")) == 1
    assert "legation_channel_held{" in made.client.get("/metrics/prometheus").text

    made.otherwise = lambda fetch, text: None
    made.client.advance(70)
    for person in {who for who, _ in made.heard}:
        texts = [text for who, text in made.heard if who == person]
        assert texts == sorted(texts, key=lambda text: int(text[1:]))
    assert len(made.heard) == 16
    assert "held" not in made.channel(kind)
    assert len(made.lines("channel_released")) == 1


def test_another_channel_goes_on_while_one_is_held(messenger: Make) -> None:
    made = messenger(WhatsAppApi())
    bot = TelegramApi()
    made.otherwise = lambda fetch, text: REFUSALS["telegram"] if "/bot" in fetch.url else None
    made.deliver(ask("telegram", 1))
    made.deliver(ask("whatsapp", 2))

    assert made.heard == [("49117", "m2")]
    assert bot.seen == []
    assert "held" in made.channel("telegram")
    assert "held" not in made.channel("whatsapp")


def test_a_retry_by_hand_tries_a_held_channel_at_once(messenger: Make) -> None:
    made = messenger(WhatsAppApi())
    made.otherwise = lambda fetch, text: REFUSALS["whatsapp"]
    made.deliver(ask("whatsapp", 1))
    made.otherwise = lambda fetch, text: None
    made.client.post("/channels/whatsapp/retry", json={"what": "replies"}).expect_success()
    made.client.advance(3)

    assert made.heard == [("49117", "m1")]


def test_a_held_channel_whose_provider_is_down_goes_on_waiting(messenger: Make) -> None:
    made = messenger(WhatsAppApi())
    made.otherwise = lambda fetch, text: REFUSALS["whatsapp"]
    made.deliver(ask("whatsapp", 1))
    made.deliver(ask("whatsapp", 2, person=8))
    made.otherwise = lambda fetch, text: FetchReply(503, {}, b"")
    made.client.advance(60 * (MAX_ATTEMPTS + 2))

    held = made.channel("whatsapp")
    assert (held["replies"]["ready"], held["replies"]["dead"]) == (2, 0)
    assert "held" in held

    made.otherwise = lambda fetch, text: None
    made.client.post("/channels/whatsapp/retry", json={"what": "replies"}).expect_success()
    made.client.advance(70)
    assert sorted(made.heard) == [("49117", "m1"), ("49118", "m2")]


def test_a_reply_that_alone_is_refused_is_given_up(messenger: Make) -> None:
    made = messenger(WhatsAppApi())
    made.otherwise = lambda fetch, text: REFUSALS["whatsapp"] if "49117" in text else None
    made.deliver(ask("whatsapp", 1))
    for number in range(2, 10):
        made.deliver(ask("whatsapp", number, person=8), 65)

    shown = made.channel("whatsapp")
    assert (shown["replies"]["ready"], shown["replies"]["dead"]) == (0, 1)
    assert "held" not in shown
    assert [text for who, text in made.heard if who == "49118"] == [f"m{n}" for n in range(2, 10)]


# --- an answer in parts


def test_what_follows_a_part_that_is_refused_is_not_sent(messenger: Make) -> None:
    words = [f"part{number} " + "word " * 780 for number in range(1, 5)]
    agents = [Agent(id="concierge", model=ScriptedModel([Says("\n\n".join(words))] * 9))]
    made = messenger(WhatsAppApi(), agents=agents)
    made.otherwise = lambda fetch, text: (
        FetchReply(400, {}, b'{"error":{"code":100}}') if "part2" in text else None
    )
    made.deliver(ask("whatsapp", 1))

    assert [text[:5] for _, text in made.heard] == ["part1"]
    record = made.client.get("/channels/whatsapp/messages/wamid.1").json()
    assert [one["state"] for one in record["replies"]] == ["sent", "dead", "dead", "dead"]
    made.otherwise = lambda fetch, text: None
    made.client.post("/channels/whatsapp/messages/wamid.1/retry").expect_success()
    made.client.advance(5)
    assert [text[:5] for _, text in made.heard] == ["part1", "part2", "part3", "part4"]


# --- a chat that moved


def in_group(chat: int, update: int, words: str) -> Any:
    message = {
        "message_id": update,
        "from": {"id": 5, "is_bot": False, "first_name": "Ada"},
        "chat": {"id": chat, "type": "supergroup" if chat < -1000 else "group"},
        "date": 1,
        "text": words,
        "reply_to_message": {"message_id": 1, "from": {"id": 42, "is_bot": True}},
    }
    root = {"update_id": update, "message": message}
    return signed("telegram", json.dumps(root).encode(), 0)


def test_a_group_that_became_a_supergroup_is_followed_with_its_history(messenger: Make) -> None:
    model = ScriptedModel([Says("one"), Says("two"), Says("three")])
    made = messenger(TelegramApi(), agents=[Agent(id="concierge", model=model)])
    moved = {"error_code": 400, "parameters": {"migrate_to_chat_id": -100555}}
    body = json.dumps({"ok": False, "description": "Bad Request", **moved}).encode()
    made.deliver(in_group(-555, 10, "first"))
    made.otherwise = lambda fetch, text: (
        FetchReply(400, {}, body) if '"chat_id":"-555"' in text else None
    )
    made.deliver(in_group(-555, 11, "second"))
    made.deliver(in_group(-100555, 12, "third"))

    assert made.heard == [("-555", "one"), ("-100555", "two"), ("-100555", "three")]
    asked = [message.content for message in model.prompts[-1].messages]
    assert asked == ["first", "one", "second", "two", "third"]


def test_a_chat_that_moves_in_a_circle_is_given_up(messenger: Make) -> None:
    made = messenger(TelegramApi())

    def swap(fetch: Fetch, text: str) -> FetchReply | None:
        to = -555 if '"chat_id":"-100555"' in text else -100555
        told = {"ok": False, "error_code": 400, "parameters": {"migrate_to_chat_id": to}}
        return FetchReply(400, {}, json.dumps(told).encode()) if "chat_id" in text else None

    made.otherwise = swap
    made.deliver(in_group(-555, 10, "first"), 120)

    assert made.heard == []
    assert made.channel("telegram")["replies"]["dead"] == 1


def test_a_chat_that_moves_on_and_on_is_given_up(messenger: Make) -> None:
    made = messenger(TelegramApi())
    tried: list[int] = []

    def move(fetch: Fetch, text: str) -> FetchReply | None:
        if "chat_id" not in text:
            return None
        tried.append(-1_000_000 - len(tried))
        told = {"ok": False, "error_code": 400, "parameters": {"migrate_to_chat_id": tried[-1]}}
        return FetchReply(400, {}, json.dumps(told).encode())

    made.otherwise = move
    made.deliver(in_group(-555, 10, "first"), 120)

    assert len(tried) == MAX_ATTEMPTS
    assert made.channel("telegram")["replies"]["dead"] == 1


def test_a_group_that_says_that_it_moved_is_answered_where_it_is(messenger: Make) -> None:
    made = messenger(TelegramApi())
    refused = FetchReply(503, {}, b"")
    made.otherwise = lambda fetch, text: refused if "chat_id" in text else None
    made.deliver(in_group(-555, 10, "first"))
    message = {"message_id": 11, "chat": {"id": -555, "type": "group"}, "date": 1}
    root = {"update_id": 11, "message": {**message, "migrate_to_chat_id": -100555}}
    made.deliver(signed("telegram", json.dumps(root).encode(), 0))
    made.otherwise = lambda fetch, text: None
    made.client.advance(120)

    assert made.heard == [("-100555", "first")]


# --- what the provider could not deliver


def report(key: str, code: int = 131047, name: str = "wamid.out") -> Any:
    status = {
        "id": name,
        "status": "failed",
        "recipient_id": "7",
        "biz_opaque_callback_data": key,
        "errors": [{"code": code}],
    }
    metadata = {"display_phone_number": "15550001", "phone_number_id": "111"}
    value = {"messaging_product": "whatsapp", "metadata": metadata, "statuses": [status]}
    entry = {"id": "1", "changes": [{"field": "messages", "value": value}]}
    root = {"object": "whatsapp_business_account", "entry": [entry]}
    return signed("whatsapp", json.dumps(root).encode(), 0)


def test_a_reply_that_did_not_arrive_is_a_dead_letter_with_its_message(messenger: Make) -> None:
    made = messenger(WhatsAppApi())
    made.deliver(ask("whatsapp", 1))
    record = made.client.get("/channels/whatsapp/messages/wamid.1").json()
    (key,) = (one["id"] for one in record["replies"])
    sent = made.provider.provider_id if hasattr(made.provider, "provider_id") else "wamid.out.1"
    for _ in range(3):
        made.deliver(report(key, name=sent))
    made.deliver(report("reply-somebody-else", name=sent))

    record = made.client.get("/channels/whatsapp/messages/wamid.1").json()
    assert [(one["state"], one["error"]) for one in record["replies"]] == [
        ("dead", "undelivered: code 131047")
    ]
    assert made.channel("whatsapp")["replies"]["dead"] == 1
    (line,) = made.lines("reply_undelivered")
    assert (line["channel"], line["reply"], line["message"]) == ("whatsapp", key, "wamid.1")
