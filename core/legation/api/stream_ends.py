"""The end of a stream with its token, for the streams that do not see to it themselves.

The stream of a run ends with an event that says where to go on.  A route of an application, a list
and an export know nothing of tokens: their bodies are watched from outside, at each part that they
send and while they sleep.  What they wait for otherwise has an end of its own.
"""

from __future__ import annotations

from typing import Any, Final

from ..access.authenticator import TokenRefused
from ..access.token_watch import TokenWatch
from ..effects import Emit, Now, Program, Sleep
from ..http.messages import Streamed, Unfinished, with_body
from ..http.sse import encode_token_end

__all__ = ["end_with_token", "has_events"]

_LOOK_SECONDS: Final = 1.0
_LEAST_SECONDS: Final = 0.05
_EVENTS: Final = b"text/event-stream"


def has_events(answer: Streamed) -> bool:
    """Return whether the body of `answer` is a stream of server-sent events."""
    for name, value in answer.headers:
        if name == b"content-type" and value.partition(b";")[0].strip() == _EVENTS:
            return True
    return False


def end_with_token(answer: Streamed, token: TokenWatch, path: str) -> Streamed:
    """Return `answer` with a body that is cut when `token` is not accepted any more.

    A stream of events says so before, by the event `token_expired`.

    Args:
        answer: As a handler returned it.
        token: Of its caller.
        path: Of the request.
    """
    watched = _watch(answer.body, token, path if has_events(answer) else None)
    return with_body(answer, watched)


def _watch(
    body: Program[Unfinished | None], token: TokenWatch, path: str | None
) -> Program[Unfinished | None]:
    refused: TokenRefused | None = None
    answer: Any = None
    trouble: BaseException | None = None
    while refused is None:
        try:
            effect = body.send(answer) if trouble is None else body.throw(trouble)
        except StopIteration as done:
            end: Unfinished | None = done.value
            return end
        answer = trouble = None
        try:
            if isinstance(effect, Emit):
                refused = yield from _outlast(0.0, token)
            elif isinstance(effect, Sleep):
                refused = yield from _outlast(effect.seconds, token)
                continue
            if refused is None:
                answer = yield effect
        except BaseException as error:  # noqa: BLE001 (thrown into whom it is for)
            trouble = error
    body.close()
    if path is not None:
        refusal = refused.refusal
        yield from Emit(encode_token_end(refusal.detail, refusal.error_code, path))
    return Unfinished()


def _outlast(seconds: float, token: TokenWatch) -> Program[TokenRefused | None]:
    """Wait for `seconds`, or until the token is refused; return the refusal."""
    while True:
        now_us = yield from Now()
        refused = token.find_refusal(now_us)
        if refused is not None or seconds <= 0:
            return refused
        step = min(seconds, _LOOK_SECONDS, max(token.left, _LEAST_SECONDS))
        yield from Sleep(step)
        seconds -= step
