"""The setup of a channel at its provider: is what was entered there right, and what is to be done?

A kind asks its provider in a program of its own (`Codec.inspect`, `Codec.register`), of `Fetch` and
`Now` alone, and says what it found in checks.
"""

from __future__ import annotations

from typing import Final, Protocol
from urllib.parse import urlsplit

from attrs import evolve

from ..effects import Fetch, FetchReply, Now, Program, Unreachable
from ..values import frozen
from .identity import Identity, Unidentified

__all__ = [
    "Asked",
    "Check",
    "ask_identity",
    "ask_nobody",
    "check_address",
    "fetch_soon",
    "is_address",
    "sentence_of",
]

_SECONDS: Final = 10.0
_LONGEST: Final = 300


@frozen
class Check:
    """One thing that was looked at.

    Attributes:
        subject: What it is about: credentials, webhook, updates, deliveries, permissions …
        ok: Whether it is right; None where the provider does not say it.
        message: What was found, in a sentence.
        remedy: What to do, or "".
    """

    subject: str
    ok: bool | None
    message: str
    remedy: str = ""


@frozen
class Asked:
    """The answer of a provider to the question who we are."""

    reply: FetchReply | Unreachable
    found: Identity | Unidentified


class _Identified(Protocol):
    def identify(self) -> Fetch | None: ...

    def read_identity(
        self, reply: FetchReply | Unreachable, now_us: int
    ) -> Identity | Unidentified: ...


def ask_nobody(*checks: Check) -> Program[tuple[Check, ...]]:
    """Return `checks`, for which nobody is asked."""
    yield from ()
    return checks


def fetch_soon(request: Fetch) -> Program[FetchReply | Unreachable]:
    """Return the answer to `request`, for which a person waits."""
    return (yield from evolve(request, timeout_seconds=_SECONDS))


def ask_identity(codec: _Identified, request: Fetch) -> Program[Asked]:
    """Ask by `request` who we are."""
    reply = yield from fetch_soon(request)
    now_us = yield from Now()
    return Asked(reply, codec.read_identity(reply, now_us))


def is_address(address: str) -> bool:
    """Return whether `address` is a whole one, and not the path alone."""
    return "://" in address


def check_address(found: str, address: str, remedy: str) -> Check:
    """Check that a provider sends to `found`: the `address` of the channel, or one of its path."""
    if not found:
        return Check("webhook", False, "no address is set", remedy)
    if found == address or (not is_address(address) and _path(found).endswith(address)):
        return Check("webhook", True, f"the address is {sentence_of(found)}")
    message = f"the address is {sentence_of(found)}, and that of the channel is {address}"
    return Check("webhook", False, message, remedy)


def _path(url: str) -> str:
    try:
        return urlsplit(url).path
    except ValueError:
        return ""


def sentence_of(said: str) -> str:
    """Return what a provider said, as it may be shown at a terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in said[:_LONGEST])
