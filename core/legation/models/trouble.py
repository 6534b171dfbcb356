"""Failures between the platform and the provider of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from .conversation import ModelFailed
from .provider_words import ProviderWords, find_words

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
        error: What the provider sent about it, as it came; `name` turns it into words.
        words: The provider's own words, for the operator's log alone.
    """

    def __init__(
        self,
        reason: str,
        *,
        passing: bool = False,
        status: int | None = None,
        wait_seconds: int | None = None,
        error: object = None,
    ) -> None:
        super().__init__(reason, SENTENCES[reason])
        self.passing = passing
        self.status = status
        self.wait_seconds = wait_seconds
        self.error = error
        self.words = ProviderWords()

    def quote(self, secrets: Sequence[str]) -> None:
        """Keep the provider's words without `secrets`, and nothing else of what it sent."""
        self.words, self.error = find_words(self.error, secrets), None

    def describe(self) -> tuple[tuple[str, str | int], ...]:
        """Return the status and the words, as far as there are any, as fields of the log."""
        words = (("code", self.words.code), ("message", self.words.message))
        status = () if self.status is None else (("status", self.status),)
        return (*status, *(pair for pair in words if pair[1]))
