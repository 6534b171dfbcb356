"""Keys that are ready: what tokens are verified with, without the libraries that read keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from attrs import field

from ..values import frozen

__all__ = [
    "ALGORITHM_NAMES",
    "MAX_KID",
    "OUTER_APPLICATION",
    "KeyListing",
    "KeyProblem",
    "KeySet",
    "ReadyKey",
    "Unsafe",
    "VerificationKey",
]

Verify: TypeAlias = Callable[[bytes, Any, bytes], bool]
"""Takes the message, a public key or a secret, and the signature."""

MAX_KID: Final = 256
OUTER_APPLICATION: Final = "outer application"
"""The key id, in the trail, of a caller for whom an outer application vouches; no key bears it."""

ALGORITHM_NAMES: Final = tuple(
    "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA HS256 HS384 HS512".split()
)
"""Every algorithm that can be configured; `none` is not one."""


@frozen
class KeyProblem:
    """A reason not to start: where, as `verification_keys[0]`, and one sentence."""

    path: str
    message: str


@frozen
class VerificationKey:
    """A key made ready, bound to its algorithm.  `key_id` names it in the audit trail."""

    key_id: str
    signature_size: int
    _key: object = field(repr=False)
    _verify: Verify = field(repr=False)

    def verifies(self, message: bytes, signature: bytes) -> bool:
        """Tell whether `signature`, which has but one possible length, is that of `message`."""
        return len(signature) == self.signature_size and self._verify(message, self._key, signature)


class Unsafe(Exception):
    """The server is not to start with this key.  The message never quotes it."""


@frozen
class ReadyKey:
    """A key of the configuration, and what tells it from every other."""

    kid: str | None
    fingerprint: str
    ready: VerificationKey


@frozen
class KeyListing:
    """One key in force as an operator sees it: nothing of the key itself.

    Attributes:
        key_id: Its name in the audit trail.
        kid: The name that tokens have for it, if they have one.
        path: Where it was found: `verification_keys[0]`, or `jwks`.
    """

    key_id: str
    kid: str | None
    path: str


@frozen
class KeySet:
    """The keys in force.  Two sets with the same keys for the same tokens are equal.

    `generation` differs whenever the keys do; what was verified under another one is void.
    `notes` say which members of the JWKS are passed over, and why; `listed` are the keys.
    """

    algorithm: str = field(eq=False)
    by_kid: Mapping[str, tuple[VerificationKey, ...]] = field(eq=False)
    other_kid: tuple[VerificationKey, ...] = field(eq=False)
    without_kid: tuple[VerificationKey, ...] = field(eq=False)
    notes: tuple[str, ...] = field(eq=False)
    generation: bytes
    listed: tuple[KeyListing, ...] = field(default=(), eq=False)

    def candidates(self, kid: str | None) -> tuple[VerificationKey, ...]:
        """Return the keys to try for a token with this `kid`, in order.

        A key of the JWKS that bears `kid` is the only one.  Otherwise the static keys, and the
        key of a JWKS that has just one, unless token and key are named and differ.
        """
        if kid is None:
            return self.without_kid
        return self.by_kid.get(kid, self.other_kid)
