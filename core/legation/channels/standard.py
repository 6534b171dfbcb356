"""Any other system, by signed webhooks both ways (Standard Webhooks 1.0).

A message: `{"type": "message…", "data": {"sender", "text", "conversation", "thread", "sent",
"name", "group"}}`, only `sender` being required; `webhook-id` is the id of the message.  A reply
has the type `reply`, so that one of our own, sent back to us, is not taken for a message.

A question about calls has the type `approval`, and is answered by
`{"type": "decision", "data": {"sender", "approval_id", "approve", "conversation", "thread"}}`.
"""

from __future__ import annotations

from typing import ClassVar, Final

from attrs import asdict, field

from ..effects import Fetch, FetchReply, Unreachable
from ..http.bodies.json_text import JsonObject, JsonValue
from ..http.messages import Headers, compact_json
from ..values import frozen
from .codec import Codec
from .deliveries import ContentKind, Ignored, IncomingMessage, Parsed, Press, gather
from .media import describe_media
from .presses import APPROVE, REJECT, is_approval
from .provider_values import at, identifier, moment_us, objects, text_at
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
_DECISION: Final = "decision"
_NO_MESSAGE: Final = 'The type is neither "message" nor "decision", nor begins with "message."'
_NO_APPROVAL: Final = "data.approval_id is not the id of an approval"
_NO_CHOICE: Final = "data.approve is neither true nor false"
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
    sends_files: ClassVar[bool] = True

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
        if name == _DECISION:
            return _decision(root.get("data"), delivery_id)
        if name != "message" and not name.startswith("message."):
            return Ignored(_NO_MESSAGE)
        message = _message(root.get("data"), delivery_id)
        return gather([message]) if message.sender else Ignored(_NO_SENDER, malformed=True)

    def encode(self, reply: Reply, now_us: int) -> Fetch:
        """Return the signed request; id and body are the same for every attempt."""
        asks = reply.purpose == "approval"
        calls = [{"name": call.name, "arguments": dict(call.arguments)} for call in reply.calls]
        content = {
            "type": "approval" if asks else "reply",
            "data": {
                "recipient": reply.recipient,
                "thread": reply.thread,
                "in_reply_to": reply.quotes,
                "text": reply.text,
                **({"approval_id": reply.approval, "calls": calls} if asks else {}),
                "written_us": reply.created_us,
                **({} if reply.file is None else {"file": asdict(reply.file)}),
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
        # The format has no files: whoever sends some anyway is told that they do not arrive.
        media=tuple(
            describe_media("", file.get("mime_type"), file.get("name"))
            for file in objects(at(data, "attachments"))
        ),
        in_group=at(data, "group") is True,
        name=text_at(data, "name"),
    )


def _decision(data: JsonValue, delivery_id: str) -> Parsed:
    sender, approval = identifier(at(data, "sender")), text_at(data, "approval_id")
    approves = at(data, "approve")
    if not sender:
        return Ignored(_NO_SENDER, malformed=True)
    if not is_approval(approval):
        return Ignored(_NO_APPROVAL, malformed=True)
    if not isinstance(approves, bool):
        return Ignored(_NO_CHOICE, malformed=True)
    message = IncomingMessage(
        message_id=delivery_id,
        sender=sender,
        kind=ContentKind.BUTTON,
        text=APPROVE if approves else REJECT,
        conversation=identifier(at(data, "conversation")) or sender,
        thread=identifier(at(data, "thread")),
        provider_id=delivery_id,
        press=Press(approval, approves),
    )
    return gather([message])
