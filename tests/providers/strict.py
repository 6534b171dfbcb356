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
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from threading import Lock
from typing import Any, ClassVar, Final, TypeAlias

from attrs import define, field, frozen
from standardwebhooks import Webhook, WebhookVerificationError

from legation.effects import Fetch, FetchReply

__all__ = [
    "Provider",
    "Reply",
    "Seen",
    "SlackApi",
    "StandardReceiver",
    "TelegramApi",
    "WhatsAppApi",
]

Headers: TypeAlias = Mapping[str, str]
"""Names in lower case."""


@frozen
class Seen:
    """A message that was taken: to whom, what, and under which idempotency key."""

    recipient: str
    text: str
    key: str


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
        refused: Which rules our requests broke.
        files: What people attached to their messages, by its id: the type and the content.
        fetched: The ids of the files that were given out.
        base: The address at which the provider is reached.
    """

    kind: ClassVar[str]

    honours_keys: bool = True
    seen: list[Seen] = field(factory=list[Seen], init=False)
    repeats: int = field(default=0, init=False)
    refused: list[str] = field(factory=list[str], init=False)
    files: dict[str, tuple[str, bytes]] = field(factory=dict[str, tuple[str, bytes]], init=False)
    fetched: list[str] = field(factory=list[str], init=False)
    base: str = field(default="http://127.0.0.1:9", init=False)
    _known: dict[str, bytes] = field(factory=dict[str, bytes], init=False)
    _lock: Lock = field(factory=Lock, init=False)

    def take(self, method: str, target: str, headers: Headers, body: bytes) -> Reply:
        """Judge one request; safe to call from several threads."""
        with self._lock:
            try:
                given = self.media(method, target, headers, body)
                if given is not None:
                    return given
                message = self.judge(method, target, headers, body)
            except Rule as rule:
                self.refused.append(rule.error)
                return self.refusal(rule)
            known = self._known.get(message.key)
            self.repeats += known is not None
            if known is not None and self.honours_keys:
                return Reply(200, known)
            self.seen.append(message)
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


def text(longest: int) -> Callable[[Any], bool]:
    """Return a check for a string of 1 to `longest` UTF-16 units that is not blank."""

    def check(value: Any) -> bool:
        if not isinstance(value, str) or not value.strip():
            return False
        return len(value.encode("utf-16-le")) // 2 <= longest

    return check


def matching(pattern: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


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
                "type": matching("text"),
                "text": lambda value: isinstance(value, dict),
                "context": lambda value: isinstance(value, dict),
                "biz_opaque_callback_data": text(512),
            },
        )
        for name in ("messaging_product", "type", "text"):
            need(name in message, f"{name}: missing")
        to = str(message.get("to") or (alone and message.get("recipient")) or "")
        need(to, "to: missing")
        shape(message["text"], {"body": text(4096), "preview_url": boolean}, "text.")
        shape(message.get("context", {}), {"message_id": text(512)}, "context.")
        key = message.get("biz_opaque_callback_data", "")
        need(headers.get("idempotency-key") == key, "two keys")
        return Seen(to, message["text"]["body"], key)

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


# --- Telegram ----------------------------------------------------------------------------------


@define(eq=False)
class TelegramApi(Provider):
    """Bot API, "sendMessage"; it knows no idempotency key."""

    kind: ClassVar[str] = "telegram"

    bot_token: str = "42:bot-token"

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
                "reply_parameters": lambda value: isinstance(value, dict),
                "link_preview_options": lambda value: isinstance(value, dict),
                "entities": lambda value: isinstance(value, list),
            },
        )
        for name in ("chat_id", "text"):
            need(name in message, f"{name}: missing")
        for entity in message.get("entities", ()):
            self._entity(entity, message["text"].encode("utf-16-le"))
        self._nesting(message.get("entities", ()))
        shape(
            message.get("reply_parameters", {"message_id": 1}),
            {"message_id": integer, "allow_sending_without_reply": boolean},
            "reply_parameters.",
        )
        shape(message.get("link_preview_options", {}), {"is_disabled": boolean}, "preview.")
        key = headers.get("idempotency-key", "")
        return Seen(str(message["chat_id"]), message["text"], key)

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
    """Web API, "chat.postMessage": refuses with 200 and `"ok": false`."""

    kind: ClassVar[str] = "slack"

    bot_token: str = "xoxb-token"

    def media(self, method: str, target: str, headers: Headers, body: bytes) -> Reply | None:
        """Give out a file; without a good token, a page to log in, with 200."""
        file = re.fullmatch(r"/files-pri/T1-([A-Z0-9]+)/download/[\w.-]+", target)
        if method != "GET" or file is None:
            return None
        if headers.get("authorization") != f"Bearer {self.bot_token}":
            self.refused.append("token")
            return Reply(200, b"<!DOCTYPE html>", {"content-type": "text/html; charset=utf-8"})
        return self.given_out(file[1])

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
                "metadata": lambda value: isinstance(value, dict),
            },
        )
        need("channel" in message, "channel_not_found")
        need("text" in message, "no_text")
        # The three characters that have a meaning must be escaped ("Formatting text").
        need(not re.search(r"<|>|&(?!(amp|lt|gt);)", message["text"]), "unescaped text")
        metadata = message.get("metadata", {"event_type": "x", "event_payload": {}})
        shape(
            metadata,
            {
                "event_type": matching(r"[\w.-]{1,255}"),
                "event_payload": lambda value: isinstance(value, dict),
            },
            "metadata.",
        )
        key = metadata["event_payload"].get("idempotency_key", "")
        need(headers.get("idempotency-key") == key, "two keys")
        return Seen(message["channel"], message["text"], key)

    def answer(self, message: Seen, number: int) -> bytes:
        told = {"ok": True, "channel": message.recipient, "ts": f"{number}.000100"}
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
        shape(content, {"type": matching("reply"), "data": lambda value: True})
        shape(
            content["data"],
            {
                "recipient": text(256),
                "thread": lambda value: isinstance(value, str),
                "in_reply_to": lambda value: isinstance(value, str),
                "text": text(60_000),
                "written_us": integer,
            },
            "data.",
        )
        return Seen(content["data"]["recipient"], content["data"]["text"], headers["webhook-id"])

    def answer(self, message: Seen, number: int) -> bytes:
        return b""

    def refusal(self, rule: Rule) -> Reply:
        return Reply(rule.status, rule.error.encode())

    def throttled(self, seconds: int) -> Reply:
        return Reply(429, b"", {"retry-after": str(seconds)})


def now_us() -> int:
    """Return the wall clock: the official library reads it, so a `Client` has to start there."""
    return time.time_ns() // 1000
