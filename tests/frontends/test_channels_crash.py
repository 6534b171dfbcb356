"""Channels, broken off and failed at every effect: what people got in the end is the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest

from legation import Platform
from legation.effects import Fetch, FetchReply, Unreachable
from legation.store.failures import Busy, CommitLost, StoreFailure, Unavailable
from legation_testing import Client, crash_everywhere, fail_everywhere

from ..providers.deliveries import Text, platform, whatsapp
from ..providers.strict import WhatsAppApi
from .cluster_kit import NIGHTLY

pytestmark = pytest.mark.enumeration

EVERY: Final = 1 if NIGHTLY else 3
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
