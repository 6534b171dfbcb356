"""A process that watches a worker, and ends it where a step of a run does not come back.

Nothing within the worker could: a pattern in C holds the lock of the interpreter, and an exception
that a signal raises may hit any line.  So the worker notes each step of a run in memory that both
processes share, and the watcher, forked before the event loop begins, looks at it.  What it finds
it asks for the stack, which `faulthandler` writes without the interpreter; then it kills the
worker, and ends the run through a connection to the database of its own, so that nobody takes the
run up again.  From before the one to after the other it stands in for the worker, so that nobody
takes that for dead meanwhile.

A step is as old as it could have gone on: CPU counts that its thread used, and time that it slept,
as in a lock.  Time does not count in which the thread was stopped, or wanted a CPU or a disk and
did not get it, nor in which the watcher itself did not run: a machine that is starved or suspended
ends nobody.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import mmap
import os
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, NoReturn, TypeAlias

from attrs import field

from legation.values import define
from legation_host import Write

__all__ = ["Page", "watch"]

Mark: TypeAlias = Callable[[str, Callable[[], None]], bool]

_SIGNAL: Final = signal.SIGXCPU
"""Asks a worker for its stack; its name says why."""

_QUIET: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LOOK_SECONDS: Final = 1.0
"""Between two looks, at most, and the most that one of them adds to the age of a step."""

_STACK_SECONDS: Final = 2.0
_LONGEST_STACK: Final = 16 << 10

_TICKS: Final = os.sysconf("SC_CLK_TCK")
"""In a second of the CPU times of `/proc`."""

_SIZE: Final = 4096
_HEAD: Final = struct.Struct("dI")
_BEGUN: Final = struct.Struct("d")


@define(eq=False)
class Page:
    """Memory that a worker and its watcher share: the step that is taken now, if any is.

    Attributes:
        end: Notes that the step came back.
    """

    _memory: mmap.mmap = field(factory=lambda: mmap.mmap(-1, _SIZE))
    end: Callable[[], None] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.end = partial(_BEGUN.pack_into, self._memory, 0, 0.0)

    def begin(self, label: bytes) -> None:
        """Note that a step of what `label` says begins."""
        memory = self._memory
        label = label[: _SIZE - _HEAD.size]
        memory[_HEAD.size : _HEAD.size + len(label)] = label
        _HEAD.pack_into(memory, 0, time.monotonic(), len(label))

    def step(self) -> tuple[float, str] | None:
        """Return when the present step began, and its label; None between two steps."""
        begun, size = _HEAD.unpack_from(self._memory)
        label = self._memory[_HEAD.size : _HEAD.size + size]
        if not begun or _HEAD.unpack_from(self._memory) != (begun, size):
            return None
        return begun, label.decode()


@contextmanager
def watch(seconds: float, mark: Mark, log: Write) -> Generator[Page]:
    """Start a watcher of this process; yield the memory in which to note the steps.

    To be entered before there are threads or an event loop.

    Args:
        seconds: For one step.
        mark: Called in the watcher, with the label of the step and what ends this process; returns
            whether it has ended the run.
        log: Written to by the watcher.
    """
    page = Page()
    stack, write = os.pipe()
    gc.collect()
    gc.freeze()  # what both share stays shared: no collection touches it
    _flush()
    worker = os.getpid()  # the child would ask too late where this process has ended meanwhile
    pid = os.fork()
    if pid == 0:
        _become(page, worker, stack, seconds, mark, log)
    os.close(stack)
    faulthandler.register(_SIGNAL, file=write, all_threads=False)
    try:
        yield page
    finally:
        faulthandler.unregister(_SIGNAL)
        os.close(write)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _become(
    page: Page, worker: int, stack: int, seconds: float, mark: Mark, log: Write
) -> NoReturn:
    """Be the watcher of `worker`.  It has no listener, so that no client waits for it."""
    try:
        for number in _QUIET:  # sent to all of a group; it goes with whom it watches
            signal.signal(number, signal.SIG_IGN)
        os.closerange(3, stack)
        os.closerange(stack + 1, os.sysconf("SC_OPEN_MAX"))
        label = _wait(page, worker, seconds)
        if label is not None:
            fields = json.loads(label) | {"seconds": seconds, "stack": _stack_of(worker, stack)}
            log("error", "process_blocked", {"pid": worker, **fields})
            try:
                ended = mark(label, partial(_end, worker))
            finally:
                _end(worker)
            log("error", "blocked_run_ended" if ended else "blocked_run_left", json.loads(label))
    except BaseException:  # noqa: BLE001 (the boundary of the process)
        traceback.print_exc()
    finally:
        _flush()
        os._exit(0)


def _wait(page: Page, worker: int, seconds: float) -> str | None:
    """Return the label of a step that does not come back; None when the worker is gone."""
    age, look = _Age(worker), min(_LOOK_SECONDS, seconds / 4)
    while os.getppid() == worker:
        step = page.step()
        if step is not None and age.at(step[0], look) >= seconds:
            return step[1]
        time.sleep(look)
    return None


@define(eq=False)
class _Age:
    """The age of a step on the event loop's thread, the first thread of `worker`."""

    worker: int
    _begun: float = 0.0
    _seconds: float = 0.0
    _looked: float = 0.0
    _cpu: float = 0.0

    def at(self, begun: float, most: float) -> float:
        """Return the age of the step that began at `begun`; a look adds at most `most`."""
        now, (sleeps, cpu) = time.monotonic(), _state_of(self.worker)
        if begun != self._begun:
            self._begun, self._seconds = begun, 0.0
        else:
            passed = now - self._looked if sleeps else cpu - self._cpu
            self._seconds += min(passed, most)
        self._looked, self._cpu = now, cpu
        return self._seconds


def _state_of(worker: int) -> tuple[bool, float]:
    """Return whether the first thread of `worker` sleeps, and the seconds of CPU it has used.

    Where there is no `/proc` nobody knows, and it passes for asleep: then all time counts.
    """
    try:
        stat = Path(f"/proc/{worker}/task/{worker}/stat").read_bytes()
    except OSError:
        return True, 0.0
    fields = stat.rpartition(b")")[2].split()  # the name of the process may hold spaces
    return fields[0] == b"S", (int(fields[11]) + int(fields[12])) / _TICKS


def _stack_of(worker: int, stack: int) -> str:
    """Return the stack of the worker, which its own `faulthandler` writes, innermost first."""
    os.kill(worker, _SIGNAL)
    output = b""
    while len(output) < _LONGEST_STACK:
        ready, _, _ = select.select([stack], [], [], _STACK_SECONDS if not output else 0.1)
        if not ready or not (more := os.read(stack, _LONGEST_STACK)):
            break
        output += more
    return output.decode("utf-8", "replace")


def _end(worker: int) -> None:
    """Kill the worker, and wait until it is gone: then nothing of it holds a lock."""
    if os.getppid() == worker:
        os.kill(worker, signal.SIGKILL)
    while os.getppid() == worker:
        time.sleep(0.01)


def _flush() -> None:
    """Write what is in buffers, so that the watcher does not write it again."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # None where it was closed
            stream.flush()
