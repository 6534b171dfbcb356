"""Presses of buttons as providers send them, signed as they sign them."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from attrs import evolve

from .deliveries import Delivery, signed

__all__ = ["form", "press", "slack_actions", "telegram_query", "whatsapp_reply"]


def press(kind: str, button: str, number: int, now_us: int = 0, sender: str = "4911") -> Delivery:
    """Return the press of a button whose data is `button`, under our first message to `sender`.

    Slack's people have ids with letters: of them it is the user `U` and the number.
    """
    match kind:
        case "telegram":
            return _json(kind, telegram_query(button, number, int(sender)), now_us)
        case "slack":
            return form(slack_actions(button, number, f"U{sender}"), now_us)
        case "whatsapp":
            return _json(kind, whatsapp_reply(button, number, sender), now_us)
        case _:
            verb, _, approval = button.rpartition(":")
            data = {"sender": sender, "approval_id": approval, "approve": verb != "reject"}
            root = {"type": "decision", "data": data}
            return signed(kind, json.dumps(root).encode(), now_us, f"d-press-{number}")


def telegram_query(button: str, number: int, sender: int) -> dict[str, Any]:
    """Return an "Update" with a "CallbackQuery"."""
    user = {"id": sender, "is_bot": False, "first_name": "Ada", "language_code": "en"}
    message = {
        "message_id": 1,
        "from": {"id": 42, "is_bot": True, "first_name": "Desk", "username": "desk_bot"},
        "chat": {"id": sender, "type": "private", "first_name": "Ada"},
        "date": 1,
        "text": "May I?",
    }
    query = {"id": f"77{number}", "from": user, "message": message, "chat_instance": "-1"}
    return {"update_id": 1000 + number, "callback_query": {**query, "data": button}}


def slack_actions(button: str, number: int, sender: str) -> dict[str, Any]:
    """Return a payload of the type `block_actions`, in a direct message."""
    action = {
        "type": "button",
        "action_id": "legation_approve",
        "block_id": "b1",
        "text": {"type": "plain_text", "text": "Approve", "emoji": True},
        "value": button,
        "style": "primary",
        "action_ts": f"1767225600.{number:06}",
    }
    stamp = "1.000100"
    message = {"type": "message", "bot_id": "B1", "ts": stamp, "text": "May I? &lt;1&gt;"}
    container = {"type": "message", "message_ts": stamp, "channel_id": "D1", "is_ephemeral": False}
    return {
        "type": "block_actions",
        "user": {"id": sender, "username": "ada", "name": "ada", "team_id": "T1"},
        "api_app_id": "A1",
        "token": "unused",
        "container": container,
        "trigger_id": "12321423423.333649436676.d8c1bb837935619ccad0f624c448ffb3",
        "team": {"id": "T1", "domain": "hotel"},
        "enterprise": None,
        "is_enterprise_install": False,
        "channel": {"id": "D1", "name": "directmessage"},
        "message": message,
        "state": {"values": {}},
        "response_url": "https://hooks.slack.com/actions/T1/1/x",
        "actions": [action],
    }


def form(payload: Any, now_us: int) -> Delivery:
    """Return a form with `payload`, signed; any text stands for itself."""
    text = payload if isinstance(payload, str) else json.dumps(payload)
    sent = signed("slack", urlencode({"payload": text}).encode(), now_us)
    headers = (*sent.headers[:-1], ("content-type", "application/x-www-form-urlencoded"))
    return evolve(sent, target="/slack/interactions", headers=headers)


def whatsapp_reply(button: str, number: int, sender: str) -> dict[str, Any]:
    """Return a webhook with an `interactive` message of the type `button_reply`."""
    message = {
        "context": {"from": "15550001", "id": "wamid.out.1"},
        "from": sender,
        "id": f"wamid.press.{number}",
        "timestamp": "1",
        "type": "interactive",
        "interactive": {
            "type": "button_reply",
            "button_reply": {"id": button, "title": "Approve"},
        },
    }
    metadata = {"display_phone_number": "15550001", "phone_number_id": "111"}
    value = {"messaging_product": "whatsapp", "metadata": metadata, "messages": [message]}
    entry = {"id": "1", "changes": [{"field": "messages", "value": value}]}
    return {"object": "whatsapp_business_account", "entry": [entry]}


def _json(kind: str, root: Any, now_us: int) -> Delivery:
    return signed(kind, json.dumps(root).encode(), now_us)
