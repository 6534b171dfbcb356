"""Slack, by the Events API.

Sources: docs.slack.dev, "Verifying requests from Slack", "Events API", "chat.postMessage",
"Formatting text", "File object".  A retry (`X-Slack-Retry-Num`) is taken like a first delivery:
it does not prove that the first one arrived.  The inbox knows what is a duplicate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar, Final

from attrs import field

from ..effects import Fetch, FetchReply, Unreachable
from ..http.bodies.json_text import JsonObject, JsonValue, parse_json
from ..http.messages import Headers
from ..values import frozen
from .codec import Codec, post
from .deliveries import (
    Attachment,
    ContentKind,
    Ignored,
    IncomingMessage,
    Parsed,
    Piece,
    challenge_of,
    gather,
)
from .markup import compose_marks, mark_up
from .media import is_provider, media_of
from .provider_values import at, identifier, moment_us, objects, text_at
from .replies import (
    GiveUp,
    Outcome,
    Part,
    Reply,
    RetryLater,
    Sent,
    general_outcome,
    retry_after,
)
from .settings import base_url, check_base_url, check_token
from .signatures import Secrets, SignatureRefused, Verified, active_secrets, slack_v0

__all__ = ["Slack"]

# Subtypes that a person writes; the others tell of joins, edits, topics, bots.
_WRITTEN: Final = frozenset({"", "file_share", "thread_broadcast", "me_message"})
# What Slack makes of a mention, a channel or a link: `<@U1>`, `<#C1|general>`, `<https://…|label>`.
_MARKUP: Final = re.compile(r"<([@#!]?)([^<>|]*)(?:\|([^<>]*))?>( ?)")
_LONGEST_URL: Final = 2000
_NAME: Final = re.compile(r"[a-z_.]{1,64}")
_TIMESTAMP: Final = re.compile(r"[0-9]{1,20}\.[0-9]{1,20}", re.ASCII)

# `error` in an answer 200 that passes by itself.
_PASSING: Final = frozenset(
    {
        "fatal_error",
        "internal_error",
        "rate_limited",
        "ratelimited",
        "request_timeout",
        "service_unavailable",
        "team_added_to_org",
    }
)


@frozen
class Slack(Codec):
    """One app in one workspace.

    With `mentions_only` the app answers in a channel where it is mentioned, and in direct
    messages always.
    """

    kind: ClassVar[str] = "slack"
    # Slack truncates at 40,000 characters and recommends 4,000.
    text_limit: ClassVar[int] = 4000
    sender: ClassVar[tuple[str, ...]] = ("bot_token", "signing_secret")

    name: str
    signing_secret: str = field(repr=False)
    bot_token: str = field(repr=False, validator=check_token)
    api_base_url: str = field(
        default="https://slack.com/api", converter=base_url, validator=check_base_url
    )
    previous_signing_secret: str | None = field(default=None, repr=False)
    mentions_only: bool = True

    @property
    def secrets(self) -> Secrets:
        return active_secrets(self.signing_secret, self.previous_signing_secret)

    def verify(self, headers: Headers, body: bytes, now_us: int) -> Verified | SignatureRefused:
        """Check Slack's signature and the age of the request."""
        return slack_v0(headers, body, self.secrets, now_us)

    def read_delivery(self, root: JsonObject, delivery_id: str) -> Parsed:
        """Return the message of an event, or the challenge of a URL verification."""
        if root.get("type") == "url_verification":
            return challenge_of(root.get("challenge")) or Ignored("malformed challenge")
        if root.get("type") != "event_callback":
            return Ignored("another type")
        return gather(self._pieces(root, root.get("event")))

    def _pieces(self, root: JsonObject, event: JsonValue) -> Iterator[Piece]:
        name, subtype = text_at(event, "type"), text_at(event, "subtype")
        if name not in {"message", "app_mention"} or subtype not in _WRITTEN:
            label = subtype or name
            yield label if _NAME.fullmatch(label) else "malformed"
        elif name == "message" and self.mentions_only and not _is_direct(event):
            yield "not mentioned"
        else:
            yield _message(root, event)

    def download(self, media: Attachment, found: FetchReply | None) -> Fetch | None:
        """Return the request for the file; the app needs the scope `files:read`."""
        if not is_provider(media.id, self.api_base_url, ("slack.com",)):
            return None
        return Fetch("GET", media.id, self._credentials)

    @property
    def _credentials(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.bot_token}"),)

    def compose(self, text: str) -> Iterator[Part]:
        """Yield the parts of an answer with the marks of the provider."""
        return compose_marks(text, self.text_limit)

    def _text(self, reply: Reply) -> str:
        return mark_up(reply.text, self.text_limit) if reply.spans is None else reply.text

    def encode(self, reply: Reply, now_us: int) -> Fetch:
        """Return the request that posts `reply`; its key stands in the message's metadata.

        The text is escaped, so that no answer of a model can ping a channel or forge a link.
        """
        message: dict[str, object] = {
            "channel": reply.recipient,
            "text": _escape(self._text(reply)),
            "unfurl_links": False,
            "unfurl_media": False,
            "metadata": {
                "event_type": "legation_reply",
                "event_payload": {"idempotency_key": reply.key},
            },
        }
        if reply.thread:
            message["thread_ts"] = reply.thread
        return post(
            f"{self.api_base_url}/chat.postMessage",
            message,
            reply.key,
            self._credentials,
            content_type="application/json; charset=utf-8",
        )

    def read_reply(self, reply: FetchReply | Unreachable, now_us: int) -> Outcome:
        """Judge the answer: Slack says no with 200 and `"ok": false`."""
        outcome = general_outcome(reply, now_us)
        if outcome or isinstance(reply, Unreachable):
            return outcome or RetryLater(None, "unreachable")
        answer = parse_json(reply.body)
        if not isinstance(answer, dict) or answer.get("ok") is not False:
            return Sent(text_at(answer, "ts") if isinstance(answer, dict) else "")
        error = text_at(answer, "error")
        reason = error if _NAME.fullmatch(error) else "unknown error"
        if error in _PASSING:
            return RetryLater(retry_after(reply, now_us), reason)
        return GiveUp(reason)


def _is_direct(event: JsonValue) -> bool:
    return at(event, "channel_type") == "im"


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _plain(text: str, own: frozenset[str]) -> str:
    """Return `text` as its writer saw it, without the mentions of `own`."""

    def show(found: re.Match[str]) -> str:
        sigil, target, label, space = found[1], found[2], found[3] or "", found[4]
        if sigil == "@" and target in own:
            return ""
        return _render_reference(sigil, target, label) + space

    plain = _MARKUP.sub(show, text)
    return plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").strip()


def _render_reference(sigil: str, target: str, label: str) -> str:
    if sigil == "!":  # `<!here>`, `<!subteam^S1|@team>`, `<!date^…|tomorrow>`
        return label or f"@{target}"
    if sigil:
        return sigil + (label or target)
    typed = target.removeprefix("mailto:").removeprefix("tel:")
    bare = typed.removeprefix("http://").removeprefix("https://").rstrip("/")
    if label.rstrip("/") in ("", typed, bare):  # as it was typed: Slack adds what is missing
        return typed
    return f"{label} ({target})"


def _stamp(value: JsonValue) -> str:
    """Return the `ts` of a message, which is also its id within a channel."""
    return value if isinstance(value, str) and _TIMESTAMP.fullmatch(value) else ""


def _message(root: JsonObject, event: JsonValue) -> IncomingMessage:
    """Return the message of `event`.

    Its id is made of workspace, channel and `ts`, not of the event: one message that mentions us
    comes as two events (`message`, `app_mention`), and is still to be answered once.
    """
    stamp, channel = _stamp(at(event, "ts")), identifier(at(event, "channel"))
    thread = _stamp(at(event, "thread_ts"))
    own = _own(root)
    text = _plain(text_at(event, "text"), own) or None
    named = stamp and channel
    return IncomingMessage(
        message_id=f"{identifier(root.get('team_id'))}.{channel}.{stamp}" if named else "",
        sender=identifier(at(event, "user")),
        kind=_kind(event, text),
        text=text,
        conversation=channel,
        # In a channel every question opens a thread; a direct message has one only if asked there.
        thread=thread or ("" if _is_direct(event) else stamp),
        provider_id=stamp,
        reply_to="" if thread == stamp else thread,
        # A bot wrote: ourselves, or another that would answer our answers.
        from_self=bool(at(event, "bot_id")) or identifier(at(event, "user")) in own,
        sent_us=moment_us(stamp),
        media=tuple(_media(event)),
    )


def _kind(event: JsonValue, text: str | None) -> ContentKind:
    if at(event, "files"):
        return ContentKind.DOCUMENT
    return ContentKind.TEXT if text else ContentKind.UNSUPPORTED


def _own(root: JsonObject) -> frozenset[str]:
    """Return the ids under which we are in the workspace."""
    return frozenset(
        identifier(given.get("user_id"))
        for given in objects(root.get("authorizations"))
        if given.get("is_bot") is True
    )


def _media(event: JsonValue) -> Iterator[Attachment]:
    for file in objects(at(event, "files")):
        url = text_at(file, "url_private_download") or text_at(file, "url_private")
        known = url if len(url) <= _LONGEST_URL else ""
        yield from media_of(known, file.get("mimetype"), file.get("name"), file.get("size"))
