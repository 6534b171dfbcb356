"""The shares of a caller: how much of each it has used, and what is left."""

from __future__ import annotations

from typing import Any

from ...shares.exceeded import SHARES
from ...shares.shares import Level
from ..call import Call

__all__ = ["describe_levels"]


def describe_levels(call: Call) -> list[dict[str, Any]]:
    """Return the shares of who asks, this request among them."""
    shares = call.context.shares
    return [_describe(level) for level in shares.list_levels(call.account(), call.now_us)]


def _describe(level: Level) -> dict[str, Any]:
    limit, used = level.limit, level.used
    described: dict[str, Any] = {
        "share": level.share,
        "limit": limit,
        "used": used,
        "remaining": None if limit is None else max(limit - used, 0),
        "unit": SHARES[level.share].unit,
    }
    if level.reset_seconds is not None:
        described["reset_seconds"] = level.reset_seconds
    return described
