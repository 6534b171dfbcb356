"""Several workers on one machine: a parent that forks them, watches them and replaces them.

The parent has no event loop, no thread and no database: nothing that a fork would tear in two.
It loads the platform, so that the workers share those pages, and it keeps the listening sockets
of every slot until the end begins; a worker inherits those of its slot.

**A restart loses no request.**  The successor accepts from the same socket, beside its
predecessor, before the predecessor is told to drain; nothing that the kernel has queued is ever
closed.  One slot after the other, and none further once a successor did not come up.

**At the end nobody is left waiting.**  Once the workers have accepted what was queued, no process
has the sockets any more: who comes then is refused at once, and may go elsewhere.
"""

from __future__ import annotations

import enum
import gc
import math
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, TypeAlias

from attrs import define, field

from legation_host import Write
from legation_host.units import quiet

from .listeners import close_listeners

__all__ = ["Work", "run_workers"]

Slot: TypeAlias = Sequence[socket.socket]

Work: TypeAlias = Callable[[Slot, Callable[[], object], int], int]
"""What a worker does, in its own process: given its listeners, what to call when it serves, and
a descriptor that is readable when the parent is gone.  Returns the exit code."""

START_SECONDS: Final = 60.0
"""For a worker to come up."""

KILL_SECONDS: Final = 5.0
"""After the end of a drain; a worker that is still there has hung."""

STEADY_SECONDS: Final = 10.0
"""A worker that lived so long did not fail for a reason that it was started with."""

BACK_OFF: Final = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds until a worker is replaced that ended soon, by how often it did so in a row."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


class _Stage(enum.Enum):
    STARTING = enum.auto()
    SERVING = enum.auto()
    RETIRING = enum.auto()


@define(eq=False)
class _Child:
    pid: int
    slot: int
    pipe: int
    """Brings one byte when the worker serves; -1 when it has."""
    born: float
    stage: _Stage = _Stage.STARTING
    overdue: float = math.inf


def run_workers(
    slots: Sequence[Slot],
    work: Work,
    *,
    drain_seconds: float,
    log: Write = quiet,
    ready: Callable[[], object] = lambda: None,
    reload: Callable[[], bool] = lambda: True,
    abandoned: Callable[[], object] = lambda: None,
    stopping: Callable[[], object] = lambda: None,
) -> int:
    """Run a worker for each of `slots` until SIGTERM or SIGINT; return the exit code.

    SIGHUP replaces the workers in turn.  A second SIGTERM or SIGINT ends their work at once.

    Args:
        slots: The listeners of each worker.  They are closed when the end begins.
        work: Called in each worker's process.
        drain_seconds: What a worker takes to end, at most.
        log: Takes what happened to workers.
        ready: Called when the first generation serves.
        reload: Called at SIGHUP, before workers are replaced; False leaves them as they are.
        abandoned: Called when a successor did not come up: what `reload` has brought does not
            serve, and workers that are replaced later are to be what they were.
        stopping: Called when the end begins.
    """
    parent = _Parent(slots, work, drain_seconds, log, ready, reload, abandoned, stopping)
    return parent.run()


@define(eq=False)
class _Parent:
    slots: Sequence[Slot]
    work: Work
    drain_seconds: float
    log: Write
    ready: Callable[[], object]
    reload: Callable[[], bool]
    abandoned: Callable[[], object]
    stopping: Callable[[], object]
    _children: dict[int, _Child] = field(factory=dict[int, _Child], init=False)
    _renew: deque[int] = field(factory=deque[int], init=False)
    """Slots that get a new worker, one after the other."""
    _due: dict[int, float] = field(factory=dict[int, float], init=False)
    """When a slot whose worker failed gets another."""
    _failures: dict[int, int] = field(factory=dict[int, int], init=False)
    _selector: selectors.BaseSelector = field(factory=selectors.DefaultSelector, init=False)
    _lifeline: tuple[int, int] = field(factory=os.pipe, init=False)
    _up: bool = field(default=False, init=False)
    _ending: bool = field(default=False, init=False)
    _code: int = field(default=0, init=False)

    def run(self) -> int:
        """Run until the last worker has ended."""
        self._renew.extend(range(len(self.slots)))
        with self._listening_to_signals() as signals:
            while self._children or not self._ending:
                self._advance()
                self._look(signals)
                self._reap()
        return self._code

    @contextmanager
    def _listening_to_signals(self) -> Generator[socket.socket]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        before = {number: signal.signal(number, _note) for number in _SIGNALS}
        fd = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        self._selector.register(ours, selectors.EVENT_READ)
        try:
            yield ours
        finally:
            signal.set_wakeup_fd(fd)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._selector.close()
            os.close(self._lifeline[0])
            os.close(self._lifeline[1])
            ours.close()
            theirs.close()

    def _advance(self) -> None:
        """Start what is to be started, kill what is overdue."""
        now = time.monotonic()
        for child in self._children.values():
            if child.overdue < now:
                self.log("error", "worker_killed", {"pid": child.pid, "slot": child.slot})
                child.overdue = math.inf
                os.kill(child.pid, signal.SIGKILL)
        for slot in [slot for slot, due in self._due.items() if due <= now]:
            del self._due[slot]
            self._renew.append(slot)
        starting = any(child.stage is _Stage.STARTING for child in self._children.values())
        if self._renew and not starting and not self._ending:
            self._start(self._renew.popleft())

    def _look(self, signals: socket.socket) -> None:
        """Wait for a signal, for a worker to come up, or until something is due."""
        times = [*self._due.values(), *(child.overdue for child in self._children.values())]
        wait = min(times, default=math.inf) - time.monotonic()
        for key, _ in self._selector.select(None if wait == math.inf else max(0.0, wait)):
            if isinstance(key.data, _Child):
                self._came_up(key.data)
            else:
                for number in signals.recv(4096):
                    self._obey(number)

    def _obey(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._end()
        elif number == signal.SIGHUP and not self._ending and self.reload():
            self.log("info", "restarting", {"workers": len(self.slots)})
            self._renew = deque(range(len(self.slots)))

    def _end(self) -> None:
        if not self._ending:
            self._ending = True
            self.stopping()
            for listeners in self.slots:
                close_listeners(listeners)
        for child in self._children.values():
            self._retire(child)

    def _retire(self, child: _Child) -> None:
        child.stage = _Stage.RETIRING
        child.overdue = min(child.overdue, time.monotonic() + self.drain_seconds + KILL_SECONDS)
        os.kill(child.pid, signal.SIGTERM)

    def _start(self, slot: int) -> None:
        pipe, ready = os.pipe()
        gc.collect()
        gc.freeze()  # what the workers share stays shared: no collection touches it
        _flush()
        # A signal between the fork and the worker's own handlers waits for these.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        pid = os.fork()
        if pid == 0:
            os.close(pipe)
            self._become(slot, ready, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(ready)
        child = _Child(pid, slot, pipe, time.monotonic())
        child.overdue = child.born + START_SECONDS
        self._children[pid] = child
        self._selector.register(pipe, selectors.EVENT_READ, child)

    def _become(self, slot: int, ready: int, mask: set[int | signal.Signals]) -> None:
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
            mine = self.slots[slot]
            for listener in {listener for other in self.slots for listener in other} - {*mine}:
                listener.close()
            code = self.work(mine, lambda: os.write(ready, b"r"), self._lifeline[0])
        except BaseException:  # noqa: BLE001 (the boundary of the process)
            traceback.print_exc()
        finally:
            _flush()
            os._exit(code)

    def _came_up(self, child: _Child) -> None:
        """Take the byte of a worker that serves; its predecessor may go."""
        came = os.read(child.pipe, 1)
        self._forget(child)
        if not came or child.stage is not _Stage.STARTING:
            return  # it has ended, or was told to
        child.overdue = math.inf
        for other in self._serving(child.slot):
            self._retire(other)
        child.stage = _Stage.SERVING
        self.log("info", "worker_serves", {"pid": child.pid, "slot": child.slot})
        if not self._up and not self._renew:
            self._up = True
            self.ready()

    def _serving(self, slot: int) -> list[_Child]:
        children = self._children.values()
        return [child for child in children if (child.slot, child.stage) == (slot, _Stage.SERVING)]

    def _forget(self, child: _Child) -> None:
        if child.pipe >= 0:
            self._selector.unregister(child.pipe)
            os.close(child.pipe)
            child.pipe = -1

    def _reap(self) -> None:
        for child in tuple(self._children.values()):
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                del self._children[pid]
                self._forget(child)
                self._ended(child, os.waitstatus_to_exitcode(status))

    def _ended(self, child: _Child, code: int) -> None:
        """Decide what follows from the end of a worker."""
        if child.stage is _Stage.RETIRING:
            return
        fields = {"pid": child.pid, "slot": child.slot, "code": code}
        self.log("error", "worker_ended", fields)
        if child.stage is _Stage.STARTING and not self._up:
            self._code = code if code > 0 else 1
            self._end()
        elif self._serving(child.slot):
            self.log("error", "restart_abandoned", fields)
            self._renew.clear()
            self.abandoned()
        else:
            self._replace(child)

    def _replace(self, child: _Child) -> None:
        steady = time.monotonic() - child.born >= STEADY_SECONDS
        failures = 0 if steady else self._failures.get(child.slot, 0)
        self._failures[child.slot] = failures + 1
        pause = BACK_OFF[min(failures, len(BACK_OFF) - 1)]
        self._due[child.slot] = time.monotonic() + pause


def _flush() -> None:
    """Write what is in buffers, so that a child does not write it again."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # None where it was closed
            stream.flush()


def _note(_: int, __: object) -> None:
    """Leave the signal to the loop, which reads its number from the wake-up descriptor."""
