"""Notices of runs: signed webhooks that go out, and nothing that comes in (Standard Webhooks 1.0).

A notice waits in the outbox as a reply does, is tried as often, and is a dead letter in the end.
"""

from __future__ import annotations

from typing import ClassVar

from ..effects import Fetch
from ..http.messages import Headers
from ..values import frozen
from .replies import Reply
from .signatures import SignatureRefused, Verified
from .standard import Standard

__all__ = ["Notices"]


@frozen
class Notices(Standard):
    """The receiver of notices: the text of a reply is the JSON that it is sent."""

    kind: ClassVar[str] = "notify"
    receives: ClassVar[bool] = False

    def verify(self, headers: Headers, body: bytes, now_us: int) -> Verified | SignatureRefused:
        """Refuse: nothing comes in."""
        return SignatureRefused("takes no deliveries")

    def encode(self, reply: Reply, now_us: int) -> Fetch:
        """Return the signed request; id and body are the same for every attempt."""
        return self.sign(reply.key, reply.text.encode(), now_us)
