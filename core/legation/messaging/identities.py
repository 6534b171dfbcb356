"""The identities of the channels: each provider is asked who we are, and the answer remembered.

Nothing waits for it.  Until a provider has answered, what it said before holds, which is read from
the database; where it never did, a channel answers only what is meant for it beyond doubt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import evolve, field

from ..backoff import Backoff
from ..channels.identity import Identity, Unidentified, decode_identity, encode_identity
from ..effects import Fetch, Job, Log, Now, Program, Sleep, Transact
from ..hosted.registry import HostedChannel, Registry
from ..incidents import where
from ..store.channel_states import FetchIdentities, NoteIdentity
from ..store.failures import StoreFailure
from ..values import define, frozen

__all__ = [
    "ASKED_AGAIN_SECONDS",
    "PATIENCE_SECONDS",
    "IdentifyChannel",
    "Identities",
    "Question",
]

ASKED_AGAIN_SECONDS: Final = 24 * 3600.0
"""A bot may be renamed, and its rights in groups changed."""

PATIENCE_SECONDS: Final = 10.0
"""For the answer of a provider."""

_BACKOFF: Final = Backoff(2.0, 600.0)


@frozen(eq=False)
class Question:
    """The request that asks the provider of a channel who we are."""

    hosted: HostedChannel
    request: Fetch


@define(eq=False)
class Identities:
    """The identities of the channels of this process, by the id of the channel.

    Attributes:
        questions: For the channels that judge by it what comes in.
        known: Who they are, as far as it is known.
        asked_us: When each provider said so.
    """

    questions: Mapping[str, Question]
    known: dict[str, Identity] = field(factory=dict[str, Identity], init=False)
    asked_us: dict[str, int] = field(factory=dict[str, int], init=False)

    @classmethod
    def of(cls, registry: Registry) -> Identities:
        """Return those of `registry`: nothing is known yet."""
        hosted = (one for one in registry.channels.values() if one.codec.asks_at_start)
        asked = ((one, one.codec.identify()) for one in hosted)
        return cls({one.id: Question(one, request) for one, request in asked if request})

    @property
    def databases(self) -> tuple[str, ...]:
        """The databases that remember them, sorted."""
        questions = self.questions.values()
        return tuple(sorted({question.hosted.component.database for question in questions}))

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs that ask, one for each channel."""
        return tuple(IdentifyChannel(self, question) for question in self.questions.values())

    def recall(self, database: str) -> Program[None]:
        """Read from `database` who its channels are, where that is not known yet."""
        try:
            stored = yield from Transact(database, FetchIdentities())
        except StoreFailure:
            return  # whoever asks the provider does so in any case
        for one in stored:
            if one.channel in self.questions and one.channel not in self.known:
                self.known[one.channel] = decode_identity(one.identity)
                self.asked_us[one.channel] = one.asked_us

    def is_due(self, channel: str, now_us: int) -> bool:
        """Return whether the provider of `channel` is to be asked."""
        age_us = now_us - self.asked_us.get(channel, 0)
        return not 0 <= age_us < ASKED_AGAIN_SECONDS * 1_000_000

    def ask(self, question: Question) -> Program[Unidentified | None]:
        """Ask the provider once; return what went wrong, if anything did."""
        try:
            found = yield from self._fetch(question)
        except Exception as error:  # noqa: BLE001 (a codec of an application may have a bug)
            return Unidentified(where(error))
        if isinstance(found, Unidentified):
            return found
        now_us = yield from Now()
        hosted = question.hosted
        if self.known.get(hosted.id) != found:
            said = (("channel", hosted.id), ("id", found.id), ("name", found.name))
            yield from Log("info", "channel_identified", said)
        self.known[hosted.id], self.asked_us[hosted.id] = found, now_us
        note = NoteIdentity(hosted.id, encode_identity(found), now_us)
        try:
            yield from Transact(hosted.component.database, note)
        except StoreFailure as error:
            fields = (("channel", hosted.id), ("error", where(error)))
            yield from Log("warning", "channel_identity_not_stored", fields)
        return None

    def _fetch(self, question: Question) -> Program[Identity | Unidentified]:
        current = self.questions.get(question.hosted.id, question)  # its token may be another now
        answer = yield from evolve(current.request, timeout_seconds=PATIENCE_SECONDS)
        now_us = yield from Now()
        return question.hosted.codec.read_identity(answer, now_us)


@frozen
class IdentifyChannel(Job):
    """Ask at the start and once a day, and more often while the provider does not answer."""

    identities: Identities
    question: Question

    def program(self) -> Program[None]:
        """Ask for ever; the same trouble is logged once."""
        identities, hosted = self.identities, self.question.hosted
        failures, logged = 0, ""
        while True:
            if hosted.id not in identities.known:
                yield from identities.recall(hosted.component.database)
            trouble = yield from identities.ask(self.question)
            if trouble is None:
                failures, logged = 0, ""
                yield from Sleep(ASKED_AGAIN_SECONDS)
                continue
            failures += 1
            if trouble.reason != logged:
                logged = trouble.reason
                fields = (("channel", hosted.id), ("reason", logged))
                yield from Log("warning", "channel_unidentified", fields)
            pause = yield from _BACKOFF.draw(failures)
            yield from Sleep(max(pause, trouble.after_seconds or 0))
