"""The typing indicator: the sign in a chat that somebody works on an answer.

It is best effort.  Nothing of it is stored or tried again, no answer waits for it, and where the
provider refuses it the run goes on without.
"""

from __future__ import annotations

from typing import Final, TypeVar

from attrs import define, evolve, field

from ..channels.deliveries import IncomingMessage
from ..channels.replies import Sent
from ..effects import Concurrently, Interruptible, Log, Now, Nudge, Program, Sleep
from ..hosted.registry import HostedChannel
from ..incidents import where
from .leases import WorkerLeases

__all__ = ["show_typing"]

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
