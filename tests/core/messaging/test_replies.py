"""Sending one reply: the script of what is asked of the world, for each thing a provider says."""

from __future__ import annotations

import html
from typing import Any

import pytest
from attrs import evolve

from legation import Agent
from legation.channels.replies import Reply, encode_reply
from legation.effects import (
    Fetch,
    FetchReply,
    Log,
    Now,
    Nudge,
    RandomBytes,
    Sleep,
    Transact,
    Unreachable,
)
from legation.messaging.leases import WorkerLeases
from legation.messaging.replies import SendReply
from legation.store.failures import StatementFailed, Unavailable
from legation.store.leased_queue import FailItem, ItemKey, Lease
from legation.store.outbox import OUTBOX, ClaimedReply
from legation.store.reply_outcomes import BuryReply, CompleteReply, Noted
from legation_testing import Client, ScriptedModel, close_at_every_effect, play

from ...providers.deliveries import platform, slack, standard, telegram, whatsapp
from ...providers.strict import Provider, SlackApi, StandardReceiver, TelegramApi, WhatsAppApi
from ...providers.strict import now_us as wall_clock_us

NOW = 1_767_225_600_000_000
TEXT = "canary-of-the-text"
LEASE = Lease(OUTBOX, ItemKey("whatsapp", "reply-m"), "n", 3)
PAYLOAD = encode_reply(Reply("reply-m", "4911", TEXT, created_us=NOW))
CLAIMED = ClaimedReply(LEASE, "4911", PAYLOAD, NOW)


def worker() -> WorkerLeases:
    made = WorkerLeases(platform().context, "main")
    made.enter(LEASE)
    return made


def log(level: str, reason: str, *, dead: bool) -> Log:
    fields = (("channel", "whatsapp"), ("attempt", 3), ("reason", reason), ("dead", dead))
    return Log(level, "reply_failed", fields)


def test_a_reply_that_was_taken_is_marked() -> None:
    at = worker()
    play(
        SendReply(at, CLAIMED).program(),
        [
            (Now(), NOW),
            (Fetch, FetchReply(200, {}, b'{"messages":[{"id":"wamid.1"}]}')),
            (Now(), NOW + 1),
            (Transact("main", CompleteReply(CLAIMED, "wamid.1")), Noted()),
            (Nudge("outbox:main"), None),
        ],
    )

    assert at.list_leases(OUTBOX) == ()


@pytest.mark.parametrize(
    ("answer", "reason", "wait_us"),
    [
        (Unreachable("connect"), "connect", 1_000_000),
        (FetchReply(500, {}, b""), "HTTP 500", 1_000_000),
        (FetchReply(429, {"retry-after": "60"}, b""), "HTTP 429", 60_000_000),
    ],
)
def test_what_passes_is_tried_again_as_late_as_the_provider_asks(
    answer: FetchReply | Unreachable, reason: str, wait_us: int
) -> None:
    play(
        SendReply(worker(), CLAIMED).program(),
        [
            (Now(), NOW),
            (Fetch, answer),
            (Now(), NOW),
            (Now(), NOW),
            (RandomBytes(2), b"\0\0"),
            (log("warning", reason, dead=False), None),
            (Transact("main", FailItem(LEASE, reason, wait_us)), True),
            (Nudge("outbox:main"), None),
        ],
    )


def test_what_does_not_pass_is_a_dead_letter_at_once() -> None:
    reason = "HTTP 400: code 100"
    play(
        SendReply(worker(), CLAIMED).program(),
        [
            (Now(), NOW),
            (Fetch, FetchReply(400, {}, b'{"error":{"code":100,"message":"4911"}}')),
            (Now(), NOW),
            (log("error", reason, dead=True), None),
            (Transact("main", BuryReply(CLAIMED, reason)), Noted(dead=True)),
            (Nudge("outbox:main"), None),
        ],
    )


def test_after_a_day_it_is_given_up() -> None:
    later = NOW + 25 * 3600 * 1_000_000
    play(
        SendReply(worker(), CLAIMED).program(),
        [
            (Now(), later),
            (Fetch, Unreachable("timeout")),
            (Now(), later),
            (Now(), later),
            (RandomBytes(2), b"\0\0"),
            (log("error", "timeout", dead=True), None),
            (Transact("main", BuryReply(CLAIMED, "timeout")), Noted(dead=True)),
            (Nudge("outbox:main"), None),
        ],
    )


def test_a_bug_of_ours_counts_as_a_failure_and_shows_no_text() -> None:
    said: list[Any] = []

    def tell(effect: Any) -> bool:
        said.append(effect)
        return isinstance(effect, Log)

    play(
        SendReply(worker(), CLAIMED).program(),
        [
            (Now(), NOW),
            (Fetch, RuntimeError(TEXT)),
            (Now(), NOW),
            (RandomBytes(2), b"\0\0"),
            (tell, None),
            (Transact, True),
            (Nudge("outbox:main"), None),
        ],
    )

    assert "'reason', 'RuntimeError in " in repr(said)
    assert TEXT not in repr(said)


def test_what_cannot_be_noted_is_left_to_the_lease() -> None:
    play(
        SendReply(worker(), CLAIMED).program(),
        [
            (Now(), NOW),
            (Fetch, FetchReply(200, {}, b"{}")),
            (Now(), NOW),
            (Transact("main", CompleteReply(CLAIMED)), StatementFailed("x")),
            (Log("warning", "reply_record_failed", (("channel", "whatsapp"),)), None),
            (Nudge("outbox:main"), None),
        ],
    )


def test_what_is_sent_is_noted_when_the_database_is_there_again() -> None:
    play(
        SendReply(worker(), CLAIMED).program(),
        [
            (Now(), NOW),
            (Fetch, FetchReply(200, {}, b"{}")),
            (Now(), NOW),
            (Transact("main", CompleteReply(CLAIMED)), Unavailable("x")),
            (Now(), NOW),
            (RandomBytes(2), b"\0\0"),
            (Sleep, None),
            (Transact("main", CompleteReply(CLAIMED)), Noted()),
            (Nudge("outbox:main"), None),
        ],
    )


def test_a_send_that_is_closed_says_nothing_more_and_is_let_go() -> None:
    at = worker()
    close_at_every_effect(
        lambda: SendReply(at, CLAIMED).program(),
        [
            (Now(), NOW),
            (Fetch, Unreachable("connect")),
            (Now(), NOW),
            (Now(), NOW),
            (RandomBytes(2), b"\0\0"),
            (Log, None),
            (Transact, True),
            (Nudge, None),
        ],
    )

    assert at.list_leases(OUTBOX) == ()


@pytest.mark.parametrize(
    ("provider", "sizes"), [(WhatsAppApi(), [4096, 1904]), (TelegramApi(), [4096, 1904])]
)
def test_a_long_answer_is_sent_in_parts_that_the_provider_takes(
    provider: Provider, sizes: list[int]
) -> None:
    with Client(platform, fetch=provider) as c:
        words = "x" * 6000
        sent = (
            whatsapp(("4911", "a", words)) if provider.kind == "whatsapp" else telegram(7, 1, words)
        )
        c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
        c.settle()

    assert [len(message.text) for message in provider.seen] == sizes
    assert provider.refused == []
    assert len({message.key for message in provider.seen}) == 2


CODE = "\n".join(f"    rooms[{number}] < 7 and rooms[{number}] & 1" for number in range(300))
MARKDOWN = f"## Rooms \U0001f44d\n\n**Two** are [free](https://a.example):\n\n```python\n{CODE}\n```\nDone."


@pytest.mark.parametrize(
    "provider",
    [WhatsAppApi(), TelegramApi(), SlackApi(), StandardReceiver()],
    ids=lambda provider: provider.kind,
)
def test_a_long_answer_in_markdown_is_taken_by_every_provider(provider: Provider) -> None:
    now_us = wall_clock_us()
    made = Agent(id="concierge", model=ScriptedModel([MARKDOWN]))
    with Client(lambda: platform(agents=[made]), fetch=provider, start_us=now_us) as c:
        sent = {
            "whatsapp": lambda: whatsapp(("4911", "a", "?")),
            "telegram": lambda: telegram(7, 1, "?"),
            "slack": lambda: slack("U1", "5.1", "?", now_us),
            "standard": lambda: standard("ada", "a", "?", now_us),
        }[provider.kind]()
        c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
        c.advance(2)

    assert provider.refused == []
    texts = [html.unescape(message.text) for message in provider.seen]
    lines = [line for text in texts for line in text.split("\n") if line.startswith("    ")]
    assert "\n".join(lines) == CODE
    assert len(texts) == (1 if provider.kind == "standard" else 3)


def test_replies_to_one_person_wait_for_each_other_and_to_others_do_not() -> None:
    throttled = WhatsAppApi()
    seen = throttled.seen

    def provider(fetch: Fetch) -> FetchReply:
        if b'"4911"' in fetch.body and not any(m.recipient == "4922" for m in seen):
            return FetchReply(429, {"retry-after": "5"}, b"{}")
        return throttled(fetch)

    with Client(platform, fetch=provider) as c:
        sent = whatsapp(("4911", "a", "one"), ("4911", "b", "two"), ("4922", "c", "three"))
        c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
        c.advance(20)

    assert [message.text for message in seen] == ["three", "one", "two"]


@pytest.mark.parametrize("purpose", ["acknowledge", "close"])
def test_what_a_press_is_owed_is_done_with_where_the_provider_refuses_it(purpose: Any) -> None:
    at = worker()
    payload = encode_reply(Reply("reply-m", "4911", "Approved.", purpose=purpose))
    play(
        SendReply(at, evolve(CLAIMED, payload=payload)).program(),
        [
            (Now(), NOW),
            (Fetch, FetchReply(400, {}, b'{"error":{"code":100}}')),
            (Now(), NOW + 1),
            (Transact("main", CompleteReply(evolve(CLAIMED, payload=payload))), Noted()),
            (Nudge("outbox:main"), None),
        ],
    )


def test_an_answer_whose_place_is_gone_is_sent_as_a_message_of_its_own() -> None:
    edit = encode_reply(Reply("reply-m", "7", TEXT, created_us=NOW, edits="5"))
    lease = evolve(LEASE, key=ItemKey("telegram", "reply-m"))
    claimed = evolve(CLAIMED, lease=lease, payload=edit, recipient="7")
    gone = b'{"ok":false,"error_code":400,"description":"Bad Request: message to edit not found"}'
    play(
        SendReply(worker(), claimed).program(),
        [
            (Now(), NOW),
            (Fetch, FetchReply(400, {}, gone)),
            (Now(), NOW),
            (Now(), NOW),
            (Fetch, FetchReply(200, {}, b'{"ok":true,"result":{"message_id":6}}')),
            (Now(), NOW),
            (Transact("main", CompleteReply(claimed, "6")), Noted()),
            (Nudge("outbox:main"), None),
        ],
    )
