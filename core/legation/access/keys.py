"""The keys that tokens are verified with, checked once, before the first token is read.

Every key is bound to the one configured algorithm here; what a token says about algorithms only
ever has to be equal to it (RFC 8725 section 3.1).  What is unsafe stops the start; what is merely
meant for something else (encryption, another algorithm) is passed over with a note.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final

from .. import access
from .key_values import (
    ALGORITHM_NAMES,
    KeyListing,
    KeyProblem,
    KeySet,
    ReadyKey,
    VerificationKey,
)

__all__ = ["KeyListing", "KeyProblem", "KeySet", "VerificationKey", "build_keys"]


_KEYLESS: Final = (
    "there is no key: give one here, in JWT_VERIFICATION_KEY or in a JWKS;"
    " `legation keys new` makes a pair"
)


def build_keys(
    algorithm: str,
    verification_keys: Sequence[str],
    jwks: bytes | None,
    *,
    lenient: bool = False,
) -> KeySet | tuple[KeyProblem, ...]:
    """Return the keys to verify with, or every reason not to start with them.

    Args:
        algorithm: An `alg` of RFC 7518 section 3.1 or RFC 8037 section 3.1; `none` is refused.
        verification_keys: Public keys in PEM, or shared secrets for an HMAC; tried in order.
        jwks: A JWK Set (RFC 7517 section 5), the file as it is.
        lenient: The JWK Set takes the place of another.  What the other has and this one has not
            is to be void whatever else stands here: each member that is unsafe is passed over,
            and there may be none.
    """
    if algorithm not in ALGORITHM_NAMES:
        known = ", ".join(ALGORITHM_NAMES)
        return (KeyProblem("algorithm", f"{algorithm!r} is not one of {known}"),)
    if jwks is None and not verification_keys:
        return (KeyProblem("verification_keys", _KEYLESS),)
    # Only now, when there are keys, what reads them is imported.
    scheme = access.key_reading.ALGORITHMS[algorithm]
    static = access.key_reading.read_static_keys(scheme, algorithm, verification_keys)
    members, notes = access.key_reading.read_jwks(scheme, algorithm, jwks, lenient=lenient)
    problems = [item for item in (*static.values(), *members) if isinstance(item, KeyProblem)]
    if problems:
        return tuple(problems)
    return _key_set(
        algorithm,
        {path: item for path, item in static.items() if isinstance(item, ReadyKey)},
        [item for item in members if isinstance(item, ReadyKey)],
        notes,
    )


def _key_set(
    algorithm: str,
    static: Mapping[str, ReadyKey],
    members: list[ReadyKey],
    notes: tuple[str, ...],
) -> KeySet:
    always = tuple(key.ready for key in static.values())
    places = [*((path, key) for path, key in static.items()), *(("jwks", key) for key in members)]
    lone = tuple(key.ready for key in members) if len(members) == 1 else ()
    nameless = lone if members and members[0].kid is None else ()
    by_kid = {key.kid: (key.ready,) for key in members if key.kid is not None}
    return KeySet(
        algorithm=algorithm,
        by_kid=by_kid,
        other_kid=nameless + always,
        without_kid=lone + always,
        notes=notes,
        generation=_generation(algorithm, list(static.values()), members),
        listed=tuple(KeyListing(key.ready.key_id, key.kid, path) for path, key in places),
    )


def _generation(algorithm: str, static: list[ReadyKey], members: list[ReadyKey]) -> bytes:
    """Return a digest of all that decides which tokens verify."""
    named = sorted([key.kid or "", key.fingerprint] for key in members)
    parts = [algorithm, [key.fingerprint for key in static], named]
    return sha256(json.dumps(parts).encode()).digest()
