"""The guard without a socket: bytes in, heads and refusals out."""

from __future__ import annotations

from legation.http.refusals import Refusal
from legation_server.guard import Guard
from legation_server.head import RequestHead
from legation_server.memo import Memo
from legation_server.settings import DEFAULT, Settings

__all__ = ["heads", "seen"]


def heads(
    data: bytes, limits: Settings = DEFAULT, cut: int = 0, memo: Memo | None = None
) -> list[object]:
    """Return what comes out of `data`, fed in pieces of `cut` bytes, up to a refusal."""
    guard = Guard(limits, memo)
    out: list[object] = []
    pieces = [data] if not cut else [data[i : i + cut] for i in range(0, len(data), cut)]
    for piece in pieces:
        guard.receive(piece)
        while (head := guard.head()) is not None:
            out.append(seen(head))
            if isinstance(head, Refusal):
                return out
    return out


def seen(head: RequestHead | Refusal) -> object:
    """Return `head` as a value that can be compared."""
    if isinstance(head, Refusal):
        return head.status
    return (
        head.method,
        head.target,
        head.headers,
        head.length,
        head.keep_alive,
        head.expects,
        head.old,
    )
