"""`legation serve --dev`: a server for whoever writes the agents.

One process watches the files, and starts another one that serves (`reloading`); that one shows what
nobody else may see (`dev_output`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any, Final, NoReturn

from attrs import evolve

from legation import Platform
from legation_host.loading import LoadError
from legation_server import (
    ListenError,
    close_listeners,
    open_listeners,
    open_unix_listener,
)

from .dev_output import DevOutput, find_secrets
from .failing import CannotGoOn
from .reloading import CHILD, Reloader, find_folders, take_given, wait_only, watch_files
from .service import ServeOptions, Service
from .target import find_past, load_target

__all__ = ["serve_dev"]

_NEEDS: Final = "--dev needs watchfiles: pip install 'legation[dev]'"
_ALONE: Final = "--dev serves with one worker: leave out --workers"
_ITSELF: Final = "--dev opens its own sockets: it cannot serve those of a service manager"
_BACKLOG: Final = 128


def serve_dev(
    target: str | None,
    options: Mapping[str, Any],
    greet: Callable[[Platform, str], object],
) -> NoReturn:
    """Serve, or watch over the process that does; end with its exit code.

    Raises:
        CannotGoOn: Something is wrong that the author can mend.
    """
    if CHILD in os.environ:
        alive, given = take_given(os.environ)
        typed = evolve(ServeOptions(**options), given=given, parent=alive)
        raise SystemExit(_serve(target, typed, greet))
    raise SystemExit(_watch(target, ServeOptions(**options)))


def _watch(target: str | None, options: ServeOptions) -> int:
    if not _has_watchfiles():
        raise CannotGoOn(_NEEDS)
    if options.workers > 1:
        raise CannotGoOn(_ALONE)
    if os.environ.get("LISTEN_PID") == str(os.getpid()):
        raise CannotGoOn(_ITSELF)
    folders = find_folders(target)
    changes = partial(watch_files, folders) if folders else wait_only
    try:
        if options.unix is None:
            listeners = open_listeners(options.host, options.port, backlog=_BACKLOG)
        else:
            listeners = (open_unix_listener(options.unix, backlog=_BACKLOG),)
    except ListenError as error:
        raise CannotGoOn(str(error)) from None
    try:
        return Reloader(listeners, sys.argv[1:], changes).run()
    finally:
        close_listeners(listeners)


def _has_watchfiles() -> bool:
    try:
        return find_spec("watchfiles") is not None
    except ValueError:  # it is kept out
        return False


def _serve(
    target: str | None, options: ServeOptions, greet: Callable[[Platform, str], object]
) -> int:
    """Serve, with an output for the author."""
    output = DevOutput(sys.stderr, find_secrets(os.environ))
    if options.log_format == "auto":
        options = evolve(options, log_format="text")

    def load() -> Platform:
        try:
            platform = load_target(target, writes=True)
        except LoadError as error:
            if error.__cause__ is not None:
                output.show_error("The platform cannot be read", error.__cause__)
            raise
        output.secrets = find_secrets(os.environ, platform.databases.values())
        output.watch_models(platform)
        return platform

    return Service(load, options, greet, output.show_error, find_past(target)).run()
