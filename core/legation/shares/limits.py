"""The limits of a subject: how much of each share it may take."""

from __future__ import annotations

from attrs import field
from attrs.validators import ge, gt, optional

from ..values import frozen

__all__ = ["Limits"]


@frozen
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
        state_bytes: Bytes of the state of one session, as JSON.
    """

    weight: float = field(default=1.0, validator=gt(0))
    runs: int = field(default=64, validator=ge(1))
    waiting: int = field(default=1_000, validator=ge(0))
    streams: int = field(default=256, validator=ge(1))
    followers: int = field(default=256, validator=ge(1))
    model_calls: int = field(default=64, validator=ge(1))
    requests_per_second: float = field(default=1_000.0, validator=ge(0))
    request_burst: int = field(default=2_000, validator=ge(1))
    stored_bytes: int | None = field(default=None, validator=optional(ge(0)))
    tokens_per_day: int | None = field(default=None, validator=optional(ge(0)))
    state_bytes: int = field(default=1 << 20, validator=ge(2))
