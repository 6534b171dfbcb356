"""Telegram: one update at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from legation.channels.deliveries import (
    ContentKind,
    Delivery,
    Ignored,
    IncomingMessage,
    NotUnderstood,
    rest_of_new,
)
from legation.channels.replies import GiveUp, Outcome, Reply, RetryLater, Sent
from legation.channels.signatures import SignatureRefused, Verified
from legation.channels.telegram import Telegram
from legation.effects import FetchReply, Unreachable

CHANNEL = Telegram(
    "tg", "hook-token", "77:BOT-token", previous_secret_token="old-token", mentions_only=False
)
ASKED = evolve(CHANNEL, mentions_only=True)
NOW = 1_700_000_000_000_000
ADA = {"id": 42, "is_bot": False, "first_name": "Ada"}


def parse(update: Any) -> Any:
    return CHANNEL.parse(Verified(json.dumps(update).encode()))


def update(**content: Any) -> dict[str, Any]:
    base = {"message_id": 5, "from": ADA, "chat": {"id": -100, "type": "group"}, "date": 1}
    return {"update_id": 9, "message": {**base, **content}}


def only(**content: Any) -> IncomingMessage:
    delivery = parse(update(**content))
    assert isinstance(delivery, Delivery)
    (found,) = delivery.messages
    return found


def test_a_text_is_a_message_known_by_its_update() -> None:
    assert only(text="hello") == IncomingMessage(
        "9",
        "42",
        ContentKind.TEXT,
        "hello",
        conversation="-100",
        provider_id="5",
        sent_us=1_000_000,
        in_group=True,
    )


def test_a_topic_and_the_message_answered_to_are_known() -> None:
    found = only(
        text="x",
        message_thread_id=3,
        is_topic_message=True,
        reply_to_message={"message_id": 4},
    )

    assert (found.thread, found.reply_to) == ("3", "4")


def test_a_thread_that_is_no_topic_is_none() -> None:
    assert only(text="x", message_thread_id=3).thread == ""


@pytest.mark.parametrize(
    ("content", "kind", "text"),
    [
        ({"photo": [], "caption": "look"}, ContentKind.IMAGE, "look"),
        ({"voice": {}}, ContentKind.AUDIO, None),
        ({"video_note": {}}, ContentKind.VIDEO, None),
        ({"document": {}, "caption": 7}, ContentKind.DOCUMENT, None),
        ({"sticker": {}}, ContentKind.STICKER, None),
        ({"location": {}}, ContentKind.LOCATION, None),
        ({"contact": {}}, ContentKind.CONTACTS, None),
        ({"poll": {}}, ContentKind.UNSUPPORTED, None),
        ({"paid_media": {}, "caption": "look"}, ContentKind.UNSUPPORTED, "look"),
        ({"checklist": {}}, ContentKind.UNSUPPORTED, None),
        ({"text": ["x"]}, ContentKind.UNSUPPORTED, None),
        ({"new_chat_members": []}, ContentKind.SYSTEM, None),
        ({}, ContentKind.SYSTEM, None),
    ],
)
def test_every_type_is_told_apart(
    content: dict[str, Any], kind: ContentKind, text: str | None
) -> None:
    found = only(**content)

    assert (found.kind, found.text) == (kind, text)


def test_a_pressed_button_is_a_message() -> None:
    press = {"id": "1", "from": ADA, "data": "yes", "message": {"message_id": 5, "chat": {"id": 1}}}

    delivery = parse({"update_id": 9, "callback_query": press})

    assert delivery.messages == (
        IncomingMessage(
            "9", "42", ContentKind.BUTTON, "yes", conversation="1", provider_id="5", reply_to="5"
        ),
    )


def test_a_button_is_answered_in_the_topic_in_which_it_is() -> None:
    shown = {"message_id": 5, "chat": {"id": 1}, "message_thread_id": 3, "is_topic_message": True}
    press = {"id": "1", "from": ADA, "data": "yes", "message": shown}

    (found,) = parse({"update_id": 9, "callback_query": press}).messages
    assert found.thread == "3"


ANONYMOUS = {"id": 1087968824, "is_bot": True, "username": "GroupAnonymousBot"}


def test_who_writes_for_a_group_is_no_bot() -> None:
    found = only(text="x", **{"from": ANONYMOUS}, sender_chat={"id": -100, "type": "supergroup"})

    assert (found.sender, found.from_self) == ("-100", False)


def test_a_post_that_telegram_copies_into_the_group_of_a_channel_is_no_message() -> None:
    post = update(text="x", is_automatic_forward=True, sender_chat={"id": -200})

    assert parse(post) == Delivery((), ("automatic_forward",))


@pytest.mark.parametrize(
    ("chat", "in_group"),
    [
        ({"id": -1, "type": "group"}, True),
        ({"id": -1, "type": "supergroup"}, True),
        ({"id": 42, "type": "private"}, False),
        ({"id": 42}, False),
    ],
)
def test_a_group_is_told_apart(chat: dict[str, Any], in_group: bool) -> None:
    assert only(sticker={}, chat=chat).in_group is in_group


def asked(**content: Any) -> Any:
    return ASKED.parse(Verified(json.dumps(update(**content)).encode()))


def entity(kind: Any, offset: Any, length: Any) -> list[dict[str, Any]]:
    return [{"type": kind, "offset": offset, "length": length}]


US = {"message_id": 4, "from": {"id": 77, "is_bot": True}}


@pytest.mark.parametrize(
    "content",
    [
        {"text": "/ask", "entities": entity("bot_command", 0, 4)},
        {"text": "\U0001f44d @Legation_Bot hi", "entities": entity("mention", 3, 13)},
        {"photo": [], "caption": "@legationbot", "caption_entities": entity("mention", 0, 12)},
        {"text": "you", "entities": [{"type": "text_mention", "user": {"id": 77}}]},
        {"text": "and then?", "reply_to_message": US},
        {"text": "hi", "chat": {"id": 42, "type": "private"}},
    ],
)
def test_in_a_group_what_is_meant_for_a_bot_is_a_message(content: dict[str, Any]) -> None:
    assert len(asked(**content).messages) == 1


@pytest.mark.parametrize(
    "content",
    [
        {"text": "hi"},
        {"sticker": {}},
        {"new_chat_members": []},
        {"text": "\U0001f44d @ada_bo t", "entities": entity("mention", 3, 7)},
        {"text": "@legation_bot", "entities": entity("mention", "0", 13)},
        {"text": "@legation_bot", "entities": entity("mention", 0, None)},
        {"text": "a bot", "entities": entity("bold", 0, 5)},
        {"text": "and then?", "reply_to_message": {"from": {"id": 8, "is_bot": True}}},
        {"text": "x", "reply_to_message": {**US, "forum_topic_created": {"name": "T"}}},
    ],
)
def test_in_a_group_nothing_else_is(content: dict[str, Any]) -> None:
    assert asked(**content) == Delivery((), ("not mentioned",))


def test_a_button_without_data_is_unsupported() -> None:
    delivery = parse({"update_id": 9, "callback_query": {"id": "1", "from": ADA}})

    assert delivery.messages[0].kind is ContentKind.UNSUPPORTED


@pytest.mark.parametrize("user", [{"id": 8, "is_bot": True}, {"id": 77}])
def test_bots_are_flagged_ourselves_above_all(user: dict[str, Any]) -> None:
    assert only(text="x", **{"from": user}).from_self


def test_a_message_of_nobody_is_malformed() -> None:
    assert parse(update(text="x", **{"from": None})) == Delivery((), ("malformed",))


def test_an_edit_is_no_message() -> None:
    assert parse({"update_id": 9, "edited_message": {}, "a b": 1}) == Delivery(
        (), ("edited_message",)
    )


def test_the_command_may_name_the_bot() -> None:
    assert rest_of_new(only(text="/new@legation_bot hello").text or "") == "hello"


@pytest.mark.parametrize("root", [None, [], 1, {}, {"update_id": "9"}, {"update_id": True}])
def test_what_is_no_update_is_ignored(root: Any) -> None:
    assert isinstance(parse(root), Ignored)


def test_what_is_not_json_is_told_apart() -> None:
    assert isinstance(CHANNEL.parse(Verified(b"hello")), NotUnderstood)


LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=4)
NAMES = st.sampled_from(
    (
        "message from id chat text message_id message_thread_id is_topic_message date caption"
        " type entities offset length user"
    ).split()
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)


@given(TREES, TREES)
def test_any_update_gives_a_value_and_any_message_of_it_can_be_answered(
    message: Any, press: Any
) -> None:
    root = {"update_id": 1, "message": message, "callback_query": press}
    delivery = parse(root)

    assert isinstance(ASKED.parse(Verified(json.dumps(root).encode())), Delivery)
    assert isinstance(delivery, Delivery)
    for m in delivery.messages:
        CHANNEL.encode(Reply("k", m.conversation, "x", m.thread, m.provider_id), NOW)


# --- access ------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [b"hook-token", b"old-token"])
def test_both_tokens_are_accepted_while_one_replaces_the_other(token: bytes) -> None:
    headers = ((b"x-telegram-bot-api-secret-token", token),)

    assert CHANNEL.verify(headers, b"{}", NOW) == Verified(b"{}")


@pytest.mark.parametrize("token", [b"", b"hook-toke", b"HOOK-TOKEN", b"\xff"])
def test_any_other_token_is_refused(token: bytes) -> None:
    headers = ((b"x-telegram-bot-api-secret-token", token),)

    assert CHANNEL.verify(headers, b"{}", NOW) == SignatureRefused("wrong token")


def test_there_is_no_handshake() -> None:
    assert CHANNEL.handshake(()) == SignatureRefused("no handshake")


@pytest.mark.parametrize(
    "wrong",
    [
        {"secret_token": ""},
        {"secret_token": "a b"},
        {"secret_token": "x" * 257},
        {"previous_secret_token": "é"},
        {"bot_token": "BOT"},
        {"bot_token": "77:a/b"},
    ],
)
def test_settings_are_checked_at_the_start(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"secret|token"):
        evolve(CHANNEL, **wrong)


def test_no_secret_shows() -> None:
    shown = repr(CHANNEL) + repr(CHANNEL.encode(REPLY, NOW))

    assert not [secret for secret in ("hook-token", "old-token", "BOT-token") if secret in shown]
    assert "https://api.telegram.org/bot…" in shown


# --- what goes out -----------------------------------------------------------------------------

REPLY = Reply("reply-9", "-100", "Hi", thread="3", quotes="5")


def test_a_reply_is_one_request() -> None:
    fetch = CHANNEL.encode(REPLY, NOW)

    assert fetch.url == "https://api.telegram.org/bot77:BOT-token/sendMessage"
    assert dict(fetch.headers)["idempotency-key"] == "reply-9"
    assert json.loads(fetch.body) == {
        "chat_id": "-100",
        "text": "Hi",
        "link_preview_options": {"is_disabled": True},
        "message_thread_id": 3,
        "reply_parameters": {"message_id": 5, "allow_sending_without_reply": True},
    }


def test_markdown_becomes_entities() -> None:
    fetch = CHANNEL.encode(Reply("k", "1", "**Hi**\n```py\nx\n```"), NOW)
    content = json.loads(fetch.body)

    assert (content["text"], content["entities"]) == (
        "Hi\nx",
        [
            {"type": "bold", "offset": 0, "length": 2},
            {"type": "pre", "offset": 3, "length": 1, "language": "py"},
        ],
    )


def test_outside_a_topic_and_quoting_nothing_it_is_shorter() -> None:
    content = json.loads(CHANNEL.encode(Reply("k", "1", "Hi"), NOW).body)

    assert set(content) == {"chat_id", "text", "link_preview_options"}


def answer(status: int, content: Any) -> FetchReply:
    return FetchReply(status, {"retry-after": "2"}, json.dumps(content).encode())


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (answer(200, {"ok": True, "result": {"message_id": 6}}), Sent("6")),
        (answer(200, []), Sent("")),
        (answer(200, {"ok": False, "error_code": 400}), GiveUp("HTTP 200: code 400")),
        (answer(403, {"ok": False, "error_code": 403}), GiveUp("HTTP 403: code 403")),
        (
            answer(
                403, {"error_code": 403, "description": "Forbidden: bot was blocked by the user"}
            ),
            GiveUp("HTTP 403: code 403, Forbidden: bot was blocked by the user"),
        ),
        (
            answer(400, {"error_code": 400, "description": "Bad Request: no user 4911"}),
            GiveUp("HTTP 400: code 400"),
        ),
        (
            answer(429, {"ok": False, "error_code": 429, "parameters": {"retry_after": 7}}),
            RetryLater(7, "HTTP 429: code 429"),
        ),
        (
            answer(429, {"error_code": 429, "parameters": {"retry_after": 10**9}}),
            RetryLater(2, "HTTP 429: code 429"),
        ),
        (answer(200, {"error_code": 429}), RetryLater(2, "HTTP 200: code 429")),
        (answer(502, None), RetryLater(2, "HTTP 502")),
        (Unreachable("tls"), RetryLater(None, "tls")),
    ],
)
def test_the_answer_is_judged(reply: FetchReply | Unreachable, outcome: Outcome) -> None:
    assert CHANNEL.read_reply(reply, NOW) == outcome
