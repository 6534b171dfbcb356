"""The setup of channels at their providers, and what is to be done."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from attrs import evolve

from legation.channels import Codec, Slack, Standard, Telegram, WhatsApp
from legation.channels.commands import COMMANDS
from legation.channels.setup import Check
from legation.effects import Fetch, FetchReply, Program, Unreachable

from ...providers.strict import SlackApi, TelegramApi, WhatsAppApi

R = TypeVar("R")
Network = Callable[[Fetch], FetchReply | Unreachable]

TELEGRAM = Telegram("bot", "hook-token", "42:bot-token")
SLACK = Slack("desk", "signing", "xoxb-token")
WHATSAPP = WhatsApp("chat", "app", "verify", "access-token", "111")
STANDARD = Standard("help", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "https://x.example")
NOW = 1_700_000_000_000_000
HOST = "https://desk.example"
HOOK = {"url": f"{HOST}/bot/webhook"}


def drive(program: Program[R], network: Network) -> R:
    answer: Any = None
    try:
        while True:
            effect = program.send(answer)
            answer = network(effect) if isinstance(effect, Fetch) else NOW
    except StopIteration as stop:
        result: R = stop.value
        return result


def inspect(codec: Codec, network: Network, address: str = "") -> dict[str, Check]:
    checks = drive(codec.inspect(address or f"{HOST}/{codec.name}/webhook"), network)
    return {check.subject: check for check in checks}


def wrong(checks: dict[str, Check]) -> set[str]:
    return {name for name, check in checks.items() if check.ok is False}


def only(content: Any, method: str, api: TelegramApi | None = None) -> Network:
    """Answer `content` to one method, and as Telegram does to others."""
    good = api or TelegramApi(webhook=dict(HOOK))

    def answer(fetch: Fetch) -> FetchReply | Unreachable:
        if not fetch.url.endswith(method):
            return good(fetch)
        if isinstance(content, Unreachable):
            return content
        return FetchReply(200, {}, json.dumps(content).encode())

    return answer


def saying(answer: FetchReply | Unreachable) -> Network:
    return lambda _: answer


# --- Telegram ----------------------------------------------------------------------------------


def test_a_bot_that_is_registered_here_is_right() -> None:
    api = TelegramApi()
    done = drive(TELEGRAM.register(f"{HOST}/bot/webhook", COMMANDS), api)

    assert [check.ok for check in done] == [True, True]
    assert api.webhook["secret_token"] == "hook-token"
    assert api.webhook["allowed_updates"] == ["message", "callback_query"]
    assert api.commands == COMMANDS
    assert wrong(inspect(TELEGRAM, api)) == set()
    assert wrong(inspect(TELEGRAM, api, "/bot/webhook")) == set()
    assert api.refused == []


def test_without_commands_none_are_shown() -> None:
    api = TelegramApi()
    done = drive(TELEGRAM.register(f"{HOST}/bot/webhook", {}), api)

    assert ([check.subject for check in done], api.commands) == (["webhook"], {})


def test_an_address_that_telegram_does_not_take_is_a_finding() -> None:
    (check,) = drive(TELEGRAM.register("http://desk.example/bot/webhook", COMMANDS), TelegramApi())

    assert (check.ok, "HTTPS" in check.message) == (False, True)


def test_commands_that_telegram_does_not_take_are_a_finding() -> None:
    refuses = only({"ok": False, "description": "no"}, "/setMyCommands")
    done = drive(TELEGRAM.register(f"{HOST}/bot/webhook", COMMANDS), refuses)

    assert [(check.subject, check.ok) for check in done] == [("webhook", True), ("commands", False)]


@pytest.mark.parametrize(
    ("hook", "found"),
    [
        (dict[str, Any](), {"webhook"}),
        ({"url": "https://other.example/bot/webhook"}, {"webhook"}),
        ({"url": "https://[broken"}, {"webhook"}),
        ({**HOOK, "allowed_updates": ["message"]}, {"updates"}),
        ({**HOOK, "allowed_updates": []}, set[str]()),
        ({**HOOK, "last_error_message": "Wrong response: 403", "last_error_date": 1}, set[str]()),
        (
            {**HOOK, "last_error_message": "Wrong response: 403", "pending_update_count": 3},
            {"deliveries"},
        ),
        (
            {**HOOK, "last_error_message": "SSL error", "last_error_date": NOW // 1_000_000 - 9},
            {"deliveries"},
        ),
        ({**HOOK, "pending_update_count": "many"}, set[str]()),
    ],
)
def test_a_webhook_that_is_not_right_is_a_finding(hook: dict[str, Any], found: set[str]) -> None:
    checks = inspect(TELEGRAM, TelegramApi(webhook=hook))

    assert wrong(checks) == found
    assert all(checks[name].remedy for name in found)


def test_without_a_host_the_path_alone_is_compared() -> None:
    elsewhere = TelegramApi(webhook={"url": "https://other.example/base/bot/webhook"})
    broken = TelegramApi(webhook={"url": "https://[broken"})

    assert wrong(inspect(TELEGRAM, elsewhere, "/bot/webhook")) == set()
    assert wrong(inspect(TELEGRAM, elsewhere, "/desk/webhook")) == {"webhook"}
    assert wrong(inspect(TELEGRAM, broken, "/bot/webhook")) == {"webhook"}


@pytest.mark.parametrize(
    "answer", [None, [], {"ok": False}, {"ok": True, "result": 7}, Unreachable("timeout")], ids=repr
)
def test_nonsense_about_the_webhook_is_a_finding(answer: Any) -> None:
    assert wrong(inspect(TELEGRAM, only(answer, "/getWebhookInfo"))) == {"webhook"}


def test_group_privacy_is_a_finding_where_everything_is_to_be_answered() -> None:
    api = TelegramApi(webhook=dict(HOOK))
    everything = evolve(TELEGRAM, mentions_only=False)

    assert wrong(inspect(everything, api)) == {"permissions"}
    api.reads_groups = True
    assert wrong(inspect(everything, api)) == set()


def test_a_text_of_telegram_is_shown_without_what_moves_a_terminal() -> None:
    hook = {**HOOK, "last_error_message": "\x1b[2J" + "x" * 999, "pending_update_count": 1}
    message = inspect(TELEGRAM, TelegramApi(webhook=hook))["deliveries"].message

    assert message.isprintable()
    assert len(message) < 400


# --- Slack -------------------------------------------------------------------------------------


def test_an_app_with_its_scopes_is_right_and_its_address_is_told() -> None:
    checks = inspect(SLACK, SlackApi())

    assert wrong(checks) == set()
    assert (checks["webhook"].ok, f"{HOST}/desk/webhook" in checks["webhook"].remedy) == (
        None,
        True,
    )
    assert f"{HOST}/desk/interactions" in checks["webhook"].remedy


@pytest.mark.parametrize(
    ("scopes", "mentions_only", "found"),
    [
        ("chat:write,app_mentions:read,im:history", True, set[str]()),
        ("chat:write, app_mentions:read", True, {"permissions"}),
        ("chat:write,app_mentions:read,im:history", False, {"permissions"}),
        ("chat:write,app_mentions:read,im:history,channels:history", False, set[str]()),
        ("", True, {"permissions"}),
    ],
)
def test_a_scope_that_is_missing_is_a_finding(
    scopes: str, found: set[str], *, mentions_only: bool
) -> None:
    checks = inspect(evolve(SLACK, mentions_only=mentions_only), SlackApi(scopes=scopes))

    assert wrong(checks) == found


def test_the_token_of_a_person_is_a_finding() -> None:
    told = {"ok": True, "user_id": "U1", "team_id": "T1"}
    checks = inspect(SLACK, lambda _: FetchReply(200, {}, json.dumps(told).encode()))

    assert (wrong(checks), "U1 at T1" in checks["credentials"].message) == ({"credentials"}, True)


def test_slack_is_registered_by_a_person() -> None:
    (check,) = drive(SLACK.register(f"{HOST}/desk/webhook", COMMANDS), SlackApi())

    assert (check.ok, f"{HOST}/desk/webhook" in check.remedy) == (None, True)


# --- WhatsApp ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hook", "found"),
    [
        ({"application": f"{HOST}/chat/webhook"}, set[str]()),
        ({"phone_number": f"{HOST}/chat/webhook", "application": "https://x.example"}, set[str]()),
        ({"whatsapp_business_account": "https://x.example/chat/webhook"}, {"webhook"}),
        ({}, {"webhook"}),
    ],
)
def test_the_narrowest_address_of_a_number_counts(hook: dict[str, str], found: set[str]) -> None:
    checks = inspect(WHATSAPP, WhatsAppApi(webhook=hook))

    assert wrong(checks) == found
    assert all(f"{HOST}/chat/webhook" in checks[name].remedy for name in found)


def test_a_number_whose_quality_is_red_is_a_finding() -> None:
    api = WhatsAppApi(webhook={"application": f"{HOST}/chat/webhook"}, quality="RED")

    assert wrong(inspect(WHATSAPP, api)) == {"quality"}


def test_a_number_without_a_name_is_right() -> None:
    told = {"display_phone_number": "+1", "webhook_configuration": {"application": "x"}}
    checks = inspect(WHATSAPP, lambda _: FetchReply(200, {}, json.dumps(told).encode()))

    assert checks["credentials"] == Check("credentials", True, "the number is +1")


def test_whatsapp_is_registered_by_a_person() -> None:
    (check,) = drive(WHATSAPP.register(f"{HOST}/chat/webhook", COMMANDS), WhatsAppApi())

    assert (check.ok, "verify_token_env" in check.remedy) == (None, True)


# --- all ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codec", "api"),
    [
        (TELEGRAM, TelegramApi(bot_token="43:another")),
        (SLACK, SlackApi(bot_token="xoxb-another")),
        (WHATSAPP, WhatsAppApi(access_token="another")),
        (TELEGRAM, saying(Unreachable("timeout"))),
        (SLACK, saying(Unreachable("timeout"))),
        (WHATSAPP, saying(Unreachable("timeout"))),
        (TELEGRAM, saying(FetchReply(429, {}, b'{"ok":false,"error_code":429}'))),
        (SLACK, saying(FetchReply(200, {}, b'{"ok":false,"error":"token_revoked"}'))),
        (WHATSAPP, saying(FetchReply(200, {}, b"<html>"))),
    ],
)
def test_a_provider_that_does_not_say_who_we_are_is_a_finding(codec: Codec, api: Network) -> None:
    checks = inspect(codec, api)

    assert wrong(checks) == {"credentials"}
    assert checks["credentials"].remedy


def test_a_system_of_ones_own_is_told_the_address() -> None:
    assert inspect(STANDARD, lambda _: Unreachable("timeout")) == {}
    (check,) = drive(STANDARD.register(f"{HOST}/help/webhook", {}), lambda _: Unreachable("x"))
    assert f"{HOST}/help/webhook" in check.message
