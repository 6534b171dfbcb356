"""The typing indicator: what a person sees while a run works, and how little depends on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from legation import Agent, EchoModel, Platform, tool
from legation.channels.deliveries import ContentKind, IncomingMessage
from legation.effects import (
    Concurrently,
    Fetch,
    FetchReply,
    Interruptible,
    Log,
    Now,
    Nudge,
    Program,
    Sleep,
    Transact,
    Unreachable,
)
from legation.hosted.registry import HostedChannel
from legation.messaging.leases import WorkerLeases
from legation.messaging.typing_indicators import ShowContinuation, _Indicator, show_typing
from legation.store.failures import StatementFailed
from legation.store.run_reads import FetchRun
from legation_testing import (
    Client,
    Delayed,
    Each,
    Says,
    ScriptedModel,
    call,
    close_at_every_effect,
    play,
)

from ...providers.deliveries import (
    Delivery,
    channels,
    platform,
    signed,
    slack,
    standard,
    telegram,
    whatsapp,
)
from ...providers.strict import Provider, SlackApi, StandardReceiver, TelegramApi, WhatsAppApi
from ...providers.strict import now_us as wall_clock_us

ANSWER = "Room 7 is free."


def slow(seconds: float, *, show: bool = True, **configuration: Any) -> Platform:
    """Return a platform whose agent takes its time, and whose channels show that it works."""
    model = EchoModel("slow", delay_seconds=seconds)
    made = [evolve(c, show_typing=show) for c in channels("http://127.0.0.1:9")]
    agents = [Agent(id="concierge", model="slow")]
    return platform(agents=agents, models=[model], channels=made, **configuration)


def client(provider: Any, seconds: float = 12.0, *, show: bool = True) -> Client:
    made = lambda: slow(seconds, show=show)  # noqa: E731
    return Client(made, fetch=provider, start_us=wall_clock_us())


def deliver(c: Client, sent: Delivery) -> None:
    c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()


def in_thread(stamp: str) -> Delivery:
    """Return a mention in a thread of a channel of Slack."""
    event = {
        "type": "app_mention",
        "channel": "C1",
        "user": "U1",
        "ts": stamp,
        "thread_ts": "1.5",
        "text": "Hello",
    }
    root = {"type": "event_callback", "team_id": "T1", "event_id": "Ev1", "event": event}
    return signed("slack", json.dumps(root).encode(), wall_clock_us())


def in_topic(update: int) -> Delivery:
    """Return an answer to the bot in a topic of a forum of Telegram."""
    message = {
        "message_id": update,
        "message_thread_id": 5,
        "is_topic_message": True,
        "from": {"id": 7, "is_bot": False, "first_name": "Ada"},
        "chat": {"id": -100, "type": "supergroup"},
        "date": 1,
        "text": "Hello",
        "reply_to_message": {"message_id": 1, "from": {"id": 42, "is_bot": True}},
    }
    return signed("telegram", json.dumps({"update_id": update, "message": message}).encode(), 0)


# --- what a person sees ------------------------------------------------------------------------


SHOWN: dict[str, tuple[Callable[[], Provider], Callable[[], Delivery], list[str]]] = {
    "Telegram, every 4.5 s": (TelegramApi, lambda: telegram(7, 1, "Hello"), ["7"] * 3),
    "Telegram, in a topic": (TelegramApi, lambda: in_topic(1), ["-100/5"] * 3),
    "WhatsApp, once": (WhatsAppApi, lambda: whatsapp(("4911", "a", "Hello")), ["a"]),
    "Slack, a thread": (SlackApi, lambda: in_thread("2.5"), ["C1/1.5"]),
    "Slack, no thread": (SlackApi, lambda: slack("U1", "5.1", "?", wall_clock_us()), []),
    "standard has none": (
        StandardReceiver,
        lambda: standard("ada", "a", "Hello", wall_clock_us()),
        [],
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_person_sees_that_a_slow_run_works_until_the_answer(name: str) -> None:
    made, sent, shown = SHOWN[name]
    provider = made()
    with client(provider) as c:
        deliver(c, sent())
        c.advance(11)
        assert (provider.typing, provider.seen) == (shown, [])
        c.advance(2)
        assert len(provider.seen) == 1
        c.advance(26)

    assert provider.typing == shown
    assert provider.refused == []


def test_the_indicator_of_a_long_run_is_shown_again_before_it_ends() -> None:
    provider = WhatsAppApi()
    with client(provider, 60) as c:
        deliver(c, whatsapp(("4911", "a", "Hello")))
        c.advance(24)
        assert provider.typing == ["a"]
        c.advance(30)
        assert provider.typing == ["a"] * 3


def test_nothing_is_shown_without_the_option_or_for_a_fast_answer() -> None:
    for seconds, show in ((12.0, False), (0.5, True)):
        provider = TelegramApi()
        with client(provider, seconds, show=show) as c:
            deliver(c, telegram(7, 1, "Hello"))
            c.advance(30)

        assert [message.text for message in provider.seen] == ["Hello"]
        assert provider.typing == []


def test_two_conversations_at_once_have_an_indicator_each() -> None:
    provider = TelegramApi()
    with client(provider, 6) as c:
        deliver(c, telegram(7, 1, "Hello"))
        deliver(c, telegram(8, 2, "Good day"))
        c.advance(30)

    assert sorted(provider.typing) == ["7", "7", "8", "8"]
    assert sorted(message.recipient for message in provider.seen) == ["7", "8"]


def test_a_paused_run_shows_nothing_while_it_waits_for_a_person() -> None:
    @tool(requires_confirmation=True)
    def book() -> str:
        """Book a room."""
        return "booked"

    model = ScriptedModel([Says(calls=[call("book")], after_seconds=3)])
    made = [evolve(c, show_typing=True) for c in channels("http://127.0.0.1:9")]
    agent = Agent(id="concierge", model=model, tools=[book])
    provider = TelegramApi()
    with Client(lambda: platform(agents=[agent], channels=made), fetch=provider) as c:
        deliver(c, telegram(7, 1, "Book a room"))
        c.advance(20)

    assert provider.typing == ["7"]
    assert len(provider.seen) == 1


@pytest.mark.parametrize("says", ["yes", "no"])
def test_a_run_that_goes_on_after_an_answer_is_shown_until_it_ends(says: str) -> None:
    @tool(requires_confirmation=True)
    def book() -> str:
        """Book a room."""
        return "booked"

    slowly = Says("Done.", after_seconds=6)
    model = ScriptedModel([Says(calls=[call("book")]), slowly])
    made = [evolve(c, show_typing=True, approve="sender") for c in channels("http://127.0.0.1:9")]
    agent = Agent(id="concierge", model=model, tools=[book])
    provider = TelegramApi()
    with Client(lambda: platform(agents=[agent], channels=made), fetch=provider) as c:
        deliver(c, telegram(7, 1, "Book a room"))
        c.advance(3)
        assert provider.typing == []
        deliver(c, telegram(7, 2, says))
        c.advance(20)

    assert provider.typing == ["7", "7"]
    assert provider.seen[-1].text == "Done."
    assert provider.refused == []


# --- what it does not do -----------------------------------------------------------------------


def refusing(provider: Provider, answer: object) -> tuple[Callable[[Fetch], Any], list[Fetch]]:
    """Return a network that answers every indicator with `answer`, and what it was asked."""
    asked: list[Fetch] = []

    def fetch(effect: Fetch) -> Any:
        if b'"typing' not in effect.body and b'"status"' not in effect.body:
            return provider(effect)
        asked.append(effect)
        return answer

    return fetch, asked


REFUSALS: dict[str, tuple[object, str]] = {
    "throttled": (
        FetchReply(429, {}, b'{"ok":false,"error_code":429,"parameters":{"retry_after":9}}'),
        "HTTP 429: code 429",
    ),
    "an error of the server": (FetchReply(500, {}, b"<html>"), "HTTP 500"),
    "blocked": (
        FetchReply(403, {}, b'{"ok":false,"error_code":403,"description":"Forbidden"}'),
        "HTTP 403: code 403, Forbidden",
    ),
    "unreachable": (Unreachable("connect"), "connect"),
    "too slow": (Delayed(29.0, FetchReply(200, {}, b"{}")), "timeout"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_an_indicator_that_is_refused_costs_no_answer_and_is_logged_once(name: str) -> None:
    answer, reason = REFUSALS[name]
    provider = TelegramApi()
    fetch, asked = refusing(provider, answer)
    with client(fetch) as c:
        deliver(c, telegram(7, 1, "one"))
        c.advance(13)
        deliver(c, telegram(7, 2, "two"))
        c.advance(13)
        dead = c.get("/channels/telegram/messages?state=dead").json()["data"]
        logs = [log for log in c.logs if log.event in ("typing_failed", "reply_failed")]

    assert [message.text for message in provider.seen] == ["one", "two"]
    assert dead == []
    assert len(asked) == 2
    fields = (("channel", "telegram"), ("reason", reason))
    assert logs == [Log("warning", "typing_failed", fields)]


def test_a_missing_scope_of_slack_is_no_dead_letter() -> None:
    provider = SlackApi()
    fetch, asked = refusing(provider, FetchReply(200, {}, b'{"ok":false,"error":"missing_scope"}'))
    with client(fetch) as c:
        deliver(c, in_thread("2.5"))
        c.advance(13)
        logs = [dict(log.fields) for log in c.logs if log.event == "typing_failed"]

    assert len(asked) == 1
    assert logs == [{"channel": "slack", "reason": "missing_scope"}]
    assert [message.text for message in provider.seen] == ["Hello"]


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"\xff", b"null", b'{"ok":1}'])
def test_nonsense_in_answer_to_an_indicator_costs_nothing(body: bytes) -> None:
    provider = TelegramApi()
    fetch, asked = refusing(provider, FetchReply(200, {}, body))
    with client(fetch) as c:
        deliver(c, telegram(7, 1, "one"))
        c.advance(13)

    assert len(asked) == 3
    assert [message.text for message in provider.seen] == ["one"]


def test_a_request_under_way_does_not_delay_the_answer() -> None:
    provider = TelegramApi()
    slow_reply = Delayed(4.0, FetchReply(200, {}, b'{"ok":true}'))
    fetch, asked = refusing(provider, slow_reply)
    with client(fetch, 2) as c:
        deliver(c, telegram(7, 1, "one"))
        c.advance(2.5)

        assert len(asked) == 1
        assert [message.text for message in provider.seen] == ["one"]


# --- the program -------------------------------------------------------------------------------


MESSAGE = IncomingMessage("1", "7", ContentKind.TEXT, "Hello", conversation="7")
END = (Nudge("answered:telegram:1"), None)


def work() -> Program[str]:
    yield from Sleep(9.0)
    return ANSWER


def failing() -> Program[str]:
    yield from Sleep(9.0)
    raise ValueError("the lease is lost")


def at_work(*, show: bool = True, draining: bool = False) -> tuple[WorkerLeases, HostedChannel]:
    made = slow(1, show=show)
    made.context.draining = draining
    return WorkerLeases(made.context, "main"), made.registry.channels["telegram"]


def test_work_that_shows_nothing_is_done_as_it_is() -> None:
    play(show_typing(*at_work(show=False), MESSAGE, work()), [(Sleep(9.0), None)])


def test_the_end_of_the_work_ends_the_indicator() -> None:
    result = play(
        show_typing(*at_work(), MESSAGE, work()),
        [(Concurrently, Each([(Sleep(9.0), None), END], []))],
    )

    assert result == ANSWER


def test_a_failure_of_the_work_is_raised_as_it_is() -> None:
    with pytest.raises(ValueError, match="the lease is lost"):
        play(
            show_typing(*at_work(), MESSAGE, failing()),
            [(Concurrently, Each([(Sleep(9.0), None)], []))],
        )


def test_nothing_is_shown_once_the_process_drains() -> None:
    indicator = _Indicator(*at_work(draining=True), MESSAGE)

    play(indicator.show(), [(Interruptible, Each([(Sleep(1.0), None)]))])


def test_a_bug_of_a_codec_ends_the_indicator_alone() -> None:
    indicator = _Indicator(*at_work(), evolve(MESSAGE, thread="no number"))

    play(indicator.show(), [(Interruptible, Each([(Sleep(1.0), None), (Log, None)]))])


def test_a_run_that_was_deleted_is_not_waited_for() -> None:
    worker, _ = at_work(show=False)
    shown = ShowContinuation(worker, "telegram", MESSAGE, "run-1.7")

    play(shown.program(), [(Transact("main", FetchRun("run-1", None, any_owner=True)), None)])


def test_a_database_that_fails_ends_the_indicator_of_a_run_that_goes_on() -> None:
    worker, _ = at_work(show=False)
    shown = ShowContinuation(worker, "telegram", MESSAGE, "run-1.7")

    play(shown.program(), [(Transact, StatementFailed("x"))])


def test_an_indicator_may_be_closed_at_every_effect() -> None:
    close_at_every_effect(
        lambda: show_typing(*at_work(), MESSAGE, work()),
        [(Concurrently, Each([(Sleep(9.0), None), END], []))],
    )
    close_at_every_effect(
        lambda: _Indicator(*at_work(), MESSAGE).show(),
        [
            (
                Interruptible,
                Each(
                    [
                        (Sleep(1.0), None),
                        (Fetch, FetchReply(200, {}, b'{"ok":true,"result":true}')),
                        (Now(), 1),
                        (Sleep(4.5), None),
                        (Fetch, Unreachable("connect")),
                        (Now(), 1),
                        (Log, None),
                    ]
                ),
            )
        ],
    )
