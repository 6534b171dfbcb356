"""Limits: how much of each share a subject may take, and how much of each a node has.

They are made of a configuration, which is checked first (`find_faults`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from attrs import evolve, field, fields

from ..money import SENTENCE, parse_usd
from ..values import frozen

__all__ = [
    "LimitOverrides",
    "Limits",
    "NodeLimits",
    "PlatformLimits",
    "apply_overrides",
    "find_cost_limit",
    "find_faults",
]


@frozen(kw_only=True)
class Limits:
    """The limits of one subject; those of stored things count in all nodes of a database.

    Of rates, streams and calls each node has its part: the limit divided by the living nodes.

    Attributes:
        weight: Of the subject among others that wait: 2 has two turns for one of the others.
        runs: Runs under way at once, in all nodes.
        waiting: Runs that wait for their turn, in all nodes.
        streams: Streamed answers at once.
        followers: Requests that wait for a run at once, streamed or not.
        model_calls: Calls of models at once.
        requests_per_second: Requests, on average; 0 for no limit.
        request_burst: Requests at once, where there were few before.
        stored_bytes: Bytes of the runs and sessions of one owner; None for no limit.
        tokens_per_day: Tokens of models in and out, from midnight to midnight UTC; None for no
            limit.
        cost_per_day: US dollars for models, from midnight to midnight UTC, as "2.50"; None for no
            limit.
        state_bytes: Bytes of the state of one session, as JSON.
    """

    weight: float = 1.0
    runs: int = 64
    waiting: int = 1_000
    streams: int = 256
    followers: int = 256
    model_calls: int = 64
    requests_per_second: float = 1_000.0
    request_burst: int = 2_000
    stored_bytes: int | None = None
    tokens_per_day: int | None = None
    cost_per_day: str | None = None
    state_bytes: int = 1 << 20


@frozen(kw_only=True)
class LimitOverrides:
    """The limits in which some subjects differ from all others; None where they do not differ."""

    weight: float | None = None
    runs: int | None = None
    waiting: int | None = None
    streams: int | None = None
    followers: int | None = None
    model_calls: int | None = None
    requests_per_second: float | None = None
    request_burst: int | None = None
    stored_bytes: int | None = None
    tokens_per_day: int | None = None
    cost_per_day: str | None = None
    state_bytes: int | None = None


@frozen(kw_only=True)
class NodeLimits:
    """The limits of one process, for all subjects together.

    Attributes:
        runs: Runs under way at once.
        model_calls: Calls of models at once.
        streams: Streamed answers at once.
        followers: Requests that wait for a run at once.
        body_bytes: Bytes of the bodies that are being read.
    """

    runs: int = 256
    model_calls: int = 256
    streams: int = 4_096
    followers: int = 4_096
    body_bytes: int = 256 << 20


Overrides: TypeAlias = Mapping[str, LimitOverrides]


@frozen(kw_only=True)
class PlatformLimits(Limits):
    """The limits of each subject, and the tables of those for whom they differ.

    Of the tables below one counts: that of the subject's name, else that of the first scope that
    it holds, else that of who has no name.

    Attributes:
        node: Of one process.
        anonymous: Of who has no name, and is counted by address.
        scopes: By a scope of the token, in this order.
        subjects: By name.
    """

    node: NodeLimits = NodeLimits()
    anonymous: LimitOverrides = LimitOverrides()
    scopes: Overrides = field(factory=dict[str, LimitOverrides])
    subjects: Overrides = field(factory=dict[str, LimitOverrides])


LEAST: Final[Mapping[str, int]] = {
    "runs": 1,
    "waiting": 0,
    "streams": 1,
    "followers": 1,
    "model_calls": 1,
    "requests_per_second": 0,
    "request_burst": 1,
    "stored_bytes": 0,
    "tokens_per_day": 0,
    "state_bytes": 2,
    "body_bytes": 16 << 20,
}
"""The least that each limit may be; a weight has to be more than 0."""

_MOST: Final = 10**15 - 1
"""No limit is more: the largest integer of a structured field (RFC 9651 section 3.3.1)."""
_WEIGHTS: Final = (0.001, 1000.0)


def find_faults(limits: object) -> Iterator[tuple[str, str]]:
    """Yield the name of each limit that is out of range, and what is expected of it."""
    cls: Any = type(limits)
    for attribute in fields(cls):
        name, value = attribute.name, getattr(limits, attribute.name)
        if name == "weight" and value is not None:
            least, most = _WEIGHTS
            if not least <= value <= most:
                yield name, f"must be a number from {least:g} to {most:g}"
        elif name == "cost_per_day" and value is not None:
            if parse_usd(value) is None:
                yield name, SENTENCE
        elif name in LEAST and value is not None and not _is_within(value, LEAST[name]):
            yield name, f"must be a number from {LEAST[name]} to {_MOST}"


def _is_within(value: float, least: int) -> bool:
    return math.isfinite(value) and least <= value <= _MOST


def find_cost_limit(limits: Limits | LimitOverrides) -> int | None:
    """Return what a subject may spend a day, in nano-USD; None for no limit."""
    return parse_usd(limits.cost_per_day)


def apply_overrides(limits: Limits, overrides: LimitOverrides | None) -> Limits:
    """Return `limits` with what `overrides` says in place of theirs."""
    if overrides is None:
        return limits
    cls: Any = LimitOverrides
    said = {a.name: getattr(overrides, a.name) for a in fields(cls)}
    return evolve(limits, **{name: value for name, value in said.items() if value is not None})
