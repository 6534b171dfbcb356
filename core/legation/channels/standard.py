"""Any other system, by signed webhooks both ways (Standard Webhooks 1.0).

A message: `{"type": "message…", "data": {"sender", "text", "conversation", "thread", "sent"}}`,
only `sender` being required; `webhook-id` is the id of the message.  A reply has the type `reply`,
so that one of our own deliveries, sent back to us, is not taken for a message.
"""

from __future__ import annotations

from typing import ClassVar, Final

from attrs import field

from ..effects import Fetch, FetchReply, Unreachable
from ..http.bodies.json_text import JsonObject, JsonValue
from ..http.messages import Headers, compact_json
from ..values import frozen
from .codec import Codec
from .deliveries import ContentKind, Ignored, IncomingMessage, Parsed, gather
from .provider_values import at, identifier, moment_us, text_at
from .replies import GiveUp, Outcome, Reply, RetryLater, Sent, general_outcome, retry_after
from .settings import check_base_url
from .signatures import (
    Secrets,
    SignatureRefused,
    Verified,
    sign_standard,
    standard_key,
    standard_v1,
)

__all__ = ["Standard"]

_KINDS = {kind.value: kind for kind in ContentKind}
_GONE: Final = 410
_NO_MESSAGE: Final = 'The type is neither "message" nor begins with "message."'
_NO_SENDER: Final = (
    "data.sender is missing, or is no text of 1 to 256 visible characters and no integer"
)


@frozen
class Standard(Codec):
    """One system that signs what it sends, and takes our signed replies at `reply_url`.

    While a secret is replaced, replies carry a signature by each (the list exists for that).
    """

    kind: ClassVar[str] = "standard"
    text_limit: ClassVar[int] = 60_000

    name: str
    secret: str = field(repr=False)
    reply_url: str = field(validator=check_base_url)
    previous_secret: str | None = field(default=None, repr=False)

    @property
    def secrets(self) -> Secrets:
        current = (standard_key(self.secret),)
        return (*current, standard_key(self.previous_secret)) if self.previous_secret else current

    def verify(self, headers: Headers, body: bytes, now_us: int) -> Verified | SignatureRefused:
        """Check the signature over id, timestamp and body."""
        return standard_v1(headers, body, self.secrets, now_us)

    def read_delivery(self, root: JsonObject, delivery_id: str) -> Parsed:
        """Return the one message of the delivery."""
        name = text_at(root, "type")
        if name != "message" and not name.startswith("message."):
            return Ignored(_NO_MESSAGE)
        message = _message(root.get("data"), delivery_id)
        return gather([message]) if message.sender else Ignored(_NO_SENDER, malformed=True)

    def encode(self, reply: Reply, now_us: int) -> Fetch:
        """Return the signed request; id and body are the same for every attempt."""
        content = {
            "type": "reply",
            "data": {
                "recipient": reply.recipient,
                "thread": reply.thread,
                "in_reply_to": reply.quotes,
                "text": reply.text,
                "written_us": reply.created_us,
            },
        }
        return self.sign(reply.key, compact_json(content).encode(), now_us)

    def sign(self, key: str, body: bytes, now_us: int) -> Fetch:
        """Return the signed request that sends `body` under the id `key`."""
        seconds = str(now_us // 1_000_000)
        signatures = sign_standard(self.secrets, key.encode(), seconds.encode(), body)
        return Fetch(
            "POST",
            self.reply_url,
            (
                ("content-type", "application/json"),
                ("idempotency-key", key),
                ("webhook-id", key),
                ("webhook-timestamp", seconds),
                ("webhook-signature", b" ".join(signatures).decode()),
            ),
            body,
        )

    def read_reply(self, reply: FetchReply | Unreachable, now_us: int) -> Outcome:
        """Judge the answer by its status: 410 alone is final ("Delivery success and failure").

        A receiver that is being replaced, or has not heard of a new secret, answers 404 or 401.
        """
        outcome = general_outcome(reply, now_us)
        if isinstance(reply, FetchReply) and isinstance(outcome, GiveUp) and reply.status != _GONE:
            return RetryLater(retry_after(reply, now_us), outcome.reason)
        return outcome or Sent("")


def _message(data: JsonValue, delivery_id: str) -> IncomingMessage:
    sender = identifier(at(data, "sender"))
    text = text_at(data, "text") or None
    kind = _KINDS.get(text_at(data, "kind") or "text", ContentKind.UNSUPPORTED)
    return IncomingMessage(
        message_id=delivery_id,
        sender=sender,
        kind=ContentKind.UNSUPPORTED if kind is ContentKind.TEXT and text is None else kind,
        text=text,
        conversation=identifier(at(data, "conversation")) or sender,
        thread=identifier(at(data, "thread")),
        provider_id=delivery_id,
        reply_to=identifier(at(data, "in_reply_to")),
        sent_us=moment_us(at(data, "sent")),
    )
