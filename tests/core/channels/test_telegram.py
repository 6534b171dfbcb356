"""Telegram: one update at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from legation.channels.deliveries import (
    ChatMoved,
    ContentKind,
    Delivery,
    Ignored,
    IncomingMessage,
    NotUnderstood,
    rest_of_new,
)
from legation.channels.identity import Identity
from legation.channels.replies import (
    GiveUp,
    Moved,
    Outcome,
    Reply,
    RetryLater,
    Sent,
    Unauthorized,
)
from legation.channels.signatures import SignatureRefused, Verified
from legation.channels.telegram import Telegram
from legation.channels.telegram_groups import FOR_ANOTHER, NAME_UNKNOWN
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
        name="Ada",
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
            "9",
            "42",
            ContentKind.BUTTON,
            "yes",
            conversation="1",
            provider_id="5",
            reply_to="5",
            name="Ada",
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


LEGATION = Identity("77", "Legation_Bot", reads_groups=True)
UNREAD = evolve(LEGATION, reads_groups=False)
HELD = (NAME_UNKNOWN,)


def asked(identity: Identity | None = LEGATION, codec: Telegram = ASKED, **content: Any) -> Any:
    return codec.parse(Verified(json.dumps(update(**content)).encode()), identity)


def entity(kind: Any, offset: Any, length: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"type": kind, "offset": offset, "length": length, **more}]


def command(text: str, name: str) -> dict[str, Any]:
    return {"text": text, "entities": entity("bot_command", 0, len(name))}


US = {"message_id": 4, "from": {"id": 77, "is_bot": True}}
THEM = {"message_id": 4, "from": {"id": 8, "is_bot": True}}
NAMED = {"text": "you", "entities": entity("text_mention", 0, 3, user={"id": 77})}
OURS = {"text": "\U0001f44d @legation_bot hi", "entities": entity("mention", 3, 13)}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (command("/ask@legation_bot why", "/ask@legation_bot"), "/ask why"),
        (command("/new@Legation_Bot", "/new@Legation_Bot"), "/new"),
        (command("/new hello", "/new"), "/new hello"),
        (command("/help", "/help"), "/help"),
        (OURS, "\U0001f44d hi"),
        ({"text": "hi @legation_bot", "entities": entity("mention", 3, 13)}, "hi"),
        ({"text": "(@legation_bot)", "entities": entity("mention", 1, 13)}, "()"),
        (
            {"photo": [], "caption": "@legation_bot", "caption_entities": entity("mention", 0, 13)},
            "@legation_bot",
        ),
        (NAMED, "you"),
        ({"text": "and then?", "reply_to_message": US}, "and then?"),
        ({"text": "hi", "chat": {"id": 42, "type": "private"}}, "hi"),
    ],
)
def test_in_a_group_what_is_meant_for_us_is_a_message_without_our_name(
    content: dict[str, Any], text: str
) -> None:
    (found,) = asked(**content).messages

    assert found.text == text


WEATHER = command("/weather@other_bot", "/weather@other_bot")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"text": "hi"}, "not mentioned"),
        ({"sticker": {}}, "not mentioned"),
        ({"new_chat_members": []}, "not mentioned"),
        (WEATHER, FOR_ANOTHER),
        ({**WEATHER, "reply_to_message": US}, FOR_ANOTHER),
        ({"text": "@gif_bot cats", "entities": entity("mention", 0, 8)}, "not mentioned"),
        ({"text": "ask @robert_talbot", "entities": entity("mention", 4, 14)}, "not mentioned"),
        ({"text": "@legation_bo t", "entities": entity("mention", 0, 12)}, "not mentioned"),
        ({"text": "@legation_bot", "entities": entity("mention", "0", 13)}, "not mentioned"),
        ({"text": "@legation_bot", "entities": entity("mention", 0, None)}, "not mentioned"),
        ({"text": "@legation_bot", "entities": entity("mention", -2, 13)}, "not mentioned"),
        ({"text": "a bot", "entities": entity("bold", 0, 5)}, "not mentioned"),
        (command("/weather", "/weather"), "not mentioned"),
        ({"text": "you", "entities": entity("text_mention", 0, 3)}, "not mentioned"),
        ({"text": "and then?", "reply_to_message": THEM}, "not mentioned"),
        (
            {"text": "x", "reply_to_message": {**US, "forum_topic_created": {"name": "T"}}},
            "not mentioned",
        ),
    ],
)
def test_in_a_group_nothing_else_is(content: dict[str, Any], reason: str) -> None:
    assert asked(**content) == Delivery((), (reason,))


def test_a_command_without_a_name_is_ours_where_telegram_chose_us() -> None:
    weather = command("/weather", "/weather")

    assert len(asked(UNREAD, **weather).messages) == 1
    assert asked(evolve(LEGATION, reads_groups=None), **weather).messages == ()


def test_two_bots_in_one_group_answer_each_its_own() -> None:
    other = evolve(ASKED, bot_token="78:other", name="other")
    meant = [
        [
            name
            for name, codec, identity in (
                ("ours", ASKED, UNREAD),
                ("other", other, Identity("78", "other_bot", reads_groups=False)),
            )
            if asked(identity, codec, **content).messages
        ]
        for content in (OURS, WEATHER, {"text": "x", "reply_to_message": US}, {"text": "hi"})
    ]

    assert meant == [["ours"], ["other"], ["ours"], []]


def test_a_bot_that_answers_everything_leaves_the_commands_of_others() -> None:
    assert len(asked(codec=CHANNEL, text="hi").messages) == 1
    assert asked(codec=CHANNEL, **WEATHER).ignored == (FOR_ANOTHER,)
    assert asked(None, CHANNEL, **WEATHER).ignored == HELD


@pytest.mark.parametrize(
    "content",
    [{"text": "x", "reply_to_message": US}, NAMED, command("/new", "/new")],
    ids=["a reply to us", "our id", "for every bot"],
)
@pytest.mark.parametrize("identity", [None, Identity("78", "Legation_Bot", reads_groups=False)])
def test_without_a_name_what_is_ours_beyond_doubt_is_answered(
    content: dict[str, Any], identity: Identity | None
) -> None:
    assert len(asked(identity, **content).messages) == 1


@pytest.mark.parametrize(
    ("content", "ignored"),
    [
        (OURS, HELD),
        (WEATHER, HELD),
        (command("/weather", "/weather"), ("not mentioned",)),
        ({"text": "hi"}, ("not mentioned",)),
    ],
)
@pytest.mark.parametrize("identity", [None, Identity("78", "Legation_Bot", reads_groups=False)])
def test_without_a_name_nothing_else_is(
    content: dict[str, Any], ignored: tuple[str, ...], identity: Identity | None
) -> None:
    assert asked(identity, **content) == Delivery((), ignored)


def test_a_button_without_data_is_unsupported() -> None:
    delivery = parse({"update_id": 9, "callback_query": {"id": "1", "from": ADA}})

    assert delivery.messages[0].kind is ContentKind.UNSUPPORTED


@pytest.mark.parametrize("user", [{"id": 8, "is_bot": True}, {"id": 77}])
def test_bots_are_flagged_ourselves_above_all(user: dict[str, Any]) -> None:
    assert only(text="x", **{"from": user}).from_self


def test_a_message_of_nobody_is_malformed() -> None:
    assert parse(update(text="x", **{"from": None})) == Delivery((), ("malformed",))


@pytest.mark.parametrize(
    ("here", "content"),
    [
        (-7, {"migrate_to_chat_id": -1007}),
        (-1007, {"migrate_from_chat_id": -7}),
    ],
    ids=["in the group that was", "in the supergroup that is"],
)
def test_a_group_that_became_a_supergroup_is_told(here: int, content: dict[str, Any]) -> None:
    chat = {"id": here, "type": "group"}

    assert parse(update(chat=chat, **content)) == Delivery((), moved=(ChatMoved("-7", "-1007"),))


@pytest.mark.parametrize("to", [-7, 10**30, "-1007", True, None, {"id": 1}])
def test_a_chat_that_moves_nowhere_stays(to: Any) -> None:
    found = parse(update(chat={"id": -7, "type": "private"}, migrate_to_chat_id=to))

    assert (found.moved, len(found.messages)) == ((), 1)


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

    for identity in (None, LEGATION):
        assert isinstance(ASKED.parse(Verified(json.dumps(root).encode()), identity), Delivery)
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


def moved_to(chat: Any) -> FetchReply:
    return answer(400, {"error_code": 400, "parameters": {"migrate_to_chat_id": chat}})


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
        (
            answer(401, {"ok": False, "error_code": 401, "description": "Unauthorized"}),
            Unauthorized("HTTP 401: code 401, Unauthorized"),
        ),
        (
            answer(404, {"ok": False, "error_code": 404, "description": "Not Found"}),
            Unauthorized("HTTP 404: code 404, Not Found"),
        ),
        (FetchReply(404, {}, b"<html>"), Unauthorized("HTTP 404")),
        (moved_to(-1001234567890), Moved("-1001234567890")),
        *((moved_to(chat), GiveUp("HTTP 400: code 400")) for chat in (10**30, True, "-100", None)),
        (answer(200, {"error_code": 429}), RetryLater(2, "HTTP 200: code 429")),
        (answer(200, {"ok": False, "error_code": 502}), RetryLater(2, "HTTP 200: code 502")),
        (answer(502, None), RetryLater(2, "HTTP 502")),
        (Unreachable("tls"), RetryLater(None, "tls")),
    ],
)
def test_the_answer_is_judged(reply: FetchReply | Unreachable, outcome: Outcome) -> None:
    assert CHANNEL.read_reply(reply, NOW) == outcome


@pytest.mark.parametrize(("kind", "in_group"), [("supergroup", True), ("private", False)])
def test_a_press_in_a_group_is_among_others(kind: str, in_group: bool) -> None:
    message = {"message_id": 5, "chat": {"id": -100, "type": kind}}
    pressed = {"id": "1", "from": ADA, "data": "more", "message": message}
    delivery = parse({"update_id": 9, "callback_query": pressed})

    assert [found.in_group for found in delivery.messages] == [in_group]
