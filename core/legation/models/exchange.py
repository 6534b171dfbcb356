"""One question to a provider: sent, asked again where that may help, its answer read as it comes.

Answers are always asked for as a stream, so that a run can be cancelled in the middle of one and a
model that falls silent is noticed.  A provider that sends its answer whole is read all the same.

Asking again is for what passes (RFC 9110 section 15: 408, 429 and 5xx; 409 too, as the providers'
own clients do).  The answer begins anew, however much of it was there; whoever reads it as it comes
is told so by the listener.  What a provider writes about an error is for the operator's log, within
a bound and without the key; no caller is told it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from attrs import evolve, field

from ..backoff import Backoff
from ..effects import (
    CloseStream,
    Log,
    NextChunk,
    Now,
    OpenStream,
    Program,
    Sleep,
    Streaming,
    Unreachable,
)
from ..http.retry_after import parse_retry_after
from ..http.sse import Decoder, ForeignEvent
from ..values import define, frozen
from .conversation import Listener, Reply, Usage
from .provider_json import json_value
from .trouble import Trouble

__all__ = ["Answer", "Question", "ask"]

LONGEST_ASKED_SECONDS: Final = 60
"""Whoever asks us to wait longer is not asked again: somebody waits for the answer."""

_PUBLIC_HEADERS: Final = frozenset({"content-type", "accept", "user-agent", "anthropic-version"})

_BACKOFF: Final = Backoff(0.5, 8.0)
_AGAIN: Final = frozenset({408, 409, 429})
# A body that breaks off says that the provider is there, and works: it is worth more tries than a
# refusal or a silence.
_BREAKS_FOR_A_RETRY: Final = 4
# What may still come once the model is done: the usage, and the end of the body.
_TAIL_SECONDS: Final = 2.0
_END_SECONDS: Final = 0.25
# Between two events of an answer that is followed: a reader sees no more, and each event costs a
# transaction.  Those at the beginning are nearer to each other, so that a short answer is not late.
_WINDOW_SECONDS: Final = 0.05
_FIRST_WINDOW_SECONDS: Final = _WINDOW_SECONDS / 4
# Where so much comes at once, no reader keeps up, and a pause would hold up the model.
_BULK_BYTES: Final = 65_536
# What a provider says about an error: nobody waits long for it, and it is short.
_WORDS_SECONDS: Final = 1.0
_WORDS_BYTES: Final = 16_384
_WORDS_CHUNKS: Final = 32


@frozen
class Question:
    """A request, with the time and the retries that its answer may take.

    Attributes:
        model: Its name, for the log.
        timeout_seconds: Until the head of the response.
        idle_seconds: Between two pieces of its body.
        retries: How often it is asked again; four times as often after an answer that broke off.
        max_bytes: Of the body, as sent.
    """

    model: str
    url: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)
    timeout_seconds: float
    idle_seconds: float
    retries: int
    max_bytes: int


class Answer(Protocol):
    """The reader of one answer; it raises `Trouble` where the answer is wrong."""

    @property
    def has_ended(self) -> bool:
        """Whether the model has said all it has to say."""
        ...

    @property
    def complete(self) -> bool:
        """Whether nothing at all is to come."""
        ...

    @property
    def visible(self) -> Sequence[str]:
        """The visible part of the model's thoughts until now, piece by piece."""
        ...

    @property
    def usage(self) -> Usage:
        """The cost in tokens, as far as the provider has reported it."""
        ...

    def event(self, event: ForeignEvent) -> str:
        """Take the next event of a stream; return the text in it."""
        ...

    def whole(self, value: Any) -> str:
        """Take an answer that was not streamed; return its text."""
        ...

    def reply(self) -> Reply:
        """Return the whole answer."""
        ...


@define
class _Progress:
    """The progress over all attempts."""

    listener: Listener
    heard: bool = False
    thought: bool = False
    unsettled: bool = False
    window: float = _FIRST_WINDOW_SECONDS

    def begin_anew(self) -> None:
        if self.heard or self.thought:
            self.heard = self.thought = False
            self.unsettled = True
            self.listener.listen()

    def hear(self, piece: str) -> None:
        if piece:
            self.heard = self.unsettled = True
            self.listener.hear(piece)

    def think(self, pieces: Iterable[str]) -> None:
        if piece := "".join(pieces):
            self.thought = self.unsettled = True
            self.listener.think(piece)

    def settle(self) -> Program[float]:
        """Show what was heard; return for how long nothing more has to be shown, in seconds."""
        if not self.unsettled:
            return 0.0
        self.unsettled = False
        yield from self.listener.settle()
        rest, self.window = self.window, min(2 * self.window, _WINDOW_SECONDS)
        return rest


def ask(question: Question, new_answer: Callable[[], Answer], listener: Listener) -> Program[Reply]:
    """Return the reply to `question`; its usage is that of all attempts.

    Raises:
        Trouble: There is none, and it is in the log why.
    """
    progress, tries, spent = _Progress(listener), _Tries(question.retries), Usage()
    while True:
        answer = new_answer()
        outcome = yield from _attempt(question, answer, progress)
        if isinstance(outcome, Reply):
            return evolve(outcome, usage=spent.plus(outcome.usage))
        pause: float | None = None
        if tries.allow_retry(outcome):
            pause = yield from _pause(outcome, tries.count)
        yield from _log(question, outcome, tries.count, pause)
        if pause is None:
            outcome.usage = spent.plus(answer.usage)
            raise outcome
        yield from Sleep(pause)
        progress.begin_anew()
        spent = spent.plus(answer.usage)


@define
class _Tries:
    """The count of failed attempts: refused or not answered, and broken off."""

    retries: int
    failed: int = 0
    broken: int = 0

    @property
    def count(self) -> int:
        return self.failed + self.broken

    def allow_retry(self, trouble: Trouble) -> bool:
        """Count `trouble`; return whether the question may be asked again."""
        if trouble.reason == "broken":
            self.broken += 1
        else:
            self.failed += 1
        most = self.retries * _BREAKS_FOR_A_RETRY
        return self.failed <= self.retries and self.broken <= most


def _pause(trouble: Trouble, attempt: int) -> Program[float | None]:
    """Return the seconds to wait before the next attempt; None when there is to be none.

    At least as long as the provider asks for.
    """
    asked = trouble.wait_seconds or 0
    if not trouble.passing or asked > LONGEST_ASKED_SECONDS:
        return None
    return max(float(asked), (yield from _BACKOFF.draw(attempt)))


def _log(question: Question, trouble: Trouble, attempt: int, pause: float | None) -> Program[None]:
    words = (("code", trouble.words.code), ("message", trouble.words.message))
    fields = (
        ("model", question.model),
        ("reason", trouble.reason),
        ("status", trouble.status),
        ("attempt", attempt),
        *((name, said) for name, said in words if said),
    )
    yield from Log("warning", "model_failed" if pause is None else "model_retried", fields)


def _attempt(question: Question, answer: Answer, progress: _Progress) -> Program[Reply | Trouble]:
    """Send the question once."""
    q = question
    head = yield from OpenStream("POST", q.url, q.headers, q.body, q.timeout_seconds)
    if isinstance(head, Unreachable):
        return _unreachable(head)
    if not 200 <= head.status < 300:
        now_us = yield from Now()
        refusal = _judge(head, now_us)
        refusal.error = yield from _read_words(head, now_us)
        refusal.quote(_secrets(q))
        yield from CloseStream(head.stream)
        return refusal
    try:
        return (yield from _read(question, head, answer, progress))
    except Trouble as trouble:
        failure = trouble
    failure.quote(_secrets(q))
    # What could be read until here is a sound answer, which was spoiled on its way.
    failure.passing |= progress.heard and failure.reason == "broken"
    yield from CloseStream(head.stream)
    return failure


def _unreachable(head: Unreachable) -> Trouble:
    """Judge a request without a response.

    A connection that was kept too long breaks as it is used again (protocol): that passes.
    """
    if head.reason == "timeout":
        return Trouble("timeout")
    return Trouble("unreachable", passing=head.reason in ("connect", "protocol"))


def _judge(head: Streaming, now_us: int) -> Trouble:
    """Judge a response by its status and header."""
    status, wanted = head.status, head.headers.get("x-should-retry")
    passing = status in _AGAIN or status >= 500
    if wanted in ("true", "false"):  # both providers' own clients obey it
        passing = wanted == "true"
    reason = "rate_limited" if status == 429 else "unreachable" if status >= 500 else "rejected"
    wait = parse_retry_after(head.headers, now_us)
    return Trouble(reason, passing=passing, status=status, wait_seconds=wait)


def _read_words(head: Streaming, now_us: int) -> Program[bytes]:
    """Return the beginning of the body of a refusal, as far as it comes soon."""
    until_us = now_us + round(_WORDS_SECONDS * 1_000_000)
    body = b""
    for _ in range(_WORDS_CHUNKS):
        left_us = until_us - now_us
        if left_us <= 0 or len(body) > _WORDS_BYTES:
            break
        chunk = yield from NextChunk(head.stream, left_us / 1_000_000)
        if not chunk or isinstance(chunk, Unreachable):
            break
        body += chunk
        now_us = yield from Now()
    return body[:_WORDS_BYTES]


def _secrets(question: Question) -> tuple[str, ...]:
    """Return what was sent that may be a key: any word of a header that is not known to be none."""
    sent = (value for name, value in question.headers if name.lower() not in _PUBLIC_HEADERS)
    return tuple(word for value in sent for word in value.split())


def _read(
    question: Question, head: Streaming, answer: Answer, progress: _Progress
) -> Program[Reply]:
    """Read the body, and return the reply it holds."""
    kind = head.headers.get("content-type", "").strip().lower()
    if kind.startswith("application/json"):
        yield from _read_whole(question, head, answer, progress)
        return answer.reply()
    decoder, size, came = Decoder(), 0, 0
    while not answer.complete:
        rest, patience = (yield from progress.settle()), question.idle_seconds
        if answer.has_ended:
            patience = min(_TAIL_SECONDS, patience)
        if answer.has_ended or came >= _BULK_BYTES:
            rest = 0.0
        chunk = yield from NextChunk(head.stream, patience, rest)
        if isinstance(chunk, Unreachable):
            if not answer.has_ended:
                raise _cut(chunk)
            break
        if not chunk:
            break
        came = len(chunk)
        size += came
        if size > question.max_bytes:
            raise Trouble("too_large")
        _take(decoder.feed(chunk), answer, progress)
    reply = answer.reply()
    if answer.complete:
        yield from _let_go(head)
    return reply


def _take(events: Iterable[ForeignEvent], answer: Answer, progress: _Progress) -> None:
    """Read `events`; what was said in them is one piece, also when one of them is trouble."""
    pieces: list[str] = []
    known = len(answer.visible)
    try:
        for event in events:
            if answer.complete:
                break
            pieces.append(answer.event(event))
    finally:
        progress.think(answer.visible[known:])
        progress.hear("".join(pieces))


def _read_whole(
    question: Question, head: Streaming, answer: Answer, progress: _Progress
) -> Program[None]:
    """Read an answer that is not streamed."""
    body = bytearray()
    while chunk := (yield from NextChunk(head.stream, question.idle_seconds)):
        if isinstance(chunk, Unreachable):
            raise _cut(chunk)
        body += chunk
        if len(body) > question.max_bytes:
            raise Trouble("too_large")
    said = answer.whole(json_value(bytes(body)))
    progress.think(answer.visible)
    progress.hear(said)


def _cut(chunk: Unreachable) -> Trouble:
    """Judge a body without an end."""
    if chunk.reason == "timeout":
        return Trouble("timeout")
    if chunk.reason == "too-large":
        return Trouble("too_large")
    return Trouble("broken", passing=True)


def _let_go(head: Streaming) -> Program[None]:
    """Read the end of the body, so that the connection can be used again."""
    rest = yield from NextChunk(head.stream, _END_SECONDS)
    if rest and not isinstance(rest, Unreachable):
        yield from CloseStream(head.stream)
