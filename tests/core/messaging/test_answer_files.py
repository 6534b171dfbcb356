"""Files that an agent returns: a person gets them, by each provider in its way."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest

from legation import Agent, Platform, RunFile
from legation.channels.answer_files import AnswerFile
from legation.channels.replies import Reply
from legation.effects import Fetch, FetchReply, Unreachable
from legation_testing import Client

from ...providers.deliveries import Delivery, platform, slack, standard, telegram, whatsapp
from ...providers.strict import Provider, SlackApi, StandardReceiver, TelegramApi, WhatsAppApi
from ...providers.strict import now_us as wall_clock_us

PNG = b"\x89PNG\r\n\x1a\n\0\xff"
PDF = b"%PDF-1.7\n\r\n--legation"


def illustrate(message: str) -> list[str | RunFile]:
    """Answer with a text, a picture and a document."""
    picture = RunFile("room.png", "image/png", PNG)
    return [f"This is the **{message}**.", picture, RunFile("Price.pdf", "application/pdf", PDF)]


def draw(message: str) -> RunFile:
    return RunFile("room.png", "image/png", PNG)


def made(run: Any = illustrate) -> Platform:
    return platform(agents=[Agent(id="concierge", run=run)])


def client(fetch: Any, run: Any = illustrate) -> Client:
    return Client(lambda: made(run), fetch=fetch, start_us=wall_clock_us())


def deliver(c: Client, sent: Delivery) -> None:
    c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()


def sent_to(kind: str) -> Delivery:
    now_us = wall_clock_us()
    match kind:
        case "whatsapp":
            return whatsapp(("4911", "a", "room"))
        case "telegram":
            return telegram(7, 1, "room")
        case "slack":
            return slack("U1", "5.1", "room", now_us)
        case _:
            return standard("ada", "a", "room", now_us)


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (WhatsAppApi, ["This is the *room*.", "image room.png", "document Price.pdf"]),
        (TelegramApi, ["This is the room.", "photo room.png", "document Price.pdf"]),
        (SlackApi, ["This is the *room*.", "file room.png", "file Price.pdf"]),
        (StandardReceiver, ["This is the **room**.", "file room.png", "file Price.pdf"]),
    ],
)
def test_a_person_gets_the_text_and_then_the_files(
    make: Callable[[], Provider], shown: list[str]
) -> None:
    provider = make()
    with client(provider) as c:
        deliver(c, sent_to(provider.kind))
        c.advance(5)

    assert provider.refused == []
    assert [message.text for message in provider.seen] == shown
    assert [(name, data) for name, _, data in provider.uploads] == [
        ("room.png", PNG),
        ("Price.pdf", PDF),
    ]
    assert len({message.key for message in provider.seen}) == 3


def test_a_file_alone_quotes_the_message() -> None:
    provider = TelegramApi()
    asked: list[Fetch] = []

    def fetch(effect: Fetch) -> FetchReply:
        if "sendPhoto" in effect.url:
            asked.append(effect)
        return provider(effect)

    with client(fetch, draw) as c:
        deliver(c, telegram(7, 1, "room"))
        c.advance(5)

    assert [message.text for message in provider.seen] == ["photo room.png"]
    assert b'{"message_id":2,"allow_sending_without_reply":true}' in asked[0].body


def test_a_kind_that_sends_no_files_names_them() -> None:
    bodies: list[bytes] = []

    def fetch(effect: Fetch) -> FetchReply:
        if effect.url.endswith("/loop/messages"):
            bodies.append(effect.body)
        return FetchReply(200, {}, b"{}")

    from ...providers.deliveries import loopback

    with client(fetch, draw) as c:
        deliver(c, loopback(("ada", "a", "room")))
        c.advance(5)

    assert len(bodies) == 1
    assert b"The answer has a file that cannot be shown here: room.png" in bodies[0]


UPLOADS: dict[str, tuple[Callable[[], Provider], FetchReply | Unreachable]] = {
    "WhatsApp, no id": (WhatsAppApi, FetchReply(200, {}, b"{}")),
    "WhatsApp, nonsense": (WhatsAppApi, FetchReply(200, {}, b"<html>")),
    "WhatsApp, away": (WhatsAppApi, Unreachable("connect")),
    "WhatsApp, throttled": (WhatsAppApi, FetchReply(429, {}, b'{"error":{"code":130429}}')),
    "Slack, no address": (SlackApi, FetchReply(200, {}, b'{"ok":true}')),
    "Slack, nonsense": (SlackApi, FetchReply(200, {}, b"[]")),
    "Slack, a stranger's address": (
        SlackApi,
        FetchReply(200, {}, b'{"ok":true,"upload_url":"https://evil.example/","file_id":"F1"}'),
    ),
}


@pytest.mark.parametrize("name", UPLOADS)
def test_an_upload_that_fails_is_tried_again_and_nothing_is_sent_elsewhere(name: str) -> None:
    make, answer = UPLOADS[name]
    provider = make()
    failed: list[str] = []

    def fetch(effect: Fetch) -> Any:
        assert "evil" not in effect.url
        if not failed and ("/media" in effect.url or "getUpload" in effect.url):
            failed.append(effect.url)
            return answer
        return provider(effect)

    with client(fetch, draw) as c:
        deliver(c, sent_to(provider.kind))
        c.advance(20)

    assert len(failed) == 1
    assert provider.refused == []
    assert [data for _, _, data in provider.uploads] == [PNG]
    assert len(provider.seen) == 1


def test_a_file_that_the_provider_refuses_is_a_dead_letter_with_its_reason() -> None:
    provider = SlackApi()

    def fetch(effect: Fetch) -> FetchReply:
        if "getUpload" in effect.url:
            return FetchReply(200, {}, b'{"ok":false,"error":"missing_scope"}')
        return provider(effect)

    with client(fetch, draw) as c:
        deliver(c, sent_to("slack"))
        c.advance(5)
        logs = [dict(log.fields) for log in c.logs if log.event == "reply_failed"]

    assert logs == [{"channel": "slack", "attempt": 1, "reason": "missing_scope", "dead": True}]
    assert provider.seen == []


def test_a_file_stays_in_its_topic_or_thread() -> None:
    file = AnswerFile("room.png", "image/png", b64encode(PNG).decode())
    channels = made().registry.channels
    topic = channels["telegram"].codec.encode(Reply("k", "7", "", thread="5", file=file), 0)
    done = Reply("k", "C1", "", thread="1.5", file=file, uploaded="F1")
    thread = channels["slack"].codec.encode(done, 0)

    assert b'name="message_thread_id"\r\n\r\n5\r\n' in topic.body
    assert json.loads(thread.body)["thread_ts"] == "1.5"
