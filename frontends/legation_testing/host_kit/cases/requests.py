"""The rules of `ReadBody` and `Emit`: the request being answered, and its streamed response."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from legation.effects import Emit, Interruptible, Now, Program, ReadBody, Sleep

from ..bench import LONG, SHORT, Bench, Broken, Case, Trace, ask, expect, require

__all__ = ["CASES"]

_LARGE: Final = 3_000_000
_MANY: Final = 2_000


def _body(body: bytes, limit: int, answer: bytes | None) -> Callable[[Bench], None]:
    def act(bench: Bench) -> None:
        read = bench.run(ask(ReadBody(limit)), body=body)
        expect(f"a body of {len(body)} bytes, read with the limit {limit}", read, answer)

    return act


def _body_within(bench: Bench) -> None:
    inner = Interruptible(ask(ReadBody(10)), bench.name("topic"), LONG)
    expect("the body as an inner program reads it", bench.run(ask(inner), body=b"body"), b"body")


class _Parts(list[bytes]):
    """The parts of a body, as they were emitted."""

    def whole(self) -> bytes:
        return b"".join(self)


def _order(bench: Bench) -> None:
    def emit_all() -> Program[None]:
        for number in range(_MANY):
            yield from Emit(b"%d\n" % number)
            if number % 100 == 0:
                yield from Sleep(0.0)

    parts = _Parts()
    bench.run(emit_all(), emit=parts.append)
    expect("what was emitted", parts.whole(), b"".join(b"%d\n" % n for n in range(_MANY)))
    require(all(parts), "an empty part was sent, which ends the body in some protocols")


def _before_waits(bench: Bench) -> None:
    def emit_and_wait(parts: _Parts) -> Program[None]:
        expected = b""
        for data in (b"a", b"bc", b"", b"d"):
            yield from Emit(data)
            yield from Emit(data.upper())
            expected += data + data.upper()
            yield from Sleep(SHORT / 4)
            expect("sent when the program goes on after a wait", parts.whole(), expected)

    parts = _Parts()
    bench.run(emit_and_wait(parts), emit=parts.append)


def _at_the_end(bench: Bench) -> None:
    def emit_last() -> Program[None]:
        yield from Emit(b"first ")
        yield from Sleep(0.0)
        yield from Emit(b"last ")
        yield from Now()
        yield from Emit(b"of all")

    parts = _Parts()
    bench.run(emit_last(), emit=parts.append)
    expect("what was emitted", parts.whole(), b"first last of all")


def _gather_pieces(bench: Bench) -> None:
    def emit_small() -> Program[None]:
        for _ in range(1_000):
            yield from Emit(b"x")
            yield from Now()

    parts = _Parts()
    bench.run(emit_small(), emit=parts.append)
    expect("bytes sent", len(parts.whole()), 1_000)
    require(
        len(parts) <= 100,
        f"1,000 bytes, emitted without a wait between them, were sent in {len(parts):,} parts",
    )


def _large(bench: Bench) -> None:
    data = bytes(range(256)) * (_LARGE // 256)
    parts = _Parts()
    bench.run(_emit_times(data, 2), emit=parts.append)
    require(parts.whole() == data * 2, f"of {2 * len(data):,} bytes {len(parts.whole()):,} came")


def _emit_times(data: bytes, times: int) -> Program[None]:
    for _ in range(times):
        yield from Emit(data)


def _from_within(bench: Bench) -> None:
    def outer() -> Program[None]:
        yield from Emit(b"before ")
        yield from Interruptible(_emit_times(b"within ", 2), bench.name("topic"), LONG)
        yield from Emit(b"after")

    parts = _Parts()
    bench.run(outer(), emit=parts.append)
    expect("what was emitted", parts.whole(), b"before within within after")


class _ReaderGone(Exception):
    """Nobody takes what is emitted."""


def _refuse(_: bytes) -> None:
    raise _ReaderGone


def _reader_gone(bench: Bench) -> None:
    trace = Trace()

    def emit_for_ever() -> Program[None]:
        for _ in range(10):
            yield from Emit(b"a")
            yield from Sleep(0.0)

    try:
        bench.run(trace.watch(emit_for_ever()), emit=_refuse)
    except _ReaderGone:
        pass
    else:
        raise Broken("`run` raised nothing although nobody took what was emitted")
    require(not trace.ended, "the program went on to its end although nobody took what it emitted")
    expect("a program after that returned", bench.run(ask(Now())) > 0, True)


CASES: Final = (
    *(
        Case(f"ReadBody.{name}", ReadBody, rule, _body(*body))
        for name, rule, body in (
            ("whole", "`ReadBody` gives the body, whole", (b"body", 10, b"body")),
            ("at_the_limit", "A body of `limit` bytes is read", (b"body", 4, b"body")),
            ("over_the_limit", "A body longer than `limit` is None", (b"body", 3, None)),
            ("limit_of_nothing", "With the limit 0 a body is None", (b"b", 0, None)),
            ("empty", "A request without a body has an empty one", (b"", 0, b"")),
            ("large", "A large body is whole", (bytes(_LARGE), _LARGE, bytes(_LARGE))),
            ("far_over", "A large body over the limit is None", (bytes(_LARGE), 9, None)),
        )
    ),
    Case(
        "ReadBody.within",
        ReadBody,
        "A program within `Interruptible` reads the body of the same request",
        _body_within,
    ),
    Case("Emit.order", Emit, "What is emitted is sent in its order, and no empty part", _order),
    Case(
        "Emit.before_waits",
        Emit,
        "What was emitted is sent before the program waits for something else",
        _before_waits,
    ),
    Case(
        "Emit.at_the_end", Emit, "What was emitted last is sent before `run` returns", _at_the_end
    ),
    Case(
        "Emit.gathered", Emit, "What is emitted is gathered until the program waits", _gather_pieces
    ),
    Case("Emit.large", Emit, "Large parts are sent whole", _large),
    Case(
        "Emit.within",
        Emit,
        "A program within `Interruptible` emits into the same response, in order",
        _from_within,
    ),
    Case(
        "Emit.reader_gone",
        Emit,
        "When nobody takes what is emitted, the program is closed and `run` raises that",
        _reader_gone,
    ),
)
