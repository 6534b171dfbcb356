"""The signals that a serving process obeys, as a table.

A process that serves alone drains at the first order to end and stops at the second, whichever
two of SIGTERM and SIGINT they are.  A worker stops at its parent's order alone: whoever ends a
whole group of processes (systemd does) has SIGTERM come to it twice, once by its parent.
"""

from __future__ import annotations

import enum
import signal
from collections.abc import Mapping
from typing import Final, TypeAlias

__all__ = [
    "ALONE_ORDERS",
    "STOP_SIGNAL",
    "WORKER_ORDERS",
    "Obey",
    "Orders",
    "hold_reload",
    "ignore_reload",
    "release_reload",
]

STOP_SIGNAL: Final = signal.SIGUSR1
"""What a parent sends to a worker whose work is to be broken off."""


class Obey(enum.Enum):
    """The action of a process at a signal."""

    RELOAD = enum.auto()
    DRAIN = enum.auto()
    STOP = enum.auto()
    NOTHING = enum.auto()


Orders: TypeAlias = Mapping[tuple[int, bool], Obey]
"""What is done at a signal, by whether the process drains already."""

ALONE_ORDERS: Final[Orders] = {
    (signal.SIGTERM, False): Obey.DRAIN,
    (signal.SIGTERM, True): Obey.STOP,
    (signal.SIGINT, False): Obey.DRAIN,
    (signal.SIGINT, True): Obey.STOP,
    (signal.SIGHUP, False): Obey.RELOAD,
    (signal.SIGHUP, True): Obey.NOTHING,
}

WORKER_ORDERS: Final[Orders] = {
    (signal.SIGTERM, False): Obey.DRAIN,
    (signal.SIGTERM, True): Obey.NOTHING,
    (STOP_SIGNAL, False): Obey.STOP,
    (STOP_SIGNAL, True): Obey.STOP,
}


def hold_reload() -> None:
    """Let SIGHUP wait until somebody obeys it: it would end the process before, and after."""
    signal.signal(signal.SIGHUP, _do_nothing)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})


def release_reload() -> None:
    """Deliver a SIGHUP that waited."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


def ignore_reload() -> None:
    """Ignore SIGHUP until the process is gone: the interpreter gives up its handlers before."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    release_reload()


def _do_nothing(_: int, __: object) -> None:
    """Take a signal for which it is too early or too late."""
