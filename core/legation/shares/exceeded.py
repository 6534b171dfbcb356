"""A share that is used up: its name, its limit and how to go on, for whoever is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..money import render_usd
from ..values import frozen

__all__ = ["SHARES", "Exceeded", "Share"]


@frozen
class Share:
    """A share by its unit, and the sentence for who has no more of it.

    Attributes:
        unit: As in `RateLimit-Policy`: `requests`, `concurrent-requests` and `content-bytes` are
            those of the draft; for others the draft has no word.
        sentence: With `{limit}`, `{window}` and `{retry_after}`.
    """

    unit: str
    sentence: str


SHARES: Final[Mapping[str, Share]] = {
    "requests": Share(
        "requests",
        "Too many requests: the share is {limit} in {window} s; try again in {retry_after} s",
    ),
    "connections": Share(
        "connections",
        "Too many connections from this address: the share is {limit}; close one, or try again in"
        " {retry_after} s",
    ),
    "streams": Share(
        "concurrent-requests",
        "Too many streams: the share is {limit} at once; close one, or try again in"
        " {retry_after} s",
    ),
    "followers": Share(
        "concurrent-requests",
        "Too many requests wait for runs: the share is {limit} at once; close one, or try again in"
        " {retry_after} s",
    ),
    "model_calls": Share(
        "calls",
        "Too many calls of models: the share is {limit} at once; wait for one to end, or try again"
        " in {retry_after} s",
    ),
    "runs": Share(
        "runs",
        "Too many runs are under way: the share is {limit}; wait for one to end, or try again in"
        " {retry_after} s",
    ),
    "waiting": Share(
        "runs",
        "Too many runs wait for their turn: the share is {limit}; wait for one to end, or try"
        " again in {retry_after} s",
    ),
    "tokens": Share(
        "tokens",
        "The tokens of this day are used up: the share is {limit} from midnight to midnight UTC;"
        " try again in {retry_after} s",
    ),
    "cost": Share(
        "nano-usd",
        "The budget of this day is used up: the share is {limit} USD from midnight to midnight UTC;"
        " try again in {retry_after} s",
    ),
    "stored_bytes": Share(
        "bytes",
        "No more can be stored: the share is {limit} bytes; delete sessions that are not needed",
    ),
    "bodies": Share(
        "content-bytes",
        "Too many bytes are being read: the share is {limit}; try again in {retry_after} s",
    ),
}
"""By the name that a share has in refusals and in measurements."""


@frozen
class Exceeded:
    """A share that is used up.

    Attributes:
        share: One of `SHARES`.
        limit: How much of it there is, at once or in a window; of money, nano-USD.
        retry_after: Seconds until there may be more.
        window: Seconds; None where the limit is of what there is at once.
    """

    share: str
    limit: int
    retry_after: int = 1
    window: int | None = None

    @property
    def unit(self) -> str:
        """The unit of the limit."""
        return SHARES[self.share].unit

    @property
    def sentence(self) -> str:
        """The reason and the remedy, in one sentence."""
        limit = render_usd(self.limit) if self.share == "cost" else self.limit
        return SHARES[self.share].sentence.format(
            limit=limit, window=self.window, retry_after=self.retry_after
        )
