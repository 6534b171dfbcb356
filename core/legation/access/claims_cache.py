"""Verified claims, remembered: a signature is checked once, its times at every use.

Claims are kept, and the caller that they name, never decisions.  Failures are not kept: whoever
sends rubbish would drive out what is good.  The entries stand under the SHA-256 of the token, so
that no token stays in memory and none can be chosen to collide with another.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from attrs import field
from attrs.validators import ge

from ..values import define, frozen
from .claims import LEEWAY_US, ClaimRules, Claims
from .decide import Principal, principal_of
from .key_values import KeySet
from .tokens import BadToken, verify

__all__ = ["ENTRIES", "LIFETIME_US", "MAX_CACHED_BYTES", "ClaimsCache", "Verified"]

ENTRIES: Final = 4096
LIFETIME_US: Final = 300_000_000
MAX_CACHED_BYTES: Final = 4096


@frozen
class Verified:
    """The claims of a token that was verified at `since_us`, and whom they name.

    Both are good until `until_us`, in microseconds since the epoch.
    """

    since_us: int
    until_us: int
    claims: Claims
    caller: Principal


@define(eq=False)
class ClaimsCache:
    """The claims of the tokens seen lately, by `rules`; at most `entries`, each for at most 300 s.

    Two generations of half the size: an entry that is used moves to the younger one, and when
    that is full the elder is dropped.  So a flood of tokens that come once drives out only what
    has not been used for as long.

    For one thread, and for one process: a forked worker has its own.

    Attributes:
        rules: What tokens have to say.
        entries: At most so many are remembered.
        admin_scope: The scope that makes a caller an administrator.
    """

    rules: ClaimRules = field(factory=ClaimRules)
    entries: int = field(default=ENTRIES, validator=ge(2))
    admin_scope: str = "platform:admin"
    _young: dict[bytes, Verified] = field(factory=dict[bytes, Verified], init=False, repr=False)
    _old: dict[bytes, Verified] = field(factory=dict[bytes, Verified], init=False, repr=False)
    _generation: bytes = field(default=b"", init=False, repr=False)

    def __len__(self) -> int:
        """Return how many entries are held; one that moved may count twice."""
        return len(self._young) + len(self._old)

    def find(self, token: bytes, keys: KeySet, now_us: int) -> Verified | None:
        """Return what is remembered of `token`; None where it is to be verified.

        Any bytes will do: what is remembered is, byte for byte, a token.
        """
        if keys.generation != self._generation:
            self._young, self._old, self._generation = {}, {}, keys.generation
        digest = sha256(token).digest()
        young = self._young.get(digest)
        entry = young or self._old.get(digest)
        # A clock that was set back may be before `nbf` again: then the token is verified anew.
        if entry is None or not entry.since_us <= now_us < entry.until_us:
            return None
        if young is None:
            self._keep(digest, entry)
        return entry

    def verify(self, token: bytes, keys: KeySet, now_us: int) -> Claims | BadToken:
        """Return what `tokens.verify` returns, from memory where that is the same."""
        known = self.find(token, keys, now_us)
        if known is not None:
            return known.claims
        claims = verify(token, keys, now_us, self.rules)
        if isinstance(claims, BadToken) or len(token) > MAX_CACHED_BYTES:
            return claims
        until_us = now_us + LIFETIME_US
        if claims.expires_us is not None:
            until_us = min(until_us, claims.expires_us + LEEWAY_US)
        caller = principal_of(claims, self.admin_scope)
        self._keep(sha256(token).digest(), Verified(now_us, until_us, claims, caller))
        return claims

    def _keep(self, digest: bytes, entry: Verified) -> None:
        if len(self._young) >= self.entries // 2:
            self._old, self._young = self._young, {}
        self._young[digest] = entry
