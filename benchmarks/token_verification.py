"""The cost of verifying a token, cold and cached, against the bare check of its signature.

Times are microseconds of one core, the best of interleaved rounds; the ratio is what carries over
to another machine.  A cold token is one that the cache does not know.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from timeit import timeit
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt import PyJWS

from legation.access.claims import ClaimRules, Claims
from legation.access.claims_cache import ClaimsCache
from legation.access.keys import KeySet, build_keys
from legation.access.tokens import verify

NOW: Final = 1_800_000_000
NOW_US: Final = NOW * 1_000_000
DEMO: Final = ClaimRules(audiences=("demo",))
CALLS: Final = 500
ROUNDS: Final = 40
CLAIMS: Final = {
    "sub": "ada",
    "session_id": "s1",
    "aud": "demo",
    "scopes": ["agents:read", "agents:concierge:run", "sessions:read"],
    "iat": NOW,
    "exp": NOW + 3600,
}


def make_token(algorithm: str, key: Any) -> bytes:
    """Return a token of some 600 bytes, as an issuer makes them."""
    return PyJWS().encode(json.dumps(CLAIMS).encode(), key, algorithm, {"kid": "one"}).encode()


def key_set(algorithm: str, key: Any) -> KeySet:
    """Return the public half of `key` in force."""
    pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    keys = build_keys(algorithm, (pem.decode(),), None)
    assert isinstance(keys, KeySet)
    return keys


def bare(algorithm: str, key: Any, message: bytes) -> Callable[[], object]:
    """Return the one call of `cryptography` that any verification of `message` has to make."""
    public = key.public_key()
    if algorithm == "RS256":
        scheme, digest = padding.PKCS1v15(), SHA256()
        signature = key.sign(message, scheme, digest)
        return lambda: public.verify(signature, message, scheme, digest)
    if algorithm == "ES256":
        method = ec.ECDSA(SHA256())
        signature = key.sign(message, method)
        return lambda: public.verify(signature, message, method)
    signature = key.sign(message)
    return lambda: public.verify(signature, message)


def best(*actions: Callable[[], object]) -> list[float]:
    """Return the least time of each action, in microseconds; the rounds go around."""
    rounds = [[timeit(action, number=CALLS) for action in actions] for _ in range(ROUNDS)]
    return [min(times) / CALLS * 1e6 for times in zip(*rounds, strict=True)]


def measure(algorithm: str, key: Any) -> None:
    """Print one line for `algorithm`."""
    token, keys, cache = make_token(algorithm, key), key_set(algorithm, key), ClaimsCache(DEMO)
    assert isinstance(verify(token, keys, NOW_US, DEMO), Claims)
    check, cold, hit = best(
        bare(algorithm, key, token.rpartition(b".")[0]),
        lambda: verify(token, keys, NOW_US, DEMO),
        lambda: cache.verify(token, keys, NOW_US),
    )
    print(
        f"{algorithm}, {len(token)} bytes: signature alone {check:.1f} us, cold {cold:.1f} us"
        f" ({cold / check:.2f} times), remembered {hit:.2f} us ({cold / hit:.0f} times less)"
    )


if __name__ == "__main__":
    measure("RS256", rsa.generate_private_key(65_537, 2048))
    measure("ES256", ec.generate_private_key(ec.SECP256R1()))
    measure("EdDSA", ed25519.Ed25519PrivateKey.generate())
