"""The head of a request, as the server needs it."""

from __future__ import annotations

from legation.http.messages import Headers
from legation.values import define

from .framing import ChunkedBody, Framing, LengthBody

__all__ = ["RequestHead"]


# Made for every request, and not changed once it is parsed: `frozen` would triple what it costs.
@define(eq=False)
class RequestHead:
    """The head of a request.

    Attributes:
        target: In origin-form, or `*`.
        length: Bytes of the body by Content-Length; None when it is chunked.
        keep_alive: Whether the client lets the connection live (RFC 9112 section 9.3).
        expects: Whether the client waits for 100 before it sends the body.
        old: Whether the client speaks HTTP/1.0, which has no chunks.
    """

    method: str
    target: str
    headers: Headers
    length: int | None = 0
    keep_alive: bool = True
    expects: bool = False
    old: bool = False

    def make_framing(self, limit: int) -> Framing:
        """Return the framing of the body; it refuses a chunked one of more than `limit` bytes."""
        return ChunkedBody(limit) if self.length is None else LengthBody(self.length)
