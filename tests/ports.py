"""Ports of loopback for servers that must be told theirs before they start."""

from __future__ import annotations

import socket
from random import SystemRandom
from typing import Final

__all__ = ["free_port"]

_PORTS: Final = range(15_000, 30_000)
"""Below those that the system gives to connections of clients.

A port of theirs can be taken between the look and the start of a server.  Worse, a client that
asks it again and again whether somebody listens is given it as its own some day: it is then
connected to itself, and takes that for an answer.
"""


def free_port() -> int:
    """Return a port that nobody listens on, and that no client's connection is given."""
    for port in SystemRandom().sample(_PORTS, 100):
        with socket.socket() as probe:
            # A server that has just ended leaves connections behind, which do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise OSError("no free port")
