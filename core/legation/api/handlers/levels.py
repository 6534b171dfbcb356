"""The shares of a caller: how much of each it has used, and what is left."""

from __future__ import annotations

from typing import Any

from ...effects import Program, Transact
from ...shares.budgets import seconds_left
from ...shares.exceeded import SHARES
from ...shares.limits import find_cost_limit
from ...shares.shares import Level
from ...store.failures import StoreFailure
from ...store.usage import FetchUsage
from ..call import Call

__all__ = ["describe_levels", "describe_stored"]


def describe_levels(call: Call) -> list[dict[str, Any]]:
    """Return the shares of who asks, this request among them."""
    shares = call.context.shares
    return [_describe(level) for level in shares.list_levels(call.account(), call.now_us)]


def describe_stored(call: Call) -> Program[list[dict[str, Any]]]:
    """Return the shares of who asks of what is stored, in each database that answers."""
    account, found = call.account(), list[dict[str, Any]]()
    limits, owner = account.limits, call.principal.own
    for database in call.registry.databases:
        unit = FetchUsage(owner, account.subject, call.now_us)
        try:
            usage = yield from Transact(database, unit)
        except StoreFailure:
            continue
        stored: tuple[Level, ...] = (
            Level("runs", limits.runs, usage.runs),
            Level("waiting", limits.waiting, usage.waiting),
            Level("stored_bytes", limits.stored_bytes, usage.bytes),
            Level("tokens", limits.tokens_per_day, usage.tokens, seconds_left(call.now_us)),
        )
        if limits.cost_per_day is not None:
            cost = Level(
                "cost", find_cost_limit(limits), usage.cost_nano, seconds_left(call.now_us)
            )
            stored = (*stored, cost)
        found += [{**_describe(level), "database": database} for level in stored]
    return found


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
