"""Telegram, by the Bot API with a webhook.

Source: core.telegram.org/bots/api, "Update", "sendMessage", "getFile", "Making requests".  An
update is one event; its `update_id` is what repeats when Telegram delivers again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar, Final

from attrs import field

from ..effects import Fetch, FetchReply, Unreachable
from ..http.bodies.json_text import JsonObject, JsonValue, parse_json
from ..http.messages import Headers, compact_json
from ..values import frozen
from .codec import Codec, post
from .deliveries import Attachment, ContentKind, Ignored, IncomingMessage, Parsed, Piece, gather
from .markup import compose_spans, spans
from .media import media_of
from .provider_values import at, identifier, moment_us, objects, text_at
from .replies import (
    GiveUp,
    Outcome,
    Part,
    Reply,
    RetryLater,
    Sent,
    TextSpan,
    general_outcome,
    retry_after,
)
from .settings import base_url, check_base_url
from .signatures import Secrets, SignatureRefused, Verified, active_secrets, telegram_token

__all__ = ["Telegram"]

# The member that tells what a message is, and where its words are; the first that is there.
_KINDS: Final = (
    ("text", ContentKind.TEXT, "text"),
    ("photo", ContentKind.IMAGE, "caption"),
    ("voice", ContentKind.AUDIO, "caption"),
    ("audio", ContentKind.AUDIO, "caption"),
    ("video", ContentKind.VIDEO, "caption"),
    ("video_note", ContentKind.VIDEO, "caption"),
    ("document", ContentKind.DOCUMENT, "caption"),
    ("sticker", ContentKind.STICKER, "caption"),
    ("location", ContentKind.LOCATION, "caption"),
    ("contact", ContentKind.CONTACTS, "caption"),
    ("paid_media", ContentKind.UNSUPPORTED, "caption"),
    ("checklist", ContentKind.UNSUPPORTED, "caption"),
    ("poll", ContentKind.UNSUPPORTED, "caption"),
    ("dice", ContentKind.UNSUPPORTED, "caption"),
    ("story", ContentKind.UNSUPPORTED, "caption"),
    ("game", ContentKind.UNSUPPORTED, "caption"),
)
# The type of a file where Telegram does not tell: a photo is always a JPEG, a voice OGG with Opus.
_FILES: Final = (
    ("voice", "audio/ogg"),
    ("audio", "audio/mpeg"),
    ("video", "video/mp4"),
    ("video_note", "video/mp4"),
    ("document", ""),
)
_FILE_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,255}", re.ASCII)
_FILE_PATH: Final = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9_.-]*/)*[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_LARGEST: Final = 5 << 20
_SECRET_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{1,256}", re.ASCII)
# What Telegram says of an error, unless it has a number or something of ours in it.
_DESCRIPTION: Final = re.compile(r"[A-Za-z_' ,.:()-]{1,120}", re.ASCII)
_MEMBER: Final = re.compile(r"[a-z_]{1,64}")
_BOT_TOKEN: Final = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{1,128}", re.ASCII)


class _SecretUrl(str):
    """A URL with a token in its path, as only Telegram wants it: equal, but never shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return the address up to the token."""
        return repr(self.partition("/bot")[0] + "/bot…")


def _check_secret(_: object, __: object, value: Any) -> None:
    if value and not _SECRET_TOKEN.fullmatch(value):
        raise ValueError("a secret token is 1 to 256 of A-Z a-z 0-9 _ -")


def _check_bot_token(_: object, __: object, value: str) -> None:
    if not _BOT_TOKEN.fullmatch(value):
        raise ValueError("a bot token has digits, a colon, and letters")


@frozen
class Telegram(Codec):
    """One bot.

    With `mentions_only` the bot answers in a group what is meant for a bot: commands, mentions of a
    name that ends in "bot" (an update does not tell ours), and replies to it.
    """

    kind: ClassVar[str] = "telegram"
    text_limit: ClassVar[int] = 4096
    sender: ClassVar[tuple[str, ...]] = ("bot_token", "secret_token")

    name: str
    secret_token: str = field(repr=False, validator=_check_secret)
    bot_token: str = field(repr=False, validator=_check_bot_token)
    api_base_url: str = field(
        default="https://api.telegram.org", converter=base_url, validator=check_base_url
    )
    previous_secret_token: str | None = field(default=None, repr=False, validator=_check_secret)
    mentions_only: bool = True

    @property
    def secrets(self) -> Secrets:
        return active_secrets(self.secret_token, self.previous_secret_token)

    def verify(self, headers: Headers, body: bytes, now_us: int) -> Verified | SignatureRefused:
        """Check the secret token; the scheme knows no time and signs nothing."""
        return telegram_token(headers, body, self.secrets)

    def read_delivery(self, root: JsonObject, delivery_id: str) -> Parsed:
        """Return the message of an update, new ones and pressed buttons; an edit is none."""
        update_id = _number(root.get("update_id"))
        if not update_id:
            return Ignored("not an update")
        return gather(self._pieces(root, update_id))

    def _pieces(self, root: JsonObject, update_id: str) -> Iterator[Piece]:
        message, press = root.get("message"), root.get("callback_query")
        if isinstance(message, dict):
            if message.get("is_automatic_forward") is True:  # a post of the channel of a group
                yield "automatic_forward"
            elif self.mentions_only and _in_group(message) and not self._is_meant(message):
                yield "not mentioned"
            else:
                yield self._message(update_id, message)
        if isinstance(press, dict):
            yield self._press(update_id, press)
        others = set(root) - {"update_id", "message", "callback_query"}
        yield from sorted(filter(_MEMBER.fullmatch, others))

    def _message(self, update_id: str, message: JsonObject) -> IncomingMessage:
        kind, text = _content(message)
        # Who writes for a group or a channel has that as the sender, and a bot as the user.
        chat = identifier(at(message, "sender_chat", "id"))
        return IncomingMessage(
            message_id=update_id,
            sender=chat or identifier(at(message, "from", "id")),
            kind=kind,
            text=text,
            conversation=identifier(at(message, "chat", "id")),
            thread=_topic(message),
            provider_id=_number(message.get("message_id")),
            reply_to=_number(at(message, "reply_to_message", "message_id")),
            from_self=not chat and self._is_bot(at(message, "from")),
            sent_us=moment_us(message.get("date")),
            media=_media(message),
            in_group=_in_group(message),
        )

    def _press(self, update_id: str, press: JsonObject) -> IncomingMessage:
        message_id = _number(at(press, "message", "message_id"))
        text = text_at(press, "data")
        return IncomingMessage(
            message_id=update_id,
            sender=identifier(at(press, "from", "id")),
            kind=ContentKind.BUTTON if text else ContentKind.UNSUPPORTED,
            text=text or None,
            conversation=identifier(at(press, "message", "chat", "id")),
            thread=_topic(at(press, "message")),
            provider_id=message_id,
            reply_to=message_id,
            from_self=self._is_bot(at(press, "from")),
        )

    def _is_meant(self, message: JsonObject) -> bool:
        """Tell whether `message`, in a group, is for a bot; of a reply, whether it is to us."""
        answered = message.get("reply_to_message")
        # In a topic whatever answers nothing else answers the message that began the topic.
        if self._is_us(at(answered, "from")) and not at(answered, "forum_topic_created"):
            return True
        for words, entities in (("text", "entities"), ("caption", "caption_entities")):
            units = text_at(message, words).encode("utf-16-le", "replace")
            for entity in objects(message.get(entities)):
                if self._is_us(entity.get("user")) or _names_bot(entity, units):
                    return True
        return False

    def _is_us(self, user: JsonValue) -> bool:
        return identifier(at(user, "id")) == self.bot_token.partition(":")[0]

    def _is_bot(self, user: JsonValue) -> bool:
        """Tell whether a bot wrote: ourselves, or another that would answer our answers."""
        return at(user, "is_bot") is True or self._is_us(user)

    def locate(self, media: Attachment) -> Fetch | None:
        """Ask for the path of a file, which is good for an hour at least."""
        url = _SecretUrl(f"{self.api_base_url}/bot{self.bot_token}/getFile")
        body = compact_json({"file_id": media.id}).encode()
        return Fetch("POST", url, (("content-type", "application/json"),), body)

    def download(self, media: Attachment, found: FetchReply | None) -> Fetch | None:
        """Return the request for the file; its path has the token in it too."""
        parsed = parse_json(found.body) if found else None
        path = text_at(parsed if isinstance(parsed, dict) else None, "result", "file_path")
        if not _FILE_PATH.fullmatch(path):
            return None
        url = f"{self.api_base_url}/file/bot{self.bot_token}/{path}"
        return Fetch("GET", _SecretUrl(url))

    def compose(self, text: str) -> Iterator[Part]:
        """Yield the parts of an answer without its markup, which stands in spans."""
        return compose_spans(text, self.text_limit)

    def encode(self, reply: Reply, now_us: int) -> Fetch:
        """Return the request that sends `reply`.

        Telegram has no place for an idempotency key but a header that it does not read.
        """
        part = spans(reply.text, self.text_limit) if reply.spans is None else reply
        message: dict[str, object] = {
            "chat_id": reply.recipient,
            "text": part.text,
            "link_preview_options": {"is_disabled": True},
        }
        if part.spans:
            message["entities"] = [_entity(span) for span in part.spans]
        if reply.thread:
            message["message_thread_id"] = int(reply.thread)
        if reply.quotes:
            message["reply_parameters"] = {
                "message_id": int(reply.quotes),
                "allow_sending_without_reply": True,
            }
        url = _SecretUrl(f"{self.api_base_url}/bot{self.bot_token}/sendMessage")
        return post(url, message, reply.key)

    def read_reply(self, reply: FetchReply | Unreachable, now_us: int) -> Outcome:
        """Judge the answer: `retry_after` stands in its body."""
        if isinstance(reply, Unreachable):
            return RetryLater(None, reply.reason)
        answer = parse_json(reply.body)
        if not isinstance(answer, dict):
            answer = {}
        code = answer.get("error_code")
        description = _DESCRIPTION.fullmatch(text_at(answer, "description"))
        parts = (
            f"code {code}" if isinstance(code, int) else "",
            description[0] if description else "",
        )
        said = ", ".join(filter(None, parts))
        asked = at(answer, "parameters", "retry_after")
        if isinstance(asked, int) and 0 <= asked <= 24 * 3600:
            return RetryLater(asked, f"HTTP {reply.status}: {said}")
        if code == 429:
            return RetryLater(retry_after(reply, now_us), f"HTTP {reply.status}: {said}")
        outcome = general_outcome(reply, now_us, said)
        if outcome is None and answer.get("ok") is False:
            return GiveUp(f"HTTP {reply.status}: {said}")
        return outcome or Sent(_number(at(answer, "result", "message_id")))


def _entity(span: TextSpan) -> dict[str, object]:
    entity: dict[str, object] = {
        "type": span.kind,
        "offset": span.offset,
        "length": span.length,
    }
    return {**entity, "language": span.language} if span.language else entity


def _in_group(message: JsonObject) -> bool:
    return at(message, "chat", "type") in ("group", "supergroup")


def _names_bot(entity: JsonObject, units: bytes) -> bool:
    """Tell whether `entity` is a command, or the name of a bot; it counts in UTF-16 units."""
    if entity.get("type") != "mention":
        return entity.get("type") == "bot_command"
    offset, length = entity.get("offset"), entity.get("length")
    if not isinstance(offset, int) or not isinstance(length, int):
        return False
    name = units[2 * offset : 2 * (offset + length)].decode("utf-16-le", "replace")
    return name.lower().endswith("bot")


def _topic(message: JsonValue) -> str:
    """Return the topic of a forum that `message` is in; other threads are none to answer in."""
    return _number(at(message, "message_thread_id")) if at(message, "is_topic_message") else ""


def _number(value: JsonValue) -> str:
    """Return an integer as text, else ""."""
    return identifier(value) if isinstance(value, int) else ""


def _content(message: JsonObject) -> tuple[ContentKind, str | None]:
    """Return what `message` is; what nobody wrote (a member joined) is `SYSTEM`."""
    for member, kind, words in _KINDS:
        if member in message:
            text = text_at(message, words) or None
            return (
                ContentKind.UNSUPPORTED if kind is ContentKind.TEXT and text is None else kind
            ), text
    return ContentKind.SYSTEM, None


def _media(message: JsonObject) -> tuple[Attachment, ...]:
    """Return the file of `message`; of a photo the largest size that is not excessive."""
    sizes = [size for size in objects(message.get("photo")) if _file_id(size)]
    fitting = [size for size in sizes if not _bytes(size) > _LARGEST] or sizes[:1]
    if fitting:
        best = max(fitting, key=_bytes)
        return media_of(_file_id(best), "image/jpeg", "photo.jpg", best.get("file_size"))
    for name, mime_type in _FILES:
        file = message.get(name)
        if isinstance(file, dict):
            declared = text_at(file, "mime_type") or mime_type
            return media_of(_file_id(file), declared, file.get("file_name"), file.get("file_size"))
    return ()


def _file_id(file: JsonObject) -> str:
    file_id = text_at(file, "file_id")
    return file_id if _FILE_ID.fullmatch(file_id) else ""


def _bytes(file: JsonObject) -> int:
    size = file.get("file_size")
    return size if isinstance(size, int) else 0
