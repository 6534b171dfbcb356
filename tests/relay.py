"""A relay of TCP connections that a test can lead elsewhere, cut, or silence."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress

__all__ = ["Relay", "relay"]


class Relay:
    """Passes on what comes, on a thread of its own."""

    def __init__(self, target: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._target = target
        self._silent = False
        self._ended = False
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def lead_to(self, target: int) -> None:
        """Cut every connection; new ones go to the port `target`."""
        self._target = target
        self.cut()

    def cut(self) -> None:
        """Cut every connection."""
        for end in tuple(self._pairs):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def silence(self) -> None:
        """Accept, and pass nothing on."""
        self._silent = True

    def speak(self) -> None:
        """Pass on again, also what came meanwhile."""
        self._silent = False

    def close(self) -> None:
        """End every connection, and the thread."""
        self._ended = True
        self._thread.join(10)
        for end in tuple(self._pairs):
            end.close()
        self._selector.close()
        self._listener.close()

    def _serve(self) -> None:
        while not self._ended:
            for key, _ in self._selector.select(0.01):
                if self._silent:
                    time.sleep(0.01)
                elif key.fileobj is self._listener:
                    self._accept()
                else:
                    self._pass_on(key.fileobj)  # type: ignore[arg-type]  # a socket of ours

    def _accept(self) -> None:
        end, _ = self._listener.accept()
        try:
            other = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            end.close()
            return
        for one, two in ((end, other), (other, end)):
            self._pairs[one] = two
            self._selector.register(one, selectors.EVENT_READ)

    def _pass_on(self, end: socket.socket) -> None:
        if end not in self._pairs:
            return  # closed with the other a moment ago
        try:
            data = end.recv(1 << 16)
            self._pairs[end].sendall(data)
        except OSError:
            data = b""
        if not data:
            for one in (end, self._pairs[end]):
                self._selector.unregister(one)
                del self._pairs[one]
                one.close()


@contextmanager
def relay(target: int) -> Generator[Relay]:
    """Yield a relay to the port `target` of this machine."""
    with closing(Relay(target)) as made:
        yield made
