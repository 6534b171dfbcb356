"""Faults in what is fetched, streamed and called."""

from __future__ import annotations

import inspect
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from attrs import define, evolve

from legation.effects import (
    CallFunction,
    CloseStream,
    Fetch,
    FetchReply,
    NextChunk,
    NextPiece,
    OpenStream,
    Program,
    Raised,
    Returned,
    Sleep,
    Streaming,
    TimedOut,
    Unreachable,
    Yielding,
)
from legation.programs import Handlers

from .planting import KEPT, Fault, ask, effects_of

__all__ = ["FAULTS"]

R = TypeVar("R")


class _Out(BaseException):
    """An error that no program catches."""


@define
class _WithoutClose:
    """An async iterator that nobody can close."""

    iterator: AsyncIterator[Any]

    def __aiter__(self) -> AsyncIterator[Any]:
        KEPT.append(self)
        return self

    async def __anext__(self) -> Any:
        return await anext(self.iterator)


def connect_as_well(effect: OpenStream) -> Program[Any]:
    """Open the stream, and one more that nobody will close."""
    parts = urlsplit(effect.url)
    connection = socket.create_connection((str(parts.hostname), parts.port or 80))
    connection.sendall(f"GET {parts.path} HTTP/1.1\r\nhost: kit\r\n\r\n".encode())
    connection.settimeout(0.1)
    with suppress(TimeoutError):
        connection.recv(1)  # the answer has begun, unless it never does
    KEPT.append(connection)
    return (yield effect)


@effects_of("Fetch.redirect")
def redirects_followed() -> Handlers:
    def fetch(effect: Fetch) -> Program[Any]:
        answer = yield effect
        if isinstance(answer, FetchReply) and answer.status == 302:
            parts = urlsplit(effect.url)
            target = f"{parts.scheme}://{parts.netloc}{answer.headers['location']}"
            return (yield evolve(effect, url=target))
        return answer

    return {Fetch: fetch}


@effects_of("Fetch.limit")
def body_of_any_size() -> Handlers:
    return {Fetch: lambda effect: ask(evolve(effect, max_bytes=1 << 30))}


@effects_of("Fetch.in_time")
def fetch_has_no_time_out() -> Handlers:
    return {Fetch: lambda effect: ask(evolve(effect, timeout_seconds=30.0))}


@effects_of("Fetch.reply")
def error_status_is_no_reply() -> Handlers:
    def fetch(effect: Fetch) -> Program[Any]:
        answer = yield effect
        if isinstance(answer, FetchReply) and answer.status >= 500:
            return Unreachable("protocol")
        return answer

    return {Fetch: fetch}


@effects_of("Fetch.reply")
def header_names_as_sent() -> Handlers:
    def fetch(effect: Fetch) -> Program[Any]:
        answer = yield effect
        if not isinstance(answer, FetchReply):
            return answer
        headers = {name.title(): value for name, value in answer.headers.items()}
        return evolve(answer, headers=headers)

    return {Fetch: fetch}


@effects_of("Fetch.request")
def request_headers_lost() -> Handlers:
    return {Fetch: lambda effect: ask(evolve(effect, headers=()))}


@effects_of("Fetch.unreachable")
def network_failures_thrown() -> Handlers:
    def fetch(effect: Fetch) -> Program[Any]:
        answer = yield effect
        if isinstance(answer, Unreachable):
            raise ConnectionError(answer.reason)
        return answer

    return {Fetch: fetch}


@effects_of("Fetch.side_by_side")
def requests_one_after_another() -> Handlers:
    """One connection for all: the others wait for who has it."""
    busy: list[Any] = []

    def fetch(effect: Fetch) -> Program[Any]:
        while busy:
            yield Sleep(1.0)
        busy.append(effect)
        try:
            return (yield effect)
        finally:
            busy.clear()

    return {Fetch: fetch}


@effects_of("OpenStream.counted_apart")
def streams_counted_together() -> Handlers:
    opened: dict[int, int] = {}

    def open_stream(effect: OpenStream) -> Program[Any]:
        head = yield effect
        if not isinstance(head, Streaming):
            return head
        opened[len(opened) + 1] = head.stream
        return evolve(head, stream=len(opened))

    def next_chunk(effect: NextChunk) -> Program[Any]:
        return (yield evolve(effect, stream=opened[effect.stream]))

    return {OpenStream: open_stream, NextChunk: next_chunk}


@effects_of("OpenStream.in_time")
def stream_head_has_no_time_out() -> Handlers:
    return {OpenStream: lambda effect: ask(evolve(effect, timeout_seconds=30.0))}


@effects_of("OpenStream.end_closes")
def connections_left_open() -> Handlers:
    return {OpenStream: connect_as_well}


@effects_of("NextChunk.as_it_comes")
def streams_read_to_the_end() -> Handlers:
    def next_chunk(effect: NextChunk) -> Program[Any]:
        data = b""
        while True:
            chunk = yield effect
            if isinstance(chunk, Unreachable):
                return chunk
            if not chunk:
                return data
            data += chunk

    return {NextChunk: next_chunk}


@effects_of("NextChunk.breaks")
def broken_stream_ends() -> Handlers:
    def next_chunk(effect: NextChunk) -> Program[Any]:
        chunk = yield effect
        return b"" if isinstance(chunk, Unreachable) else chunk

    return {NextChunk: next_chunk}


@effects_of("NextChunk.as_it_comes")
def chunks_have_no_time_out() -> Handlers:
    return {NextChunk: lambda effect: ask(evolve(effect, timeout_seconds=30.0))}


@effects_of("NextChunk.no_such_stream")
def unknown_stream_is_at_its_end() -> Handlers:
    def next_chunk(_: NextChunk) -> Program[bytes]:
        yield from ()
        return b""

    return {NextChunk: next_chunk}


@effects_of("CloseStream.closes")
def close_stream_does_nothing() -> Handlers:
    def close(_: CloseStream) -> Program[None]:
        yield from ()

    return {CloseStream: close}


@effects_of("CloseStream.closes")
def close_stream_twice_fails() -> Handlers:
    closed: set[int] = set()

    def close(effect: CloseStream) -> Program[None]:
        if effect.stream in closed:
            raise KeyError(effect.stream)
        closed.add(effect.stream)
        yield effect

    return {CloseStream: close}


@effects_of("CallFunction.raises")
def function_error_thrown() -> Handlers:
    def call(effect: CallFunction) -> Program[Any]:
        outcome = yield effect
        if isinstance(outcome, Raised):
            raise outcome.error
        return outcome

    return {CallFunction: call}


@effects_of("CallFunction.exits")
def exit_of_a_function_ends_the_host() -> Handlers:
    def call(effect: CallFunction) -> Program[Any]:
        outcome = yield effect
        if isinstance(outcome, Raised) and isinstance(outcome.error.__cause__, SystemExit):
            raise _Out
        return outcome

    return {CallFunction: call}


@effects_of("CallFunction.in_time")
def functions_have_no_time_out() -> Handlers:
    return {CallFunction: lambda effect: ask(evolve(effect, timeout_seconds=30.0))}


@effects_of("CallFunction.returns")
def coroutine_not_awaited() -> Handlers:
    def call(effect: CallFunction) -> Program[Any]:
        if not inspect.iscoroutinefunction(effect.function):
            return (yield effect)
        coroutine = effect.function(**effect.arguments)
        coroutine.close()
        return Returned(coroutine)

    return {CallFunction: call}


@effects_of("CallFunction.thread_holds_up_nobody", host="trio")
def functions_on_the_event_loop() -> Handlers:
    def call(effect: CallFunction) -> Program[Any]:
        yield from ()
        return Returned(effect.function(**{**effect.arguments, "timeout": 0.1}))

    return {CallFunction: call}


@effects_of("CallFunction.returns")
def arguments_by_position() -> Handlers:
    def call(effect: CallFunction) -> Program[Any]:
        values = tuple(effect.arguments.values())[::-1]
        function = effect.function
        return (yield evolve(effect, function=lambda: function(*values), arguments={}))

    return {CallFunction: call}


@effects_of("NextPiece.pieces")
def last_piece_lost() -> Handlers:
    held: list[Any] = []

    def next_piece(effect: NextPiece) -> Program[Any]:
        if not held:
            held.append((yield effect))
        following = yield effect
        piece = None if following is None else held.pop()
        held.append(following)
        return piece

    return {NextPiece: next_piece}


@effects_of("NextPiece.raises")
def iterator_error_is_an_end() -> Handlers:
    def next_piece(effect: NextPiece) -> Program[Any]:
        piece = yield effect
        return None if isinstance(piece, Raised) else piece

    return {NextPiece: next_piece}


@effects_of("NextPiece.in_time")
def pieces_have_no_time_out() -> Handlers:
    return {NextPiece: lambda effect: ask(evolve(effect, timeout_seconds=30.0))}


@effects_of("NextPiece.in_time")
def late_piece_ends_nothing() -> Handlers:
    late: list[Any] = []

    def next_piece(effect: NextPiece) -> Program[Any]:
        if late:
            return TimedOut()
        piece = yield effect
        late.extend([piece] if isinstance(piece, TimedOut) else [])
        return piece

    return {NextPiece: next_piece}


@effects_of("NextPiece.end_closes", host="trio")
def iterators_left_open() -> Handlers:
    def call(effect: CallFunction) -> Program[Any]:
        function = effect.function
        return (yield evolve(effect, function=lambda: _WithoutClose(function())))

    return {CallFunction: call}


@effects_of("CloseStream.closes_iterator")
def closed_iterator_goes_on() -> Handlers:
    def close(_: CloseStream) -> Program[None]:
        yield from ()

    return {CloseStream: close}


@effects_of("OpenStream.head")
def redirects_of_streams_followed() -> Handlers:
    def open_stream(effect: OpenStream) -> Program[Any]:
        return (yield evolve(effect, url=effect.url.replace("redirect", "missing")))

    return {OpenStream: open_stream}


@effects_of("OpenStream.unreachable")
def every_failure_is_of_the_protocol() -> Handlers:
    def open_stream(effect: OpenStream) -> Program[Any]:
        head = yield effect
        return Unreachable("protocol") if isinstance(head, Unreachable) else head

    return {OpenStream: open_stream}


@effects_of("OpenStream.inner_end_closes")
def connections_of_inner_programs_left_open() -> Handlers:
    return {OpenStream: connect_as_well}


@effects_of("OpenStream.side_by_side")
def four_streams_at_one_time() -> Handlers:
    opened: list[OpenStream] = []

    def open_stream(effect: OpenStream) -> Program[Any]:
        opened.append(effect)
        return (yield effect) if len(opened) <= 4 else Unreachable("timeout")

    return {OpenStream: open_stream}


@effects_of("NextChunk.whole")
def first_chunk_lost() -> Handlers:
    def open_stream(effect: OpenStream) -> Program[Any]:
        head = yield effect
        if isinstance(head, Streaming):
            yield NextChunk(head.stream, 1.0)
        return head

    return {OpenStream: open_stream}


@effects_of("NextChunk.rests")
def what_comes_in_a_rest_lost() -> Handlers:
    def next_chunk(effect: NextChunk) -> Program[Any]:
        chunk = yield effect
        if effect.rest_seconds and chunk and not isinstance(chunk, Unreachable):
            return (yield evolve(effect, rest_seconds=0.0, timeout_seconds=1.0))
        return chunk

    return {NextChunk: next_chunk}


@effects_of("CallFunction.many")
def few_functions_at_one_time() -> Handlers:
    called: list[CallFunction] = []

    def call(effect: CallFunction) -> Program[Any]:
        called.append(effect)
        return (yield effect) if len(called) <= 100 else TimedOut()

    return {CallFunction: call}


@effects_of("CallFunction.thread_in_time", host="trio")
def threads_have_no_time_out() -> Handlers:
    return {CallFunction: lambda effect: ask(evolve(effect, timeout_seconds=30.0))}


@effects_of("CallFunction.threads_side_by_side", host="trio")
def one_thread_for_all() -> Handlers:
    def call(effect: CallFunction) -> Program[Any]:
        yield from ()
        try:
            return Returned(effect.function(**{**effect.arguments, "timeout": 0.1}))
        except Exception as error:  # noqa: BLE001  an outcome
            return Raised(error)

    return {CallFunction: call}


@effects_of("NextPiece.many")
def hundred_pieces_at_most() -> Handlers:
    came: list[Any] = []

    def next_piece(effect: NextPiece) -> Program[Any]:
        came.append(effect)
        return (yield effect) if len(came) <= 100 else None

    return {NextPiece: next_piece}


@effects_of("NextPiece.of_a_coroutine")
def iterator_of_a_coroutine_returned() -> Handlers:
    def call(effect: CallFunction) -> Program[Any]:
        outcome = yield effect
        if inspect.iscoroutinefunction(effect.function) and isinstance(outcome, Yielding):
            return Returned(outcome)
        return outcome

    return {CallFunction: call}


FAULTS: Final = tuple(value for value in tuple(globals().values()) if isinstance(value, Fault))
