"""Streams that know nothing of tokens: they end with that of their caller all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from attrs import define, field

from legation.access.authenticator import Authenticator, make_authenticator
from legation.access.claims import LEEWAY_US
from legation.access.token_watch import watch_token
from legation.api.stream_ends import end_with_token, has_events
from legation.effects import Emit, Now, Program, RandomBytes, Sleep
from legation.http.messages import Headers, Request, Streamed, Unfinished

from ...callers import NOW, Issuer

ISSUER: Final = Issuer()
SECOND: Final = 1_000_000
NOW_US: Final = NOW * SECOND
JSON: Final[Headers] = ((b"content-type", b"application/json"),)
EVENTS: Final[Headers] = ((b"x-a", b"b"), (b"content-type", b"text/event-stream; charset=utf-8"))
LAST: Final = (
    b"event: token_expired\n"
    b'data: {"event":"token_expired","detail":"Token has expired","error_code":"UNAUTHENTICATED",'
    b'"path":"/ticks"}\n\n'
)

Body = Callable[[], Program[Unfinished | None]]


@define
class Driven:
    """A stream that is driven to its end by a clock of its own."""

    opened: Authenticator
    now_us: int = NOW_US
    sent: list[bytes] = field(factory=list[bytes])
    slept: list[float] = field(factory=list[float])

    def run(self, body: Program[Unfinished | None], **claims: Any) -> Unfinished | None:
        """Return how the body ends, watched with a token of these claims."""
        return self.drive(self.watch(body, JSON, **claims).body)

    def watch(self, body: Program[Unfinished | None], headers: Headers, **claims: Any) -> Streamed:
        header = (b"authorization", f"Bearer {ISSUER.token(**claims)}".encode())
        token = watch_token(self.opened, Request("GET", "/", (header,)), self.now_us)
        return end_with_token(Streamed(200, headers, body), token, "/ticks")

    def drive(self, program: Program[Unfinished | None]) -> Unfinished | None:
        answer: Any = None
        while True:
            try:
                effect: Any = program.send(answer)
            except StopIteration as done:
                end: Unfinished | None = done.value
                return end
            answer = None
            match effect:
                case Now():
                    answer = self.now_us
                case Sleep(seconds):
                    self.slept.append(seconds)
                    self.now_us += round(seconds * SECOND)
                case Emit(data):
                    self.sent.append(data)
                case RandomBytes(size):  # stands for a wait that nobody shortens
                    self.now_us += SECOND
                    answer = bytes(size)
                case _:
                    raise AssertionError(effect)


def driven(**options: Any) -> Driven:
    config = ISSUER.authorization(revocations_file="r.json", **options)
    return Driven(make_authenticator(config, "demo", None, b"{}"))


def tick(seconds: float = 0.5) -> Program[Unfinished | None]:
    while True:
        yield from Emit(b"tick")
        yield from Sleep(seconds)


def three() -> Program[Unfinished | None]:
    for part in (b"a", b"b"):
        yield from Emit(part)
    drawn = yield from RandomBytes(1)
    yield from Emit(drawn)
    return None


def test_a_stream_that_is_over_in_time_is_as_it_was() -> None:
    stream = driven()

    assert stream.run(three(), exp=NOW + 5) is None
    assert stream.sent == [b"a", b"b", b"\0"]
    assert stream.slept == []


def test_a_body_that_is_not_whole_stays_so() -> None:
    def body() -> Program[Unfinished | None]:
        yield from Emit(b"a")
        return Unfinished()

    assert driven().run(body(), exp=None) == Unfinished()


@pytest.mark.parametrize("seconds", [0.5, 3.0, 3600.0])
def test_a_stream_is_cut_when_its_token_expires(seconds: float) -> None:
    stream = driven()

    assert isinstance(stream.run(tick(seconds), exp=NOW + 5), Unfinished)

    late_us = stream.now_us - NOW_US - 5 * SECOND - LEEWAY_US
    assert 0 <= late_us < SECOND
    assert len(stream.sent) == -(-15 // seconds)
    assert set(stream.sent) == {b"tick"}


def test_behind_a_wait_of_another_kind_nothing_is_sent_with_a_token_that_expired() -> None:
    stream = driven()

    def body() -> Program[Unfinished | None]:
        while True:
            drawn = yield from RandomBytes(1)
            yield from Emit(drawn)

    assert isinstance(stream.run(body(), exp=NOW + 5), Unfinished)
    assert stream.sent == [b"\0"] * 14
    assert stream.slept == []


@pytest.mark.parametrize("seconds", [0.5, 3600.0])
def test_a_stream_is_cut_within_a_second_when_its_token_is_revoked(seconds: float) -> None:
    stream = driven()
    revoked_us = 0

    def body() -> Program[Unfinished | None]:
        nonlocal revoked_us
        yield from Sleep(2.0)
        stream.opened.load_revocations(b'{"tokens": ["t1"]}', stream.now_us)
        revoked_us = stream.now_us
        return (yield from tick(seconds))

    assert isinstance(stream.run(body(), exp=None, jti="t1"), Unfinished)
    assert stream.now_us - revoked_us <= SECOND


def test_a_stream_of_events_says_so_and_is_closed() -> None:
    stream = driven()
    closed: list[int] = []

    def body() -> Program[Unfinished | None]:
        try:
            return (yield from tick())
        finally:
            closed.append(stream.now_us)

    watched = stream.watch(body(), EVENTS, exp=NOW + 5)

    assert has_events(watched)
    assert isinstance(stream.drive(watched.body), Unfinished)
    assert stream.sent[-2:] == [b"tick", LAST]
    assert closed == [stream.now_us]


def test_what_is_no_stream_of_events_has_no_event() -> None:
    stream = driven()
    assert not has_events(stream.watch(tick(), JSON))
    stream.run(tick(), exp=NOW + 5)

    assert LAST not in stream.sent


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_a_client_that_leaves_closes_the_body(steps: int) -> None:
    stream = driven()
    closed: list[int] = []

    def body() -> Program[Unfinished | None]:
        try:
            return (yield from tick())
        except GeneratorExit:
            closed.append(1)
            raise

    program = stream.watch(body(), JSON, exp=None).body
    answer: Any = None
    for _ in range(steps):
        effect = program.send(answer)
        answer = NOW_US if isinstance(effect, Now) else None
    program.close()

    assert closed == [1]


@pytest.mark.parametrize("effect", [Emit, Sleep, RandomBytes])
def test_what_the_host_raises_is_thrown_into_the_body(effect: type[Any]) -> None:
    stream = driven()

    def body() -> Program[Unfinished | None]:
        try:
            yield from effect(b"x" if effect is Emit else 1)
        except OSError:
            yield from Emit(b"caught")
        return None

    program = stream.watch(body(), JSON, exp=None).body
    asked: Any = next(program)
    while not isinstance(asked, effect):
        asked = program.send(NOW_US)
    again = program.throw(OSError())

    assert again == Now()
    assert program.send(NOW_US) == Emit(b"caught")
