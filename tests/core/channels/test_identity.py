"""The identity of a channel, as each provider says it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from legation.channels import Codec, Slack, Standard, Telegram, WhatsApp
from legation.channels.identity import (
    Identity,
    Unidentified,
    body_of,
    decode_identity,
    encode_identity,
)
from legation.effects import FetchReply, Unreachable

from ...providers.strict import SlackApi, TelegramApi, WhatsAppApi

TELEGRAM = Telegram("tg", "hook-token", "42:bot-token")
SLACK = Slack("slack", "signing", "xoxb-token")
WHATSAPP = WhatsApp("wa", "app", "verify", "access-token", "111")
STANDARD = Standard("std", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "https://x.example")
NOW = 1_700_000_000_000_000
NONSENSE = Unidentified("the answer says nothing that is understood")


def ask(codec: Codec, provider: Any) -> Identity | Unidentified:
    request = codec.identify()
    assert request is not None
    return codec.read_identity(provider(request), NOW)


def read(codec: Codec, content: Any, status: int = 200) -> Identity | Unidentified:
    return codec.read_identity(FetchReply(status, {}, json.dumps(content).encode()), NOW)


@pytest.mark.parametrize(
    ("codec", "provider", "identity"),
    [
        (TELEGRAM, TelegramApi(), Identity("42", "desk_bot", reads_groups=False)),
        (
            SLACK,
            SlackApi(),
            Identity(
                "UDESK",
                "desk",
                workspace="T1",
                bot_id="BDESK",
                url="https://grand-hotel.slack.com/",
            ),
        ),
        (
            WHATSAPP,
            WhatsAppApi(),
            Identity("111", "+1 555-000-1", title="Grand Hotel", quality="GREEN"),
        ),
    ],
)
def test_the_provider_says_who_we_are(codec: Codec, provider: Any, identity: Identity) -> None:
    assert ask(codec, provider) == identity
    assert decode_identity(encode_identity(identity)) == identity


def test_a_system_that_signs_webhooks_is_not_asked() -> None:
    assert STANDARD.identify() is None
    assert isinstance(STANDARD.read_identity(Unreachable("dns"), NOW), Unidentified)


@pytest.mark.parametrize(
    ("codec", "provider"),
    [
        (TELEGRAM, TelegramApi(bot_token="43:another")),
        (SLACK, SlackApi(bot_token="xoxb-another")),
        (WHATSAPP, WhatsAppApi(access_token="another")),
    ],
)
def test_a_wrong_token_is_a_reason(codec: Codec, provider: Any) -> None:
    found = ask(codec, provider)

    assert isinstance(found, Unidentified)
    assert any(word in found.reason for word in ("401", "invalid_auth"))


@pytest.mark.parametrize("codec", [TELEGRAM, SLACK, WHATSAPP])
@pytest.mark.parametrize(
    "content", [None, 7, [], {}, {"ok": True, "result": "desk_bot"}, {"id": 1}], ids=str
)
def test_nonsense_is_a_reason(codec: Codec, content: Any) -> None:
    assert read(codec, content) == NONSENSE


@pytest.mark.parametrize("codec", [TELEGRAM, SLACK, WHATSAPP])
def test_a_page_in_the_place_of_an_answer_is_a_reason(codec: Codec) -> None:
    assert codec.read_identity(FetchReply(200, {}, b"<html>"), NOW) == NONSENSE


@pytest.mark.parametrize("codec", [TELEGRAM, SLACK, WHATSAPP])
def test_no_answer_is_a_reason(codec: Codec) -> None:
    assert codec.read_identity(Unreachable("timeout"), NOW) == Unidentified("timeout")


@pytest.mark.parametrize("codec", [TELEGRAM, SLACK, WHATSAPP])
def test_429_without_a_time_is_a_reason_without_one(codec: Codec) -> None:
    found = read(codec, {"ok": False, "error": "ratelimited", "error_code": 429}, 429)

    assert isinstance(found, Unidentified)
    assert found.after_seconds is None


def test_the_time_that_a_provider_asks_for_is_kept() -> None:
    told = {"ok": False, "error_code": 429, "parameters": {"retry_after": 9}}

    assert read(TELEGRAM, told, 429) == Unidentified("HTTP 429: code 429", 9)


@pytest.mark.parametrize(
    ("codec", "content"),
    [
        (TELEGRAM, {"ok": False, "error_code": 400, "description": "no"}),
        (SLACK, {"ok": False, "error": "account_inactive"}),
        (WHATSAPP, {"error": {"code": 100}, "display_phone_number": "1"}),
    ],
)
def test_an_error_inside_of_a_success_is_a_reason(codec: Codec, content: Any) -> None:
    found = read(codec, content)

    assert isinstance(found, Unidentified)
    assert found != NONSENSE


def test_another_bot_and_another_number_are_nonsense() -> None:
    user = {"id": 7, "username": "desk_bot"}

    assert read(TELEGRAM, {"ok": True, "result": user}) == NONSENSE
    assert read(TELEGRAM, {"ok": True, "result": {"id": 42, "username": "a b"}}) == NONSENSE
    assert read(WHATSAPP, {"display_phone_number": "1", "id": "112"}) == NONSENSE


def test_what_is_said_beyond_the_name_may_be_missing() -> None:
    assert read(TELEGRAM, {"result": {"id": 42, "username": "desk_bot"}}) == Identity(
        "42", "desk_bot"
    )
    assert read(WHATSAPP, {"display_phone_number": "1"}) == Identity("111", "1")


def test_a_token_of_a_whole_organization_is_for_no_single_workspace() -> None:
    told = {"ok": True, "user_id": "U1", "team_id": "E1", "is_enterprise_install": True}

    assert read(SLACK, told) == Identity("U1", "")


def test_members_of_a_later_version_are_dropped() -> None:
    assert decode_identity('{"id":"1","name":"a","colour":"red"}') == Identity("1", "a")


def test_the_body_of_no_answer_is_nothing() -> None:
    assert body_of(Unreachable("timeout")) is None
