"""Questions with buttons and the presses of them, of each kind, against strict providers."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from attrs import evolve

from legation.channels import Codec, Slack, Standard, Telegram, WhatsApp
from legation.channels.deliveries import ContentKind, Delivery, Ignored, IncomingMessage, Press
from legation.channels.replies import GiveUp, Reply, RetryLater, Sent, ShownCall, TextSpan
from legation.channels.signatures import Verified
from legation.effects import Fetch, FetchReply

from ...providers.presses import slack_actions, telegram_query, whatsapp_reply
from ...providers.strict import (
    Provider,
    SlackApi,
    StandardReceiver,
    TelegramApi,
    WhatsAppApi,
    now_us,
)

BASE: Final = "http://127.0.0.1:9"
APPROVAL: Final = "0198c5f2-7d3a-7b11-9a53-1c5d2f6a8e90.12"
TELEGRAM: Final = Telegram("t", "hook", "42:bot-token", BASE)
SLACK: Final = Slack("s", "signing", "xoxb-token", f"{BASE}/api")
WHATSAPP: Final = WhatsApp("w", "secret", "verify", "access-token", "111", f"{BASE}/v22.0")
STANDARD: Final = Standard("x", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", f"{BASE}/replies")
KINDS: Final[list[tuple[Codec, type[Provider], str]]] = [
    (TELEGRAM, TelegramApi, "4911"),
    (SLACK, SlackApi, "D1"),
    (WHATSAPP, WhatsAppApi, "4911"),
    (STANDARD, StandardReceiver, "ada"),
]
QUESTION: Final = Reply(
    "later.12.1-m",
    "4911",
    "May I **book** `A & <B>`?",
    created_us=5,
    purpose="approval",
    approval=APPROVAL,
    calls=(ShownCall("book", {"room": "A & <B>"}),),
)
ids = ["telegram", "slack", "whatsapp", "standard"]


def send(codec: Codec, provider: Provider, reply: Reply) -> Any:
    now = now_us()
    return codec.read_reply(provider(codec.encode(reply, now)), now)


def content(fetch: Fetch) -> Any:
    return json.loads(fetch.body)


# --- questions


@pytest.mark.parametrize(("codec", "kind", "recipient"), KINDS, ids=ids)
def test_a_question_is_taken_with_its_buttons(
    codec: Codec, kind: type[Provider], recipient: str
) -> None:
    provider = kind()

    assert isinstance(send(codec, provider, evolve(QUESTION, recipient=recipient)), Sent)

    (seen,) = provider.seen
    assert provider.refused == []
    data = (f"approve:{APPROVAL}", f"reject:{APPROVAL}")
    assert seen.buttons == ((APPROVAL,) if codec is STANDARD else data)
    assert "book" in seen.text


@pytest.mark.parametrize(("codec", "kind", "recipient"), KINDS, ids=ids)
@pytest.mark.parametrize("sign", ["&", "\u00e4", "\U0001f600", "x"])
def test_the_longest_question_is_taken(
    codec: Codec, kind: type[Provider], recipient: str, sign: str
) -> None:
    provider = kind()
    longest = evolve(QUESTION, recipient=recipient, text=(sign * 9 + " ") * 51, spans=())

    assert isinstance(send(codec, provider, longest), Sent), provider.refused


@pytest.mark.parametrize(("codec", "kind", "recipient"), KINDS, ids=ids)
def test_an_answer_has_no_buttons(codec: Codec, kind: type[Provider], recipient: str) -> None:
    provider = kind()

    send(codec, provider, Reply("reply-m", recipient, "Booked."))

    assert [seen.buttons for seen in provider.seen] == [()]


def test_standard_sends_the_calls_for_a_machine() -> None:
    sent = content(STANDARD.encode(evolve(QUESTION, recipient="ada", quotes="m"), now_us()))

    assert sent == {
        "type": "approval",
        "data": {
            "recipient": "ada",
            "thread": "",
            "in_reply_to": "m",
            "text": QUESTION.text,
            "approval_id": APPROVAL,
            "calls": [{"name": "book", "arguments": {"room": "A & <B>"}}],
            "written_us": 5,
        },
    }


def test_slack_keeps_the_text_of_a_question_for_notifications() -> None:
    sent = content(SLACK.encode(evolve(QUESTION, recipient="D1"), 0))

    assert sent["text"] == sent["blocks"][0]["text"]["text"] == "May I *book* `A &amp; &lt;B&gt;`?"
    assert [block["type"] for block in sent["blocks"]] == ["section", "actions"]


def test_a_question_of_slack_that_grows_when_it_is_escaped_takes_several_sections() -> None:
    provider = SlackApi()
    text = "<&> " * 500

    assert isinstance(send(SLACK, provider, evolve(QUESTION, recipient="D1", text=text)), Sent)

    assert provider.refused == []
    sent = content(SLACK.encode(evolve(QUESTION, recipient="D1", text=text), 0))
    sections = [block["text"]["text"] for block in sent["blocks"] if block["type"] == "section"]
    assert len(sections) > 1
    assert " ".join(sections).split() == ["&lt;&amp;&gt;"] * 500


def test_an_approval_without_room_in_a_button_of_telegram_is_asked_in_words() -> None:
    provider = TelegramApi()
    long = evolve(QUESTION, approval="r" * 60 + ".1")

    assert isinstance(send(TELEGRAM, provider, long), Sent)
    assert [seen.buttons for seen in provider.seen] == [()]


# --- presses


def only(parsed: Any) -> IncomingMessage:
    assert isinstance(parsed, Delivery)
    (message,) = parsed.messages
    return message


def pressed(codec: Codec, button: str) -> Any:
    """Return what a codec makes of a press; the data of the button may be anything."""
    if codec is SLACK:
        return SLACK.read_interaction(slack_actions(button, 1, "U1"))
    root = telegram_query(button, 1, 11) if codec is TELEGRAM else whatsapp_reply(button, 1, "11")
    return codec.read_delivery(root, "")


@pytest.mark.parametrize("approves", [True, False])
def test_a_press_is_a_decision(approves: bool) -> None:
    data = f"{'approve' if approves else 'reject'}:{APPROVAL}"

    telegram, slack, whatsapp = (only(pressed(c, data)) for c in (TELEGRAM, SLACK, WHATSAPP))

    assert telegram.press == Press(APPROVAL, approves, "771", "1", "May I?")
    assert slack.press == Press(APPROVAL, approves, "U1", "1.000100", "May I? <1>")
    assert whatsapp.press == Press(APPROVAL, approves, "", "wamid.out.1")
    assert {m.kind for m in (telegram, slack, whatsapp)} == {ContentKind.BUTTON}
    assert [m.conversation for m in (telegram, slack, whatsapp)] == ["11", "D1", "11"]
    assert [m.name for m in (telegram, slack)] == ["Ada", "ada"]


def test_every_press_of_one_button_in_slack_has_an_id_of_its_own() -> None:
    data = f"approve:{APPROVAL}"
    first = only(SLACK.read_interaction(slack_actions(data, 1, "U1")))
    second = only(SLACK.read_interaction(slack_actions(data, 2, "U1")))

    assert first.message_id == "T1.D1.1.000100.U1.1767225600.000001"
    assert second.message_id != first.message_id
    assert only(SLACK.read_interaction(slack_actions(data, 1, "U1"))) == first


@pytest.mark.parametrize("data", ["yes", "approve:x", "approve:" + "9" * 10_240 + ".1"])
def test_the_press_of_another_button_stays_a_text(data: str) -> None:
    telegram, whatsapp = only(pressed(TELEGRAM, data)), only(pressed(WHATSAPP, data))

    assert (telegram.press, telegram.text) == (None, data)
    assert (whatsapp.press, whatsapp.text) == (None, "Approve")
    assert pressed(SLACK, data) == Delivery((), ("another action",))


def test_a_press_without_its_message_is_a_decision_of_the_presser() -> None:
    root = telegram_query(f"approve:{APPROVAL}", 1, 11)
    del root["callback_query"]["message"]
    message = only(TELEGRAM.read_delivery({**root, "inline_message_id": "x"}, ""))

    assert (message.conversation, message.sender) == ("", "11")
    assert message.press == Press(APPROVAL, approves=True, token="771")
    (acknowledged,) = TELEGRAM.closings(message, "Unknown.", 5, settled=True)
    assert acknowledged.purpose == "acknowledge"


def test_a_press_of_a_bot_is_from_ourselves() -> None:
    root = telegram_query(f"approve:{APPROVAL}", 1, 11)
    root["callback_query"]["from"]["is_bot"] = True

    assert only(TELEGRAM.read_delivery(root, "")).from_self


JUNK: Final[list[Any]] = [None, 1, [], {}, [1], "x", {"id": []}, {"text": 5}, True]


@pytest.mark.parametrize("junk", JUNK, ids=repr)
@pytest.mark.parametrize("member", ["user", "channel", "container", "message", "team", "actions"])
def test_an_interaction_of_any_shape_is_read_without_an_error(member: str, junk: Any) -> None:
    root = {**slack_actions(f"approve:{APPROVAL}", 1, "U1"), member: junk}

    assert isinstance(SLACK.read_interaction(root), Delivery)


@pytest.mark.parametrize("junk", JUNK, ids=repr)
@pytest.mark.parametrize("member", ["value", "type", "action_ts", "text"])
def test_an_action_of_any_shape_is_read_without_an_error(member: str, junk: Any) -> None:
    root = slack_actions(f"approve:{APPROVAL}", 1, "U1")
    root["actions"] = [{**root["actions"][0], member: junk}, junk]

    assert isinstance(SLACK.read_interaction(root), Delivery)


@pytest.mark.parametrize("junk", JUNK, ids=repr)
@pytest.mark.parametrize("member", ["id", "from", "message", "data"])
def test_a_query_of_any_shape_is_read_without_an_error(member: str, junk: Any) -> None:
    root = telegram_query(f"approve:{APPROVAL}", 1, 11)
    root["callback_query"][member] = junk

    delivery = TELEGRAM.read_delivery(root, "")
    assert isinstance(delivery, Delivery)
    for message in delivery.messages:
        for reply in TELEGRAM.closings(message, "Said.", 5, settled=True):
            TELEGRAM.encode(reply, 5)


@pytest.mark.parametrize("kind", ["view_submission", "shortcut", "message_action", None, 5])
def test_other_interactions_are_passed_over(kind: Any) -> None:
    root = {**slack_actions(f"approve:{APPROVAL}", 1, "U1"), "type": kind}

    assert SLACK.read_interaction(root) == Ignored("another type")


@pytest.mark.parametrize("codec", [TELEGRAM, WHATSAPP, STANDARD], ids=lambda codec: codec.kind)
def test_a_kind_without_forms_passes_them_over(codec: Codec) -> None:
    assert codec.interacts is False
    assert codec.parse_form(Verified(b"payload=%7B%7D")) == Ignored("no interactions")


# --- decisions of another system


def decision(**data: Any) -> Any:
    told = {"sender": "ada", "approval_id": APPROVAL, "approve": True, **data}
    return STANDARD.read_delivery({"type": "decision", "data": told}, "d-1")


@pytest.mark.parametrize("approves", [True, False])
def test_a_decision_of_another_system_is_a_press(approves: bool) -> None:
    assert only(decision(approve=approves, thread="t")) == IncomingMessage(
        "d-1",
        "ada",
        ContentKind.BUTTON,
        "Approve" if approves else "Reject",
        conversation="ada",
        thread="t",
        provider_id="d-1",
        press=Press(APPROVAL, approves),
    )
    assert only(decision(conversation="room")).conversation == "room"


@pytest.mark.parametrize(
    ("member", "junk", "reason"),
    [
        *(("sender", junk, "data.sender is missing") for junk in ("", None, 1.5, True)),
        *(("approval_id", junk, "data.approval_id is not") for junk in (None, 7, "x", "x." * 9000)),
        *(("approve", junk, "data.approve is neither") for junk in (None, 1, "true")),
    ],
)
def test_a_decision_that_cannot_be_read_says_why(member: str, junk: Any, reason: str) -> None:
    parsed = decision(**{member: junk})

    assert isinstance(parsed, Ignored)
    assert parsed.malformed
    assert parsed.reason.startswith(reason)


# --- what a press is owed


def test_telegram_answers_the_press_and_edits_the_question() -> None:
    provider = TelegramApi()
    message = only(pressed(TELEGRAM, f"approve:{APPROVAL}"))

    for reply in TELEGRAM.closings(message, "Approved by Ada.", 5, settled=True):
        assert isinstance(send(TELEGRAM, provider, reply), Sent)

    assert provider.refused == []
    assert provider.seen == []
    answered, edited = provider.acts
    assert (answered.method, edited.method) == ("answerCallbackQuery", "editMessageText")
    assert answered.content == {"callback_query_id": "771", "text": "Approved by Ada."}
    assert edited.content["text"] == "May I?\n\nApproved by Ada."
    assert "reply_markup" not in edited.content


def test_telegram_cuts_what_is_shown_for_a_moment_and_takes_buttons_off_alone() -> None:
    provider = TelegramApi()
    root = telegram_query(f"approve:{APPROVAL}", 1, 11)
    root["callback_query"]["message"]["text"] = "q" * 4096
    message = only(TELEGRAM.read_delivery(root, ""))

    for reply in TELEGRAM.closings(message, "word " * 100, 5, settled=True):
        send(TELEGRAM, provider, reply)

    assert provider.refused == []
    assert [act.method for act in provider.acts] == [
        "answerCallbackQuery",
        "editMessageReplyMarkup",
    ]
    assert len(provider.acts[0].content["text"]) <= 200


def test_telegram_answers_a_press_without_words() -> None:
    reply = Reply("k", "1", "", purpose="acknowledge", token="5", spans=())

    assert content(TELEGRAM.encode(reply, 5)) == {"callback_query_id": "5"}


def test_styles_of_a_question_stay_when_it_is_closed() -> None:
    closed = Reply("k", "1", "May I?", purpose="close", prompt="7", spans=(TextSpan("bold", 0, 3),))
    provider = TelegramApi()

    assert isinstance(send(TELEGRAM, provider, closed), Sent)
    assert provider.acts[0].content["entities"] == [{"type": "bold", "offset": 0, "length": 3}]


def test_a_question_that_is_not_decided_keeps_its_buttons() -> None:
    telegram, slack = TelegramApi(), SlackApi()
    for codec, provider in ((TELEGRAM, telegram), (SLACK, slack)):
        message = only(pressed(codec, f"approve:{APPROVAL}"))
        for reply in codec.closings(message, "Somebody else has to <answer>.", 5, settled=False):
            assert isinstance(send(codec, provider, reply), Sent)

    assert telegram.refused == slack.refused == []
    assert [act.method for act in telegram.acts] == ["answerCallbackQuery"]
    assert [(act.method, act.content["user"], act.content["text"]) for act in slack.acts] == [
        ("chat.postEphemeral", "U1", "Somebody else has to &lt;answer&gt;.")
    ]


def test_slack_puts_the_decision_in_the_place_of_the_buttons() -> None:
    provider = SlackApi()
    message = only(pressed(SLACK, f"approve:{APPROVAL}"))

    (reply,) = SLACK.closings(message, "Approved by ada.", 5, settled=True)

    assert isinstance(send(SLACK, provider, reply), Sent)
    assert provider.refused == []
    assert [(act.method, act.content) for act in provider.acts] == [
        (
            "chat.update",
            {
                "channel": "D1",
                "ts": "1.000100",
                "text": "May I? &lt;1&gt;\n\nApproved by ada.",
                "blocks": [],
            },
        )
    ]


def test_a_press_in_a_thread_of_slack_is_refused_there() -> None:
    root = slack_actions(f"approve:{APPROVAL}", 1, "U1")
    root["message"]["thread_ts"] = "0.5"
    message = only(SLACK.read_interaction(root))

    (refused,) = SLACK.closings(message, "No.", 5, settled=False)
    (closed,) = SLACK.closings(message, "Yes.", 5, settled=True)

    assert content(SLACK.encode(refused, 5))["thread_ts"] == "0.5"
    assert "thread_ts" not in content(SLACK.encode(closed, 5))


def test_slack_closes_nothing_that_it_cannot_name() -> None:
    press = Press(APPROVAL, approves=True)
    nowhere = IncomingMessage("m", "U1", press=press)
    unnamed = evolve(nowhere, conversation="D1")
    told = evolve(unnamed, press=evolve(press, prompt="1.1"))

    assert SLACK.closings(nowhere, "x", 5, settled=True) == ()
    assert SLACK.closings(unnamed, "x", 5, settled=True) == ()
    assert SLACK.closings(evolve(unnamed, press=None), "x", 5, settled=True) == ()
    assert [reply.text for reply in SLACK.closings(told, "x", 5, settled=True)] == ["x"]


def test_telegram_owes_nothing_to_what_is_no_press() -> None:
    assert TELEGRAM.closings(IncomingMessage("m", "1"), "x", 5, settled=True) == ()


@pytest.mark.parametrize("codec", [WHATSAPP, STANDARD], ids=lambda codec: codec.kind)
def test_other_kinds_owe_a_press_nothing_beside_words(codec: Codec) -> None:
    message = IncomingMessage("m", "1", press=Press(APPROVAL, approves=True))

    assert codec.closings(message, "Approved.", 5, settled=True) == ()


# --- what providers say to that


def test_an_answer_to_a_press_that_is_too_old_is_final() -> None:
    told = {
        "ok": False,
        "error_code": 400,
        "description": "Bad Request: query is too old and response timeout expired",
    }
    reply = FetchReply(400, {}, json.dumps(told).encode())

    assert isinstance(TELEGRAM.read_reply(reply, 5), GiveUp)
    assert TELEGRAM.read_reply(FetchReply(200, {}, b'{"ok":true,"result":true}'), 5) == Sent("")


@pytest.mark.parametrize(
    ("error", "expected"),
    [("message_not_found", GiveUp), ("edit_window_closed", GiveUp), ("ratelimited", RetryLater)],
)
def test_slack_is_asked_again_where_that_helps(error: str, expected: type[Any]) -> None:
    told = json.dumps({"ok": False, "error": error}).encode()

    assert isinstance(SLACK.read_reply(FetchReply(200, {}, told), 5), expected)


# --- a message that is edited -------------------------------------------------------------------


@pytest.mark.parametrize(("codec", "made", "to"), KINDS[:2], ids=ids[:2])
def test_a_reply_takes_the_place_of_a_message(codec: Codec, made: type[Provider], to: str) -> None:
    provider = made()
    first = send(codec, provider, Reply("stream-m", to, "One", quotes="9"))
    answer = Reply("reply-m", to, "One & **two**", quotes="9", edits=first.provider_id)

    assert send(codec, provider, answer) == Sent(first.provider_id)
    (shown,) = provider.shown.values()
    assert shown in ("One & two", "One &amp; *two*")
    assert provider.refused == []


@pytest.mark.parametrize(("codec", "made", "to"), KINDS[:2], ids=ids[:2])
def test_a_question_with_its_buttons_takes_the_place_of_a_message(
    codec: Codec, made: type[Provider], to: str
) -> None:
    provider = made()
    first = send(codec, provider, Reply("stream-m", to, "One"))
    send(codec, provider, evolve(QUESTION, recipient=to, edits=first.provider_id))

    assert len(provider.seen) == 1
    assert f"approve:{APPROVAL}" in json.dumps(provider.acts[-1].content)
    assert provider.refused == []


def test_an_edit_that_came_before_is_a_success_on_telegram() -> None:
    provider = TelegramApi()
    first = send(TELEGRAM, provider, Reply("stream-m", "4911", "One"))
    answer = Reply("reply-m", "4911", "One", edits=first.provider_id)

    assert send(TELEGRAM, provider, answer) == Sent("")


def test_only_what_can_be_edited_is_said_to_be() -> None:
    assert [codec.edits_messages for codec, _, _ in KINDS] == [True, True, False, False]
    assert WHATSAPP.pause_edits(IncomingMessage("m", "7")) == 2.0
    pauses = [TELEGRAM.pause_edits(IncomingMessage("m", "7", in_group=on)) for on in (False, True)]
    assert pauses == [1.5, 4.0]
