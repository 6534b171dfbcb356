"""A kind of channel that is not ours: what a delivery is, how a reply is sent, and its provider."""

from __future__ import annotations

import json
from typing import ClassVar

from attrs import define, field, frozen

from legation.channels.codec import Codec, post
from legation.channels.deliveries import IncomingMessage, Parsed, gather
from legation.channels.provider_values import identifier, objects, text_at
from legation.channels.replies import Outcome, Reply, Sent, general_outcome
from legation.channels.settings import check_base_url, check_token
from legation.channels.signatures import (
    Secrets,
    SignatureRefused,
    Verified,
    active_secrets,
    hub256,
)
from legation.effects import Fetch, FetchReply, Unreachable
from legation.http.bodies.json_text import JsonObject
from legation.http.messages import Headers

from . import strict

__all__ = ["Loopback", "LoopbackApi"]


@frozen
class Loopback(Codec):
    """Sends messages in batches, signed by a secret; takes replies at `endpoint`."""

    kind: ClassVar[str] = "loopback"
    text_limit: ClassVar[int] = 1000
    sender: ClassVar[tuple[str, ...]] = ("line", "secret")

    name: str
    line: str = field(validator=check_token)
    endpoint: str = field(validator=check_base_url)
    secret: str = field(repr=False)
    previous: str | None = field(default=None, repr=False)

    @property
    def secrets(self) -> Secrets:
        return active_secrets(self.secret, self.previous)

    def verify(self, headers: Headers, body: bytes, now_us: int) -> Verified | SignatureRefused:
        """Check the signature over the body."""
        return hub256(headers, body, self.secrets)

    def read_delivery(self, root: JsonObject, delivery_id: str) -> Parsed:
        """Return the messages of the batch."""
        return gather(
            IncomingMessage(
                message_id=identifier(message.get("id")),
                sender=identifier(message.get("from")),
                text=text_at(message, "text") or None,
            )
            for message in objects(root.get("messages"))
        )

    def encode(self, reply: Reply, now_us: int) -> Fetch:
        """Return the request that sends `reply`."""
        message = {"line": self.line, "to": reply.recipient, "text": reply.text}
        return post(f"{self.endpoint}/messages", message, reply.key, (("x-line", self.line),))

    def read_reply(self, reply: FetchReply | Unreachable, now_us: int) -> Outcome:
        """Judge the answer by its status."""
        return general_outcome(reply, now_us) or Sent("")


@define(eq=False)
class LoopbackApi(strict.Provider):
    """The provider, strict about every request that we send."""

    kind: ClassVar[str] = "loopback"

    def judge(self, method: str, target: str, headers: strict.Headers, body: bytes) -> strict.Seen:
        strict.need(method == "POST", "method", 405)
        strict.need(target == "/loop/messages", "target", 404)
        strict.need(headers.get("x-line") == "one", "line", 403)
        content = strict.object_of(headers, body, "application/json")
        words = {
            "line": strict.matching("one"),
            "to": strict.text(256),
            "text": strict.text(Loopback.text_limit),
        }
        strict.shape(content, words)
        return strict.Seen(content["to"], content["text"], headers["idempotency-key"])

    def answer(self, message: strict.Seen, number: int) -> bytes:
        return json.dumps({"number": number}).encode()

    def refusal(self, rule: strict.Rule) -> strict.Reply:
        return strict.Reply(rule.status, rule.error.encode())

    def throttled(self, seconds: int) -> strict.Reply:
        return strict.Reply(429, b"", {"retry-after": str(seconds)})
