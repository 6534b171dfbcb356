"""Dead letters as those see them who look after a channel: tried again or given up, many at once.

And a test message, which goes the way of every reply: whether it is sent is seen in the list of
replies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias

from ...channels.replies import Reply, outbox_rows
from ...effects import Now, Nudge, Program, Transact
from ...hosted.registry import HostedChannel
from ...http.bodies.reader import Reader
from ...http.messages import Response, json_response
from ...http.refusals import Conflict, Fault, Invalid, NotFound
from ...store.dead_letters import ChooseLetters, Chosen, DiscardLetters, FetchReply, RetryLetters
from ...store.inbox import INBOX
from ...store.leased_queue import LeasedQueue
from ...store.outbox import OUTBOX, PutReply
from ...values import frozen
from ..call import Call
from ..chosen_ids import PRINTED
from ..fields import NoQuery, choice, declare, integer, text
from ..json_schema import BOOLEAN, TEXT, list_of

__all__ = [
    "DiscardRequest",
    "LettersRequest",
    "MessageTestRequest",
    "discard_letters",
    "retry_letters",
    "retry_reply",
    "send_test",
]

_MOST: Final = 1_000
_SECOND: Final = 1_000_000
_LAST_SECOND: Final = 1 << 40
_QUEUES: Final[Mapping[str, LeasedQueue[Any, Any]]] = {"messages": INBOX, "replies": OUTBOX}


def _read_ids(read: Reader, name: str) -> tuple[str, ...] | None:
    if read.json_list(name) is None:
        return None
    ids = read.texts(name)
    if not 0 < len(ids) <= _MOST:
        read.fault(name, f"must have between 1 and {_MOST} members")
    return ids


def _read_consent(read: Reader, name: str) -> bool | None:
    """Take JSON's true and false alone: a number or a word is too little to discard everything."""
    value = read.json(name)
    if value is None or isinstance(value, bool):
        return value
    read.fault(name, "must be true or false")
    return None


@frozen
class LettersRequest:
    """The dead letters of a channel that are meant: all of them, unless it says more."""

    what: str = choice(tuple(_QUEUES), "Messages, or replies", default="messages")
    ids: tuple[str, ...] | None = declare(
        list_of(TEXT, minItems=1, maxItems=_MOST), _read_ids, "Those of these ids"
    )
    error: str | None = text("Those whose error has this in it", max_length=200, or_none=True)
    since: int | None = integer(
        "Those stored at this time or later, in seconds since the epoch",
        minimum=0,
        maximum=_LAST_SECOND,
    )
    until: int | None = integer(
        "Those stored before, in seconds since the epoch", minimum=0, maximum=_LAST_SECOND
    )
    limit: int = integer("So many at most, the oldest", default=_MOST, minimum=1, maximum=_MOST)

    def choose(self, channel: str) -> ChooseLetters:
        """Return what is asked of the database."""
        return ChooseLetters(
            channel,
            _QUEUES[self.what],
            self.limit,
            self.ids,
            self.error,
            (self.since or 0) * _SECOND,
            (_LAST_SECOND if self.until is None else self.until) * _SECOND,
        )


@frozen
class DiscardRequest(LettersRequest):
    """The dead letters that are given up: by ids or a filter, or `all` of them in so many words."""

    all: bool = declare(
        {**BOOLEAN, "default": False},
        _read_consent,
        "Every dead letter of the channel",
        default=False,
    )

    @property
    def is_open(self) -> bool:
        """Whether nothing says which letters are meant."""
        given = (self.ids, self.error, self.since, self.until)
        return not self.all and all(one is None for one in given)


def retry_letters(
    call: Call, channel: HostedChannel, query: NoQuery, body: LettersRequest
) -> Program[Response]:
    """Take dead letters out for one attempt more each; `left` says how many more there are."""
    database = channel.component.database
    chosen = yield from call.change(database, RetryLetters(body.choose(channel.id)))
    yield from _wake(call, database)  # also for a channel that is held: it is tried again
    return _answer("retried", body, chosen)


_OPEN: Final = Fault("body.all", "has to be true where neither ids nor a filter is given")


def discard_letters(
    call: Call, channel: HostedChannel, query: NoQuery, body: DiscardRequest
) -> Program[Response | Invalid]:
    """Give dead letters up for good.  A message is done then, without an answer."""
    if body.is_open:
        return Invalid((_OPEN,))
    unit = DiscardLetters(body.choose(channel.id))
    chosen = yield from call.change(channel.component.database, unit)
    return _answer("discarded", body, chosen)


def _answer(done: str, body: LettersRequest, chosen: Chosen) -> Response:
    summary: dict[str, Any] = {"what": body.what, done: len(chosen.ids), "left": chosen.left}
    return json_response(200, {**summary, "ids": list(chosen.ids)})


def _wake(call: Call, database: str) -> Program[None]:
    other = call.context.cluster.member(database).next_other()
    for topic in ("inbox", "outbox"):
        yield from Nudge(f"{topic}:{database}", database, other)


# --- one reply ---------------------------------------------------------------------------------

_NO_REPLY: Final = "Reply with ID {} not found"
_NOT_DEAD: Final = "The reply is not among the dead letters"
NoReply: TypeAlias = Annotated[NotFound, _NO_REPLY.format("no-such")]
NotDead: TypeAlias = Annotated[Conflict, _NOT_DEAD]


def retry_reply(call: Call, channel: HostedChannel) -> Program[Response | NoReply | NotDead]:
    """Take one reply out of the dead letters for one attempt more."""
    reply_id, database = call.params["reply_id"], channel.component.database
    chosen = ChooseLetters(channel.id, OUTBOX, 1, (reply_id,))
    retried = yield from call.change(database, RetryLetters(chosen))
    if not retried.ids:
        state = yield from Transact(database, FetchReply(channel.id, reply_id))
        return NotFound(_NO_REPLY.format(reply_id)) if state is None else Conflict(_NOT_DEAD)
    yield from _wake(call, database)
    return json_response(200, {"id": reply_id, "state": "ready"})


# --- a test ------------------------------------------------------------------------------------

_RECIPIENT: Final[dict[str, Any]] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 256,
    "pattern": PRINTED,
}
_TEST: Final = "A test message of {}."


def _read_recipient(read: Reader, name: str) -> str | None:
    recipient = read.line(name, max_length=_RECIPIENT["maxLength"], required=True)
    if recipient == "":
        read.fault(name, "must not be empty")
    return recipient


@frozen
class MessageTestRequest:
    """A test message: its recipient, as the channel names people or conversations."""

    recipient: str = declare(
        _RECIPIENT, _read_recipient, "As `recipient` of a reply has it", required=True
    )


def send_test(call: Call, channel: HostedChannel, body: MessageTestRequest) -> Program[Response]:
    """Put a test message to `recipient` among the replies that are going to be sent.

    Its text is the platform's.  Its `id` is that of a reply: the list of replies says what became
    of it.
    """
    database = channel.component.database
    key = f"test-{yield from call.new_id('test')}"
    sentence = _TEST.format(call.registry.config.name)[: channel.codec.text_limit]
    now_us = yield from Now()
    reply = Reply(key, body.recipient, sentence, created_us=now_us)
    (row,) = outbox_rows((reply,))
    yield from call.change(database, PutReply(channel.id, row, now_us))
    other = call.context.cluster.member(database).next_other()
    yield from Nudge(f"outbox:{database}", database, other)
    return json_response(call.success, {"id": key, "state": "ready"})
