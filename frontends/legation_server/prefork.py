"""The parent process of several workers: it forks them, watches them and replaces them.

The parent has no event loop, no thread and no database: nothing that a fork would tear in two.
It loads the platform, so that the workers share those pages, and it keeps the listening sockets
of every slot until the end begins; a worker inherits those of its slot.

What is to be done is decided by `supervisor`; this module does it.

**A restart loses no request.**  The successor accepts from the same socket, beside its
predecessor, before the predecessor is ordered to drain; nothing that the kernel has queued is ever
closed.  One slot after the other, and none further once a successor did not come up.

**At the end nobody is left waiting.**  Once the workers have accepted what was queued, no process
has the sockets any more: who comes then is refused at once, and may go elsewhere.
"""

from __future__ import annotations

import gc
import math
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, TypeAlias, assert_never

from attrs import field

from legation.values import define
from legation_host import Write
from legation_host.logs import quiet

from .listeners import close_listeners
from .orders import STOP_SIGNAL, release_reload
from .scrapes import Link, Pair, Scrapes
from .supervisor import Action, Child, Note, Order, Report, Send, Start, Supervisor

__all__ = ["TICK_SECONDS", "Work", "run_workers"]

Slot: TypeAlias = Sequence[socket.socket]

Work: TypeAlias = Callable[[Slot, Callable[[], object], int], int]
"""What a worker does, in its own process: given its listeners, what to call when it serves, and
a descriptor that is readable when the parent is gone.  Returns the exit code."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)

TICK_SECONDS: Final = 1.0
"""Between two calls of what is to be called now and then."""

_ORDERS: Final = {
    Order.DRAIN: signal.SIGTERM,
    Order.STOP: STOP_SIGNAL,
    Order.KILL: signal.SIGKILL,
}


def run_workers(  # noqa: PLR0913  every one but the first two is named at the call
    slots: Sequence[Slot],
    work: Work,
    *,
    drain_seconds: float,
    log: Write = quiet,
    ready: Callable[[], object] = lambda: None,
    reload: Callable[[], Work | None] = lambda: None,
    stopping: Callable[[str], object] = lambda _: None,
    tick: Callable[[], object] | None = None,
    scrapes: Scrapes | None = None,
) -> int:
    """Run a worker for each of `slots` until SIGTERM or SIGINT; return the exit code.

    SIGHUP replaces the workers in turn.  A second SIGTERM or SIGINT ends their work at once.

    Args:
        slots: The listeners of each worker.  They are closed when the end begins.
        work: Called in each worker's process.
        drain_seconds: What a worker takes to end, at most.
        log: Takes what happened to workers.
        ready: Called when every slot is served for the first time.
        reload: Called at SIGHUP; returns the work of the workers to come, or None, which leaves
            the workers as they are.  Work that does not come up is dropped again.
        stopping: Called with the reason when the end begins, which is the name of a signal or
            `worker_ended`, and again when a second signal breaks it off.
        tick: Called every second, between all else: what it holds up waits for it.
        scrapes: Sums up what the workers have measured, for whichever of them is asked; each finds
            its own end of a link there.
    """
    hooks = (ready, reload, stopping, tick)
    return _Parent(slots, work, drain_seconds, log, *hooks, scrapes or Scrapes()).run()


@define(eq=False)
class _Parent:
    slots: Sequence[Slot]
    work: Work
    drain_seconds: float
    log: Write
    ready: Callable[[], object]
    reload: Callable[[], Work | None]
    stopping: Callable[[str], object]
    tick: Callable[[], object] | None
    scrapes: Scrapes
    _reason: str = field(default="worker_ended", init=False)
    _works: dict[int, Work] = field(init=False)
    """By generation."""
    _supervisor: Supervisor = field(init=False)
    _pipes: dict[int, int] = field(factory=dict[int, int], init=False)
    """By process, what brings one byte when the worker serves, until it has."""
    _selector: selectors.BaseSelector = field(factory=selectors.DefaultSelector, init=False)
    _lifeline: tuple[int, int] = field(factory=os.pipe, init=False)
    _tick_due: float = field(default=math.inf, init=False)

    def __attrs_post_init__(self) -> None:
        self._works = {0: self.work}
        self._supervisor = Supervisor(len(self.slots), self.drain_seconds)
        if self.tick is not None:
            self._tick_due = time.monotonic() + TICK_SECONDS

    def run(self) -> int:
        """Run until the last worker has ended."""
        with self._receive_signals() as signals:
            while not self._supervisor.is_over:
                self._act(self._supervisor.advance(time.monotonic()))
                self._look(signals)
                self._reap()
                self._tick()
                self.scrapes.advance()
        return self._supervisor.code

    @contextmanager
    def _receive_signals(self) -> Generator[socket.socket]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        before = {number: signal.signal(number, _note) for number in _SIGNALS}
        fd = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        self._selector.register(ours, selectors.EVENT_READ)
        release_reload()
        try:
            yield ours
        finally:
            signal.set_wakeup_fd(fd)
            for number, handler in before.items():
                signal.signal(number, handler)
            self.scrapes.close()
            self._selector.close()
            os.close(self._lifeline[0])
            os.close(self._lifeline[1])
            ours.close()
            theirs.close()

    def _look(self, signals: socket.socket) -> None:
        """Wait for a signal, for a worker to come up, or until something is due."""
        due = min(self._supervisor.next_time(), self._tick_due, self.scrapes.due)
        wait = None if due == math.inf else max(0.0, due - time.monotonic())
        for key, events in self._selector.select(wait):
            if isinstance(key.data, Child):
                self._come_up(key.data.pid)
            elif isinstance(key.data, Link):
                self.scrapes.serve(key.data, events)
            else:
                for number in signals.recv(4096):
                    self._obey(number)

    def _tick(self) -> None:
        if self.tick is not None and time.monotonic() >= self._tick_due:
            self.tick()
            self._tick_due = time.monotonic() + TICK_SECONDS

    def _obey(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._reason = signal.Signals(number).name
            if self._supervisor.ending:
                self.stopping(self._reason)
            self._act(self._supervisor.end(time.monotonic()))
        elif number == signal.SIGHUP and not self._supervisor.ending:
            self._restart()

    def _restart(self) -> None:
        work = self.reload()
        if work is None:
            return
        generation = self._supervisor.reload()
        needed = self._supervisor.generations
        self._works = {number: kept for number, kept in self._works.items() if number in needed}
        self._works[generation] = work
        self.log("info", "workers_restarting", {"workers": len(self.slots)})

    def _act(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Start():
                    self._start(action)
                case Send(pid, order):
                    os.kill(pid, _ORDERS[order])
                case Report(level, event, fields):
                    self.log(level, event, fields)
                case Note.READY:
                    self.ready()
                case Note.STOPPING:
                    self._stop()
                case _:
                    assert_never(action)

    def _stop(self) -> None:
        self.stopping(self._reason)
        for listeners in self.slots:
            close_listeners(listeners)

    def _start(self, start: Start) -> None:
        pipe, ready = os.pipe()
        gc.collect()
        gc.freeze()  # what the workers share stays shared: no collection touches it
        pair = socket.socketpair()
        _flush()
        # A signal between the fork and the worker's own handlers waits for these.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        pid = os.fork()
        if pid == 0:
            os.close(pipe)
            self._become(start, ready, before, pair)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(ready)
        child = self._supervisor.add(pid, start, time.monotonic())
        self._pipes[pid] = pipe
        self.scrapes.add(pid, pair, self._selector)
        self._selector.register(pipe, selectors.EVENT_READ, child)

    def _become(
        self, start: Start, ready: int, mask: set[int | signal.Signals], pair: Pair
    ) -> None:
        """Be a worker.  Does not return: what the parent would have done next is not ours."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            # A terminal sends these to the whole group; what to do is for the parent to say.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            self._selector.close()
            os.close(self._lifeline[1])
            self.scrapes.become(pair)
            mine = self.slots[start.slot]
            for listener in {listener for other in self.slots for listener in other} - {*mine}:
                listener.close()
            work = self._works[start.generation]
            code = work(mine, lambda: os.write(ready, b"r"), self._lifeline[0])
        except BaseException:  # noqa: BLE001 (the boundary of the process)
            traceback.print_exc()
        finally:
            _flush()
            os._exit(code)

    def _come_up(self, pid: int) -> None:
        """Take the byte of a worker that serves; there is none where it has ended."""
        came = os.read(self._pipes[pid], 1)
        self._forget(pid)
        if came:
            self.scrapes.come_up(pid)
            self._act(self._supervisor.come_up(pid, time.monotonic()))

    def _forget(self, pid: int) -> None:
        pipe = self._pipes.pop(pid, None)
        if pipe is not None:
            self._selector.unregister(pipe)
            os.close(pipe)

    def _reap(self) -> None:
        for pid in tuple(self._supervisor.children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._forget(pid)
                self.scrapes.remove(pid)
                code = os.waitstatus_to_exitcode(status)
                self._act(self._supervisor.remove(pid, code, time.monotonic()))


def _flush() -> None:
    """Write what is in buffers, so that a child does not write it again."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # None where it was closed
            stream.flush()


def _note(_: int, __: object) -> None:
    """Leave the signal to the loop, which reads its number from the wake-up descriptor."""
