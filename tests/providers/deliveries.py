"""What providers send us, signed as they sign it; and the platform that is asked."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import b64decode, b64encode
from typing import Any, Final, TypeAlias

from attrs import frozen

from legation import Agent, Channel, Platform

from ..two_databases import IN_MEMORY
from .loopback import Loopback

__all__ = [
    "ENVIRON",
    "KINDS",
    "MAIN",
    "Delivery",
    "channels",
    "loopback",
    "platform",
    "signed",
    "slack",
    "standard",
    "telegram",
    "whatsapp",
]

ENVIRON: Final = {
    "APP_SECRET": "app-secret-of-the-tests",
    "VERIFY": "verify-token",
    "ACCESS": "access-token",
    "TELEGRAM_SECRET": "telegram-secret",
    "BOT": "42:bot-token",
    "SLACK_SECRET": "slack-signing-secret",
    "SLACK_BOT": "xoxb-token",
    "LOOPBACK": "loopback-secret",
    "STANDARD": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
}
KINDS: Final = ("whatsapp", "telegram", "slack", "standard", "loopback")
"""The kinds of channels, ours and one of an application; those of `platform` are called alike."""
MAIN: Final = {"db_id": "main"}
"""The query that names the database of the agent, where no agent is named."""

Header: TypeAlias = tuple[str, str]


@frozen
class Delivery:
    """One POST: where to, and with what."""

    target: str
    headers: tuple[Header, ...]
    body: bytes


def platform(base: str = "http://127.0.0.1:9", **configuration: Any) -> Platform:
    """Return a platform with a channel of each kind, whose providers are at `base`."""
    defaults: dict[str, Any] = {
        "databases": IN_MEMORY,
        "agents": [Agent(id="concierge")],
        "channels": channels(base),
        "channel_kinds": [Loopback],
        "environ": ENVIRON,
    }
    return Platform(**{**defaults, **configuration})


def channels(base: str, agent: str = "concierge") -> list[Channel]:
    return [
        Channel(
            id="whatsapp",
            kind="whatsapp",
            agent=agent,
            app_secret_env="APP_SECRET",
            verify_token_env="VERIFY",
            access_token_env="ACCESS",
            phone_number_id="111",
            api_base_url=f"{base}/v22.0",
        ),
        Channel(
            id="telegram",
            kind="telegram",
            agent=agent,
            secret_token_env="TELEGRAM_SECRET",
            bot_token_env="BOT",
            api_base_url=base,
        ),
        Channel(
            id="slack",
            kind="slack",
            agent=agent,
            signing_secret_env="SLACK_SECRET",
            bot_token_env="SLACK_BOT",
            api_base_url=f"{base}/api",
        ),
        Channel(
            id="standard",
            kind="standard",
            agent=agent,
            secret_env="STANDARD",
            reply_url=f"{base}/replies",
        ),
        Channel(
            id="loopback",
            kind="loopback",
            agent=agent,
            settings={"line": "one", "endpoint": f"{base}/loop", "secret_env": "LOOPBACK"},
        ),
    ]


def _hex(secret: str, message: bytes) -> str:
    return hmac.new(ENVIRON[secret].encode(), message, hashlib.sha256).hexdigest()


def signed(kind: str, body: bytes, now_us: int, delivery_id: str = "d-1") -> Delivery:
    """Return a delivery of `body`, whatever it is, signed as the provider would."""
    seconds = str(now_us // 1_000_000)
    headers: tuple[Header, ...]
    match kind:
        case "whatsapp":
            headers = (("x-hub-signature-256", "sha256=" + _hex("APP_SECRET", body)),)
        case "loopback":
            headers = (("x-hub-signature-256", "sha256=" + _hex("LOOPBACK", body)),)
        case "telegram":
            headers = (("x-telegram-bot-api-secret-token", ENVIRON["TELEGRAM_SECRET"]),)
        case "slack":
            digest = _hex("SLACK_SECRET", b"v0:%s:%s" % (seconds.encode(), body))
            headers = (
                ("x-slack-request-timestamp", seconds),
                ("x-slack-signature", f"v0={digest}"),
            )
        case _:
            key = b64decode(ENVIRON["STANDARD"].removeprefix("whsec_"))
            content = b"%s.%s.%s" % (delivery_id.encode(), seconds.encode(), body)
            signature = b64encode(hmac.digest(key, content, "sha256")).decode()
            headers = (
                ("webhook-id", delivery_id),
                ("webhook-timestamp", seconds),
                ("webhook-signature", f"v1,{signature}"),
            )
    return Delivery(f"/{kind}/webhook", (*headers, ("content-type", "application/json")), body)


Text: TypeAlias = tuple[str, str, str]
"""Sender, message id, text."""


def whatsapp(*texts: Text, now_us: int = 0) -> Delivery:
    """Return one delivery with a message for each of `texts`."""
    messages = [
        {"from": sender, "id": name, "timestamp": "1", "type": "text", "text": {"body": words}}
        for sender, name, words in texts
    ]
    metadata = {"display_phone_number": "15550001", "phone_number_id": "111"}
    value = {"messaging_product": "whatsapp", "metadata": metadata, "messages": messages}
    entry = {"id": "1", "changes": [{"field": "messages", "value": value}]}
    return _json("whatsapp", {"object": "whatsapp_business_account", "entry": [entry]}, now_us)


def telegram(sender: int, update: int, words: str, now_us: int = 0) -> Delivery:
    message = {
        "message_id": update + 1,
        "from": {"id": sender, "is_bot": False, "first_name": "Ada"},
        "chat": {"id": sender, "type": "private"},
        "date": 1,
        "text": words,
    }
    return _json("telegram", {"update_id": update, "message": message}, now_us)


def slack(sender: str, stamp: str, words: str, now_us: int) -> Delivery:
    """Return a direct message; Slack escapes what a person writes."""
    event = {
        "type": "message",
        "channel_type": "im",
        "channel": "D1",
        "user": sender,
        "ts": stamp,
        "text": words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
    }
    root = {"type": "event_callback", "team_id": "T1", "event_id": f"Ev{stamp}", "event": event}
    return _json("slack", root, now_us)


def standard(sender: str, name: str, words: str, now_us: int) -> Delivery:
    root = {"type": "message", "data": {"sender": sender, "text": words}}
    return _json("standard", root, now_us, name)


def loopback(*texts: Text, now_us: int = 0) -> Delivery:
    """Return one delivery with a message for each of `texts`."""
    messages = [{"from": sender, "id": name, "text": words} for sender, name, words in texts]
    return _json("loopback", {"messages": messages}, now_us)


def _json(kind: str, value: Any, now_us: int, delivery_id: str = "d-1") -> Delivery:
    return signed(kind, json.dumps(value).encode(), now_us, delivery_id)
