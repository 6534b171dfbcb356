"""Channels, broken off and failed at every effect: what people got in the end is the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest
from attrs import evolve

from legation import Agent, OpenAIModel, Platform
from legation.effects import Fetch, FetchReply, Unreachable
from legation.store.failures import Busy, CommitLost, StoreFailure, Unavailable
from legation_testing import Client, Says, ScriptedModel, crash_everywhere, fail_everywhere

from ..providers.deliveries import (
    ENVIRON,
    Text,
    channels,
    platform,
    signed,
    telegram,
    whatsapp,
)
from ..providers.strict import TelegramApi, WhatsAppApi
from ..providers.transcriptions import Transcriptions
from .cluster_kit import NIGHTLY

pytestmark = pytest.mark.enumeration

EVERY: Final = 1 if NIGHTLY else 5
"""How many crash points the longest scenarios go on by: at night, one."""


class Scene:
    """Two deliveries of two senders, one of them a batch, delivered again by the provider."""

    def __init__(self, *, honours_keys: bool) -> None:
        self.provider = WhatsAppApi(honours_keys)

    def make(self) -> Client:
        self.provider = WhatsAppApi(self.provider.honours_keys)
        return Client(platform, fetch=self.fetch)

    @property
    def fetch(self) -> Any:
        """The network: the provider of the scenario that runs."""
        return self.provider

    batches: Final = (
        (("4911", "a", "one"), ("4911", "b", "two")),
        (("4922", "c", "three"), ("4911", "d", "/new")),
    )

    def deliver(self, c: Client, batch: tuple[Text, ...]) -> None:
        """Deliver as a provider does: what was not taken, again before there is more."""
        sent = whatsapp(*batch)
        while c.post(sent.target, headers=sent.headers, body=sent.body).status != 200:
            c.advance(1)

    def act(self, c: Client) -> None:
        for batch in self.batches:
            self.deliver(c, batch)
        c.advance(1)

    def check(self, c: Client) -> None:
        """Deliver again, as a provider does that got no 200, and look at what people got."""
        self.act(c)
        c.advance(60)
        first = dict.fromkeys((m.recipient, m.text) for m in self.provider.seen)
        fresh = "A new conversation begins. What can I do for you?"
        assert [words for who, words in first if who == "4911"] == ["one", "two", fresh]
        assert [words for who, words in first if who == "4922"] == ["three"]
        assert self.provider.refused == []
        times = Counter(self.provider.seen)
        if self.provider.honours_keys:
            assert set(times.values()) == {1}
        else:
            assert sum(times.values()) <= len(times) + 1, "more than the one send was repeated"


@pytest.mark.parametrize("honours_keys", [True, False], ids=["idempotent", "not idempotent"])
def test_a_crash_anywhere_loses_nothing_and_answers_nothing_twice(
    honours_keys: bool, figures: Callable[[str], None]
) -> None:
    scene = Scene(honours_keys=honours_keys)
    tried = crash_everywhere(scene.make, scene.act, scene.check, every=EVERY)

    kind = "idempotent" if honours_keys else "other"
    figures(
        f"channels: {tried.points} crash points ({kind} provider), nothing lost or answered twice"
    )
    assert tried.points > 80 // EVERY


class Spoken(Scene):
    """A voice message, which costs money to be understood, and words behind it."""

    def __init__(self) -> None:
        super().__init__(honours_keys=True)
        self.endpoint = Transcriptions()
        self.paid: list[int] = []

    def make(self) -> Client:
        self.provider, self.endpoint = WhatsAppApi(), Transcriptions()
        self.provider.files["55"] = ("audio/ogg", b"OggS\0")
        return Client(_hearing, fetch=self.fetch)

    @property
    def fetch(self) -> Any:
        provider, endpoint = self.provider, self.endpoint

        def take(fetch: Fetch) -> FetchReply:
            return endpoint(fetch) if "/audio/" in fetch.url else provider(fetch)

        return take

    def act(self, c: Client) -> None:
        audio = {"id": "55", "mime_type": "audio/ogg"}
        message = {"from": "4911", "id": "v", "timestamp": "1", "type": "audio", "audio": audio}
        value = {"metadata": {"phone_number_id": "111"}, "messages": [message]}
        entry = {"id": "1", "changes": [{"field": "messages", "value": value}]}
        root = {"object": "whatsapp_business_account", "entry": [entry]}
        sent = signed("whatsapp", json.dumps(root).encode(), 0)
        while c.post(sent.target, headers=sent.headers, body=sent.body).status != 200:
            c.advance(1)
        self.deliver(c, (("4911", "w", "bye"),))
        c.advance(1)

    def check(self, c: Client) -> None:
        self.act(c)
        c.advance(60)
        assert [message.text.split("\n")[0] for message in self.provider.seen] == ['"hello"', "bye"]
        assert (self.provider.refused, self.endpoint.faults) == ([], [])
        self.paid.append(len(self.endpoint.heard))


def _hearing() -> Platform:
    ears = OpenAIModel("ears", "whisper-1", base_url="http://127.0.0.1:9/v1", api_key_env="KEY")
    made = platform(
        models=[ears],
        channels=[evolve(one, transcribe="ears") for one in channels("http://127.0.0.1:9")],
        environ={**ENVIRON, "KEY": "transcription-key"},
    )
    assert isinstance(made, Platform)
    return made


def test_a_crash_anywhere_answers_a_voice_message_once_and_rarely_pays_twice(
    figures: Callable[[str], None],
) -> None:
    scene = Spoken()
    tried = crash_everywhere(scene.make, scene.act, scene.check, every=3 * EVERY)

    twice = sum(paid > 1 for paid in scene.paid)
    figures(f"channels: {tried.points} crash points with a voice message, {twice} paid twice")
    assert max(scene.paid) <= 2
    # Between the answer of the endpoint and the note of what it heard; nowhere else.
    assert twice <= 5


class Gathered(Scene):
    """A burst that a command ends, and a message of somebody else in between."""

    def __init__(self) -> None:
        super().__init__(honours_keys=True)

    def make(self) -> Client:
        self.provider = WhatsAppApi()
        return Client(_gathering, fetch=self.fetch)

    def act(self, c: Client) -> None:
        self.deliver(c, (("4911", "a", "one"), ("4922", "d", "eins"), ("4911", "b", "two")))
        c.advance(1)
        self.deliver(c, (("4911", "c", "three"), ("4911", "f", "/new four")))
        c.advance(3)

    def check(self, c: Client) -> None:
        self.act(c)
        c.advance(60)
        # Only an outage for longer than they are gathered parts them: a restart takes no time.
        assert [m.text for m in self.provider.seen if m.recipient == "4911"] == [
            "one\ntwo\nthree",
            "four",
        ]
        assert [m.text for m in self.provider.seen if m.recipient == "4922"] == ["eins"]
        assert self.provider.refused == []


def _gathering() -> Platform:
    gathers = [evolve(one, gather_seconds=2.5) for one in channels("http://127.0.0.1:9")]
    made = platform(channels=gathers)
    assert isinstance(made, Platform)
    return made


def test_a_crash_anywhere_parts_no_burst_and_answers_none_twice(
    figures: Callable[[str], None],
) -> None:
    scene = Gathered()
    tried = crash_everywhere(scene.make, scene.act, scene.check, every=3 * EVERY)

    figures(f"channels: {tried.points} crash points with bursts, nothing lost or answered twice")
    assert tried.points > 20 // EVERY


WORDS: Final = ("Room ", "seven ", "is ", "free, ", "and ", "it ", "has ", "a balcony.")
ANSWER: Final = "".join(WORDS)


class Streamed(Scene):
    """A question on Telegram, whose answer grows in the chat, and a question behind it."""

    def __init__(self) -> None:
        super().__init__(honours_keys=False)
        self.telegram = TelegramApi(honours_keys=False)
        self.unfinished: list[int] = []

    def make(self) -> Client:
        self.telegram = TelegramApi(honours_keys=False)
        return Client(_streaming, fetch=self.fetch)

    @property
    def fetch(self) -> Any:
        return self.telegram

    def act(self, c: Client) -> None:
        for update in (1, 2):
            sent = telegram(7, update, f"question {update}")
            while c.post(sent.target, headers=sent.headers, body=sent.body).status != 200:
                c.advance(1)
        c.advance(20)

    def check(self, c: Client) -> None:
        """Look for the two answers, and for messages that stopped growing, which are one at most.

        After a crash a person may read an answer that was sent as a message twice, but no other.
        """
        self.act(c)
        c.advance(60)
        shown = [*self.telegram.shown.values()]
        rest = [text for text in shown if text != ANSWER]
        assert len(shown) - len(rest) == 2
        assert all(ANSWER.startswith(text) for text in rest)
        assert len(rest) <= 1
        assert self.telegram.refused == []
        self.unfinished.append(len(rest))


def _streaming() -> Platform:
    streams = [
        evolve(one, stream_answers=True)
        for one in channels("http://127.0.0.1:9")
        if one.kind == "telegram"
    ]
    model = ScriptedModel([Says(WORDS, between_seconds=1.0)] * 2)
    made = platform(agents=[Agent(id="concierge", model=model)], channels=streams)
    assert isinstance(made, Platform)
    return made


def test_a_crash_anywhere_leaves_one_answer_that_grew_and_rarely_an_unfinished_message(
    figures: Callable[[str], None],
) -> None:
    scene = Streamed()
    tried = crash_everywhere(scene.make, scene.act, scene.check, every=5 * EVERY)

    left = sum(scene.unfinished)
    figures(f"channels: {tried.points} crash points with growing answers, {left} left unfinished")
    # Between the answer of the provider and the note of the message; nowhere else.
    assert left <= 2
    assert tried.points > 10


@pytest.mark.parametrize(
    "answer",
    [Unreachable("timeout"), FetchReply(500, {}, b""), FetchReply(200, {}, b"cut")],
    ids=["unreachable", "500", "unreadable 200"],
)
def test_a_provider_that_fails_anywhere_shows_each_answer_that_grew_once(answer: Any) -> None:
    scene = Streamed()
    tried = fail_everywhere(
        scene.make, scene.act, scene.check, which=Fetch, outcome=answer, after=True
    )

    assert tried.points >= 10
    assert sum(scene.unfinished) <= 2


class Drained(Scene):
    """The same, with the process drained and started again in the middle of its work."""

    def act(self, c: Client) -> None:
        for number, batch in enumerate(self.batches):
            self.deliver(c, batch)
            if number == 0:
                assert isinstance(c.platform, Platform)
                c.simulation.run(c.platform.shutdown(0.0), node=c.node)
                c.restart()
        c.advance(1)


def test_a_crash_anywhere_in_a_drain_loses_nothing(figures: Callable[[str], None]) -> None:
    scene = Drained(honours_keys=True)
    tried = crash_everywhere(scene.make, scene.act, scene.check, every=EVERY)

    figures(f"channels: {tried.points} crash points with a drain, nothing lost or answered twice")
    assert tried.points > 40 // EVERY


@pytest.mark.parametrize(
    ("failure", "after"),
    [
        (Busy("x"), False),
        (Unavailable("x"), False),
        (CommitLost("x"), False),
        (CommitLost("x"), True),
    ],
    ids=["busy", "unavailable", "commit lost, undone", "commit lost, done"],
)
def test_a_database_that_fails_anywhere_loses_nothing_and_answers_nothing_twice(
    failure: StoreFailure, after: bool, figures: Callable[[str], None]
) -> None:
    scene = Scene(honours_keys=True)
    tried = fail_everywhere(
        scene.make,
        scene.act,
        scene.check,
        which=_correspondence,
        outcome=failure,
        after=after,
    )

    figures(f"channels: {tried.points} units failed with {type(failure).__name__}, done={after}")
    assert tried.points > 30


def _correspondence(effect: Any) -> bool:
    """Tell whether `effect` is a unit of work on messages, replies, sessions or runs."""
    unit: Any = getattr(effect, "unit", None)
    module = type(unit).__module__.rpartition(".")[2]
    return module.startswith("run") or module in {"conversations", "inbox", "leased_queue"}


@pytest.mark.parametrize(
    "answer",
    [
        Unreachable("timeout"),
        FetchReply(500, {}, b""),
        FetchReply(429, {"retry-after": "7"}, b""),
        FetchReply(200, {}, b"cut"),
    ],
    ids=["unreachable", "500", "429", "unreadable 200"],
)
def test_a_provider_that_fails_anywhere_gets_every_reply_once(answer: Any) -> None:
    scene = Scene(honours_keys=True)
    tried = fail_everywhere(
        scene.make, scene.act, scene.check, which=Fetch, outcome=answer, after=True
    )

    assert tried.points >= 4
