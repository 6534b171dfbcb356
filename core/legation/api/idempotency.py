"""`Idempotency-Key` on POST: the same request under the same key is done once.

The first success is kept for a day, or as long as the configuration says, and given again, also by
another node and after a restart.  The same key with another request is refused, and so is the same
request while the first is under way.  What failed is not kept: it may be tried again under its key.

A run is also safe where its node dies before the answer is kept: its ids come from the key, so that
the request sent again finds the run of the first.  A streamed answer is not kept; the same events
are read again, from the first on.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Generator, Sequence
from typing import Final, TypeAlias

from attrs import evolve

from ..effects import Now, Program, ReadBody
from ..http.messages import Answer, Response
from ..http.refusals import Conflict, Fault, Invalid, Refusal, TooLarge
from ..programs import give, intercept
from ..runs.retry import FEW, with_retry
from ..store.failures import StoreFailure
from ..store.idempotency import Answered, ClaimKey, Key, Other, ReleaseKey, SettleKey, UnderWay
from .call import Call, Handled

__all__ = ["answer_once", "fingerprint_of"]

Attempt: TypeAlias = Callable[[Call], Handled]

_KEY: Final = re.compile(rb"[\x21-\x7e]{1,255}")
_BOUNDARY: Final = re.compile(rb'boundary="?([^";,\s]+)', re.IGNORECASE)
_BUSY_US: Final = 15_000_000
_DAY_US: Final = 86_400_000_000


def answer_once(operation: str, attempt: Attempt, call: Call) -> Handled:
    """Answer `call`, a POST, by `attempt`, or as it was answered before under the same key."""
    sent = call.request.values(b"idempotency-key")
    return _under_a_key(operation, attempt, call, sent) if sent else attempt(call)


def _under_a_key(
    operation: str, attempt: Attempt, call: Call, sent: Sequence[bytes]
) -> Program[Answer | Refusal]:
    """Answer `call`, which has come with the keys `sent`; there may be one only."""
    key = _key(call, operation, sent)
    if isinstance(key, Invalid):
        return key
    if refusal := call.begin_body():
        return refusal
    body = yield from ReadBody(call.body_limit)
    if body is None:
        return TooLarge(call.body_limit)
    if (held := call.audit.arrival.reading) is not None:
        held.keep(len(body))
    fingerprint = fingerprint_of(call, body)
    database = call.registry.default_database
    now_us = yield from Now()
    claim = ClaimKey(key, fingerprint, now_us, now_us + _BUSY_US)
    state = yield from with_retry(database, claim, FEW)
    match state:
        case Other():
            fault = Fault("header.idempotency-key", "was used for another request")
            return Invalid((fault,))
        case UnderWay():
            return Conflict("A request with this Idempotency-Key is under way")
        case Answered(body=bytes()):
            return _again(state)
        case _:
            seed = repr((key, fingerprint)).encode()
            seeded = evolve(call, seed=hashlib.sha256(seed).digest())
            return (yield from _do(seeded, attempt, body, key, fingerprint))


def _key(call: Call, operation: str, sent: Sequence[bytes]) -> Key | Invalid:
    principal = call.principal
    reason = None
    if len(sent) > 1 or not _KEY.fullmatch(sent[0]):
        reason = "is one value of 1 to 255 visible ASCII characters"
    elif principal.owner is None and not principal.trusted:
        reason = "needs a token with a subject"
    if reason is not None:
        return Invalid((Fault("header.idempotency-key", reason),))
    return Key(principal.owner or "", operation, sent[0].decode("ascii"))


def fingerprint_of(call: Call, body: bytes) -> str:
    """Return what makes two requests the same: target, type and content, and the token's session.

    The boundary of a multipart body is drawn anew each time it is sent, and does not count.
    """
    content_type = call.request.header(b"content-type") or b""
    if boundary := _BOUNDARY.search(content_type):
        body = body.replace(boundary[1], b"")
        content_type = content_type.replace(boundary[1], b"")
    content = [call.request.target.encode(), content_type, body]
    if (session_id := call.principal.session_id) is not None:
        content.append(session_id.encode())
    digest = hashlib.sha256()
    for part in content:
        digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()


def _again(kept: Answered) -> Response:
    """Return the answer that was kept."""
    pairs = json.loads(kept.headers)
    headers = tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs)
    return Response(kept.status, headers, kept.body or b"")


def _do(
    call: Call, attempt: Attempt, body: bytes, key: Key, fingerprint: str
) -> Program[Answer | Refusal]:
    """Do the work and keep its answer; what is not kept is done again when it is asked again."""
    database = call.registry.default_database

    def read_again(effect: ReadBody) -> Program[bytes | None]:
        return give(body if len(body) <= effect.limit else None)

    outcome = attempt(call)
    while isinstance(outcome, Generator):
        outcome = yield from intercept(outcome, {ReadBody: read_again})
    unit: SettleKey | ReleaseKey = ReleaseKey(key, fingerprint)
    if not isinstance(outcome, Refusal) and outcome.status < 300:
        now_us = yield from Now()
        pairs = [[n.decode("latin-1"), v.decode("latin-1")] for n, v in outcome.headers]
        content = outcome.body if isinstance(outcome, Response) else None
        days = call.registry.periods[database].answers or 1
        until_us = now_us + days * _DAY_US
        unit = SettleKey(key, fingerprint, outcome.status, json.dumps(pairs), content, until_us)
    try:
        yield from with_retry(database, unit, FEW)
    except StoreFailure:
        pass  # the claim runs out by itself; the answer stands
    return outcome
