"""The refusals of what would be over a limit of what is stored."""

from __future__ import annotations

from typing import Final

from ...http.refusals import StateTooLarge, StorageFull, TooManyRequests
from ...shares.budgets import seconds_left
from ...shares.exceeded import Exceeded
from ...shares.limits import Limits, find_cost_limit

__all__ = ["over_limit", "storage_full"]

_DAY_SECONDS: Final = 86_400


def storage_full(limits: Limits) -> StorageFull:
    """Return the refusal of an owner who keeps as many bytes as it may."""
    return StorageFull(Exceeded("stored_bytes", limits.stored_bytes or 0))


def over_limit(
    over: str, limits: Limits, now_us: int
) -> StateTooLarge | StorageFull | TooManyRequests:
    """Return the refusal of a run that would be over the limit of this name."""
    match over:
        case "state_bytes":
            return StateTooLarge(limits.state_bytes)
        case "stored_bytes":
            return storage_full(limits)
        case "waiting":
            return TooManyRequests(Exceeded("waiting", limits.waiting))
        case "cost":
            spent, seconds = find_cost_limit(limits) or 0, seconds_left(now_us)
            return TooManyRequests(Exceeded("cost", spent, seconds, _DAY_SECONDS))
        case _:
            most, seconds = limits.tokens_per_day or 0, seconds_left(now_us)
            return TooManyRequests(Exceeded("tokens", most, seconds, _DAY_SECONDS))
