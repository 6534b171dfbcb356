"""Providers as strict as the real ones: they check what we send by their documentation.

A provider judges one request: it takes the message, or refuses it as the real one would.  What
made it refuse stands in `refused`, so that a test can say that nothing was.  The rules are those of
the documents named beside each; nothing here imports a codec of ours.
"""

from __future__ import annotations

import json
import re
import time
from abc import ABC, abstractmethod
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from email import message_from_bytes
from email.policy import HTTP
from itertools import combinations
from threading import Lock
from typing import Any, ClassVar, Final, TypeAlias
from urllib.parse import parse_qs, parse_qsl, urlsplit

from attrs import define, field, frozen
from standardwebhooks import Webhook, WebhookVerificationError

from legation.effects import Fetch, FetchReply

__all__ = [
    "Act",
    "Provider",
    "Reply",
    "Seen",
    "SlackApi",
    "StandardReceiver",
    "TelegramApi",
    "WhatsAppApi",
]

# Who we are is asked of every provider, of which a test may have one at the address of all.
_QUESTION: Final = re.compile(
    r"/bot[^/]+/getMe|/api/auth\.test|/v\d+\.0/\d+\?fields=[a-z_,]+", re.ASCII
)

Headers: TypeAlias = Mapping[str, str]
"""Names in lower case."""


@frozen
class Seen:
    """A message that was taken: to whom, what, and under which idempotency key.

    `buttons` are the data of those under it.
    """

    recipient: str
    text: str
    key: str
    buttons: tuple[str, ...] = ()


@frozen
class Act:
    """A request that was taken, and is no message of its own: its method and its content."""

    method: str
    content: Mapping[str, Any]


Members: TypeAlias = Mapping[str, Callable[[Any], bool]]
"""A check for each member of an object."""

Upload: TypeAlias = tuple[str, str, bytes]


@frozen
class Reply:
    """What the provider answers."""

    status: int
    body: bytes
    headers: Headers = field(factory=dict[str, str])


class Rule(Exception):
    """A rule was broken; `error` is what the provider calls it."""

    def __init__(self, error: str, status: int = 400) -> None:
        super().__init__(error)
        self.error = error
        self.status = status


@define(eq=False)
class Provider(ABC):
    """Takes messages.  With `honours_keys` a message with a known key is taken only once.

    Attributes:
        seen: Messages as a person sees them, in order.
        repeats: How often a known key came again.
        acts: What was done about presses and questions, and edits, in order.
        shown: What stands in each message now, by its id at the provider.
        gone: The ids of messages that are deleted.
        refused: Which rules our requests broke.
        files: What people attached to their messages, by its id: the type and the content.
        fetched: The ids of the files that were given out.
        typing: Where a typing indicator was shown, each time: of WhatsApp the message, of Telegram
            the chat and its topic, of Slack the channel and its thread.
        identified: How often it was asked who we are.
        uploads: The files that were sent to a person: name, type and content.
        base: The address at which the provider is reached.
    """

    kind: ClassVar[str]

    honours_keys: bool = True
    seen: list[Seen] = field(factory=list[Seen], init=False)
    acts: list[Act] = field(factory=list[Act], init=False)
    shown: dict[str, str] = field(factory=dict[str, str], init=False)
    gone: set[str] = field(factory=set[str], init=False)
    repeats: int = field(default=0, init=False)
    refused: list[str] = field(factory=list[str], init=False)
    files: dict[str, tuple[str, bytes]] = field(factory=dict[str, tuple[str, bytes]], init=False)
    fetched: list[str] = field(factory=list[str], init=False)
    typing: list[str] = field(factory=list[str], init=False)
    identified: int = field(default=0, init=False)
    uploads: list[Upload] = field(factory=list[Upload], init=False)
    base: str = field(default="http://127.0.0.1:9", init=False)
    _known: dict[str, bytes] = field(factory=dict[str, bytes], init=False)
    _lock: Lock = field(factory=Lock, init=False)

    def take(self, method: str, target: str, headers: Headers, body: bytes) -> Reply:
        """Judge one request; safe to call from several threads."""
        with self._lock:
            try:
                known_as = self.identity(method, target, headers, body)
                if known_as is not None:
                    self.identified += 1
                    return known_as
                if _QUESTION.fullmatch(target):  # for a provider that is not here
                    return Reply(404, b"")
                given = self.media(method, target, headers, body)
                given = given or self.show_typing(target, headers, body)
                taken = given or self.take_upload(target, headers, body)
                if isinstance(taken, Reply):
                    return taken
                act = None if taken else self.act(method, target, headers, body)
                if act is not None:
                    self.acts.append(act)
                    return self.done(act)
                message = taken or self.judge(method, target, headers, body)
            except Rule as rule:
                self.refused.append(rule.error)
                return self.refusal(rule)
            known = self._known.get(message.key)
            self.repeats += known is not None
            if known is not None and self.honours_keys:
                return Reply(200, known)
            self.seen.append(message)
            self.shown[self.name(len(self.seen))] = message.text
            answer = self.answer(message, len(self.seen))
            self._known[message.key] = answer
            return Reply(200, answer)

    def __call__(self, fetch: Fetch) -> FetchReply:
        """Be the network of a `Client`."""
        headers = {name.lower(): value for name, value in fetch.headers}
        target = "/" + fetch.url.split("/", 3)[3]
        reply = self.take(fetch.method, target, headers, fetch.body)
        return FetchReply(reply.status, dict(reply.headers), reply.body)

    def media(self, method: str, target: str, headers: Headers, body: bytes) -> Reply | None:
        """Return the answer to a request about a file; None when it is about something else."""
        return None

    def show_typing(self, target: str, headers: Headers, body: bytes) -> Reply | None:
        """Return the answer to a typing indicator; None when it is about something else."""
        return None

    def take_upload(self, target: str, headers: Headers, body: bytes) -> Reply | Seen | None:
        """Return the answer to a step of an upload, or the message that the file is."""
        return None

    def identity(self, method: str, target: str, headers: Headers, body: bytes) -> Reply | None:
        """Return the answer to the question who we are; None when it is about something else."""
        return None

    def act(self, method: str, target: str, headers: Headers, body: bytes) -> Act | None:
        """Return what a request does beside messages; None when it sends one."""
        return None

    def name(self, number: int) -> str:
        """Return the id of the message of this number."""
        return str(number)

    def done(self, act: Act) -> Reply:
        """Return the answer to what was done."""
        return Reply(200, b'{"ok":true,"result":true}')

    def given_out(self, file_id: str) -> Reply:
        """Return a file."""
        need(file_id in self.files, "no such file", 404)
        self.fetched.append(file_id)
        mime_type, content = self.files[file_id]
        return Reply(200, content, {"content-type": mime_type})

    @abstractmethod
    def judge(self, method: str, target: str, headers: Headers, body: bytes) -> Seen:
        """Return the message, or raise the `Rule` that is broken."""

    @abstractmethod
    def answer(self, message: Seen, number: int) -> bytes:
        """Return the body of the answer to a message that was taken."""

    @abstractmethod
    def refusal(self, rule: Rule) -> Reply:
        """Return the answer to a message that was not."""

    @abstractmethod
    def throttled(self, seconds: int) -> Reply:
        """Return the answer that asks to wait."""


# --- what they have in common ------------------------------------------------------------------


def need(truth: object, error: str, status: int = 400) -> None:
    """Raise unless `truth`."""
    if not truth:
        raise Rule(error, status)


def object_of(headers: Headers, body: bytes, content_type: str) -> dict[str, Any]:
    """Return the JSON object of `body`, strictly."""
    need(re.fullmatch(content_type, headers.get("content-type", "")), "content type")
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=lambda _: 1 / 0)
    except (ValueError, ZeroDivisionError):
        raise Rule("not JSON in UTF-8") from None
    need(isinstance(value, dict), "not an object")
    return dict(value)


def shape(value: Any, members: Mapping[str, Callable[[Any], bool]], where: str = "") -> None:
    """Check every member of an object; one that is not known is refused."""
    need(isinstance(value, dict), f"{where}: not an object")
    for name, content in value.items():
        need(name in members, f"{where}{name}: unknown")
        need(members[name](content), f"{where}{name}: malformed")


def form_of(headers: Headers, body: bytes) -> tuple[dict[str, str], dict[str, Upload]]:
    """Return the fields and the files of a form with files (RFC 7578)."""
    content_type = headers.get("content-type", "")
    need(content_type.startswith("multipart/form-data; boundary="), "content type")
    head = f"content-type: {content_type}\r\n\r\n".encode()
    parsed = message_from_bytes(head + body, policy=HTTP)
    need(parsed.is_multipart() and not parsed.defects, "malformed form")
    fields, files = dict[str, str](), dict[str, Upload]()
    for part in parsed.iter_parts():
        name = str(part.get_param("name", header="content-disposition"))
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        if part.get_filename() is None:
            fields[name] = content.decode()
        else:
            files[name] = (str(part.get_filename()), part.get_content_type(), content)
    return fields, files


def text(longest: int) -> Callable[[Any], bool]:
    """Return a check for a string of 1 to `longest` UTF-16 units that is not blank."""

    def check(value: Any) -> bool:
        if not isinstance(value, str) or not value.strip():
            return False
        return len(value.encode("utf-16-le")) // 2 <= longest

    return check


def matching(pattern: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


def is_object(value: Any) -> bool:
    return isinstance(value, dict)


def is_list(value: Any) -> bool:
    return isinstance(value, list)


def boolean(value: Any) -> bool:
    return isinstance(value, bool)


def integer(value: Any) -> bool:
    return type(value) is int


# --- WhatsApp ----------------------------------------------------------------------------------


@define(eq=False)
class WhatsAppApi(Provider):
    """Cloud API, "Send messages": `POST /{version}/{phone number id}/messages`.

    A phone number stands in `to`, a user who hides it in `recipient` ("Business-scoped user IDs"),
    a group in `to` under another `recipient_type` ("Groups API").
    Meta documents no idempotency; `honours_keys` shows what the key would do where it is honoured.
    """

    kind: ClassVar[str] = "whatsapp"

    access_token: str = "access-token"
    phone_number_id: str = "111"
    quality: str = "GREEN"
    webhook: dict[str, str] = field(factory=dict[str, str])
    reachable: bool = True
    """Whether people can be written to; else Meta refuses each message, and not its sender."""

    def identity(self, method: str, target: str, headers: Headers, body: bytes) -> Reply | None:
        """Answer `GET /{phone number id}` of the Graph API with the fields that were named."""
        path, _, query = target.partition("?")
        found = re.fullmatch(r"/v\d+\.0/(\d+)", path)
        asked = parse_qs(query).get("fields")
        if method != "GET" or found is None or asked is None:
            return None
        need(headers.get("authorization") == f"Bearer {self.access_token}", "token", 401)
        need(found[1] == self.phone_number_id, "Unsupported get request", 400)
        fields = {
            "display_phone_number": "+1 555-000-1",
            "verified_name": "Grand Hotel",
            "quality_rating": self.quality,
            "webhook_configuration": self.webhook,
        }
        names = asked[0].split(",")
        need(set(names) <= fields.keys(), "nonexisting field", 400)
        told = {**{name: fields[name] for name in names}, "id": self.phone_number_id}
        return Reply(200, json.dumps(told).encode(), {"content-type": "application/json"})

    def media(self, method: str, target: str, headers: Headers, body: bytes) -> Reply | None:
        """Answer "Retrieve Media URL" and "Download Media"; both want the token."""
        where = re.fullmatch(r"/v\d+\.0/([A-Za-z0-9_-]+)(\?phone_number_id=(\d+))?", target)
        file = re.fullmatch(r"/whatsapp_business/attachments/\?mid=([A-Za-z0-9_-]+)", target)
        if method != "GET" or not (where or file):
            return None
        need(headers.get("authorization") == f"Bearer {self.access_token}", "token", 401)
        if file:
            return self.given_out(file[1])
        assert where is not None
        need(where[1] in self.files, "Unsupported get request", 400)
        need(where[3] in (None, self.phone_number_id), "phone_number_id", 400)
        mime_type, content = self.files[where[1]]
        told = {
            "messaging_product": "whatsapp",
            "url": f"{self.base}/whatsapp_business/attachments/?mid={where[1]}",
            "mime_type": mime_type,
            "sha256": "0" * 64,
            "file_size": str(len(content)),
            "id": where[1],
        }
        return Reply(200, json.dumps(told).encode(), {"content-type": "application/json"})

    def show_typing(self, target: str, headers: Headers, body: bytes) -> Reply | None:
        """Answer "Typing indicators", which marks a message as read as well."""
        if b'"typing_indicator"' not in body:
            return None
        need(re.fullmatch(rf"/v\d+\.0/{self.phone_number_id}/messages", target), "path", 404)
        need(headers.get("authorization") == f"Bearer {self.access_token}", "token", 401)
        read = object_of(headers, body, "application/json")
        members: Members = {
            "messaging_product": matching("whatsapp"),
            "status": matching("read"),
            "message_id": text(512),
            "typing_indicator": lambda value: value == {"type": "text"},
        }
        shape(read, members)
        need(read.keys() == members.keys(), "missing")
        self.typing.append(read["message_id"])
        return Reply(200, b'{"success":true}')

    def judge(self, method: str, target: str, headers: Headers, body: bytes) -> Seen:
        need(method == "POST", "method", 405)
        path = re.fullmatch(r"/v\d+\.0/(\d+)/messages", target)
        need(path is not None and path[1] == self.phone_number_id, "path", 404)
        need(headers.get("authorization") == f"Bearer {self.access_token}", "token", 401)
        message = object_of(headers, body, "application/json")
        alone = message.get("recipient_type", "individual") == "individual"
        shape(
            message,
            {
                "messaging_product": matching("whatsapp"),
                "recipient_type": matching("individual|group"),
                "to": matching(r"\+?[0-9]{3,20}" if alone else r"[A-Za-z0-9_=-]{20,100}"),
                "recipient": matching(r"[A-Z]{2}\.(ENT\.)?[A-Za-z0-9]{1,128}"),
                "type": matching("text|image|audio|video|document|interactive"),
                **dict.fromkeys(
                    ("text", "image", "audio", "video", "document", "interactive"), is_object
                ),
                "context": is_object,
                "biz_opaque_callback_data": text(512),
            },
        )
        for name in ("messaging_product", "type", str(message.get("type"))):
            need(name in message, f"{name}: missing")
        to = str(message.get("to") or (alone and message.get("recipient")) or "")
        need(to, "to: missing")
        need(self.reachable, "Message undeliverable")
        buttons: tuple[str, ...] = ()
        if message["type"] == "interactive":
            shown, buttons = self._question(message["interactive"])
        elif message["type"] == "text":
            shape(message["text"], {"body": text(4096), "preview_url": boolean}, "text.")
            shown = message["text"]["body"]
        else:
            shown = self._file(message["type"], message[message["type"]])
        shape(message.get("context", {}), {"message_id": text(512)}, "context.")
        key = message.get("biz_opaque_callback_data", "")
        need(headers.get("idempotency-key") == key, "two keys")
        return Seen(to, shown, key, buttons)

    def take_upload(self, target: str, headers: Headers, body: bytes) -> Reply | Seen | None:
        """Answer "Upload media"; of documents it takes few types, of images two."""
        if re.fullmatch(rf"/v\d+\.0/{self.phone_number_id}/media", target) is None:
            return None
        need(headers.get("authorization") == f"Bearer {self.access_token}", "token", 401)
        fields, files = form_of(headers, body)
        need(fields.keys() == {"messaging_product", "type"}, "fields")
        need(fields["messaging_product"] == "whatsapp" and files.keys() == {"file"}, "fields")
        need(fields["type"] == files["file"][1], "type")
        need(fields["type"] in ("image/png", "image/jpeg", "application/pdf", "audio/ogg"), "type")
        self.uploads.append(files["file"])
        return Reply(200, b'{"id":"%d"}' % (7000 + len(self.uploads)))

    def _file(self, kind: str, value: Any) -> str:
        """Check a "Media object" that was uploaded."""
        members = {"id": matching(r"70\d\d"), "filename": text(240)}
        shape(value, members if kind == "document" else {"id": members["id"]}, f"{kind}.")
        need(0 < int(value["id"]) - 7000 <= len(self.uploads), "no such media")
        name, media_type, _ = self.uploads[int(value["id"]) - 7001]
        family = media_type.split("/")[0]
        need(kind == (family if family in ("image", "audio") else "document"), "kind")
        return f"{kind} {value.get('filename', name)}"

    @staticmethod
    def _question(asked: Any) -> tuple[str, tuple[str, ...]]:
        """Check "Interactive reply buttons": at most three, each with its own title."""
        members: Members = {"type": matching("button"), "body": is_object, "action": is_object}
        shape(asked, members, "interactive.")
        shape(asked["body"], {"text": text(1024)}, "body.")
        shape(asked["action"], {"buttons": is_list}, "action.")
        buttons = asked["action"]["buttons"]
        need(1 <= len(buttons) <= 3, "action.buttons: 1 to 3")
        for button in buttons:
            shape(button, {"type": matching("reply"), "reply": lambda value: True}, "button.")
            shape(button["reply"], {"id": text(256), "title": text(20)}, "reply.")
        replies = [button["reply"] for button in buttons]
        for name in ("id", "title"):
            need(len({reply[name] for reply in replies}) == len(replies), f"reply.{name}: twice")
        return asked["body"]["text"], tuple(reply["id"] for reply in replies)

    def answer(self, message: Seen, number: int) -> bytes:
        contact = {"input": message.recipient, "wa_id": message.recipient.removeprefix("+")}
        told = {"messaging_product": "whatsapp", "contacts": [contact]}
        return json.dumps({**told, "messages": [{"id": f"wamid.out.{number}"}]}).encode()

    def refusal(self, rule: Rule) -> Reply:
        code = 190 if rule.status == 401 else 100
        return self._error(rule.status, code, f"(#{code}) {rule.error}")

    def throttled(self, seconds: int) -> Reply:
        reply = self._error(429, 130429, "(#130429) Rate limit hit")
        return Reply(429, reply.body, {"retry-after": str(seconds)})

    @staticmethod
    def _error(status: int, code: int, message: str) -> Reply:
        error = {"message": message, "type": "OAuthException", "code": code, "fbtrace_id": "A1"}
        return Reply(status, json.dumps({"error": error}).encode())


_UPDATES: Final = frozenset({"message", "callback_query", "my_chat_member", "edited_message"})


# --- Telegram ----------------------------------------------------------------------------------


@define(eq=False)
class TelegramApi(Provider):
    """Bot API, "sendMessage", "answerCallbackQuery" and the editing of messages.

    It knows no idempotency key.
    """

    kind: ClassVar[str] = "telegram"

    bot_token: str = "42:bot-token"
    username: str = "desk_bot"
    reads_groups: bool = False
    webhook: dict[str, Any] = field(factory=dict[str, Any])
    commands: dict[str, str] = field(factory=dict[str, str], init=False)

    def identity(self, method: str, target: str, headers: Headers, body: bytes) -> Reply | None:
        """Answer "getMe", and the methods that read and set the webhook."""
        start, _, name = target.rpartition("/")
        if name not in ("getMe", "getWebhookInfo", "setWebhook", "setMyCommands"):
            return None
        need(start == f"/bot{self.bot_token}", "Unauthorized", 401)
        asked = object_of(headers, body, "application/json")
        if name == "setWebhook":
            return self._set_webhook(asked)
        if name == "setMyCommands":
            return self._set_commands(asked)
        need(asked == {}, "arguments")
        if name == "getWebhookInfo":
            info = {"url": "", "has_custom_certificate": False, "pending_update_count": 0}
            return self._result({**info, **self.webhook})
        user = {
            "id": int(self.bot_token.partition(":")[0]),
            "is_bot": True,
            "first_name": "Desk",
            "username": self.username,
            "can_join_groups": True,
            "can_read_all_group_messages": self.reads_groups,
            "supports_inline_queries": False,
        }
        return self._result(user)

    @staticmethod
    def _result(value: Any) -> Reply:
        return Reply(200, json.dumps({"ok": True, "result": value}).encode())

    def _set_webhook(self, asked: dict[str, Any]) -> Reply:
        """Answer "setWebhook": an address by https, at one of four ports."""
        shape(
            asked,
            {
                "url": text(2048),
                "secret_token": matching(r"[A-Za-z0-9_-]{1,256}"),
                "allowed_updates": lambda value: isinstance(value, list),
            },
        )
        url = urlsplit(str(asked["url"]))
        need(url.scheme == "https", "bad webhook: An HTTPS URL must be provided for webhook")
        need(url.port in (None, 443, 80, 88, 8443), "bad webhook: Webhook can be set up only on")
        need(set(asked["allowed_updates"]) <= _UPDATES, "allowed_updates")
        self.webhook = asked
        return self._result(True)

    def _set_commands(self, asked: dict[str, Any]) -> Reply:
        """Answer "setMyCommands": at most 100, each with a name and a description."""
        shape(asked, {"commands": lambda value: isinstance(value, list)})
        need(len(asked["commands"]) <= 100, "too many commands")
        members = {"command": matching(r"[a-z0-9_]{1,32}"), "description": text(256)}
        for command in asked["commands"]:
            shape(command, members, "commands.")
            need(command.keys() == members.keys(), "commands: missing")
        self.commands = {each["command"]: each["description"] for each in asked["commands"]}
        return self._result(True)

    def media(self, method: str, target: str, headers: Headers, body: bytes) -> Reply | None:
        """Answer "getFile" and the download that it leads to; 20 MB is the most."""
        if target == f"/bot{self.bot_token}/getFile":
            asked = object_of(headers, body, "application/json")
            shape(asked, {"file_id": text(255)})
            need(asked.get("file_id") in self.files, "invalid file_id")
            size = len(self.files[asked["file_id"]][1])
            need(size <= 20_000_000, "file is too big")
            told = {"file_id": asked["file_id"], "file_unique_id": "u", "file_size": size}
            path = f"photos/{asked['file_id']}.jpg"
            result = {"ok": True, "result": {**told, "file_path": path}}
            return Reply(200, json.dumps(result).encode())
        start = f"/file/bot{self.bot_token}/photos/"
        if method == "GET" and target.startswith(start):
            return self.given_out(target.removeprefix(start).removesuffix(".jpg"))
        return None

    def show_typing(self, target: str, headers: Headers, body: bytes) -> Reply | None:
        """Answer "sendChatAction"."""
        if target != f"/bot{self.bot_token}/sendChatAction":
            return None
        action = object_of(headers, body, "application/json")
        members = {
            "chat_id": matching(r"-?[0-9]{1,20}"),
            "action": matching("typing"),
            "message_thread_id": integer,
        }
        shape(action, members)
        need({"chat_id", "action"} <= action.keys(), "missing")
        topic = action.get("message_thread_id")
        self.typing.append(action["chat_id"] if topic is None else f"{action['chat_id']}/{topic}")
        return Reply(200, b'{"ok":true,"result":true}')

    def take_upload(self, target: str, headers: Headers, body: bytes) -> Reply | Seen | None:
        """Answer "sendPhoto" and "sendDocument", with the file in the form."""
        method = re.fullmatch(rf"/bot{self.bot_token}/send(Photo|Document)", target)
        if method is None:
            return None
        fields, files = form_of(headers, body)
        part = method[1].lower()
        need({"chat_id"} <= fields.keys() and files.keys() == {part}, "fields")
        need(fields.keys() <= {"chat_id", "message_thread_id", "reply_parameters"}, "fields")
        need(re.fullmatch(r"-?[0-9]{1,20}", fields["chat_id"]), "chat_id")
        need(fields.get("message_thread_id", "1").isdecimal(), "message_thread_id")
        quoted = json.loads(fields.get("reply_parameters", '{"message_id":1}'))
        need(integer(quoted["message_id"]), "reply_parameters")
        name, media_type, _ = files[part]
        need(part == "document" or media_type in ("image/png", "image/jpeg"), "PHOTO_INVALID")
        self.uploads.append(files[part])
        return Seen(fields["chat_id"], f"{part} {name}", headers.get("idempotency-key", ""))

    def judge(self, method: str, target: str, headers: Headers, body: bytes) -> Seen:
        need(method in ("GET", "POST"), "method", 405)
        need(target == f"/bot{self.bot_token}/sendMessage", "Unauthorized", 401)
        message = object_of(headers, body, "application/json")
        chat = matching(r"-?[0-9]{1,20}|@[A-Za-z0-9_]{5,32}")
        shape(
            message,
            {
                "chat_id": lambda value: integer(value) or chat(value),
                "text": text(4096),
                "message_thread_id": integer,
                "reply_parameters": is_object,
                "link_preview_options": is_object,
                "entities": is_list,
                "reply_markup": is_object,
            },
        )
        for name in ("chat_id", "text"):
            need(name in message, f"{name}: missing")
        self._entities(message)
        shape(
            message.get("reply_parameters", {"message_id": 1}),
            {"message_id": integer, "allow_sending_without_reply": boolean},
            "reply_parameters.",
        )
        shape(message.get("link_preview_options", {}), {"is_disabled": boolean}, "preview.")
        key = headers.get("idempotency-key", "")
        buttons = self._keyboard(message.get("reply_markup", {"inline_keyboard": []}))
        return Seen(str(message["chat_id"]), message["text"], key, buttons)

    def act(self, method: str, target: str, headers: Headers, body: bytes) -> Act | None:
        """Check "answerCallbackQuery", "editMessageText" and "editMessageReplyMarkup"."""
        name = target.removeprefix(f"/bot{self.bot_token}/")
        where = {"chat_id": matching(r"-?[0-9]{1,20}"), "message_id": integer}
        members: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
            "answerCallbackQuery": {"callback_query_id": text(64)},
            "editMessageReplyMarkup": where,
            "editMessageText": {**where, "text": text(4096)},
        }
        optional: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
            "answerCallbackQuery": {"text": text(200), "show_alert": boolean},
            "editMessageReplyMarkup": {"reply_markup": is_object},
            "editMessageText": {
                "entities": is_list,
                "link_preview_options": is_object,
                "reply_markup": is_object,
            },
        }
        if name not in members:
            return None
        content = object_of(headers, body, "application/json")
        shape(content, {**members[name], **optional[name]})
        for wanted in members[name]:
            need(wanted in content, f"{wanted}: missing")
        self._entities(content)
        self._keyboard(content.get("reply_markup", {"inline_keyboard": []}))
        if name == "editMessageText":
            gone = str(content["message_id"]) in self.gone
            need(not gone, "message to edit not found")
        return Act(name, content)

    def done(self, act: Act) -> Reply:
        """Put other words in a message; what says the same already is refused."""
        if act.method != "editMessageText":
            return super().done(act)
        name, words = act.content["message_id"], act.content["text"]
        if self.shown.get(str(name)) == words:
            return self.refusal(Rule(f"message is not modified: {'it is as it was' * 20}"))
        self.shown[str(name)] = words
        return self._result({"message_id": name, "date": 1})

    @staticmethod
    def _keyboard(markup: Any) -> tuple[str, ...]:
        """Check an "InlineKeyboardMarkup" whose buttons have data of 1 to 64 bytes."""
        shape(markup, {"inline_keyboard": is_list}, "reply_markup.")
        buttons = [button for row in markup["inline_keyboard"] for button in row]
        for button in buttons:
            shape(button, {"text": text(64), "callback_data": text(64)}, "button.")
            need({"text", "callback_data"} <= button.keys(), "button: missing")
            need(len(button["callback_data"].encode()) <= 64, "BUTTON_DATA_INVALID")
        return tuple(button["callback_data"] for button in buttons)

    def _entities(self, message: Any) -> None:
        for entity in message.get("entities", ()):
            self._entity(entity, message["text"].encode("utf-16-le"))
        self._nesting(message.get("entities", ()))

    @staticmethod
    def _nesting(entities: Sequence[Any]) -> None:
        """Check "Formatting options": entities lie in each other, or apart, and few at all."""
        need(len(entities) <= 100, "entities: more than 100")
        for one, other in combinations(entities, 2):
            (first, a), (second, b) = sorted(
                ((each["offset"], -each["length"]), each["type"]) for each in (one, other)
            )
            if second[0] >= first[0] - first[1]:
                continue
            need(second[0] - second[1] <= first[0] - first[1], "entities: overlap")
            need(a not in ("code", "pre"), "entities: in code")
            need(a != b, "entities: in one of its kind")
            need(b not in ("code", "pre") or a == "blockquote", "entities: code in another")

    @staticmethod
    def _entity(entity: Any, encoded: bytes) -> None:
        """Check a "MessageEntity", which lies within a text and cuts no character."""
        units = len(encoded) // 2
        members = {
            "type": matching("bold|italic|strikethrough|blockquote|code|pre"),
            "offset": integer,
            "length": integer,
            "language": text(64),
        }
        shape(entity, members, "entities.")
        need({"type", "offset", "length"} <= entity.keys(), "entities: missing")
        need(entity["type"] == "pre" or "language" not in entity, "entities.language")
        offset, length = entity["offset"], entity["length"]
        need(0 <= offset < offset + length <= units, "entities: out of bounds")
        for place in (offset, offset + length):
            encoded[: 2 * place].decode("utf-16-le")

    def answer(self, message: Seen, number: int) -> bytes:
        result = {"message_id": number, "date": 1, "chat": {"id": 1, "type": "private"}}
        return json.dumps({"ok": True, "result": result}).encode()

    def refusal(self, rule: Rule) -> Reply:
        said = f"Bad Request: {rule.error}"
        told = {"ok": False, "error_code": rule.status, "description": said}
        return Reply(rule.status, json.dumps(told).encode())

    def throttled(self, seconds: int) -> Reply:
        said = f"Too Many Requests: retry after {seconds}"
        told = {"ok": False, "error_code": 429, "description": said}
        waits = {"parameters": {"retry_after": seconds}}
        return Reply(429, json.dumps({**told, **waits}).encode())


# --- Slack -------------------------------------------------------------------------------------


@define(eq=False)
class SlackApi(Provider):
    """Web API, "chat.postMessage", "chat.update" and "chat.postEphemeral".

    It refuses with 200 and `"ok": false`.
    """

    kind: ClassVar[str] = "slack"

    bot_token: str = "xoxb-token"
    scopes: str = "chat:write,app_mentions:read,im:history,files:read"
    lengths: list[int] = field(factory=list[int], init=False)

    def identity(self, method: str, target: str, headers: Headers, body: bytes) -> Reply | None:
        """Answer "auth.test": whose the token is, and in a header what it may do."""
        if target != "/api/auth.test":
            return None
        need(method == "POST" and body == b"", "invalid_arguments")
        need(headers.get("authorization") == f"Bearer {self.bot_token}", "invalid_auth")
        told = {
            "ok": True,
            "url": "https://grand-hotel.slack.com/",
            "team": "Grand Hotel",
            "user": "desk",
            "team_id": "T1",
            "user_id": "UDESK",
            "bot_id": "BDESK",
            "is_enterprise_install": False,
        }
        return Reply(200, json.dumps(told).encode(), {"x-oauth-scopes": self.scopes})

    def media(self, method: str, target: str, headers: Headers, body: bytes) -> Reply | None:
        """Answer "files.info", and give out a file; without a token, a page to log in, with 200."""
        asked = re.fullmatch(r"/api/files\.info\?file=(F[A-Z0-9]+)", target)
        if method == "GET" and asked is not None:
            return self._info(asked[1], headers)
        file = re.fullmatch(r"/files-pri/T1-([A-Z0-9]+)/download/[\w.-]+", target)
        if method != "GET" or file is None:
            return None
        if headers.get("authorization") != f"Bearer {self.bot_token}":
            self.refused.append("token")
            return Reply(200, b"<!DOCTYPE html>", {"content-type": "text/html; charset=utf-8"})
        return self.given_out(file[1])

    def _info(self, file_id: str, headers: Headers) -> Reply:
        need(headers.get("authorization") == f"Bearer {self.bot_token}", "invalid_auth")
        need(file_id in self.files, "file_not_found")
        url = f"{self.base}/files-pri/T1-{file_id}/download/file"
        file = {"id": file_id, "mimetype": self.files[file_id][0], "url_private_download": url}
        return Reply(200, json.dumps({"ok": True, "file": file}).encode())

    def show_typing(self, target: str, headers: Headers, body: bytes) -> Reply | None:
        """Answer "assistant.threads.setStatus"."""
        if target != "/api/assistant.threads.setStatus":
            return None
        need(headers.get("authorization") == f"Bearer {self.bot_token}", "invalid_auth")
        status = object_of(headers, body, r"application/json; ?charset=utf-8")
        members = {
            "channel_id": matching(r"[CDG][A-Z0-9]{1,20}"),
            "thread_ts": matching(r"[0-9]+\.[0-9]+"),
            "status": text(100),
        }
        shape(status, members)
        need(status.keys() == members.keys(), "invalid_arguments")
        self.typing.append(f"{status['channel_id']}/{status['thread_ts']}")
        return Reply(200, b'{"ok":true}')

    def take_upload(self, target: str, headers: Headers, body: bytes) -> Reply | Seen | None:
        """Answer "files.getUploadURLExternal", the upload, and "files.completeUploadExternal"."""
        if target.startswith("/upload/v1/"):
            number = int(target.removeprefix("/upload/v1/F")) - 1
            name, _, _ = self.uploads[number]
            need(len(body) == self.lengths[number], "length")
            self.uploads[number] = (name, "", body)
            return Reply(200, b"OK - %d" % len(body))
        if not target.startswith("/api/files."):
            return None
        need(headers.get("authorization") == f"Bearer {self.bot_token}", "invalid_auth")
        if target == "/api/files.getUploadURLExternal":
            return self._begin_upload(headers, body)
        need(target == "/api/files.completeUploadExternal", "unknown_method")
        shown = object_of(headers, body, r"application/json; ?charset=utf-8")
        members: Members = {
            "files": lambda value: isinstance(value, list),
            "channel_id": matching(r"[CDG][A-Z0-9]{1,20}"),
            "thread_ts": matching(r"[0-9]+\.[0-9]+"),
        }
        shape(shown, members)
        need({"files", "channel_id"} <= shown.keys(), "invalid_arguments")
        need(len(shown["files"]) == 1, "invalid_arguments")
        (file,) = shown["files"]
        shape(file, {"id": matching(r"F\d+"), "title": text(255)}, "files.")
        need(self.uploads[int(file["id"][1:]) - 1][2], "file_not_found")
        where = shown.get("thread_ts", "")
        key = headers.get("idempotency-key", "")
        return Seen(shown["channel_id"], f"file {file['title']} {where}".rstrip(), key)

    def _begin_upload(self, headers: Headers, body: bytes) -> Reply:
        """Give out an address; this method alone takes no JSON."""
        form = headers.get("content-type") == "application/x-www-form-urlencoded"
        need(form, "invalid_arguments")
        fields = dict(parse_qsl(body.decode(), strict_parsing=True))
        need(fields.keys() == {"filename", "length"}, "invalid_arguments")
        self.uploads.append((fields["filename"], "", b""))
        self.lengths.append(int(fields["length"]))
        file_id = f"F{len(self.uploads)}"
        given = {"upload_url": f"{self.base}/upload/v1/{file_id}", "file_id": file_id}
        return Reply(200, json.dumps({"ok": True, **given}).encode())

    def judge(self, method: str, target: str, headers: Headers, body: bytes) -> Seen:
        need(method == "POST" and target == "/api/chat.postMessage", "unknown_method")
        need(headers.get("authorization") == f"Bearer {self.bot_token}", "invalid_auth")
        # Without a charset Slack warns (`missing_charset`): here that is a rule.
        message = object_of(headers, body, r"application/json; ?charset=utf-8")
        shape(
            message,
            {
                "channel": matching(r"[CDGU][A-Z0-9]{1,20}"),
                "text": text(40_000),
                "thread_ts": matching(r"[0-9]+\.[0-9]+"),
                "unfurl_links": boolean,
                "unfurl_media": boolean,
                "metadata": is_object,
                "blocks": is_list,
            },
        )
        need("channel" in message, "channel_not_found")
        need("text" in message, "no_text")
        self._escaped(message["text"])
        buttons = self._blocks(message.get("blocks", []))
        metadata = message.get("metadata", {"event_type": "x", "event_payload": {}})
        shape(
            metadata,
            {
                "event_type": matching(r"[\w.-]{1,255}"),
                "event_payload": is_object,
            },
            "metadata.",
        )
        key = metadata["event_payload"].get("idempotency_key", "")
        need(headers.get("idempotency-key") == key, "two keys")
        return Seen(message["channel"], message["text"], key, buttons)

    def act(self, method: str, target: str, headers: Headers, body: bytes) -> Act | None:
        """Check "chat.update" and "chat.postEphemeral"."""
        channel = {"channel": matching(r"[CDGU][A-Z0-9]{1,20}"), "text": text(40_000)}
        stamp = matching(r"[0-9]+\.[0-9]+")
        members: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
            "chat.update": {**channel, "ts": stamp},
            "chat.postEphemeral": {**channel, "user": matching(r"[UW][A-Z0-9]{1,20}")},
        }
        name = target.removeprefix("/api/")
        if name not in members:
            return None
        need(headers.get("authorization") == f"Bearer {self.bot_token}", "invalid_auth")
        content = object_of(headers, body, r"application/json; ?charset=utf-8")
        optional = {"blocks": is_list, "thread_ts": stamp, "metadata": is_object}
        shape(content, {**members[name], **optional})
        for wanted in members[name]:
            need(wanted in content, "invalid_arguments")
        self._escaped(content["text"])
        self._blocks(content.get("blocks", []))
        if name == "chat.update":
            need(content["ts"] not in self.gone, "message_not_found")
            self.shown[content["ts"]] = content["text"]
        return Act(name, content)

    def name(self, number: int) -> str:
        return f"{number}.000100"

    def done(self, act: Act) -> Reply:
        return Reply(200, json.dumps({"ok": True, "ts": act.content.get("ts", "")}).encode())

    @staticmethod
    def _escaped(words: str) -> None:
        """Check that the three characters that have a meaning are escaped ("Formatting text")."""
        need(not re.search(r"<|>|&(?!(amp|lt|gt);)", words), "unescaped text")

    def _blocks(self, blocks: Any) -> tuple[str, ...]:
        """Check "Block Kit": sections of at most 3,000 characters, and buttons."""
        need(len(blocks) <= 50, "invalid_blocks")
        values: list[str] = []
        for block in blocks:
            if block.get("type") == "section":
                shape(block, {"type": matching("section"), "text": lambda value: True}, "section.")
                shape(block["text"], {"type": matching("mrkdwn"), "text": text(3000)}, "mrkdwn.")
                self._escaped(block["text"]["text"])
                continue
            shape(block, {"type": matching("actions"), "elements": lambda value: True}, "actions.")
            need(1 <= len(block["elements"]) <= 25, "invalid_blocks")
            named = {element.get("action_id") for element in block["elements"]}
            need(len(named) == len(block["elements"]), "duplicate action_id")
            values += map(self._button, block["elements"])
        return tuple(values)

    @staticmethod
    def _button(button: Any) -> str:
        members = {
            "type": matching("button"),
            "text": is_object,
            "action_id": text(255),
            "value": text(2000),
            "style": matching("primary|danger"),
        }
        shape(button, members, "button.")
        need(button.keys() >= {"type", "text"}, "button: missing")
        shape(button["text"], {"type": matching("plain_text"), "text": text(75)}, "plain_text.")
        return str(button["value"])

    def answer(self, message: Seen, number: int) -> bytes:
        told = {"ok": True, "channel": message.recipient, "ts": self.name(number)}
        return json.dumps(told).encode()

    def refusal(self, rule: Rule) -> Reply:
        return Reply(200, json.dumps({"ok": False, "error": rule.error}).encode())

    def throttled(self, seconds: int) -> Reply:
        told = json.dumps({"ok": False, "error": "ratelimited"}).encode()
        return Reply(429, told, {"retry-after": str(seconds)})


# --- Standard Webhooks -------------------------------------------------------------------------

_STANDARD_SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@define(eq=False)
class StandardReceiver(Provider):
    """A receiver of Standard Webhooks 1.0, on the official library; `webhook-id` is the key."""

    kind: ClassVar[str] = "standard"

    secret: str = _STANDARD_SECRET

    def judge(self, method: str, target: str, headers: Headers, body: bytes) -> Seen:
        need(method == "POST", "method", 405)
        need(headers.get("content-type") == "application/json", "content type", 415)
        try:
            content = Webhook(self.secret).verify(body, dict(headers))
        except WebhookVerificationError as error:
            raise Rule(str(error), 401) from None
        shape(content, {"type": matching("reply|approval"), "data": lambda value: True})
        asks = content["type"] == "approval"
        approval = {"approval_id": text(256), "calls": is_list}
        data = content["data"]
        shape(
            data,
            {
                "recipient": text(256),
                "thread": lambda value: isinstance(value, str),
                "in_reply_to": lambda value: isinstance(value, str),
                "text": lambda value: value == "" if "file" in data else text(60_000)(value),
                "written_us": integer,
                "file": is_object,
                **(approval if asks else {}),
            },
            "data.",
        )
        for call in data.get("calls", ()):
            shape(call, {"name": text(256), "arguments": is_object}, "call.")
        shown = data["text"]
        if "file" in data:
            file = data["file"]
            shape(file, dict.fromkeys(("name", "media_type", "content"), text(1 << 22)), "file.")
            self.uploads.append((file["name"], file["media_type"], b64decode(file["content"])))
            shown = f"file {file['name']}"
        buttons = (data["approval_id"],) if asks else ()
        return Seen(data["recipient"], shown, headers["webhook-id"], buttons)

    def answer(self, message: Seen, number: int) -> bytes:
        return b""

    def refusal(self, rule: Rule) -> Reply:
        return Reply(rule.status, rule.error.encode())

    def throttled(self, seconds: int) -> Reply:
        return Reply(429, b"", {"retry-after": str(seconds)})


def now_us() -> int:
    """Return the wall clock: the official library reads it, so a `Client` has to start there."""
    return time.time_ns() // 1000
