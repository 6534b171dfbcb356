"""Bad input from providers and from people: an answer or a reason, no error, nothing twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from attrs import evolve

from legation import Agent, Platform, tool
from legation.effects import Fetch, FetchReply
from legation_testing import Client, Says, ScriptedModel, call

from ...providers.deliveries import (
    ENVIRON,
    Delivery,
    channels,
    platform,
    signed,
    slack,
    standard,
    telegram,
    whatsapp,
)
from ...providers.presses import press
from ...providers.strict import (
    Provider,
    SlackApi,
    StandardReceiver,
    TelegramApi,
    WhatsAppApi,
    now_us,
)

PROVIDERS: Mapping[str, type[Provider]] = {
    "telegram": TelegramApi,
    "slack": SlackApi,
    "whatsapp": WhatsAppApi,
    "standard": StandardReceiver,
}


def post(c: Client, sent: Delivery) -> int:
    return c.post(sent.target, headers=sent.headers, body=sent.body).status


def ask(kind: str, words: str, number: int = 7) -> Delivery:
    at = now_us()
    match kind:
        case "telegram":
            return telegram(4911, number, words)
        case "slack":
            return slack("U4911", f"5.{number}", words, at)
        case "whatsapp":
            return whatsapp(("4911", f"a{number}", words))
        case _:
            return standard("4911", f"a{number}", words, at)


# --- presses -----------------------------------------------------------------------------------


def desk(booked: list[str]) -> Platform:
    @tool(requires_confirmation=True)
    def book(room: str) -> str:
        """Book a room."""
        booked.append(room)
        return "number 7"

    # Whatever is no press is a message for the agent.
    script: list[Any] = [call("book", room="double"), *[Says("What do you mean?")] * 9]
    agent = Agent(id="concierge", model=ScriptedModel(script), tools=[book])
    made = [evolve(one, approve="sender") for one in channels("http://127.0.0.1:9")]
    result = platform(agents=[agent], channels=made)
    assert isinstance(result, Platform)
    return result


FORGED = {
    "10 KB of a run": "approve:" + "a" * 10_000 + ".1",
    "10 KB of a number": "approve:r." + "9" * 10_000,
    "10 KB of markup": "<b>*_`[" * 1500,
    "another run": "approve:0198c5f2-7d3a-7b11-9a53-1c5d2f6a8e90.12",
    "nothing": "approve:",
    "control characters": "approve:\x00\x1b[2J.1",
    "half of a character": "approve:\ud83d.1",
}


@pytest.mark.parametrize("data", FORGED)
@pytest.mark.parametrize("kind", PROVIDERS)
def test_a_forged_press_books_nothing_and_is_no_error(kind: str, data: str) -> None:
    booked: list[str] = []
    provider = PROVIDERS[kind]()
    made = desk(booked)
    with Client(lambda: made, fetch=provider, start_us=now_us()) as c:
        assert post(c, ask(kind, "a room")) == 200
        c.advance(2)
        for number in (1, 1, 2):
            assert post(c, press(kind, FORGED[data], number, c.clock.now_us)) in (200, 400)
            c.advance(2)
        waiting = c.get("/approvals", query={"status": "pending"}).json()["data"]
        failed = [log for log in c.logs if log.level == "error" or log.event == "message_failed"]

    assert (booked, failed, provider.refused) == ([], [], [])
    assert len(waiting) == 1


# --- answers of providers ----------------------------------------------------------------------


THROTTLED = {
    "telegram": FetchReply(429, {}, b'{"ok":false,"error_code":429,"description":"Too Many"}'),
    "slack": FetchReply(429, {}, b'{"ok":false,"error":"ratelimited"}'),
    "whatsapp": FetchReply(429, {}, b'{"error":{"code":130429}}'),
    "standard": FetchReply(429, {}, b""),
}
INSIDE = {
    "telegram": FetchReply(200, {}, b'{"ok":false,"error_code":502,"description":"Bad Gateway"}'),
    "slack": FetchReply(200, {}, b'{"ok":false,"error":"internal_error"}'),
    "whatsapp": FetchReply(200, {}, b'{"error":{"code":131000}}'),
    "standard": FetchReply(500, {}, b'{"ok":true}'),
}


@pytest.mark.parametrize("trouble", ["429 without a time", "an error inside", "a page", "noise"])
@pytest.mark.parametrize("kind", PROVIDERS)
def test_trouble_of_a_provider_delays_an_answer_that_comes_once(kind: str, trouble: str) -> None:
    given = {
        "429 without a time": THROTTLED[kind],
        "an error inside": INSIDE[kind],
        "a page": FetchReply(503, {}, b"<html>" + b"x" * 100_000),
        "noise": FetchReply(500, {"retry-after": "soon"}, bytes(range(256)) * 40),
    }[trouble]
    provider, left = PROVIDERS[kind](), [given, given]

    def network(fetch: Fetch) -> FetchReply:
        asks = fetch.url.endswith(("/getMe", "/auth.test"))
        return left.pop() if left and not asks else provider(fetch)

    only = [one for one in channels("http://127.0.0.1:9") if one.kind == kind]
    with Client(lambda: platform(channels=only), fetch=network, start_us=now_us()) as c:
        assert post(c, ask(kind, "hello")) == 200
        c.advance(60)
        reasons = [log for log in c.logs if log.event == "reply_failed"]

    assert left == []
    assert [message.text for message in provider.seen] == ["hello"]
    assert [log.level for log in reasons] == ["warning", "warning"]


# --- groups ------------------------------------------------------------------------------------


def in_group(update: int, bot: str, words: str) -> bytes:
    message = {
        "message_id": update,
        "from": {"id": 7, "is_bot": False},
        "chat": {"id": -100, "type": "supergroup"},
        "date": 1,
        "text": f"@{bot} {words}",
        "entities": [{"type": "mention", "offset": 0, "length": len(bot) + 1}],
    }
    return json.dumps({"update_id": update, "message": message}).encode()


def test_of_two_bots_in_one_group_each_answers_what_is_meant_for_it_whoever_routes() -> None:
    names = {"42:bot-token": "desk_bot", "43:other-token": "spa_bot"}
    apis = {token: TelegramApi(bot_token=token, username=name) for token, name in names.items()}
    (one,) = (made for made in channels("http://127.0.0.1:9") if made.kind == "telegram")
    other = evolve(one, id="spa", bot_token_env="SPA", secret_token_env="SPA_SECRET")
    environ = {**ENVIRON, "SPA": "43:other-token", "SPA_SECRET": "spa-secret"}

    def network(fetch: Fetch) -> FetchReply:
        token = fetch.url.partition("/bot")[2].partition("/")[0]
        return apis[token](fetch)

    made = platform(channels=[one, other], environ=environ)
    with Client(lambda: made, fetch=network, start_us=now_us()) as c:
        c.advance(1)
        for update, bot in enumerate(("desk_bot", "spa_bot", "gif_bot"), start=1):
            body = in_group(update, bot, f"hello {bot}")
            at_desk = signed("telegram", body, 0)
            secret = (("x-telegram-bot-api-secret-token", "spa-secret"),)
            at_spa = Delivery("/spa/webhook", (*secret, at_desk.headers[-1]), body)
            assert [post(c, sent) for sent in (at_desk, at_spa, at_desk, at_spa)] == [200] * 4
            c.advance(1)

    said = {api.username: [message.text for message in api.seen] for api in apis.values()}
    assert said == {"desk_bot": ["hello desk_bot"], "spa_bot": ["hello spa_bot"]}


ALBUMS: list[Any] = [["9"], {"a": 9}, True, None, -1, 10**40, "x" * 10_000, "\u0000", "\ud83d", ""]


@pytest.mark.parametrize("album", ALBUMS, ids=range(len(ALBUMS)))
def test_an_album_in_a_group_may_be_called_anything(album: Any) -> None:
    message = {
        "message_id": 3,
        "from": {"id": 7, "is_bot": False},
        "chat": {"id": -100, "type": "supergroup"},
        "date": 1,
        "media_group_id": album,
        "photo": [{"file_id": "p1"}],
        "caption": "x" * 1024,
    }
    body = json.dumps({"update_id": 5, "message": message}).encode()
    provider = TelegramApi()
    with Client(platform, fetch=provider) as c:
        c.advance(1)
        assert post(c, signed("telegram", body, 0)) == 200
        c.advance(10)
        failed = [log for log in c.logs if log.level == "error" or log.event == "message_failed"]

    assert (provider.seen, provider.fetched, failed) == ([], [], [])


# --- answers that grow -------------------------------------------------------------------------


def test_a_hostile_answer_that_grows_is_shown_as_far_as_there_is_room() -> None:
    pieces = ["[" * 3000, "```\n", "*" * 3000, "\u0000\u202e", "💃" * 5000, "\n\n", " " * 9000] * 4
    for kind in ("telegram", "slack"):
        provider = PROVIDERS[kind]()
        made = [
            evolve(one, stream_answers=True)
            for one in channels("http://127.0.0.1:9")
            if one.kind == kind
        ]
        agent = Agent(id="concierge", model=ScriptedModel([Says(pieces, between_seconds=0.7)]))
        configured = platform(agents=[agent], channels=made)
        with Client(lambda: configured, fetch=provider, start_us=now_us()) as c:  # noqa: B023
            assert post(c, ask(kind, "hello")) == 200
            c.advance(90)

        assert provider.refused == []
        assert len(provider.shown) == len(provider.seen) > 3
