"""The typing indicator: the sign in a chat that somebody works on an answer.

It is best effort.  Nothing of it is stored or tried again, no answer waits for it, and where the
provider refuses it the run goes on without.
"""

from __future__ import annotations

from typing import Final, TypeVar

from attrs import evolve, field

from ..channels.deliveries import IncomingMessage
from ..channels.replies import Sent
from ..effects import Concurrently, Interruptible, Job, Log, Now, Nudge, Program, Sleep
from ..hosted.registry import HostedChannel
from ..incidents import where
from ..runs.followers import RunLeft, join
from ..runs.retry import persist
from ..store.failures import StoreFailure
from ..store.run_reads import FetchRun
from ..values import define, frozen
from .leases import WorkerLeases

__all__ = ["ShowContinuation", "show_typing"]

R = TypeVar("R")

_BEGIN_SECONDS: Final = 1.0
"""An answer within this time needs no indicator, and costs no request."""

_REQUEST_SECONDS: Final = 5.0
_LONGEST_SECONDS: Final = 3600.0


def show_typing(
    worker: WorkerLeases, channel: HostedChannel, message: IncomingMessage, work: Program[R]
) -> Program[R]:
    """Do `work`, which answers `message`, and show that it is done meanwhile.

    Raises:
        Exception: What `work` raised.
    """
    if not channel.options.show_typing:
        return (yield from work)
    indicator = _Indicator(worker, channel, message)
    done: list[R] = []
    yield from Concurrently((indicator.do(work, done), indicator.show()))
    return done[0]


@frozen
class ShowContinuation(Job):
    """Show the indicator while a run goes on that a person answered.

    Attributes:
        channel: The id of the channel.
        message: The answer.
        approval: The id of what was answered: that of the run, and the event of its pause.
    """

    worker: WorkerLeases
    channel: str
    message: IncomingMessage
    approval: str

    def program(self) -> Program[None]:
        """Wait for the end of the run; nobody else waits for this."""
        channel = self.worker.channel(self.channel)
        try:
            yield from show_typing(self.worker, channel, self.message, self._wait())
        except (RunLeft, StoreFailure):
            return  # the process ends, or the run goes on after a while, elsewhere

    def _wait(self) -> Program[None]:
        run_id, _, events = self.approval.rpartition(".")
        context, database = self.worker.context, self.worker.database
        row = yield from persist(database, FetchRun(run_id, None, any_owner=True), context.is_over)
        if row is not None:
            yield from join(database, row.owner, run_id, int(events), context.is_over, context)


@define(eq=False)
class _Indicator:
    """The indicator beside one message; `over` once there is nothing more to wait for."""

    worker: WorkerLeases
    channel: HostedChannel
    message: IncomingMessage
    over: bool = field(default=False, init=False)

    @property
    def topic(self) -> str:
        """The topic under which the end of the work is announced."""
        return f"answered:{self.channel.id}:{self.message.message_id}"

    def do(self, work: Program[R], done: list[R]) -> Program[None]:
        """Do `work` and end the indicator; a failure of the work closes it."""
        done.append((yield from work))
        self.over = True
        yield from Nudge(self.topic)

    def show(self) -> Program[None]:
        """Show the indicator again and again until the work is over."""
        if not self.over:
            yield from Interruptible(self._repeat(), self.topic, _LONGEST_SECONDS)

    def _repeat(self) -> Program[None]:
        yield from Sleep(_BEGIN_SECONDS)
        while not self.worker.context.draining:
            try:
                reason = yield from self._send()
            except Exception as error:  # noqa: BLE001 (a bug of a codec must not cost the answer)
                reason = where(error)
            if reason is not None:
                yield from self._log(reason)
                return
            yield from Sleep(self.channel.codec.typing_seconds)

    def _send(self) -> Program[str | None]:
        """Send the request; return why the provider did not take it, None where it did."""
        codec = self.channel.codec
        fetch = codec.encode_typing(self.message)
        if fetch is None:
            return ""
        answer = yield from evolve(fetch, timeout_seconds=_REQUEST_SECONDS)
        now_us = yield from Now()
        outcome = codec.read_reply(answer, now_us)
        return None if isinstance(outcome, Sent) else outcome.reason

    def _log(self, reason: str) -> Program[None]:
        """Write a line about the first refusal: the next ones say the same."""
        if reason and self.channel.id not in self.worker.silent:
            self.worker.silent.add(self.channel.id)
            fields = (("channel", self.channel.id), ("reason", reason))
            yield from Log("warning", "typing_failed", fields)
