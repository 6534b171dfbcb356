"""Serves a Legation platform over HTTP/1.1, with trio and h11.

`open_listeners` says at once what is wrong with an address, `run` serves until a signal comes;
`serve` is the same within a trio program.
"""

from __future__ import annotations

from .listeners import (
    ListenError,
    address_of,
    close_listeners,
    open_listeners,
    open_unix_listener,
)
from .running import run
from .server import Server, serve
from .settings import DEFAULT, Settings
from .worker import Platform, Runner

__all__ = [
    "DEFAULT",
    "ListenError",
    "Platform",
    "Runner",
    "Server",
    "Settings",
    "address_of",
    "close_listeners",
    "open_listeners",
    "open_unix_listener",
    "run",
    "serve",
]
