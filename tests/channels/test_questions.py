"""Questions with buttons, as aiogram, slack_sdk and pywa would send them, and their presses."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from legation.channels import Slack, Telegram, WhatsApp
from legation.channels.deliveries import IncomingMessage, Press
from legation.channels.replies import Reply
from legation.effects import Fetch

from ..providers.presses import slack_actions, telegram_query
from .test_slack import check_requests
from .test_telegram import check_methods
from .test_whatsapp import Direct, plain

httpx: Any = pytest.importorskip("httpx")
pywa: Any = pytest.importorskip("pywa", reason="nox -s channels installs it")
wa_types: Any = pytest.importorskip("pywa.types")
types: Any = pytest.importorskip("aiogram.types")

APPROVAL: Final = "0198c5f2-7d3a-7b11-9a53-1c5d2f6a8e90.12"
DATA: Final = f"approve:{APPROVAL}"


def question(recipient: str) -> Reply:
    return Reply("k", recipient, "May I **book**?", purpose="approval", approval=APPROVAL)


def pressed(conversation: str, token: str, prompt: str) -> IncomingMessage:
    press = Press(APPROVAL, approves=True, token=token, prompt=prompt, shown="May I?")
    return IncomingMessage("m", token, conversation=conversation, press=press)


def named(fetch: Fetch) -> tuple[str, Any]:
    return fetch.url.rpartition("/")[2], json.loads(fetch.body)


def test_telegram_asks_and_closes_with_methods_of_aiogram() -> None:
    codec = Telegram("t", "hook", "42:bot-token")
    closings = codec.closings(pressed("11", "77", "1"), "Approved.", 1, settled=True)
    bare = Reply("k", "11", "", purpose="close", prompt="1", spans=())
    sent = [named(codec.encode(reply, 1)) for reply in (question("11"), *closings, bare)]

    assert check_methods(sent) == {
        "sendMessage": 1,
        "answerCallbackQuery": 1,
        "editMessageText": 1,
        "editMessageReplyMarkup": 1,
    }


def test_slack_asks_and_closes_with_blocks_and_methods_of_slack_sdk() -> None:
    codec = Slack("s", "signing", "xoxb-token")
    message = pressed("D1", "U1", "1.1")
    owed = [
        *codec.closings(message, "Approved.", 1, settled=True),
        *codec.closings(message, "Somebody else.", 1, settled=False),
    ]
    sent = [named(codec.encode(reply, 1)) for reply in (question("D1"), *owed)]

    assert check_requests(sent) == {
        "chat.postMessage": 1,
        "chat.update": 1,
        "chat.postEphemeral": 1,
    }


def test_whatsapp_asks_with_the_request_of_pywa() -> None:
    codec = WhatsApp("w", "secret", "verify", "access-token", "111")
    _, sent = named(codec.encode(question("4911"), 1))
    wire = Direct()
    app = pywa.WhatsApp("111", "access-token", session=httpx.Client(transport=wire))

    asked = sent["interactive"]
    replies = [button["reply"] for button in asked["action"]["buttons"]]
    buttons = [wa_types.Button(one["title"], callback_data=one["id"]) for one in replies]
    app.send_message("4911", asked["body"]["text"], buttons=buttons, tracker="k")

    assert wire.api.refused == []
    assert [plain(body) for body in wire.bodies] == [plain(sent)]


def test_the_presses_of_our_tests_are_what_the_libraries_read() -> None:
    update = types.Update.model_validate(telegram_query(DATA, 1, 11))
    action = slack_actions(DATA, 1, "U1")["actions"][0]

    assert (update.callback_query.data, update.callback_query.message.text) == (DATA, "May I?")
    assert action["value"] == DATA
