"""Serves a Legation platform over HTTP/1.1, with trio and h11.

`open_listeners` says at once what is wrong with an address, `run` serves until a signal comes;
`serve` is the same within a trio program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .context import Runner
from .listeners import (
    ListenError,
    address_of,
    close_listeners,
    open_listeners,
    open_slots,
    open_unix_listener,
)
from .orders import hold_reload, ignore_reload
from .process import Life, run
from .proxies import BadNetwork, Proxies, parse_networks
from .server import Server, serve
from .settings import DEFAULT, BadLimit, Settings, parse_limits
from .systemd import Notifier, take_listeners

if TYPE_CHECKING:
    from .prefork import Hooks, Work, run_workers
else:

    def __getattr__(name: str) -> Any:
        """Import what several workers need, of which most servers have one.

        Raises:
            AttributeError: There is none of that name.
        """
        if name not in _OF_SEVERAL:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(__import__(f"{__name__}.prefork", fromlist=[name]), name)


_OF_SEVERAL: Final = frozenset({"Hooks", "Work", "run_workers"})

__all__ = [
    "DEFAULT",
    "BadLimit",
    "BadNetwork",
    "Hooks",
    "Life",
    "ListenError",
    "Notifier",
    "Proxies",
    "Runner",
    "Server",
    "Settings",
    "Work",
    "address_of",
    "close_listeners",
    "hold_reload",
    "ignore_reload",
    "open_listeners",
    "open_slots",
    "open_unix_listener",
    "parse_limits",
    "parse_networks",
    "run",
    "run_workers",
    "serve",
    "take_listeners",
]
