"""Failures between the platform and the provider of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .conversation import ModelFailed

__all__ = ["SENTENCES", "Trouble"]

SENTENCES: Final[Mapping[str, str]] = {
    "unreachable": "The model cannot be reached at the moment",
    "timeout": "The model took too long to answer",
    "rejected": "The model's provider rejected the request",
    "rate_limited": "The model's provider has had too many requests; try again later",
    "refused": "The model refused to answer",
    "broken": "The model's answer broke off or could not be read",
    "too_large": "The model's answer is too long",
    "truncated": "The model's answer was cut off at its limit of tokens",
}
"""The sentence for the caller by reason: it holds nothing that a provider said."""


class Trouble(ModelFailed):
    """One attempt came to nothing.

    Attributes:
        passing: Another attempt may do better.
        status: Of the response, where there was one.
        wait_seconds: How long the provider asks us to wait, where it does.
    """

    def __init__(
        self,
        reason: str,
        *,
        passing: bool = False,
        status: int | None = None,
        wait_seconds: int | None = None,
    ) -> None:
        super().__init__(reason, SENTENCES[reason])
        self.passing = passing
        self.status = status
        self.wait_seconds = wait_seconds
