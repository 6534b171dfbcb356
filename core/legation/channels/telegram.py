"""Telegram, by the Bot API with a webhook.

Source: core.telegram.org/bots/api, "Update", "sendMessage", "InlineKeyboardButton",
"answerCallbackQuery", "editMessageText", "getFile", "Making requests".  An update is one event;
its `update_id` is what repeats when Telegram delivers again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from attrs import evolve, field

from ..effects import Fetch, FetchReply, Program, Unreachable
from ..http.bodies.json_text import JsonObject, JsonValue, parse_json
from ..http.messages import Headers, compact_json
from ..values import frozen
from .answer_files import AnswerFile, post_form
from .codec import NONSENSE, Codec, post, trouble_of
from .deliveries import (
    Attachment,
    ChatMoved,
    ContentKind,
    Ignored,
    IncomingMessage,
    Parsed,
    Piece,
    gather,
)
from .identity import Identity, Unidentified, body_of
from .markup import compose_spans, spans
from .media import media_of
from .presses import Button, buttons, owe, read_press
from .provider_values import at, identifier, moment_us, objects, text_at
from .replies import (
    GiveUp,
    Moved,
    Outcome,
    Part,
    Reply,
    RetryLater,
    Sent,
    TextSpan,
    Unauthorized,
    general_outcome,
    retry_after,
    split_text,
    utf16_length,
)
from .settings import base_url, check_base_url
from .setup import Check, ask_identity
from .signatures import Secrets, SignatureRefused, Verified, active_secrets, telegram_token
from .telegram_groups import NOT_MENTIONED, Addressee, words_without_us
from .telegram_setup import check_bot, inspect_webhook, register_webhook

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
_PHOTOS: Final = frozenset({"image/jpeg", "image/png"})
_LONGEST_DATA: Final = 64  # of a button, in bytes
_LONGEST_TOAST: Final = 200
_PAUSE: Final = 1.5
_GROUP_PAUSE: Final = 4.0
# An edit that came before, or that has nothing new to say.
_UNCHANGED: Final = "Bad Request: message is not modified"
_SECRET_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{1,256}", re.ASCII)
# What Telegram says of an error, unless it has a number or something of ours in it.
_DESCRIPTION: Final = re.compile(r"[A-Za-z_' ,.:()-]{1,120}", re.ASCII)
_USERNAME: Final = re.compile(r"[A-Za-z0-9_]{1,64}", re.ASCII)
_MEMBER: Final = re.compile(r"[a-z_]{1,64}")
_CHAT: Final = re.compile(r"-?[0-9]{1,19}|@[A-Za-z0-9_]{1,64}", re.ASCII)
_TOPIC: Final = re.compile(r"[0-9]{0,19}", re.ASCII)
_MOVED_TO: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
# A token that is revoked, or none at all.
_NO_TOKEN: Final = frozenset({401, 404})
# From here on an error is one of Telegram, whatever the status of the answer says.
_BROKEN: Final = 500
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

    With `mentions_only` the bot answers in a group what is meant for it: commands, mentions of its
    name, and replies to it (`telegram_groups`).  A command for another bot it answers nowhere.
    """

    kind: ClassVar[str] = "telegram"
    text_limit: ClassVar[int] = 4096
    asks_at_start: ClassVar[bool] = True
    has_buttons: ClassVar[bool] = True
    sender: ClassVar[tuple[str, ...]] = ("bot_token", "secret_token")
    sends_files: ClassVar[bool] = True
    # "sendChatAction": the status is set for 5 seconds or less.
    typing_seconds: ClassVar[float] = 4.5
    edits_messages: ClassVar[bool] = True

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
        """Return the message of an update, for a bot that does not know its name."""
        return self.read_addressed(root, delivery_id, None)

    def read_addressed(
        self, root: JsonObject, delivery_id: str, identity: Identity | None
    ) -> Parsed:
        """Return the message of an update, new ones and pressed buttons; an edit is none."""
        # What is remembered may be of the bot that was configured before.
        known = identity if identity is not None and identity.id == self._own_id else None
        us = Addressee(self._own_id, known)
        update_id = _number(root.get("update_id"))
        if not update_id:
            return Ignored("not an update")
        return gather(self._pieces(root, update_id, us))

    def _pieces(self, root: JsonObject, update_id: str, us: Addressee) -> Iterator[Piece]:
        message, press = root.get("message"), root.get("callback_query")
        if isinstance(message, dict):
            if moved := _chat_moved(message):
                yield moved
            elif message.get("is_automatic_forward") is True:  # a post of the channel of a group
                yield "automatic_forward"
            else:
                yield self._sift(update_id, message, us)
        if isinstance(press, dict):
            yield self._press(update_id, press)
        others = set(root) - {"update_id", "message", "callback_query"}
        yield from sorted(filter(_MEMBER.fullmatch, others))

    def _sift(self, update_id: str, message: JsonObject, us: Addressee) -> Piece:
        """Return `message`, or why it is not for us.

        A picture is for us if another of its album is: one alone has the caption.
        """
        reason = self._find_reason(message, us) if _in_group(message) else None
        if reason is None:
            return self._message(update_id, message, us)
        if reason == NOT_MENTIONED and identifier(message.get("media_group_id")):
            return evolve(self._message(update_id, message, us), addressed=False)
        return reason

    def _message(self, update_id: str, message: JsonObject, us: Addressee) -> IncomingMessage:
        kind, text = _content(message)
        # Who writes for a group or a channel has that as the sender, and a bot as the user.
        chat = identifier(at(message, "sender_chat", "id"))
        return IncomingMessage(
            message_id=update_id,
            sender=chat or identifier(at(message, "from", "id")),
            kind=kind,
            text=text and words_without_us(message, text, us),
            conversation=identifier(at(message, "chat", "id")),
            thread=_topic(message),
            provider_id=_number(message.get("message_id")),
            reply_to=_number(at(message, "reply_to_message", "message_id")),
            from_self=not chat and self._is_bot(at(message, "from")),
            sent_us=moment_us(message.get("date")),
            media=_media(message),
            in_group=_in_group(message),
            album=identifier(message.get("media_group_id")),
            name=_name(message),
        )

    def _press(self, update_id: str, press: JsonObject) -> IncomingMessage:
        message_id = _number(at(press, "message", "message_id"))
        text = text_at(press, "data")
        decision = read_press(
            text,
            token=identifier(press.get("id")),
            prompt=message_id,
            shown=text_at(press, "message", "text"),
        )
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
            in_group=_in_group(at(press, "message")),
            name=_name(press),
            press=decision,
        )

    def _find_reason(self, message: JsonObject, us: Addressee) -> str | None:
        """Return why `message`, in a group, is not for us; None where it is."""
        answered = message.get("reply_to_message")
        # In a topic whatever answers nothing else answers the message that began the topic.
        replies = self._is_us(at(answered, "from")) and not at(answered, "forum_topic_created")
        return us.find_reason(message, replies=replies, mentions_only=self.mentions_only)

    @property
    def _own_id(self) -> str:
        """The id of the bot, which is the first part of its token."""
        return self.bot_token.partition(":")[0]

    def _is_us(self, user: JsonValue) -> bool:
        return identifier(at(user, "id")) == self._own_id

    def _is_bot(self, user: JsonValue) -> bool:
        """Tell whether a bot wrote: ourselves, or another that would answer our answers."""
        return at(user, "is_bot") is True or self._is_us(user)

    def _call(self, method: str, arguments: Mapping[str, object]) -> Fetch:
        """Return the request that calls `method` of the Bot API, under no key."""
        url = _SecretUrl(f"{self.api_base_url}/bot{self.bot_token}/{method}")
        body = compact_json(arguments).encode()
        return Fetch("POST", url, (("content-type", "application/json"),), body)

    def identify(self) -> Fetch:
        """Ask for the bot's name, and whether it gets every message of a group ("getMe")."""
        return self._call("getMe", {})

    def read_identity(
        self, reply: FetchReply | Unreachable, now_us: int
    ) -> Identity | Unidentified:
        """Return the "User" in the answer."""
        if (trouble := trouble_of(self.read_reply(reply, now_us))) is not None:
            return trouble
        user = at(body_of(reply), "result")
        name, reads = text_at(user, "username"), at(user, "can_read_all_group_messages")
        if not self._is_us(user) or not _USERNAME.fullmatch(name):
            return NONSENSE
        return Identity(self._own_id, name, reads_groups=reads if isinstance(reads, bool) else None)

    def inspect(self, address: str) -> Program[tuple[Check, ...]]:
        """Ask whose the token is, and where Telegram sends updates."""
        asked = yield from ask_identity(self, self.identify())
        checks = tuple(check_bot(asked, mentions_only=self.mentions_only))
        if isinstance(asked.found, Unidentified):
            return checks
        return (*checks, *(yield from inspect_webhook(self._call, address, self.name)))

    def register(self, address: str, commands: Mapping[str, str]) -> Program[tuple[Check, ...]]:
        """Set the webhook with our secret, and the commands that Telegram shows."""
        return register_webhook(self._call, address, self.secret_token, commands)

    def locate(self, media: Attachment) -> Fetch | None:
        """Ask for the path of a file, which is good for an hour at least."""
        return self._call("getFile", {"file_id": media.id})

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

    def closings(
        self, message: IncomingMessage, text: str, now_us: int, *, settled: bool
    ) -> tuple[Reply, ...]:
        """Return the answer to a press, which stops its clock, and the question without buttons."""
        press = message.press
        owed: list[Reply] = []
        if press is not None and press.token:
            owed.append(owe(message, "acknowledge", text, now_us))
        if press is not None and settled and press.prompt and message.conversation:
            told = f"{press.shown}\n\n{text}" if press.shown else ""
            fits = utf16_length(told) <= self.text_limit
            owed.append(owe(message, "close", told if fits else "", now_us))
        return tuple(owed)

    def encode(self, reply: Reply, now_us: int) -> Fetch:
        """Return the request that sends `reply`.

        Telegram has no place for an idempotency key but a header that it does not read.
        """
        if reply.file is not None:
            return self._encode_file(reply, reply.file)
        match reply.purpose:
            case "acknowledge":
                method, content = "answerCallbackQuery", _acknowledge(reply)
            case "close":
                method, content = self._close(reply)
            case _ if reply.edits:
                method, content = "editMessageText", self._edit(reply)
            case _:
                method, content = "sendMessage", self._message_of(reply)
        url = _SecretUrl(f"{self.api_base_url}/bot{self.bot_token}/{method}")
        return post(url, content, reply.key)

    def _text(self, reply: Reply) -> dict[str, object]:
        """Return the members that say where, and what."""
        part = spans(reply.text, self.text_limit) if reply.spans is None else reply
        message: dict[str, object] = {
            "chat_id": reply.recipient,
            "text": part.text,
            "link_preview_options": {"is_disabled": True},
        }
        if part.spans:
            message["entities"] = [_entity(span) for span in part.spans]
        return message

    def _message_of(self, reply: Reply) -> dict[str, object]:
        message = self._text(reply)
        if reply.thread:
            message["message_thread_id"] = int(reply.thread)
        if reply.quotes:
            message["reply_parameters"] = {
                "message_id": int(reply.quotes),
                "allow_sending_without_reply": True,
            }
        return {**message, **_keyboard(reply)}

    def _edit(self, reply: Reply) -> dict[str, object]:
        return {**self._text(reply), "message_id": int(reply.edits), **_keyboard(reply)}

    def _close(self, reply: Reply) -> tuple[str, dict[str, object]]:
        """Return how to edit a question: what is edited without a keyboard has none after it."""
        prompt = {"message_id": int(reply.prompt)}
        if reply.text:
            return "editMessageText", {**self._text(reply), **prompt}
        return "editMessageReplyMarkup", {"chat_id": reply.recipient, **prompt}

    def _encode_file(self, reply: Reply, file: AnswerFile) -> Fetch:
        """Return the request that uploads a photo, or any other file as a document."""
        photo = file.media_type in _PHOTOS
        fields = {"chat_id": reply.recipient}
        if reply.thread:
            fields["message_thread_id"] = reply.thread
        if reply.quotes:
            quoted = {"message_id": int(reply.quotes), "allow_sending_without_reply": True}
            fields["reply_parameters"] = compact_json(quoted)
        method, part = ("sendPhoto", "photo") if photo else ("sendDocument", "document")
        url = _SecretUrl(f"{self.api_base_url}/bot{self.bot_token}/{method}")
        return post_form(url, fields, part, file, reply.key)

    def encode_typing(self, message: IncomingMessage) -> Fetch | None:
        """Return the request that shows in the chat, or its topic, that the bot writes."""
        action: dict[str, object] = {"chat_id": message.conversation, "action": "typing"}
        if message.thread:
            action["message_thread_id"] = int(message.thread)
        url = _SecretUrl(f"{self.api_base_url}/bot{self.bot_token}/sendChatAction")
        body = compact_json(action).encode()
        return Fetch("POST", url, (("content-type", "application/json"),), body)

    def pause_edits(self, message: IncomingMessage) -> float:
        """Return the pause by "My bot is hitting limits": 20 messages a minute in a group."""
        return _GROUP_PAUSE if message.in_group else _PAUSE

    def address_fault(self, recipient: str, thread: str) -> tuple[str, str] | None:
        """Refuse what is neither the id of a chat nor a public name, and a topic that is no id."""
        if not _CHAT.fullmatch(recipient):
            return "recipient", "expected the id of a chat, or the public name of one with its @"
        return ("thread", "expected the id of a topic") if not _TOPIC.fullmatch(thread) else None

    def read_reply(self, reply: FetchReply | Unreachable, now_us: int) -> Outcome:
        """Judge the answer: `retry_after`, and where a chat moved to, stand in its body."""
        if isinstance(reply, Unreachable):
            return RetryLater(None, reply.reason)
        answer = parse_json(reply.body)
        if not isinstance(answer, dict):
            answer = {}
        code = answer.get("error_code")
        if text_at(answer, "description").startswith(_UNCHANGED):
            return Sent("")
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
        if moved := _chat(at(answer, "parameters", "migrate_to_chat_id")):
            return Moved(moved)
        if reply.status in _NO_TOKEN or code in _NO_TOKEN:
            return Unauthorized(f"HTTP {reply.status}: {said}" if said else f"HTTP {reply.status}")
        outcome = general_outcome(reply, now_us, said)
        if outcome is None and answer.get("ok") is False:
            broken = isinstance(code, int) and code >= _BROKEN
            reason = f"HTTP {reply.status}: {said}"
            return RetryLater(retry_after(reply, now_us), reason) if broken else GiveUp(reason)
        return outcome or Sent(_number(at(answer, "result", "message_id")))


def _chat(value: JsonValue) -> str:
    """Return the id of a chat, or ""."""
    chat = _number(value)
    return chat if _MOVED_TO.fullmatch(chat) else ""


def _chat_moved(message: JsonObject) -> ChatMoved | None:
    """Return that a group became a supergroup, where `message` says so in either of the two."""
    here = _chat(at(message, "chat", "id"))
    for name in ("migrate_to_chat_id", "migrate_from_chat_id"):
        there = _chat(message.get(name))
        if here and there and here != there:
            return ChatMoved(*((here, there) if name.endswith("to_chat_id") else (there, here)))
    return None


def _entity(span: TextSpan) -> dict[str, object]:
    entity: dict[str, object] = {
        "type": span.kind,
        "offset": span.offset,
        "length": span.length,
    }
    return {**entity, "language": span.language} if span.language else entity


def _acknowledge(reply: Reply) -> dict[str, object]:
    text = next(split_text(reply.text, _LONGEST_TOAST), "")
    return {"callback_query_id": reply.token, **({"text": text} if text else {})}


def _keyboard(reply: Reply) -> dict[str, object]:
    """Return the member with the buttons of a question, where there is room for what they say."""
    keys = [_key(button) for button in buttons(reply.approval)]
    if reply.purpose != "approval" or not all(keys):
        return {}
    return {"reply_markup": {"inline_keyboard": [keys]}}


def _key(button: Button) -> dict[str, object] | None:
    """Return a key of a keyboard; None where there is no room for what it says."""
    if len(button.data) > _LONGEST_DATA:
        return None
    return {"text": button.label, "callback_data": button.data}


def _in_group(message: JsonValue) -> bool:
    return at(message, "chat", "type") in ("group", "supergroup")


def _topic(message: JsonValue) -> str:
    """Return the topic of a forum that `message` is in; other threads are none to answer in."""
    return _number(at(message, "message_thread_id")) if at(message, "is_topic_message") else ""


def _number(value: JsonValue) -> str:
    """Return an integer as text, else ""."""
    return identifier(value) if isinstance(value, int) else ""


def _name(message: JsonObject) -> str:
    """Return the name of the user, or of the group or channel, that wrote."""
    title = text_at(message, "sender_chat", "title")
    parts = (text_at(message, "from", "first_name"), text_at(message, "from", "last_name"))
    return title or " ".join(filter(None, parts))


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
