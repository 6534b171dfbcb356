"""The rules of `OpenStream`, `NextChunk` and `CloseStream`: responses read as they come."""

from __future__ import annotations

from typing import Any, Final

from legation.effects import (
    CloseStream,
    Concurrently,
    NextChunk,
    OpenStream,
    Program,
    Streaming,
    Unreachable,
)

from ..bench import (
    LONG,
    SHORT,
    Bench,
    Broken,
    Case,
    ask,
    ask_at_once,
    ask_in_vain,
    expect,
    require,
)
from ..peer import BIG
from .network import await_no_connection, refusals

__all__ = ["CASES", "open_stream"]


def open_stream(bench: Bench, path: str) -> Program[Streaming]:
    """Open the response of the server at `path`."""
    effect = OpenStream("GET", bench.peer.url + path, timeout_seconds=LONG)
    head = yield from ask_at_once(effect)
    if not isinstance(head, Streaming):
        raise Broken(f"{path} was answered {head!r}")
    return head


def _read(stream: int) -> Program[tuple[bytes, bytes | Unreachable]]:
    """Return what comes of `stream`, and what comes after that."""
    data = b""
    while True:
        chunk = yield from ask_at_once(NextChunk(stream, LONG))
        if not chunk or isinstance(chunk, Unreachable):
            return data, chunk
        data += chunk


def _head(bench: Bench) -> Program[None]:
    for number, (path, status) in enumerate(
        (("/pieces", 200), ("/missing", 404), ("/failing", 500), ("/redirect", 302)), 1
    ):
        head = yield from open_stream(bench, path)
        expect(f"the status of {path}", head.status, status)
        expect("the header X-Kit, in lower case", head.headers.get("x-kit"), "Yes")
        expect("the number of a stream, counted by its program from 1", head.stream, number)


def _count_apart(bench: Bench) -> Program[None]:
    def one(path: str) -> Program[tuple[int, bytes]]:
        head = yield from open_stream(bench, path)
        data, _ = yield from _read(head.stream)
        return head.stream, data

    own = yield from open_stream(bench, "/pieces")
    found = yield from Concurrently((one("/missing"), one("/failing")))
    expected = ((1, b"There is no such page."), (1, b"The server failed."))
    expect("the streams of two programs", found, expected)
    data, _ = yield from _read(own.stream)
    expect("the stream of the program that asked", data, b"one two three")


def _whole(bench: Bench) -> Program[None]:
    for path, body in (("/pieces", b"one two three"), ("/empty", b""), ("/growing", bytes(BIG))):
        head = yield from open_stream(bench, path)
        data, end = yield from _read(head.stream)
        expect(f"the bytes of {path}", len(data), len(body))
        require(data == body, f"the body of {path} is another")
        for _ in range(2):
            expect("at the end", end, b"")
            end = yield from ask_at_once(NextChunk(head.stream, LONG))


def _as_it_comes(bench: Bench) -> Program[None]:
    path = "/stalled/first"
    head = yield from open_stream(bench, path)
    first = yield from ask_at_once(NextChunk(head.stream, LONG))
    expect("what had come", first, b"one ")
    late = yield from ask_in_vain(NextChunk(head.stream, SHORT))
    expect("what did not come in time", late, Unreachable("timeout"))
    after = yield from ask_at_once(NextChunk(head.stream, LONG))
    expect("after a time-out the stream is at its end", after, b"")
    yield from await_no_connection(bench, path)


def _rests(bench: Bench) -> Program[None]:
    head = yield from open_stream(bench, "/stalled/resting")
    first = yield from ask_at_once(NextChunk(head.stream, LONG, SHORT))
    expect("what had come, though nothing follows", first, b"one ")
    late = yield from ask_in_vain(NextChunk(head.stream, SHORT, LONG))
    expect("a rest within the time-out", late, Unreachable("timeout"))
    head = yield from open_stream(bench, "/pieces/resting")
    data = b""
    while chunk := (yield from ask_at_once(NextChunk(head.stream, LONG, SHORT))):
        if isinstance(chunk, Unreachable):
            raise Broken(f"what came with rests was {data!r}, then {chunk!r}")
        data += chunk
    expect("the bytes that came with rests", data, b"one two three")


def _breaks(bench: Bench) -> Program[None]:
    head = yield from open_stream(bench, "/broken")
    data, end = yield from _read(head.stream)
    expect("what came before the connection broke", data, b"one ")
    expect("what came then", end, Unreachable("protocol"))
    after = yield from ask_at_once(NextChunk(head.stream, LONG))
    expect("after a failure the stream is at its end", after, b"")


def _unreachable(bench: Bench) -> Program[None]:
    for url, reason in refusals(bench):
        answer = yield from ask_at_once(OpenStream("GET", url, timeout_seconds=LONG))
        expect(f"{url} was answered", answer, Unreachable(reason))


def _in_time(bench: Bench) -> Program[None]:
    effect = OpenStream("GET", f"{bench.peer.url}/silent/opened", timeout_seconds=SHORT)
    expect("no head was answered", (yield from ask_in_vain(effect)), Unreachable("timeout"))


def _close(bench: Bench) -> Program[None]:
    path = "/stalled/closed"
    head = yield from open_stream(bench, path)
    yield from ask_at_once(NextChunk(head.stream, LONG))
    for _ in range(2):
        expect("closing was answered", (yield from ask_at_once(CloseStream(head.stream))), None)
    chunk = yield from ask_at_once(NextChunk(head.stream, LONG))
    expect("a stream that was closed is at its end", chunk, b"")
    yield from await_no_connection(bench, path)


def _end_closes(bench: Bench) -> None:
    path = "/stalled/left"

    def leave_open() -> Program[None]:
        for _ in range(3):
            head = yield from open_stream(bench, path)
            yield from ask_at_once(NextChunk(head.stream, LONG))

    def fail() -> Program[None]:
        yield from open_stream(bench, path)
        raise _OwnError

    bench.run(leave_open())
    bench.run(await_no_connection(bench, path))
    try:
        bench.run(fail())
    except _OwnError:
        bench.run(await_no_connection(bench, path))
    else:
        raise Broken("`run` returned, and its program had raised an error")


class _OwnError(Exception):
    """An error that a program of a case raises."""


def _inner_end_closes(bench: Bench) -> Program[None]:
    path = "/stalled/within"

    def leave_open() -> Program[None]:
        yield from open_stream(bench, path)

    yield from Concurrently((leave_open(), leave_open()))
    yield from await_no_connection(bench, path)


def _side_by_side(bench: Bench) -> Program[None]:
    def one(number: int) -> Program[bytes]:
        head = yield from open_stream(bench, f"/pieces/{number}")
        data, _ = yield from _read(head.stream)
        return data

    found: Any = yield from Concurrently(tuple(one(number) for number in range(10)))
    expect("each read its own", found, (b"one two three",) * 10)


def _no_such_stream(bench: Bench) -> None:
    for number in (0, 1, 7):
        answer = _answer_or_none(bench, number)
        require(answer is None, f"stream {number} was never opened; `NextChunk`: {answer!r}")


def _answer_or_none(bench: Bench, number: int) -> Any:
    try:
        return bench.run(ask(NextChunk(number, SHORT)))
    except Broken:
        raise
    except Exception:  # noqa: BLE001  any will do
        return None


CASES: Final = (
    Case(
        "OpenStream.head",
        OpenStream,
        "Every head is a `Streaming`, whatever its status; redirects are not followed",
        _head,
    ),
    Case(
        "OpenStream.counted_apart",
        OpenStream,
        "Each program counts its own streams from 1",
        _count_apart,
    ),
    Case(
        "OpenStream.unreachable",
        OpenStream,
        "Where there is no response, the answer says why",
        _unreachable,
    ),
    Case(
        "OpenStream.in_time", OpenStream, "`timeout_seconds` bounds the wait for the head", _in_time
    ),
    Case(
        "OpenStream.end_closes",
        OpenStream,
        "The end of a program closes the streams that it left open",
        _end_closes,
    ),
    Case(
        "OpenStream.inner_end_closes",
        OpenStream,
        "The end of an inner program closes the streams that it left open",
        _inner_end_closes,
    ),
    Case(
        "OpenStream.side_by_side",
        OpenStream,
        "Streams do not wait for each other",
        _side_by_side,
    ),
    Case("NextChunk.whole", NextChunk, "All bytes come, in order; then the end, and again", _whole),
    Case(
        "NextChunk.as_it_comes",
        NextChunk,
        "Bytes are handed over as they come; what is late is a time-out, and closes",
        _as_it_comes,
    ),
    Case(
        "NextChunk.rests",
        NextChunk,
        "With `rest_seconds` nothing is lost, and what came is answered though nothing follows",
        _rests,
    ),
    Case("NextChunk.breaks", NextChunk, "A connection that breaks is not an end", _breaks),
    Case(
        "NextChunk.no_such_stream",
        NextChunk,
        "A stream that the program never opened is a fault",
        _no_such_stream,
    ),
    Case(
        "CloseStream.closes",
        CloseStream,
        "`CloseStream` closes the connection, and does nothing a second time",
        _close,
    ),
)
