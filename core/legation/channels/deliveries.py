"""The messages in a channel's delivery, as values that are the same for every provider."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from enum import Enum
from hashlib import sha256
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from attrs import asdict, field, fields

from ..http.bodies.file_types import is_promising
from ..http.bodies.json_text import BadJson, JsonObject, JsonValue, parse_json
from ..http.messages import compact_json
from ..store.inbox import NewMessage
from ..values import frozen
from .provider_values import LONGEST_NAME
from .signatures import SignatureRefused

__all__ = [
    "APOLOGY",
    "Ask",
    "Attachment",
    "Challenge",
    "ChatMoved",
    "ContentKind",
    "Decide",
    "Delivery",
    "Handshake",
    "Ignored",
    "IncomingMessage",
    "NotUnderstood",
    "Parsed",
    "Piece",
    "Press",
    "Say",
    "Skip",
    "Treatment",
    "Undelivered",
    "challenge_of",
    "channel_session_id",
    "decode_message",
    "encode_message",
    "gather",
    "inbox_rows",
    "may_be_read",
    "read_object",
    "rest_of_new",
    "sender_of",
    "treat",
]

_PRESSES: Final = "press "
APOLOGY: Final = "Sorry, something went wrong here and I could not answer. Please try again later."


class ContentKind(Enum):
    """The kind of content that a message carries."""

    TEXT = "text"
    BUTTON = "button"
    LIST = "list"
    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    DOCUMENT = "document"
    STICKER = "sticker"
    LOCATION = "location"
    CONTACTS = "contacts"
    ORDER = "order"
    REACTION = "reaction"
    SYSTEM = "system"
    UNSUPPORTED = "unsupported"


@frozen
class Attachment:
    """A file that came with a message, and is still at the provider.

    Attributes:
        id: What the provider calls it, or its address there.
        mime_type: As the provider says, in lower case, without parameters.
        name: What to call it to a person; never a path.
        size: In bytes, where the provider says so.
        transcript: What is spoken in it, once that is known.
    """

    id: str = field(repr=False)
    mime_type: str
    name: str = field(repr=False)
    size: int | None = None
    transcript: str | None = field(default=None, repr=False)


@frozen
class Press:
    """A press of a button under a question, or a decision that a system sends: yes or no.

    Attributes:
        approval: The id of the approval, as `/approvals` has it; anybody may have made it up.
        approves: Whether it says yes.
        token: The provider's id of the press, by which it is acknowledged; or "".
        prompt: The provider's id of the message with the buttons; or "".
        shown: The text of that message; or "".
    """

    approval: str
    approves: bool
    token: str = ""
    prompt: str = ""
    shown: str = field(default="", repr=False)


@frozen
class IncomingMessage:
    """One message of a person to us.  Neither its text nor its sender shows in a log.

    Attributes:
        message_id: Unique within the channel: its second delivery is a duplicate.
        sender: Whom to keep in order; visible characters.
        text: What was said: the text, the caption, the button's label.
        conversation: Where to answer: a number, a chat, a Slack channel.
        thread: The thread within it, or "".
        provider_id: The provider's own id of the message, to quote it in an answer.
        reply_to: The provider's id of the message this one answers, or "".
        from_self: Written by us; it never starts a run.
        sent_us: When it was written, as the provider says, or None.
        media: What is attached.
        in_group: Written among others, who read the answer too.
        press: The decision that it is, if it is one.
        name: The name that the sender gives itself, or "".
        album: The provider's id of the album that it is a part of, or "".
        addressed: Meant for us; else it counts only with another of its album that is.
        draft: The provider's id of the message of ours in which the answer grows, or "".
        subject: The subject that the sender is, once a function has said so; "" for none.
        agent: The id of whom a conversation begins with, once a function has said so; "" for whom
            it goes on with.
    """

    message_id: str
    sender: str = field(repr=False)
    kind: ContentKind = ContentKind.TEXT
    text: str | None = field(default=None, repr=False)
    conversation: str = field(default="", repr=False)
    thread: str = ""
    provider_id: str = ""
    reply_to: str = ""
    from_self: bool = False
    sent_us: int | None = None
    media: tuple[Attachment, ...] = ()
    in_group: bool = False
    press: Press | None = None
    name: str = field(default="", repr=False)
    album: str = ""
    addressed: bool = True
    draft: str = ""
    subject: str | None = field(default=None, repr=False)
    agent: str | None = None

    @property
    def lane(self) -> str:
        """Whose messages wait for each other: a press waits for no other message of its sender."""
        return self.sender if self.press is None else f"{_PRESSES}{self.sender}"


@frozen
class Undelivered:
    """A reply that the provider took from us, and then could not deliver.

    Attributes:
        reason: Why, as the provider says.
        key: The idempotency key that it names; others may send from the same account.
        provider_id: What the provider calls the attempt that failed, or "".
    """

    reason: str
    key: str
    provider_id: str = ""


@frozen
class ChatMoved:
    """A chat that goes on under another id."""

    old: str
    new: str


@frozen
class Delivery:
    """The content of one POST: every message in order, and the kinds of what else was in it."""

    messages: tuple[IncomingMessage, ...]
    ignored: tuple[str, ...] = ()
    undelivered: tuple[Undelivered, ...] = ()
    moved: tuple[ChatMoved, ...] = ()


@frozen
class Challenge:
    """The provider asks whether we are there; answered with `text` as text/plain."""

    text: str


@frozen
class Ignored:
    """Understood, and not for us: answered 200, or the provider would send it for days.

    Attributes:
        reason: Is in the answer, for whoever has signed the delivery.
        malformed: It should have been a message; the log has a line about it.
    """

    reason: str
    malformed: bool = False


@frozen
class NotUnderstood:
    """Not JSON as we read it."""

    reason: str


Parsed: TypeAlias = Delivery | Challenge | Ignored | NotUnderstood
Handshake: TypeAlias = Challenge | SignatureRefused
Piece: TypeAlias = IncomingMessage | Undelivered | ChatMoved | str
"""A message, what became of one of ours, of a chat, or the kind of something that is none."""

# Wide enough for Meta and Slack; nothing that a browser would take for markup.
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{1,200}", re.ASCII)
_MESSAGE_ID: Final = re.compile(r"[\x21-\x7e]{1,255}")

# An escape in JSON; group 1 is one that stands for no storable character.
_ESCAPE: Final = re.compile(
    rb"""\\(?:[^u]|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}
    |(u0000|u[dD][89a-fA-F][0-9a-fA-F]{2}))""",
    re.VERBOSE,
)


def _storable(escape: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if escape[1] else escape[0]


def challenge_of(text: JsonValue) -> Challenge | None:
    """Return the challenge if `text` is one that is safe to repeat."""
    return Challenge(text) if isinstance(text, str) and _CHALLENGE.fullmatch(text) else None


def read_object(body: bytes) -> JsonObject | Ignored | NotUnderstood:
    """Parse `body` as the JSON object that every provider sends.

    U+0000 and halves of a surrogate pair (an emoji cut in two by a phone) become U+FFFD: one
    such text must not cost the other messages of its delivery.
    """
    value = parse_json(body)
    if isinstance(value, BadJson):
        value = parse_json(_ESCAPE.sub(_storable, body))
    if isinstance(value, BadJson):
        return NotUnderstood(value.reason)
    return value if isinstance(value, dict) else Ignored("not an object")


def gather(pieces: Iterable[Piece]) -> Delivery:
    """Sort `pieces` into messages and the rest; a message without a usable id is `malformed`."""
    messages: list[IncomingMessage] = []
    ignored: dict[str, None] = {}
    undelivered: list[Undelivered] = []
    moved: list[ChatMoved] = []
    for piece in pieces:
        if isinstance(piece, str):
            ignored[piece] = None
        elif isinstance(piece, Undelivered):
            undelivered.append(piece)
        elif isinstance(piece, ChatMoved):
            moved.append(piece)
        elif not piece.sender or not _MESSAGE_ID.fullmatch(piece.message_id):
            ignored["malformed"] = None
        else:
            messages.append(piece)
    return Delivery(tuple(messages), tuple(ignored), tuple(undelivered), tuple(moved))


# --- what becomes of a message -----------------------------------------------------------------


@frozen
class Ask:
    """Run the agent with this text."""

    text: str = field(repr=False)


@frozen
class Say:
    """Answer with this text, without a run."""

    text: str


@frozen
class Decide:
    """Answer a paused run, as the press says."""

    press: Press


@frozen
class Skip:
    """Nothing is expected of us."""

    reason: str


Treatment: TypeAlias = Ask | Say | Decide | Skip

_SILENT: Final = frozenset({ContentKind.REACTION, ContentKind.SYSTEM})
_NAMED: Final = {
    ContentKind.IMAGE: "images",
    ContentKind.AUDIO: "voice messages",
    ContentKind.VIDEO: "videos",
    ContentKind.DOCUMENT: "files",
    ContentKind.STICKER: "stickers",
    ContentKind.LOCATION: "locations",
    ContentKind.CONTACTS: "contacts",
    ContentKind.ORDER: "orders",
}


def may_be_read(media: Attachment, kind: ContentKind) -> bool:
    """Return whether a run may take `media`, of a message of a kind, or what is spoken in it.

    A document that is declared to be nothing but bytes is what its content says.
    """
    if media.mime_type == "application/octet-stream" and kind is ContentKind.DOCUMENT:
        return True
    return media.mime_type.startswith("audio/") or is_promising(media.name, media.mime_type)


def sender_of(lane: str) -> str:
    """Return the sender of a message that is stored in `lane`."""
    return lane.removeprefix(_PRESSES)


def treat(message: IncomingMessage) -> Treatment:
    """Decide what becomes of `message`.

    Whatever has words, or a file of a type that a run takes, is asked; for the rest a person gets
    a sentence instead of silence.  A reaction wants no answer, nor does a sticker among others.
    """
    if message.from_self:
        return Skip("from ourselves")
    if not message.addressed:
        return Skip("not mentioned")
    if message.press is not None:
        return Decide(message.press)
    if message.kind in _SILENT:
        return Skip(message.kind.value)
    if message.text and not message.text.isspace():
        return Ask(message.text)
    if any(may_be_read(media, message.kind) for media in message.media):
        return Ask("")
    if message.in_group:
        return Skip("no words in a group")
    name = _NAMED.get(message.kind, "messages of this kind")
    return Say(f"I can only read text, not {name}. Please write to me instead.")


def rest_of_new(text: str) -> str | None:
    """Return what follows the command `/new` in `text`, perhaps nothing; None without it.

    The command begins a new conversation.  Telegram writes `/new@bot` in groups.
    """
    found = re.match(r"\s*/new(?:@\w+)?(?:\s+|\Z)", text, re.IGNORECASE)
    return text[found.end() :].strip() if found else None


def channel_session_id(channel: str, sender: str, conversation: str, thread: str = "") -> str:
    """Name the session of a conversation: `chat:15551234`, `slack:C02:171.2`.

    Different conversations never share a name: each part is escaped, and what would be too long
    for a key is named by its digest.  Without a conversation the sender is one.
    """
    parts = [conversation or sender, thread] if thread else [conversation or sender]
    name = ":".join([channel, *(quote(part, safe="@+") for part in parts)])
    if len(name) <= LONGEST_NAME:
        return name
    return f"{channel}:={sha256(name.encode()).hexdigest()}"  # no escaped part begins with "="


# --- in the inbox ------------------------------------------------------------------------------


def encode_message(message: IncomingMessage) -> str:
    """Return `message` as the JSON that the inbox stores."""
    return compact_json(asdict(message, value_serializer=_plain))


def _plain(_: object, __: object, value: Any) -> Any:
    return value.value if isinstance(value, ContentKind) else value


def decode_message(payload: str) -> IncomingMessage:
    """Return the message that `encode_message` stored; members of a later version are dropped."""
    value: dict[str, Any] = json.loads(payload)
    names = [attribute.name for attribute in fields(IncomingMessage)]
    known: dict[str, Any] = {name: value[name] for name in names if name in value}
    known["kind"] = ContentKind(known["kind"])
    parts = [attribute.name for attribute in fields(Attachment)]
    known["media"] = tuple(
        Attachment(**{part: item[part] for part in parts if part in item})
        for item in known.get("media", ())
    )
    known["press"] = _read_press(known.get("press"))
    return IncomingMessage(**known)


def _read_press(stored: dict[str, Any] | None) -> Press | None:
    if stored is None:
        return None
    names = (attribute.name for attribute in fields(Press))
    return Press(**{name: stored[name] for name in names if name in stored})


def inbox_rows(delivery: Delivery) -> tuple[NewMessage, ...]:
    """Return the rows of the messages that others wrote."""
    return tuple(
        NewMessage(message.message_id, message.lane, encode_message(message))
        for message in delivery.messages
        if not message.from_self
    )
