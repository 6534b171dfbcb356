"""Messages that nobody asked for: sent within the provider's window, and to who wants them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from legation import Notify
from legation_testing import Client, ClientResponse

from ....callers import Issuer, demo
from ....providers.deliveries import platform, slack, whatsapp
from ....providers.strict import Provider, SlackApi, TelegramApi, WhatsAppApi

ADA = "15551234"
ISSUER = Issuer()


def opened(provider: Provider, **configuration: Any) -> Client:
    return Client(lambda: platform(**configuration), fetch=provider)


@pytest.fixture
def meta() -> WhatsAppApi:
    return WhatsAppApi()


@pytest.fixture
def client(meta: WhatsAppApi) -> Iterator[Client]:
    with opened(meta) as client:
        yield client


def send(client: Client, channel: str = "whatsapp", **body: Any) -> ClientResponse:
    given = {"recipient": ADA, "text": "Your room is ready.", **body}
    answer = client.post(f"/channels/{channel}/send", json=given)
    client.advance(1)
    return answer


def hear(client: Client, words: str, name: str) -> None:
    sent = whatsapp((ADA, name, words))
    client.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
    client.advance(1)


def test_a_message_is_sent_within_a_day_of_the_persons_last_one(
    client: Client, meta: WhatsAppApi
) -> None:
    closed = (
        "This person has not written in the last 24 hours: until they do, the provider takes no"
        " message"
    )
    assert (send(client).status, send(client).json()["detail"]) == (409, closed)

    hear(client, "hello", "a")
    client.clock.set_forward(24 * 3600 - 60)
    sent = send(client, text="**Ready**: room 4")
    assert (sent.status, sent.json()["state"]) == (202, "ready")
    assert [seen.text for seen in meta.seen] == ["hello", "*Ready*: room 4"]
    (key,) = sent.json()["ids"]
    replies = client.get("/channels/whatsapp/replies?state=sent").json()["data"]
    assert key in [row["id"] for row in replies]

    client.clock.set_forward(120)
    assert send(client).status == 409
    assert meta.refused == []


def test_a_new_conversation_counts_and_the_conversation_of_another_does_not(client: Client) -> None:
    hear(client, "/new", "a")

    assert send(client).status == 202
    assert send(client, recipient="155512345").status == 409
    assert send(client, recipient="+15551234").status == 409


def test_who_opted_out_is_written_to_no_more_until_they_opt_in(
    client: Client, meta: WhatsAppApi
) -> None:
    for name, words in (("a", "hello"), ("b", "/stop")):
        hear(client, words, name)
    refused = send(client)
    hear(client, "/start", "c")
    sent = send(client)

    out = "This person opted out of messages, and has to write /start first"
    assert (refused.status, refused.json()["detail"], sent.status) == (409, out, 202)
    assert [seen.text for seen in meta.seen][-1] == "Your room is ready."


def test_a_direct_chat_is_closed_under_its_own_name_too() -> None:
    provider = SlackApi()
    with opened(provider) as client:
        sent = slack("U1", "1.2", "/stop", client.clock.now_us)
        client.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
        client.advance(1)

        assert [send(client, "slack", recipient=name).status for name in ("U1", "D1", "U2")] == [
            409,
            409,
            202,
        ]


def test_others_take_a_message_at_any_time_and_a_long_one_in_parts() -> None:
    provider = TelegramApi()
    with opened(provider) as client:
        made = send(client, "telegram", recipient="-100", thread="7", text="word " * 2_000)
        client.advance(5)

        assert len(made.json()["ids"]) == len(provider.seen) == 3
        assert {seen.recipient for seen in provider.seen} == {"-100"}
        assert provider.refused == []


def test_a_request_that_comes_twice_is_sent_once(client: Client, meta: WhatsAppApi) -> None:
    hear(client, "hello", "a")
    body = {"recipient": ADA, "text": "Ready."}
    headers = (("idempotency-key", "k"),)
    answers = [client.post("/channels/whatsapp/send", json=body, headers=headers) for _ in range(2)]
    client.advance(1)

    assert answers[0].status == 202
    assert answers[0].json() == answers[1].json()
    assert [seen.text for seen in meta.seen] == ["hello", "Ready."]


@pytest.mark.parametrize(
    ("channel", "body", "fault"),
    [
        ("whatsapp", {"thread": "7"}, ("body.thread", "has no meaning here")),
        ("telegram", {"thread": "x"}, ("body.thread", "expected the id of a topic")),
        ("telegram", {"recipient": "ada"}, ("body.recipient", None)),
        ("telegram", {"recipient": "9" * 200}, ("body.recipient", None)),
        ("slack", {"thread": "../x"}, ("body.thread", "expected the `ts` of its first message")),
        ("standard", {"text": " \n"}, ("body.text", "has nothing that can be seen")),
        ("standard", {"text": "x" * 20_001}, ("body.text", None)),
        ("standard", {"text": None}, ("body.text", None)),
        ("standard", {"recipient": ""}, ("body.recipient", None)),
        ("standard", {"recipient": "a\nb"}, ("body.recipient", None)),
        ("standard", {"thread": 5}, ("body.thread", None)),
        ("standard", {"thread": ""}, ("body.thread", "must not be empty")),
    ],
)
def test_what_cannot_be_sent_is_refused_with_a_sentence(
    client: Client, channel: str, body: dict[str, Any], fault: tuple[str, str | None]
) -> None:
    answer = send(client, channel, **body)

    assert answer.status == 422
    (first,) = answer.json()["errors"]
    assert first["path"] == fault[0]
    assert fault[1] in (None, first["message"])


def test_a_channel_of_notices_takes_no_words() -> None:
    notify = Notify(url="https://ops.example/hook", secret_env="STANDARD")
    with opened(WhatsAppApi(), notify=notify) as client:
        assert send(client, "notify").status == 404
        assert send(client, "nowhere").status == 404


def test_who_may_not_write_to_the_channel_sends_nothing() -> None:
    with Client(demo(ISSUER)) as client:
        body = {"recipient": "a-group-of-ada", "text": "Ready."}

        def status(*scopes: str) -> int:
            token = ISSUER.token(*scopes)
            return client.post("/channels/chat/send", json=body, token=token).status

        assert [status(), status("channels:read"), status("channels:other:write")] == [403] * 3
        assert [status("channels:write"), status("channels:chat:write")] == [202] * 2
        token = ISSUER.token("platform:admin")
        trail = client.get("/audit?operation=send_channel_message", token=token)
        allowed = [row for row in trail.json()["data"] if row["status"] == 202]
        assert {row["resource"] for row in allowed} == {"chat"}
        assert "a-group-of-ada" not in trail.text
