"""Streamed answers: the message of a person's chat that grows while a run works on the answer.

It is best effort, and the reply of the outbox is what counts.  As soon as the provider has named
the growing message, its id is stored with the message that is answered; the reply then takes its
place, by an edit.  Where nobody knows the id, the reply is a message of its own: a crash between
the two leaves an unfinished message in the chat, and nothing is answered twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

from attrs import evolve, field

from ..channels.deliveries import IncomingMessage
from ..channels.replies import Part, Reply, RetryLater, Sent, stream_key
from ..effects import AwaitNudge, Concurrently, FetchReply, Log, Now, Nudge, Program, Unreachable
from ..hosted.registry import HostedChannel
from ..incidents import where
from ..runs.events import ModelRequestStarted, RunContent, RunContinued, class_of, run_id_of
from ..runs.followers import join
from ..store.run_rows import StoredEvent
from ..values import define
from .leases import WorkerLeases

__all__ = ["StreamedAnswer"]

_BEGIN_SECONDS: Final = 1.0
"""An answer within this time does not grow, and costs no request."""

_REQUEST_SECONDS: Final = 5.0
_MOST_FAILURES: Final = 3
_THROTTLED: Final = 429


@define(eq=False)
class StreamedAnswer:
    """The answer to one message, as far as its run has come.

    Attributes:
        message: The message, as it is stored.
        store: Stores it with what was learned of it.
    """

    worker: WorkerLeases
    channel: HostedChannel
    message: IncomingMessage
    store: Callable[[IncomingMessage], Program[None]]
    _run_id: str = field(default="", init=False)
    _words: list[str] = field(factory=list[str], init=False)
    _length: int = field(default=0, init=False)
    _heard: int = field(default=0, init=False)
    _shown: Part | None = field(default=None, init=False)
    _failures: int = field(default=0, init=False)
    _asked_seconds: int = field(default=0, init=False)
    _over: bool = field(default=False, init=False)

    def keep(self, message: IncomingMessage) -> Program[None]:
        """Store `message`, in which more is known than before."""
        self.message = message
        yield from self.store(message)

    def follow(self, owner: str, run_id: str) -> Program[None]:
        """Wait until the run is over, or waits for a person; show meanwhile what it says.

        Raises:
            Exception: What the wait, or the storing of the message, raised.
        """
        database, is_over = self.worker.database, self.worker.context.is_over
        watched = self.worker.context.cluster.member(database).watched
        self._run_id = run_id
        if not self.channel.options.stream_answers:
            yield from join(database, owner, run_id, is_over=is_over, watched=watched)
            return
        wait = join(database, owner, run_id, is_over=is_over, hear=self.hear, watched=watched)
        yield from Concurrently((self._wait(wait), self._show()))

    def hear(self, events: Sequence[StoredEvent]) -> None:
        """Add what the run says to the text; what the model said before it was asked again goes."""
        for event in events:
            kind = class_of(event.name)
            if kind not in (RunContent, ModelRequestStarted, RunContinued):
                continue
            if run_id_of(event) != self._run_id:  # of a member of the team
                continue
            if kind is not RunContent:
                self._words.clear()
                self._length = 0
                continue
            words = json.loads(event.data).get("content")
            # Behind the first part nothing is shown before the answer is whole.
            if isinstance(words, str) and self._length <= 2 * self.channel.codec.text_limit:
                self._words.append(words)
                self._length += len(words)
                self._heard += 1

    @property
    def _topic(self) -> str:
        return f"streamed:{self.channel.id}:{self.message.message_id}"

    def _wait(self, wait: Program[None]) -> Program[None]:
        yield from wait
        self._over = True
        yield from Nudge(self._topic)

    def _show(self) -> Program[None]:
        """Show the text again and again as it grows.

        A request is never broken off: an edit that arrives late would take the place of the reply.
        """
        heard, pause = 0, _BEGIN_SECONDS
        while not self._is_over():
            yield from AwaitNudge(self._topic, pause)
            if self._is_over():
                return
            pause = self.channel.codec.pause_edits(self.message)
            if heard == self._heard:
                continue
            heard, before = self._heard, self._failures
            reason = yield from self._send_text()
            if reason is not None:
                yield from self._log(reason)
                return
            if self._failures > before:
                heard, pause = -1, max(pause * 2**self._failures, self._asked_seconds)

    def _is_over(self) -> bool:
        return self._over or self.worker.context.draining

    def _send_text(self) -> Program[str | None]:
        """Send the first part of the text; return why there is no use in going on, if so."""
        now_us = yield from Now()
        try:
            part = next(iter(self.channel.codec.compose("".join(self._words))), None)
            if part is None or part == self._shown:
                return None
            fetch = self.channel.codec.encode(self._reply(part, now_us), now_us)
            answer = yield from evolve(fetch, timeout_seconds=_REQUEST_SECONDS)
            now_us = yield from Now()
            outcome = self.channel.codec.read_reply(answer, now_us)
        except Exception as error:  # noqa: BLE001 (a bug of a codec must not cost the answer)
            return where(error)
        if isinstance(outcome, Sent):
            return (yield from self._note(part, outcome.provider_id))
        if not isinstance(outcome, RetryLater) or not self._may_repeat(answer):
            return outcome.reason
        self._failures += 1
        self._asked_seconds = outcome.after_seconds or 0
        return outcome.reason if self._failures > _MOST_FAILURES else None

    def _reply(self, part: Part, now_us: int) -> Reply:
        message = self.message
        return Reply(
            key=stream_key(message.message_id),
            recipient=message.conversation or message.sender,
            text=part.text,
            thread=message.thread,
            quotes=message.provider_id,
            created_us=now_us,
            spans=part.spans,
            message_id=message.message_id,
            edits=message.draft,
        )

    def _may_repeat(self, answer: FetchReply | Unreachable) -> bool:
        """Return whether nobody sees two messages if what was not taken is sent again."""
        throttled = isinstance(answer, FetchReply) and answer.status == _THROTTLED
        return bool(self.message.draft) or throttled

    def _note(self, part: Part, provider_id: str) -> Program[str | None]:
        """Note that a part is shown, and in which message."""
        self._shown, self._failures = part, 0
        if self.message.draft:
            return None
        if not provider_id:
            return "the provider names no message"
        yield from self.keep(evolve(self.message, draft=provider_id))
        return None

    def _log(self, reason: str) -> Program[None]:
        """Write a line about the first refusal: the next ones say the same."""
        refused = f"streamed:{self.channel.id}"
        if refused not in self.worker.silent:
            self.worker.silent.add(refused)
            fields = (("channel", self.channel.id), ("reason", reason))
            yield from Log("warning", "streamed_answer_failed", fields)
