"""Questions with buttons as the libraries have them, and the presses that they read or sign."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from attrs import evolve

from ..providers.deliveries import Delivery, signed
from ..providers.deliveries import slack as slack_message
from ..providers.deliveries import telegram as telegram_message
from ..providers.deliveries import whatsapp as whatsapp_message
from ..providers.presses import slack_actions, telegram_query, whatsapp_reply
from ..providers.strict import SlackApi, StandardReceiver, TelegramApi, WhatsAppApi, now_us
from .desk import booking
from .test_slack import BOT, SECRET, bolt, check_requests, sign
from .test_standard import LIBRARIES
from .test_standard import sign as sign_standard
from .test_telegram import check_methods, telegram
from .test_whatsapp import ADA, pywa, types


def test_a_press_of_python_telegram_bot_approves_once_and_aiogram_knows_what_is_sent() -> None:
    with booking(TelegramApi()) as desk:
        desk.deliver(telegram_message(7, 10, "book"))

        def press(question: Any) -> Delivery:
            (row,) = question["reply_markup"]["inline_keyboard"]
            update = telegram_query(row[0]["callback_data"], 1, 7)
            return signed("telegram", telegram.Update.de_json(update, None).to_json().encode(), 0)

        desk.press_twice(press)
        sent = check_methods(desk.network.posted())

    assert sent["sendMessage"] == 2
    assert sent["answerCallbackQuery"] == 1
    assert any(name.startswith("edit") for name in sent)


def test_a_press_that_bolt_hears_approves_once_and_slack_sdk_knows_what_is_sent() -> None:
    pressed: list[Delivery] = []
    with booking(SlackApi()) as desk:
        desk.deliver(slack_message("U1", "9.1", "book", now_us()))

        def press(question: Any) -> Delivery:
            keys = question["blocks"][-1]["elements"]
            actions = slack_actions(keys[0]["value"], 1, "U1")
            actions["actions"][0]["action_id"] = keys[0]["action_id"]
            body = urlencode({"payload": json.dumps(actions)})
            form = ("content-type", "application/x-www-form-urlencoded")
            made = sign(body)
            pressed.append(
                evolve(made, target="/slack/interactions", headers=(form, *made.headers[1:]))
            )
            return pressed[-1]

        question = desk.press_twice(press)
        sent = check_requests(desk.network.posted())

    assert sent["chat.postMessage"] == 2
    assert sent["chat.update"] == 1
    assert hear(pressed[0]) == [key["action_id"] for key in question["blocks"][-1]["elements"][:1]]


def hear(sent: Delivery) -> list[str]:
    """Return the actions that an app of Bolt hears in a delivery."""
    who = bolt.authorization.AuthorizeResult(
        enterprise_id=None, team_id="T1", bot_user_id=BOT, bot_id="B0", bot_token="xoxb-token"
    )
    app = bolt.App(signing_secret=SECRET, authorize=lambda: who, process_before_response=True)
    heard: list[str] = []

    def note(ack: Any, action: dict[str, Any]) -> None:
        ack()
        heard.append(action["action_id"])

    app.action({"type": "block_actions", "action_id": "legation_approve"})(note)
    headers = {name: [value] for name, value in sent.headers}
    assert app.dispatch(bolt.BoltRequest(body=sent.body.decode(), headers=headers)).status == 200
    return heard


def test_a_press_that_pywa_reads_approves_once_and_pywa_sends_the_same_buttons() -> None:
    with booking(WhatsAppApi()) as desk:
        desk.deliver(whatsapp_message((ADA, "wamid.1", "book")))

        def press(question: Any) -> Delivery:
            keys = question["interactive"]["action"]["buttons"]
            update = whatsapp_reply(keys[0]["reply"]["id"], 1, ADA)
            value = update["entry"][0]["changes"][0]["value"]
            value["contacts"] = [{"profile": {"name": "Ada"}, "wa_id": ADA, "user_id": "DE.1"}]
            app = pywa.WhatsApp("111", "access-token", server=None)
            read = types.CallbackButton.from_update(app, update)
            assert (read.data, read.title) == (keys[0]["reply"]["id"], keys[0]["reply"]["title"])
            return signed("whatsapp", json.dumps(update).encode(), 0)

        question = desk.press_twice(press)

    keys = question["interactive"]["action"]["buttons"]
    same = [types.Button(key["reply"]["title"], key["reply"]["id"]).to_dict() for key in keys]
    assert same == keys


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_decision_that_a_library_signs_approves_once(library: str) -> None:
    with booking(StandardReceiver()) as desk:
        desk.deliver(sign_standard(library, "msg_1", "book"))

        def press(question: Any) -> Delivery:
            (made,) = question["data"]["calls"]
            assert made == {"name": "book", "arguments": {"room": "double"}}
            data: dict[str, Any] = {"approval_id": question["data"]["approval_id"], "approve": True}
            return sign_standard(library, "msg_2", **data)

        desk.press_twice(press)
