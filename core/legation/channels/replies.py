"""The replies to a message: the parts of an answer, their keys, and the results of sending."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias
from unicodedata import category

from attrs import asdict, evolve, field, fields

from ..effects import FetchReply, Unreachable
from ..http.messages import compact_json
from ..http.retry_after import parse_retry_after
from ..store.outbox import NewReply
from ..values import frozen
from .answer_files import AnswerFile
from .deliveries import IncomingMessage

__all__ = [
    "GiveUp",
    "Moved",
    "Outcome",
    "Part",
    "Purpose",
    "Reply",
    "RetryLater",
    "Sent",
    "ShownCall",
    "TextSpan",
    "Unauthorized",
    "apology_key",
    "begin_part",
    "decode_reply",
    "encode_reply",
    "end_part",
    "file_replies",
    "first_key",
    "general_outcome",
    "later_key",
    "outbox_rows",
    "replace_draft",
    "replies_to",
    "reply_key",
    "retry_after",
    "split_text",
    "stream_key",
    "utf16_length",
]

_UNSENDABLE: Final = re.compile("[\0\ud800-\udfff]")


def _sendable(text: str) -> str:
    """Replace what has no UTF-8 or no place in a database; a model may write anything."""
    return _UNSENDABLE.sub("\ufffd", text)


@frozen
class TextSpan:
    """A span of text with a style: its offset and its length, in UTF-16 units.

    `kind` is `bold`, `italic`, `strikethrough`, `blockquote`, `code` or `pre`, the last with a
    `language` or "".
    """

    kind: str
    offset: int
    length: int
    language: str = ""


@frozen
class Part:
    """One part of an answer: Markdown as it is, or composed for its channel, with `spans`."""

    text: str = field(repr=False)
    spans: tuple[TextSpan, ...] | None = None


@frozen
class ShownCall:
    """A call that a person is asked about: the name of the tool, and its arguments."""

    name: str
    arguments: Mapping[str, Any] = field(repr=False)


Purpose: TypeAlias = Literal["answer", "approval", "acknowledge", "close"]


@frozen
class Reply:
    """One part of an answer, short enough for its channel.

    Attributes:
        spans: The styles of a text that was composed for its channel; None for Markdown.
        key: The idempotency key: the same for every attempt to send this part.
        quotes: The provider's id of the message to quote, or "".
        created_us: When it was written; the same for every attempt.
        message_id: The id of the message that it answers, or "".
        purpose: `answer`; `approval` for a question with buttons; `acknowledge` and `close` for
            what a press is owed: an answer to it, and a question without buttons.  No person waits
            for the last two: where the provider refuses one, it is done with.
        approval: The id of the approval that an `approval` asks for.
        calls: The calls that it is about.
        token: The provider's id of the press that an `acknowledge` is for.
        prompt: The provider's id of the message that a `close` takes the buttons from.
        edits: The provider's id of the message of ours whose text it replaces; "" for a new one.
        file: The file that it is, in place of a text.
        uploaded: The provider's id of the file, once it was uploaded; never stored.
    """

    key: str
    recipient: str = field(repr=False)
    text: str = field(repr=False, converter=_sendable)
    thread: str = ""
    quotes: str = ""
    created_us: int = 0
    spans: tuple[TextSpan, ...] | None = None
    message_id: str = ""
    purpose: Purpose = "answer"
    approval: str = ""
    calls: tuple[ShownCall, ...] = ()
    token: str = ""
    prompt: str = ""
    edits: str = ""
    file: AnswerFile | None = None
    uploaded: str = ""


def reply_key(message_id: str, part: int = 1) -> str:
    """Return `reply-<message id>`, and `reply.2-<message id>` … for the later parts.

    The number stands in front because an id may end in one: no two parts of any two messages
    share a key.  At most 512 visible ASCII characters, which is what Meta allows.
    """
    return f"reply-{message_id}" if part == 1 else f"reply.{part}-{message_id}"


def later_key(message_id: str, seq: int, part: int) -> str:
    """Return the key of a part of a later reply: of a run that came to its event `seq`."""
    return f"later.{seq}.{part}-{message_id}"


def first_key(name: str, part: int = 1) -> str:
    """Return the key of a part of a message that answers none, which is called `name`."""
    return f"first-{name}" if part == 1 else f"first.{part}-{name}"


def apology_key(message_id: str) -> str:
    """Return the key of the apology for a message given up; an answer may still follow it."""
    return f"apology-{message_id}"


def stream_key(message_id: str) -> str:
    """Return the key of the message that grows until the answer takes its place."""
    return f"stream-{message_id}"


def replies_to(
    message: IncomingMessage, text: str, compose: Callable[[str], Iterable[Part]], now_us: int
) -> tuple[Reply, ...]:
    """Return the answer `text` to `message` in the parts that `compose` of its channel makes.

    The first part quotes the message.  Nothing but white space is no answer.
    """
    return tuple(
        Reply(
            key=reply_key(message.message_id, number),
            recipient=message.conversation or message.sender,
            text=part.text,
            thread=message.thread,
            quotes=message.provider_id if number == 1 else "",
            created_us=now_us,
            spans=part.spans,
            message_id=message.message_id,
        )
        for number, part in enumerate(compose(_sendable(text)), start=1)
    )


def file_replies(
    message: IncomingMessage, files: Iterable[AnswerFile], first: int, now_us: int
) -> tuple[Reply, ...]:
    """Return a part of the answer to `message` for each of `files`; `first` is the first's number.

    A first part quotes the message.
    """
    return tuple(
        Reply(
            key=reply_key(message.message_id, number),
            recipient=message.conversation or message.sender,
            text="",
            thread=message.thread,
            quotes=message.provider_id if number == 1 else "",
            created_us=now_us,
            message_id=message.message_id,
            file=file,
        )
        for number, file in enumerate(files, start=first)
    )


def replace_draft(replies: tuple[Reply, ...], draft: str) -> tuple[Reply, ...]:
    """Return `replies`, the first of which takes the place of the message `draft`, if there is one.

    A file takes the place of no text.
    """
    if not draft or not replies or replies[0].file is not None:
        return replies
    return (evolve(replies[0], edits=draft), *replies[1:])


def encode_reply(reply: Reply) -> str:
    """Return `reply` as the JSON that the outbox stores, without what is as ever."""
    return compact_json(asdict(reply, filter=lambda a, value: value != a.default))


def decode_reply(payload: str) -> Reply:
    """Return the reply that `encode_reply` stored; members of a later version are dropped."""
    value: dict[str, Any] = json.loads(payload)
    known = {a.name: value[a.name] for a in fields(Reply) if a.name in value}
    if known.get("spans") is not None:
        known["spans"] = tuple(TextSpan(**span) for span in known["spans"])
    if known.get("file") is not None:
        known["file"] = AnswerFile(**known["file"])
    known["calls"] = tuple(ShownCall(**call) for call in known.get("calls", ()))
    return Reply(**known)


def outbox_rows(replies: tuple[Reply, ...]) -> tuple[NewReply, ...]:
    """Return the rows that store `replies`."""
    return tuple(
        NewReply(reply.key, reply.recipient, encode_reply(reply), reply.message_id or None)
        for reply in replies
    )


# --- parts -------------------------------------------------------------------------------------

# Where a text may be parted, best first; a border lies behind the match.
_BORDERS: Final = (
    re.compile(r"\n\s*\n"),
    re.compile(r"\n"),
    re.compile(r"[.!?…]\s|[。\uff01\uff1f]"),
    re.compile(r"\s"),
)
# A line that begins or ends a block of code, and behind it what the block is in.
_FENCE: Final = re.compile(r"^[ \t]*```([^`\n]*)$", re.MULTILINE)
_CLOSING: Final = re.compile(r"[ \t]*```[ \t]*$", re.MULTILINE)
_CLOSED: Final = "\n```"
_LONGEST_INFO: Final = 16
_FENCED: Final = 128
"""Shorter parts have no room for lines that they do not need."""
_JOINER: Final = "\u200d"
_LONGEST_CLUSTER: Final = 64


def utf16_length(text: str) -> int:
    """Return the length of `text` in UTF-16 units, as Telegram and browsers count."""
    return len(text) + sum(character > "\uffff" for character in text)


def _fit(text: str, start: int, limit: int) -> int:
    """Return the end of the longest piece from `start` on that has at most `limit` units."""
    end = min(len(text), start + limit)
    units = utf16_length(text[start:end])
    while units > limit:
        end -= 1
        units -= 2 if text[end] > "\uffff" else 1
    return end


def _is_joined(text: str, end: int) -> bool:
    """Tell whether a person would see one character across `end` (after UAX #29, roughly)."""
    before, after = text[end - 1], text[end]
    if _JOINER in (before, after) or category(after) in {"Mn", "Mc", "Me"}:
        return True
    if "\U0001f3fb" <= after <= "\U0001f3ff":  # the colour of a skin
        return True
    return _is_regional(before) and _is_regional(after)  # halves of a flag


def _is_regional(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _border(text: str, start: int, end: int) -> int:
    """Return where to part: at a good place in the second half, else between characters."""
    middle = start + (end - start) // 2
    for border in _BORDERS:
        found = [match.end() for match in border.finditer(text, middle, end)]
        if found:
            return found[-1]
    for cut in range(end, max(middle, end - _LONGEST_CLUSTER), -1):
        if not _is_joined(text, cut):
            return cut
    return end


def begin_part(text: str, start: int, limit: int) -> int:
    """Return where a part begins that follows `start`: at a word, or a line with its indentation.

    There is a word.  An indentation that would fill much of a part is left out.
    """
    word = start
    while text[word].isspace():
        word += 1
    line = text.rfind("\n", max(start - 1, 0), word) + 1
    at_line = line or start == 0
    return line if at_line and word - line <= limit // 4 else word


def end_part(text: str, start: int, size: int, limit: int) -> int:
    """Return where a part ends that begins at `start`: at the best place to part, or at `size`."""
    end = _fit(text, start, limit)
    return _border(text, start, end) if end < size else size


def _fence(text: str, start: int, end: int, opened: str) -> tuple[str, int]:
    """Return the line that opens the block of code in which a part ends, and where that stands.

    Outside of one, the line is "".  `opened` is the line of the block in which the part begins.
    """
    place = start
    for found in _FENCE.finditer(text[start:end]):
        info = found[1].strip()
        if not opened:
            opened, place = "```" + info * (len(info) <= _LONGEST_INFO), start + found.start()
        elif not info:
            opened = ""
    return opened, place


def split_text(text: str, limit: int) -> Iterator[str]:
    """Yield `text` in parts of 1 to `limit` UTF-16 units, without the white space between them.

    Parted between paragraphs, else lines, sentences, words, characters; in this order.  A block
    of code, between lines that begin with three backticks, is whole in one part, or else ends in
    one part and begins again in the next.
    """
    start, size, opened = 0, len(text.rstrip()), ""
    while start < size:
        start = begin_part(text, start, limit)
        closing = _CLOSING.match(text, start) if opened else None
        if closing:
            start, opened = closing.end(), ""
            continue
        head = f"{opened}\n" if opened else ""
        room = limit - utf16_length(head)
        end = end_part(text, start, size, room)
        inside, place = _fence(text, start, end, opened) if limit >= _FENCED else ("", start)
        if inside and end < size:
            if place > start + (end - start) // 2:
                end, inside = place, ""
            else:
                end = end_part(text, start, size, room - len(_CLOSED))
                inside, _ = _fence(text, start, end, opened)
        yield head + text[start:end].rstrip() + (_CLOSED if inside and end < size else "")
        start, opened = end, inside


# --- what came of it ---------------------------------------------------------------------------


@frozen
class Sent:
    """The provider has it; `provider_id` is its id there, "" when the answer did not tell."""

    provider_id: str


@frozen
class RetryLater:
    """Not now; the provider asked for `after_seconds`, when it said so."""

    after_seconds: int | None
    reason: str


@frozen
class GiveUp:
    """Never; `reason` is for the operator who finds it among the dead letters."""

    reason: str


@frozen
class Unauthorized:
    """Nothing that is sent with these credentials is taken: the whole channel has to wait."""

    reason: str


@frozen
class Moved:
    """The chat goes on under another id, `to`; the reply is to be sent there."""

    to: str

    @property
    def reason(self) -> str:
        """The reason that the reply is not there yet."""
        return "the chat has moved"


Outcome: TypeAlias = Sent | RetryLater | GiveUp | Unauthorized | Moved

_AGAIN: Final = frozenset({408, 425, 429})


def retry_after(reply: FetchReply, now_us: int) -> int | None:
    """Return the seconds that `Retry-After` asks for, at most a day; None when it asks for none."""
    return parse_retry_after(reply.headers, now_us)


def general_outcome(
    reply: FetchReply | Unreachable, now_us: int, said: str = ""
) -> RetryLater | GiveUp | None:
    """Judge `reply` by its status alone; None for a success.

    No answer, 408, 425, 429 and 5xx are for later, any other refusal is final: also a redirect,
    which is not followed.  `said` is what the provider's body adds, for the operator.
    """
    if isinstance(reply, Unreachable):
        return RetryLater(None, reply.reason)
    if 200 <= reply.status < 300:
        return None
    reason = f"HTTP {reply.status}: {said}" if said else f"HTTP {reply.status}"
    if reply.status in _AGAIN or reply.status >= 500:
        return RetryLater(retry_after(reply, now_us), reason)
    return GiveUp(reason)
