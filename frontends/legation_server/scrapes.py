"""The parent's part in a scrape: it asks its workers, and sums up what they say.

What is to be asked and answered is decided by `scrape_rounds`; this module moves the bytes.  No
call of it waits: the parent has workers to look after.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, TypeAlias

from attrs import field

from legation.observability.merging import decode_snapshot, encode_snapshot
from legation.values import define

from .scrape_links import Frame, Frames, Kind, pack
from .scrape_rounds import Answer, Rounds, Step

__all__ = ["Link", "Pair", "Scrapes"]

Pair: TypeAlias = tuple[socket.socket, socket.socket]
"""The ends of a link: the parent's, and the worker's."""

_READ: Final = 1 << 18


@define(eq=False)
class Link:
    """The parent's end of the link to the worker `pid`."""

    pid: int
    end: socket.socket
    selector: selectors.BaseSelector
    frames: Frames = field(factory=Frames, init=False)
    unsent: bytearray = field(factory=bytearray, init=False)

    @property
    def events(self) -> int:
        """The events that the selector is to look for."""
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self.unsent else 0)


@define(eq=False)
class Scrapes:
    """The links to all workers, of one parent.

    Attributes:
        clock: Seconds.
        own: In a worker, its end of its own link.
    """

    clock: Callable[[], float] = time.monotonic
    own: socket.socket | None = field(default=None, init=False)
    _rounds: Rounds = field(factory=Rounds, init=False)
    _links: dict[int, Link] = field(factory=dict[int, Link], init=False)

    @property
    def due(self) -> float:
        """The time at which `advance` has something to do, if nothing else happens."""
        return self._rounds.due

    def become(self, pair: Pair) -> None:
        """Keep the worker's own end alone, after the fork."""
        ours, self.own = pair
        ours.close()
        for link in self._links.values():
            link.end.close()
        self._links.clear()

    def add(self, pid: int, pair: Pair, selector: selectors.BaseSelector) -> None:
        """Keep the parent's end, after the fork of `pid`; `selector` looks after it."""
        ours, theirs = pair
        theirs.close()
        ours.setblocking(False)
        self._links[pid] = link = Link(pid, ours, selector)
        selector.register(ours, link.events, link)

    def come_up(self, pid: int) -> None:
        """Count `pid` among those that serve."""
        self._act(self._rounds.come_up(pid))

    def serve(self, link: Link, events: int) -> None:
        """Take and send what can be moved without waiting."""
        if events & selectors.EVENT_WRITE:
            self._flush(link)
        if events & selectors.EVENT_READ:
            self._read(link)

    def advance(self) -> None:
        """End a round that is overdue."""
        self._act(self._rounds.advance(self.clock()))

    def remove(self, pid: int) -> None:
        """Take the last word of a worker that has ended, and let go of its link."""
        link = self._links.get(pid)
        while link is not None and self._read(link):
            pass
        self._close(pid)
        self._act(self._rounds.remove(pid, self.clock()))

    def close(self) -> None:
        """Let go of all links."""
        for pid in tuple(self._links):
            self._close(pid)

    def _read(self, link: Link) -> bool:
        """Take what has come; return whether there may be more."""
        try:
            data = link.end.recv(_READ)
            for frame in link.frames.feed(data):
                self._obey(link.pid, frame)
        except BlockingIOError:
            return False
        except (OSError, ValueError):  # ended in the midst of a frame
            data = b""
        if not data:
            self._silence(link.pid)
        return bool(data)

    def _obey(self, pid: int, frame: Frame) -> None:
        now = self.clock()
        if frame.kind is Kind.GATHER:
            self._act(self._rounds.gather(pid, now))
        else:
            self._act(self._rounds.take(pid, decode_snapshot(frame.content), now))

    def _act(self, steps: Iterable[Step]) -> None:
        whole: bytes | None = None
        for step in steps:
            frame = Frame(Kind.ASK)
            if isinstance(step, Answer):
                whole = encode_snapshot(step.snapshot) if whole is None else whole
                frame = Frame(Kind.WHOLE, whole)
            link = self._links.get(step.pid)
            if link is not None:
                link.unsent += pack(frame)
                self._flush(link)

    def _flush(self, link: Link) -> None:
        """Send what the system takes; who is gone is found by reading."""
        with suppress(OSError):
            del link.unsent[: link.end.send(link.unsent)]
        if link.pid in self._links:
            link.selector.modify(link.end, link.events, link)

    def _silence(self, pid: int) -> None:
        self._close(pid)
        self._act(self._rounds.silence(pid, self.clock()))

    def _close(self, pid: int) -> None:
        link = self._links.pop(pid, None)
        if link is not None:
            link.selector.unregister(link.end)
            link.end.close()
