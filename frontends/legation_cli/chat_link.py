"""The connection of a chat: requests to a server, and the events of a stream as they come."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import httpx2
from attrs import field

from legation.http.sse import Decoder
from legation.values import define

from .chat_actions import Call, Ended, Event, Lost, Reply
from .chat_json import as_object

__all__ = ["Link", "open_link"]

_CONNECT_SECONDS: Final = 10.0
_SILENCE_SECONDS: Final = 60.0  # a stream has a comment every 15
_LONGEST_EVENT: Final = 64 << 20  # bytes
_LONGEST_BODY: Final = 16 << 20


@contextmanager
def open_link(url: str, token: str, *, local: bool) -> Generator[Link]:
    """Yield the connection to the server at `url`, which is closed with the block.

    Args:
        url: Without a slash at its end.
        token: For the header Authorization; none is sent where it is empty.
        local: It is on this machine, to which no proxy leads.
    """
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    timeout = httpx2.Timeout(_SILENCE_SECONDS, connect=_CONNECT_SECONDS)
    with httpx2.Client(base_url=url, headers=headers, timeout=timeout, trust_env=not local) as http:
        link = Link(http)
        try:
            yield link
        finally:
            link.close()


@define(eq=False)
class Link:
    """Sends requests, and reads one stream at a time; every wait may be interrupted."""

    http: httpx2.Client
    _response: httpx2.Response | None = field(default=None, init=False)
    _pieces: Iterator[bytes] = field(factory=lambda: iter(()), init=False)
    _decoder: Decoder = field(factory=Decoder, init=False)
    _events: deque[Event] = field(factory=deque[Event], init=False)

    def send(self, call: Call) -> Reply | Lost:
        """Return the response to `call`."""
        try:
            response = self._request(call)
            try:
                return _read_reply(response)
            finally:
                response.close()
        except httpx2.HTTPError as error:
            return Lost(_describe(error))

    def open(self, call: Call) -> Reply | Lost | None:
        """Open the stream that answers `call`; return None, or what came in its place."""
        self.close()
        try:
            response = self._request(call)
            kind = response.headers.get("content-type", "")
            if response.status_code == 200 and kind.startswith("text/event-stream"):
                self._response, self._decoder = response, Decoder()
                self._pieces = response.iter_bytes()
                return None
            try:
                reply = _read_reply(response)
            finally:
                response.close()
        except httpx2.HTTPError as error:
            return Lost(_describe(error))
        if reply.status < 400:
            return Lost("what answers there is no Legation", final=True)
        return reply

    def next(self) -> Event | Ended:
        """Return the next event of the stream."""
        unread = 0
        while not self._events:
            try:
                piece = next(self._pieces, None)
            except httpx2.HTTPError:
                piece = None
            if piece is None or unread > _LONGEST_EVENT:
                return Ended()
            unread += len(piece)
            self._take(piece)
        return self._events.popleft()

    def close(self) -> None:
        """Close the stream, if one is open; what came of it and was not read is gone."""
        response, self._response = self._response, None
        self._pieces = iter(())
        self._events.clear()
        if response is not None:
            with suppress(httpx2.HTTPError, RuntimeError):
                response.close()

    def _take(self, piece: bytes) -> None:
        for event in self._decoder.feed(piece):
            data = _read_json(event.data)
            self._events.append(Event(event.name, as_object(data), event.id))

    def _request(self, call: Call) -> httpx2.Response:
        named = {"Idempotency-Key": call.key, "Last-Event-ID": call.after}
        headers = {name: value for name, value in named.items() if value}
        form: dict[str, Any] = {"params" if call.method == "GET" else "data": dict(call.form)}
        request = self.http.build_request(call.method, call.path, headers=headers, **form)
        return self.http.send(request, stream=True)


def _read_reply(response: httpx2.Response) -> Reply:
    """Return the whole response; the body of one that is too long is left out."""
    body = bytearray()
    for piece in response.iter_bytes():
        body += piece
        if len(body) > _LONGEST_BODY:
            return Reply(response.status_code)
    return Reply(response.status_code, _read_json(body))


def _read_json(text: str | bytes | bytearray) -> object:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found


def _describe(error: httpx2.HTTPError) -> str:
    """Return why there was no response, in a few words."""
    if isinstance(error, httpx2.ConnectError):
        return "the server cannot be reached"
    if isinstance(error, httpx2.TimeoutException):
        return "the server does not answer"
    return f"the connection broke ({type(error).__name__})"
