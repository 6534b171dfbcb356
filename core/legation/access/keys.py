"""The keys that tokens are verified with, checked once, before the first token is read.

Every key is bound to the one configured algorithm here; what a token says about algorithms only
ever has to be equal to it (RFC 8725 section 3.1).  What is unsafe stops the start; what is merely
meant for something else (encryption, another algorithm) is passed over with a note.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final

from attrs import field
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from ..values import frozen
from .jose import is_clean
from .jwks import read_jwks
from .key_material import (
    ALGORITHMS,
    KeyProblem,
    PublicKey,
    ReadyKey,
    Scheme,
    Unsafe,
    VerificationKey,
    curve_of,
    make_ready,
    safe_rsa,
    safe_secret,
)

__all__ = ["KeyListing", "KeyProblem", "KeySet", "VerificationKey", "build_keys"]


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
    scheme = ALGORITHMS.get(algorithm)
    if scheme is None:
        known = ", ".join(ALGORITHMS)
        return (KeyProblem("algorithm", f"{algorithm!r} is not one of {known}"),)
    if jwks is None and not verification_keys:
        return (KeyProblem("verification_keys", _KEYLESS),)
    static = _static_keys(scheme, algorithm, verification_keys)
    members, notes = read_jwks(scheme, algorithm, jwks, lenient=lenient)
    problems = [item for item in (*static.values(), *members) if isinstance(item, KeyProblem)]
    if problems:
        return tuple(problems)
    return _key_set(
        algorithm,
        {path: item for path, item in static.items() if isinstance(item, ReadyKey)},
        [item for item in members if isinstance(item, ReadyKey)],
        notes,
    )


# Keys of the configuration itself.


def _static_keys(
    scheme: Scheme, algorithm: str, texts: Sequence[str]
) -> Mapping[str, ReadyKey | KeyProblem]:
    """Return what each of `texts` is, by its path; a copy of one before it is left out."""
    found: dict[str, ReadyKey | KeyProblem] = {}
    seen: set[str] = set()
    for index, text in enumerate(texts):
        path = f"verification_keys[{index}]"
        try:
            key = _static_key(scheme, algorithm, text)
        except Unsafe as problem:
            found[path] = KeyProblem(path, str(problem))
        else:
            if key.ready.key_id not in seen:
                found[path] = key
            seen.add(key.ready.key_id)
    return found


def _static_key(scheme: Scheme, algorithm: str, text: str) -> ReadyKey:
    if not text.strip():
        raise Unsafe("is empty")
    if scheme.kty != "oct":
        return make_ready(scheme, _check_key(scheme, algorithm, _pem(algorithm, text)))
    if not is_clean(text):
        raise Unsafe("is not UTF-8")
    return make_ready(scheme, safe_secret(scheme, text.encode()))


_FRAME: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----")


def _pem(algorithm: str, text: str) -> object:
    labels = _FRAME.findall(text)
    if any(label.endswith("PRIVATE KEY") for label in labels):
        raise Unsafe("is a private key; the server needs the public one only")
    if len(labels) != 1 or not labels[0].endswith("PUBLIC KEY"):
        raise Unsafe(f"is not one public key in PEM, which {algorithm} needs")
    try:
        # An environment file often holds the line ends as backslash and n.
        return load_pem_public_key(text.replace("\\n", "\n").strip().encode(errors="replace"))
    except (ValueError, UnsupportedAlgorithm):
        raise Unsafe("is a PEM that cannot be read as a public key") from None


def _check_key(scheme: Scheme, algorithm: str, key: object) -> PublicKey:
    """Return `key` if it is what the algorithm works with, and strong enough."""
    if isinstance(key, RSAPublicKey) and scheme.kty == "RSA":
        return safe_rsa(key.public_numbers())
    if isinstance(key, ec.EllipticCurvePublicKey) and scheme.kty == "EC":
        if curve_of(key) not in scheme.curves:
            raise Unsafe(f"is on the curve {curve_of(key)}, which is not that of {algorithm}")
        return key
    if isinstance(key, Ed25519PublicKey | Ed448PublicKey) and scheme.kty == "OKP":
        return key
    raise Unsafe(f"is a public key of another type than {algorithm} works with")


# The set.


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
