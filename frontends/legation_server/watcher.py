"""A process that watches a worker, and ends it where a step of a run does not come back.

Nothing within the worker could: a pattern in C holds the lock of the interpreter, and an exception
that a signal raises may hit any line.  So the worker notes each step of a run in memory that both
processes share, and the watcher, forked before the event loop begins, looks at it.  What it finds
it asks for the stack, which `faulthandler` writes without the interpreter; then it kills the
worker, and ends the run through a connection to the database of its own, so that nobody takes the
run up again.
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
from typing import Final, NoReturn

from attrs import define, field

from legation_host import Write

__all__ = ["Page", "watching"]

_SIGNAL: Final = signal.SIGXCPU
"""Asks a worker for its stack; its name says why."""

_QUIET: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LOOK_SECONDS: Final = 1.0
_STACK_SECONDS: Final = 2.0
_LONGEST_STACK: Final = 16 << 10

_SIZE: Final = 4096
_HEAD: Final = struct.Struct("dI")
_BEGUN: Final = struct.Struct("d")
_IDLE: Final = _BEGUN.pack(0.0)


@define(eq=False)
class Page:
    """Memory that a worker and its watcher share: the step that is taken now, if any is."""

    _memory: mmap.mmap = field(factory=lambda: mmap.mmap(-1, _SIZE))

    def begin(self, label: bytes) -> None:
        """Note that a step of what `label` says begins."""
        memory = self._memory
        label = label[: _SIZE - _HEAD.size]
        memory[_HEAD.size : _HEAD.size + len(label)] = label
        _HEAD.pack_into(memory, 0, time.monotonic(), len(label))

    def end(self) -> None:
        """Note that it came back."""
        self._memory[: _BEGUN.size] = _IDLE

    def step(self) -> tuple[float, str] | None:
        """Return when the present step began, and its label; None between two steps."""
        begun, size = _HEAD.unpack_from(self._memory)
        label = self._memory[_HEAD.size : _HEAD.size + size]
        if not begun or _HEAD.unpack_from(self._memory) != (begun, size):
            return None
        return begun, label.decode()


@contextmanager
def watching(seconds: float, mark: Callable[[str], bool], log: Write) -> Generator[Page]:
    """Have this process watched; yield where it has to note its steps.

    To be entered before there are threads or an event loop.

    Args:
        seconds: For one step.
        mark: Called in the watcher, with the label of the step, when this process is gone.
        log: Written to by the watcher.
    """
    page = Page()
    stack, write = os.pipe()
    gc.collect()
    gc.freeze()  # what both share stays shared: no collection touches it
    _flush()
    pid = os.fork()
    if pid == 0:
        _become(page, stack, seconds, mark, log)
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
    page: Page, stack: int, seconds: float, mark: Callable[[str], bool], log: Write
) -> NoReturn:
    """Be the watcher.  It has no listener, so that no client waits for it."""
    try:
        for number in _QUIET:  # sent to all of a group; it goes with whom it watches
            signal.signal(number, signal.SIG_IGN)
        os.closerange(3, stack)
        os.closerange(stack + 1, os.sysconf("SC_OPEN_MAX"))
        worker = os.getppid()
        label = _wait(page, worker, seconds)
        if label is not None:
            fields = json.loads(label) | {"seconds": seconds, "stack": _stack_of(worker, stack)}
            log("error", "process_blocked", {"pid": worker, **fields})
            _end(worker)
            ended = mark(label)
            log("error", "blocked_run_ended" if ended else "blocked_run_left", json.loads(label))
    except BaseException:  # noqa: BLE001 (the boundary of the process)
        traceback.print_exc()
    finally:
        _flush()
        os._exit(0)


def _wait(page: Page, worker: int, seconds: float) -> str | None:
    """Return the label of a step that does not come back; None when the worker is gone."""
    while os.getppid() == worker:
        step = page.step()
        now = time.monotonic()
        if step is not None and now - step[0] >= seconds:
            return step[1]
        left = seconds if step is None else seconds - (now - step[0])
        time.sleep(min(_LOOK_SECONDS, left))
    return None


def _stack_of(worker: int, stack: int) -> str:
    """Return what the worker does, as it says itself, innermost first."""
    os.kill(worker, _SIGNAL)
    told = b""
    while len(told) < _LONGEST_STACK:
        ready, _, _ = select.select([stack], [], [], _STACK_SECONDS if not told else 0.1)
        if not ready or not (more := os.read(stack, _LONGEST_STACK)):
            break
        told += more
    return told.decode("utf-8", "replace")


def _end(worker: int) -> None:
    """Kill the worker, and wait until it is gone: then nothing of it holds a lock."""
    os.kill(worker, signal.SIGKILL)
    while os.getppid() == worker:
        time.sleep(0.01)


def _flush() -> None:
    """Write what is in buffers, so that the watcher does not write it again."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # None where it was closed
            stream.flush()
