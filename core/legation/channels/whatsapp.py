"""WhatsApp, by Meta's Cloud API.

Sources: the webhook reference ("messages" field), "Send messages", "Interactive reply buttons",
"Media", "Error codes", "Business-scoped user IDs", "Groups" of the Cloud API.  A delivery holds
entries, each with changes, each with messages; all of them count.  Who has taken a username may
come without a phone number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

from attrs import evolve, field

from ..effects import Fetch, FetchReply, Program, Unreachable
from ..http.bodies.json_text import BadJson, JsonObject, JsonValue, parse_json
from ..http.messages import Headers, compact_json
from ..values import frozen
from .answer_files import post_form
from .codec import NONSENSE, Codec, post, trouble_of
from .deliveries import (
    Attachment,
    ContentKind,
    Handshake,
    Ignored,
    IncomingMessage,
    Parsed,
    Piece,
    Undelivered,
    challenge_of,
    gather,
)
from .identity import Identity, Unidentified, body_of
from .markup import compose_marks, mark_up
from .media import is_provider, media_of
from .presses import buttons, read_press
from .provider_values import at, identifier, moment_us, objects, text_at
from .replies import (
    GiveUp,
    Outcome,
    Part,
    Reply,
    RetryLater,
    Sent,
    Unauthorized,
    general_outcome,
    retry_after,
)
from .settings import base_url, check_base_url, check_segment, check_token
from .setup import Check, ask_identity, ask_nobody
from .signatures import Secrets, SignatureRefused, Verified, active_secrets, hub256, is_among
from .whatsapp_setup import check_number, describe_webhook, inspect_number

__all__ = ["WhatsApp"]

# By the type of a message: what it is, and where its words are.
_KINDS: Final[Mapping[str, tuple[ContentKind, tuple[str, ...]]]] = {
    "text": (ContentKind.TEXT, ("text", "body")),
    "button": (ContentKind.BUTTON, ("button", "text")),
    "interactive/button_reply": (ContentKind.BUTTON, ("interactive", "button_reply", "title")),
    "interactive/list_reply": (ContentKind.LIST, ("interactive", "list_reply", "title")),
    "interactive/nfm_reply": (ContentKind.BUTTON, ("interactive", "nfm_reply", "response_json")),
    "image": (ContentKind.IMAGE, ("image", "caption")),
    "audio": (ContentKind.AUDIO, ()),
    "video": (ContentKind.VIDEO, ("video", "caption")),
    "document": (ContentKind.DOCUMENT, ("document", "caption")),
    "sticker": (ContentKind.STICKER, ()),
    "location": (ContentKind.LOCATION, ()),
    "contacts": (ContentKind.CONTACTS, ()),
    "order": (ContentKind.ORDER, ("order", "text")),
    "reaction": (ContentKind.REACTION, ("reaction", "emoji")),
    "system": (ContentKind.SYSTEM, ("system", "body")),
    # What a person did to a message of before, or to the chat.
    **dict.fromkeys(
        (
            *("edit", "revoke", "request_welcome", "unsupported/keep_in_chat"),
            *("unsupported/pin", "unsupported/poll_update", "unsupported/reaction"),
        ),
        (ContentKind.SYSTEM, ()),
    ),
}
_FILES: Final = ("image", "audio", "video", "document")
# "Media": what a person sees or hears at once; anything else is a document.
_SENT_AS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("image/jpeg", "image/png"), "image"),
    **dict.fromkeys(("audio/aac", "audio/amr", "audio/mpeg", "audio/mp4", "audio/ogg"), "audio"),
    **dict.fromkeys(("video/mp4", "video/3gpp"), "video"),
}
_MEDIA_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}", re.ASCII)
# Where Meta keeps files: the address that it gives out is at `lookaside.fbsbx.com`.
_META: Final = ("fbsbx.com", "facebook.com", "fbcdn.net", "whatsapp.net")
_WORDED: Final = frozenset({ContentKind.TEXT, ContentKind.BUTTON, ContentKind.LIST})
_KEY: Final = re.compile(r"[\x21-\x7e]{1,512}", re.ASCII)
_LONGEST_REASON: Final = 200
_WINDOW_SECONDS: Final = 24 * 3600
_PHONE: Final = re.compile(r"\+?[0-9]+", re.ASCII)
_USER_ID: Final = re.compile(r"[A-Z]{2}\.(?:ENT\.)?[A-Za-z0-9]{1,128}", re.ASCII)

# Error codes that pass, whatever the status: throughput and pair limits, outages, maintenance.
_PASSING: Final = frozenset(
    {1, 2, 4, 80007, 130429, 131000, 131016, 131048, 131056, 131057, 133004}
)
# "Authorization errors" of the reference: the token is none, has expired, or may not send.
_NO_TOKEN: Final = frozenset({0, 10, 190, *range(200, 300)})


@frozen
class WhatsApp(Codec):
    """One business phone number.  Messages to another number of the same app are not for us."""

    kind: ClassVar[str] = "whatsapp"
    text_limit: ClassVar[int] = 4096
    has_buttons: ClassVar[bool] = True
    sender: ClassVar[tuple[str, ...]] = ("phone_number_id", "app_secret")
    sends_files: ClassVar[bool] = True
    # "Typing indicators": dismissed with the answer, or after 25 seconds.
    typing_seconds: ClassVar[float] = 24.0

    name: str
    app_secret: str = field(repr=False)
    verify_token: str = field(repr=False, validator=check_token)
    access_token: str = field(repr=False, validator=check_token)
    phone_number_id: str = field(validator=check_segment)
    api_base_url: str = field(
        default="https://graph.facebook.com/v22.0", converter=base_url, validator=check_base_url
    )
    previous_app_secret: str | None = field(default=None, repr=False)

    @property
    def secrets(self) -> Secrets:
        return active_secrets(self.app_secret, self.previous_app_secret)

    def handshake(self, query: Sequence[tuple[str, str]]) -> Handshake:
        """Answer Meta's verification of the endpoint (GET), its parameters once each."""
        given = dict(query)
        if len(given) != len(query) or given.get("hub.mode") != "subscribe":
            return SignatureRefused("not a subscription")
        token = given.get("hub.verify_token", "").encode("utf-8", "surrogatepass")
        if not is_among(token, [self.verify_token.encode()]):
            return SignatureRefused("wrong verify token")
        return challenge_of(given.get("hub.challenge")) or SignatureRefused("malformed challenge")

    def verify(self, headers: Headers, body: bytes, now_us: int) -> Verified | SignatureRefused:
        """Check Meta's signature; the scheme knows no time."""
        return hub256(headers, body, self.secrets)

    def read_delivery(self, root: JsonObject, delivery_id: str) -> Parsed:
        """Return every message of every change of every entry."""
        if root.get("object") != "whatsapp_business_account":
            return Ignored("another object")
        return gather(self._pieces(root))

    def _pieces(self, root: JsonObject) -> Iterator[Piece]:
        for entry in objects(root.get("entry")):
            for change in objects(entry.get("changes")):
                yield from self._change(change)

    def _change(self, change: JsonObject) -> Iterator[Piece]:
        value = change.get("value")
        if change.get("field", "messages") != "messages":
            yield "another field"
            return
        if self.phone_number_id != (
            at(value, "metadata", "phone_number_id") or self.phone_number_id
        ):
            yield "another number" if at(value, "messages") else "statuses"
            return
        shown = _digits(text_at(value, "metadata", "display_phone_number"))
        own = {self.phone_number_id, shown} - {""}
        names = _names(value)
        for message in objects(at(value, "messages")):
            yield _message(message, own, names)
        for status in objects(at(value, "statuses")):
            key = _KEY.fullmatch(text_at(status, "biz_opaque_callback_data"))
            if key and status.get("status") == "failed":
                yield Undelivered(_failure(status), key[0], identifier(status.get("id")))
        for name in ("statuses", "errors"):
            if at(value, name):
                yield name

    def identify(self) -> Fetch:
        """Ask for the phone number as people see it ("Phone Number" of the Graph API)."""
        asked = "display_phone_number,verified_name,quality_rating"
        return self._ask(asked)

    def _ask(self, fields: str) -> Fetch:
        """Return the request for `fields` of the phone number."""
        url = f"{self.api_base_url}/{self.phone_number_id}?fields={fields}"
        return Fetch("GET", url, self._credentials)

    def read_identity(
        self, reply: FetchReply | Unreachable, now_us: int
    ) -> Identity | Unidentified:
        """Return the phone number, and the name that Meta has verified."""
        if (trouble := trouble_of(self.read_reply(reply, now_us))) is not None:
            return trouble
        number = body_of(reply)
        shown = identifier(at(number, "display_phone_number"))
        if not shown or at(number, "id") not in (None, self.phone_number_id):
            return NONSENSE
        return Identity(
            self.phone_number_id,
            shown,
            title=identifier(at(number, "verified_name")),
            quality=identifier(at(number, "quality_rating")),
        )

    def inspect(self, address: str) -> Program[tuple[Check, ...]]:
        """Ask which number it is, and where Meta sends its messages."""
        asked = yield from ask_identity(self, self.identify())
        checks = tuple(check_number(asked))
        if isinstance(asked.found, Unidentified):
            return checks
        return (*checks, *(yield from inspect_number(self._ask("webhook_configuration"), address)))

    def register(self, address: str, commands: Mapping[str, str]) -> Program[tuple[Check, ...]]:
        """Ask nothing: the address of an app is entered by a person."""
        return ask_nobody(*describe_webhook(address))

    def locate(self, media: Attachment) -> Fetch | None:
        """Ask for the address of a file, which is good for five minutes."""
        query = f"?phone_number_id={self.phone_number_id}"
        return Fetch("GET", f"{self.api_base_url}/{media.id}{query}", self._credentials)

    def download(self, media: Attachment, found: FetchReply | None) -> Fetch | None:
        """Return the request for the file; it needs the token as well."""
        parsed = parse_json(found.body) if found else None
        url = text_at(None if isinstance(parsed, BadJson) else parsed, "url")
        if not is_provider(url, self.api_base_url, _META):
            return None
        return Fetch("GET", url, self._credentials)

    @property
    def _credentials(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.access_token}"),)

    def compose(self, text: str) -> Iterator[Part]:
        """Yield the parts of an answer with the marks of the provider."""
        return compose_marks(text, self.text_limit)

    def _text(self, reply: Reply) -> str:
        return mark_up(reply.text, self.text_limit) if reply.spans is None else reply.text

    def prepare(self, reply: Reply, answers: tuple[FetchReply, ...]) -> Fetch | Reply | RetryLater:
        """Return the upload of a file ("Upload media"); behind it the reply with the file's id."""
        if reply.file is None:
            return reply
        if not answers:
            url = f"{self.api_base_url}/{self.phone_number_id}/media"
            fields = {"messaging_product": "whatsapp", "type": reply.file.media_type}
            return post_form(url, fields, "file", reply.file, reply.key, self._credentials)
        parsed = parse_json(answers[-1].body)
        media_id = text_at(None if isinstance(parsed, BadJson) else parsed, "id")
        if not _MEDIA_ID.fullmatch(media_id):
            return RetryLater(None, "no id of the upload")
        return evolve(reply, uploaded=media_id)

    def encode(self, reply: Reply, now_us: int) -> Fetch:
        """Return the request that sends `reply`; its key stands wherever Meta has a place."""
        message: dict[str, object] = {
            "messaging_product": "whatsapp",
            **_address(reply.recipient),
            **self._content(reply),
            "biz_opaque_callback_data": reply.key,
        }
        if reply.quotes:
            message["context"] = {"message_id": reply.quotes}
        url = f"{self.api_base_url}/{self.phone_number_id}/messages"
        return post(url, message, reply.key, self._credentials)

    def _content(self, reply: Reply) -> dict[str, object]:
        """Return the members that say what is sent: a text, a question, or an uploaded file."""
        if reply.purpose == "approval":
            return self._question(reply)
        if reply.file is None:
            # No preview: it would make Meta fetch whatever address a model wrote.
            return {"type": "text", "text": {"body": self._text(reply), "preview_url": False}}
        kind = _SENT_AS.get(reply.file.media_type, "document")
        named = {"filename": reply.file.name} if kind == "document" else {}
        return {"type": kind, kind: {"id": reply.uploaded, **named}}

    def _question(self, reply: Reply) -> dict[str, object]:
        keys = [
            {"type": "reply", "reply": {"id": button.data, "title": button.label}}
            for button in buttons(reply.approval)
        ]
        body = {"text": self._text(reply)}
        return {
            "type": "interactive",
            "interactive": {"type": "button", "body": body, "action": {"buttons": keys}},
        }

    def encode_typing(self, message: IncomingMessage) -> Fetch | None:
        """Return the request that shows that an answer is written; it marks `message` as read."""
        read = {
            "messaging_product": "whatsapp",
            "status": "read",
            "message_id": message.provider_id,
            "typing_indicator": {"type": "text"},
        }
        url = f"{self.api_base_url}/{self.phone_number_id}/messages"
        headers = (*self._credentials, ("content-type", "application/json"))
        return Fetch("POST", url, headers, compact_json(read).encode())

    def address_fault(self, recipient: str, thread: str) -> tuple[str, str] | None:
        """Refuse a thread: there are none."""
        return ("thread", "has no meaning here") if thread else None

    def window_seconds(self, recipient: str) -> int | None:
        """Return the day in which a person may be written to; of groups Meta itself knows it."""
        person = _PHONE.fullmatch(recipient) or _USER_ID.fullmatch(recipient)
        return _WINDOW_SECONDS if person else None

    def read_reply(self, reply: FetchReply | Unreachable, now_us: int) -> Outcome:
        """Judge Meta's answer: by its error code first, then by the status."""
        if isinstance(reply, Unreachable):
            return RetryLater(None, reply.reason)
        parsed = parse_json(reply.body)
        answer = None if isinstance(parsed, BadJson) else parsed
        error = at(answer, "error")
        found = at(error, "code")
        code = found if isinstance(found, int) else None
        said = f"code {code}" if code else ""
        if code in _PASSING or at(error, "is_transient") is True:
            return RetryLater(retry_after(reply, now_us), f"HTTP {reply.status}: {said}")
        if code in _NO_TOKEN or reply.status == 401:
            return Unauthorized(f"HTTP {reply.status}: {said or 'code 0'}")
        outcome = general_outcome(reply, now_us, said)
        if outcome is None and error is not None:
            return GiveUp(f"HTTP {reply.status}: {said}")
        return outcome or Sent(_message_id(answer))


def _address(recipient: str) -> dict[str, str]:
    """Return the members that say to whom: a phone number, a user without one, or a group."""
    if _USER_ID.fullmatch(recipient):
        return {"recipient_type": "individual", "recipient": recipient}
    kind = "individual" if _PHONE.fullmatch(recipient) else "group"
    return {"recipient_type": kind, "to": recipient}


def _failure(status: JsonObject) -> str:
    """Return why a message that Meta took was not delivered, by the codes of Meta's errors."""
    codes = (error.get("code") for error in objects(status.get("errors")))
    told = ", ".join(f"code {code}" for code in codes if isinstance(code, int))
    return told[:_LONGEST_REASON] or "no code"


def _digits(number: str) -> str:
    return "".join(character for character in number if character.isdigit())


def _message_id(answer: JsonValue) -> str:
    return next((identifier(m.get("id")) for m in objects(at(answer, "messages"))), "")


def _content(message: JsonObject) -> tuple[ContentKind, str | None]:
    name = text_at(message, "type")
    if name in ("interactive", "unsupported"):
        name += "/" + text_at(message, name, "type")
    kind, path = _KINDS.get(name, (ContentKind.UNSUPPORTED, ()))
    text = (text_at(message, *path) if path else "") or None
    if text is None and kind in _WORDED:
        return ContentKind.UNSUPPORTED, None
    return kind, text


def _media(message: JsonObject) -> tuple[Attachment, ...]:
    name = text_at(message, "type")
    if name not in _FILES:
        return ()
    file = message.get(name)
    media_id = identifier(at(file, "id"))
    known = media_id if _MEDIA_ID.fullmatch(media_id) else ""
    return media_of(known, at(file, "mime_type"), at(file, "filename"))


def _names(value: JsonValue) -> dict[str, str]:
    """Return the names of those who wrote, by each of their ids."""
    return {
        identifier(contact.get(key)): text_at(contact, "profile", "name")
        for contact in objects(at(value, "contacts"))
        for key in ("wa_id", "user_id")
    }


def _message(message: JsonObject, own: set[str], names: Mapping[str, str]) -> IncomingMessage:
    message_id, number = identifier(message.get("id")), identifier(message.get("from"))
    sender = number or identifier(message.get("from_user_id"))
    group = identifier(message.get("group_id"))
    kind, text = _content(message)
    reacted: JsonValue = at(message, "reaction", "message_id")
    answered = identifier(at(message, "context", "id") or reacted)
    return IncomingMessage(
        message_id=message_id,
        sender=sender,
        kind=kind,
        text=text,
        conversation=group or sender,
        provider_id=message_id,
        reply_to=answered,
        from_self=_digits(number) in own or number in own,
        sent_us=moment_us(message.get("timestamp")),
        media=_media(message),
        in_group=bool(group),
        name=names.get(sender, ""),
        press=read_press(text_at(message, "interactive", "button_reply", "id"), prompt=answered),
    )
