"""The setup of a bot of Telegram: its token, its webhook, and what comes in.

Source: core.telegram.org/bots/api, "getMe", "getWebhookInfo", "setWebhook", "setMyCommands".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ..effects import Fetch, FetchReply, Now, Program, Unreachable
from ..http.bodies.json_text import JsonObject, JsonValue
from .identity import Identity, Unidentified, body_of
from .provider_values import at, text_at
from .setup import Asked, Check, check_address, fetch_soon, sentence_of

__all__ = ["UPDATES", "check_bot", "inspect_webhook", "register_webhook"]

UPDATES: Final = ("message", "callback_query")
"""What a bot is sent: messages, and presses of the buttons under a question."""

_RECENT_SECONDS: Final = 3600

Call = Callable[[str, Mapping[str, object]], Fetch]
"""Makes the request that calls a method of the Bot API."""


def check_bot(asked: Asked, *, mentions_only: bool) -> Iterator[Check]:
    """Yield what is to be said of the bot behind a token."""
    found = asked.found
    if isinstance(found, Unidentified):
        yield Check(
            "credentials",
            False,
            f"Telegram does not say whose the token is: {found.reason}",
            "compare the bot's token with the one that @BotFather shows (/mybots)",
        )
        return
    yield Check("credentials", True, f"the token is that of @{found.name}")
    yield _check_privacy(found, mentions_only=mentions_only)


def _check_privacy(found: Identity, *, mentions_only: bool) -> Check:
    if found.reads_groups:
        return Check("permissions", True, "Group Privacy is off: every message of a group comes")
    said = "Group Privacy is on: of a group come commands, replies, and what an administrator gets"
    if mentions_only:
        return Check("permissions", True, said)
    return Check(
        "permissions",
        False,
        f"{said}, but mentions_only is false",
        "turn it off at @BotFather (/setprivacy), and add the bot to its groups again",
    )


def inspect_webhook(call: Call, address: str, name: str) -> Program[tuple[Check, ...]]:
    """Ask where Telegram sends updates, which, and how that went."""
    reply = yield from fetch_soon(call("getWebhookInfo", {}))
    now_us = yield from Now()
    info = at(body_of(reply), "result")
    if not isinstance(info, dict):
        message = f"Telegram does not say where it sends updates: {_describe(reply)}"
        return (Check("webhook", False, message, "try again"),)
    remedy = f"legation channels register {name} --url https://your-host"
    return (
        check_address(text_at(info, "url"), address, remedy),
        _check_updates(info.get("allowed_updates"), remedy),
        _check_deliveries(info, now_us),
    )


def _check_updates(allowed: JsonValue, remedy: str) -> Check:
    given = allowed if isinstance(allowed, list) and allowed else list(UPDATES)
    if missing := [name for name in UPDATES if name not in given]:
        return Check("updates", False, f"{' and '.join(missing)} do not come", remedy)
    return Check("updates", True, "messages and presses of buttons come")


def _check_deliveries(info: JsonObject, now_us: int) -> Check:
    pending, failed = info.get("pending_update_count"), info.get("last_error_date")
    waiting = pending if isinstance(pending, int) else 0
    error = sentence_of(text_at(info, "last_error_message"))
    age = now_us // 1_000_000 - failed if isinstance(failed, int) else _RECENT_SECONDS
    if error and (waiting or age < _RECENT_SECONDS):
        message = f"the last delivery failed: {error}; {waiting} wait"
        return Check("deliveries", False, message, "see that Telegram reaches the address by https")
    return Check("deliveries", True, f"{waiting} wait")


def register_webhook(
    call: Call, address: str, secret: str, commands: Mapping[str, str]
) -> Program[tuple[Check, ...]]:
    """Tell Telegram where to send updates, and the commands that it shows to people."""
    hook = {"url": address, "secret_token": secret, "allowed_updates": list(UPDATES)}
    reply = yield from fetch_soon(call("setWebhook", hook))
    if at(body_of(reply), "ok") is not True:
        message = f"Telegram does not take the address: {_describe(reply)}"
        remedy = "it has to be https, at port 443, 80, 88 or 8443, and reached from outside"
        return (Check("webhook", False, message, remedy),)
    done = Check("webhook", True, f"Telegram sends to {address}")
    if not commands:
        return (done,)
    listed = [{"command": name, "description": said} for name, said in commands.items()]
    reply = yield from fetch_soon(call("setMyCommands", {"commands": listed}))
    names = ", ".join(f"/{name}" for name in commands)
    if at(body_of(reply), "ok") is not True:
        message = f"Telegram does not take the commands: {_describe(reply)}"
        return (done, Check("commands", False, message, "try again"))
    return (done, Check("commands", True, f"Telegram shows {names}"))


def _describe(reply: FetchReply | Unreachable) -> str:
    if isinstance(reply, Unreachable):
        return reply.reason
    description = sentence_of(text_at(body_of(reply), "description"))
    return description or f"HTTP {reply.status}"
