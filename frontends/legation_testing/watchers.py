"""The watchers of responses: they see every response that a client gets in a test."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from legation.http.messages import Request

from .exchange import ClientResponse

__all__ = ["Watcher", "tell", "watch_responses"]

Watcher: TypeAlias = Callable[[Any, Request, ClientResponse], object]
"""Called with what answered, the request and the response; what it raises, the caller gets."""

_WATCHERS: Final[list[Watcher]] = []


@contextmanager
def watch_responses(watcher: Watcher) -> Generator[None]:
    """Call `watcher` with each response that any `Client` returns while the block runs."""
    _WATCHERS.append(watcher)
    try:
        yield
    finally:
        _WATCHERS.remove(watcher)


def tell(answering: object, request: Request, response: ClientResponse) -> None:
    """Show a response to whoever watches."""
    for watcher in tuple(_WATCHERS):
        watcher(answering, request, response)
