"""The protocols of a service manager: listening sockets in, the state of the server out.

Environment variables and a datagram (sd_listen_fds(3), sd_notify(3)): no library is needed.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import MutableMapping
from typing import Final

from .listeners import ListenError

__all__ = ["Notifier", "take_listeners"]

_FIRST: Final = 3
"""The first descriptor that is passed on."""

_DIGITS: Final = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


def take_listeners(environ: MutableMapping[str, str]) -> tuple[socket.socket, ...]:
    """Return the listening sockets that the service manager passed; an empty tuple without any.

    The variables are taken out of `environ`: no child is to think they were meant for it.

    Raises:
        ListenError: What was passed is not a listening stream socket.
    """
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isascii() or not count.isdigit():
        return ()
    return tuple(_listener(fd) for fd in range(_FIRST, _FIRST + int(count)))


def _listener(fd: int) -> socket.socket:
    try:
        os.set_inheritable(fd, False)
        listener = socket.socket(fileno=fd)
        listens = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise ListenError(f"Descriptor {fd} is not a socket: {error.strerror}") from None
    if listener.type != socket.SOCK_STREAM or not listens:
        listener.detach()
        raise ListenError(f"Descriptor {fd} is not a listening stream socket")
    listener.setblocking(False)
    return listener


def _take_watchdog(environ: MutableMapping[str, str]) -> float | None:
    """Return the seconds of this process's watchdog (sd_watchdog_enabled(3)), if it has one."""
    pid, microseconds = environ.pop("WATCHDOG_PID", ""), environ.pop("WATCHDOG_USEC", "")
    if pid not in ("", str(os.getpid())) or not _DIGITS.fullmatch(microseconds):
        return None
    return int(microseconds) / 1e6


class Notifier:
    """Tells the service manager how the server is; silent where nobody asked.

    Attributes:
        watchdog_seconds: The service manager ends this process when it gets no beat for so long;
            None where it waits for none.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        address = environ.pop("NOTIFY_SOCKET", "")
        # An abstract address is written with an @ in the place of its zero byte.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_seconds = _take_watchdog(environ) if address else None

    def tell_ready(self) -> None:
        """Say that requests are answered."""
        self._tell("READY=1")

    def tell_reload(self) -> None:
        """Say that the configuration is being read again; `tell_ready` follows."""
        self._tell(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def tell_stop(self) -> None:
        """Say that the end has begun."""
        self._tell("STOPPING=1")

    def beat(self) -> None:
        """Say that requests are answered still, where a watchdog waits to hear it."""
        if self.watchdog_seconds is not None:
            self._tell("WATCHDOG=1")

    def _tell(self, state: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaker:
            try:
                speaker.connect(self._address)
                speaker.send(state.encode("ascii"))
            except OSError:
                return  # a service manager that does not listen is no reason not to serve
