"""One key: judged, bound to its algorithm, made ready.

`Unsafe` and `NotForUs` are raised here and caught where the place of the key in the configuration
is known.  Neither quotes the key.
"""

from __future__ import annotations

import hmac
import json
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, TypeAlias

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers
from jwt.algorithms import (
    Algorithm,
    ECAlgorithm,
    HMACAlgorithm,
    OKPAlgorithm,
    RSAAlgorithm,
    RSAPSSAlgorithm,
)
from jwt.exceptions import InvalidKeyError

from ..values import frozen
from .key_values import (
    MAX_KID,
    OUTER_APPLICATION,
    KeyProblem,
    ReadyKey,
    Unsafe,
    VerificationKey,
)

__all__ = [
    "ALGORITHMS",
    "CURVES",
    "MAX_KID",
    "OUTER_APPLICATION",
    "KeyProblem",
    "NotForUs",
    "PublicKey",
    "ReadyKey",
    "Scheme",
    "Unsafe",
    "VerificationKey",
    "curve_of",
    "make_ready",
    "public_jwk",
    "safe_rsa",
    "safe_secret",
    "thumbprint",
]

PublicKey: TypeAlias = RSAPublicKey | ec.EllipticCurvePublicKey | Ed25519PublicKey | Ed448PublicKey

MIN_RSA_BITS: Final = 2048  # RFC 7518 section 3.3
MAX_RSA_BITS: Final = 16_384  # OpenSSL verifies with none longer: every token would be refused
MIN_RSA_EXPONENT: Final = 65_537  # NIST SP 800-56B section 6.2
MAX_RSA_EXPONENT: Final = 1 << 64  # a longer one slows every check, and OpenSSL refuses it


@frozen
class Scheme:
    """The meaning of an `alg`: the type of key it needs (`kty`) and the way to verify with it.

    `curves` are the allowed `crv`; `secret_size` is the digest of an HMAC, in bytes.
    """

    kty: str
    algorithm: Algorithm
    curves: frozenset[str] = frozenset()
    secret_size: int = 0


ALGORITHMS: Final[Mapping[str, Scheme]] = {
    "RS256": Scheme("RSA", RSAAlgorithm(RSAAlgorithm.SHA256)),
    "RS384": Scheme("RSA", RSAAlgorithm(RSAAlgorithm.SHA384)),
    "RS512": Scheme("RSA", RSAAlgorithm(RSAAlgorithm.SHA512)),
    "PS256": Scheme("RSA", RSAPSSAlgorithm(RSAAlgorithm.SHA256)),
    "PS384": Scheme("RSA", RSAPSSAlgorithm(RSAAlgorithm.SHA384)),
    "PS512": Scheme("RSA", RSAPSSAlgorithm(RSAAlgorithm.SHA512)),
    "ES256": Scheme("EC", ECAlgorithm(ECAlgorithm.SHA256), frozenset({"P-256"})),
    "ES384": Scheme("EC", ECAlgorithm(ECAlgorithm.SHA384), frozenset({"P-384"})),
    "ES512": Scheme("EC", ECAlgorithm(ECAlgorithm.SHA512), frozenset({"P-521"})),
    "EdDSA": Scheme("OKP", OKPAlgorithm(), frozenset({"Ed25519", "Ed448"})),
    "HS256": Scheme("oct", HMACAlgorithm(HMACAlgorithm.SHA256), secret_size=32),
    "HS384": Scheme("oct", HMACAlgorithm(HMACAlgorithm.SHA384), secret_size=48),
    "HS512": Scheme("oct", HMACAlgorithm(HMACAlgorithm.SHA512), secret_size=64),
}
"""Every algorithm that can be configured; `none` is not one."""

CURVES: Final[Mapping[str, ec.EllipticCurve]] = {
    "P-256": ec.SECP256R1(),
    "P-384": ec.SECP384R1(),
    "P-521": ec.SECP521R1(),
}
_CURVE_NAMES: Final = {curve.name: crv for crv, curve in CURVES.items()}


class NotForUs(Exception):
    """The key is meant for something else, or for nobody."""


def make_ready(scheme: Scheme, key: PublicKey | bytes, kid: str | None = None) -> ReadyKey:
    """Bind `key`, which is safe for `scheme`, to its algorithm."""
    fingerprint = _fingerprint(key)
    size = _signature_size(scheme, key)
    ready = VerificationKey(kid or fingerprint, size, key, scheme.algorithm.verify)
    return ReadyKey(kid, fingerprint, ready)


def _fingerprint(key: PublicKey | bytes) -> str:
    if isinstance(key, bytes):
        # Not the thumbprint: that of a secret is to stay secret (RFC 7638 section 7).
        return "secret-" + _base64url(hmac.digest(key, b"legation key id", "sha256"))
    return thumbprint(key)


def _signature_size(scheme: Scheme, key: PublicKey | bytes) -> int:
    """Return the length in bytes of every signature of `key` (RFC 7518 section 3, RFC 8032)."""
    if isinstance(key, RSAPublicKey):
        return (key.key_size + 7) // 8
    if isinstance(key, ec.EllipticCurvePublicKey):
        return 2 * ((key.curve.key_size + 7) // 8)
    if isinstance(key, bytes):
        return scheme.secret_size
    return 64 if isinstance(key, Ed25519PublicKey) else 114


def curve_of(key: ec.EllipticCurvePublicKey) -> str:
    """Return the `crv` of `key` (RFC 7518 section 6.2.1.1), or the curve's own name."""
    return _CURVE_NAMES.get(key.curve.name, key.curve.name)


def safe_rsa(numbers: RSAPublicNumbers) -> RSAPublicKey:
    """Return the key of `numbers` if it is strong enough (RFC 8725 section 3.5)."""
    bits = numbers.n.bit_length()
    if bits < MIN_RSA_BITS:
        raise Unsafe(f"is an RSA key of {bits} bits; the least is {MIN_RSA_BITS}")
    if bits > MAX_RSA_BITS or numbers.n % 2 == 0:
        raise Unsafe(f"is not an RSA key: its modulus is even or over {MAX_RSA_BITS} bits")
    if numbers.e % 2 == 0 or not MIN_RSA_EXPONENT <= numbers.e < MAX_RSA_EXPONENT:
        raise Unsafe(f"is an RSA key whose exponent is even, below {MIN_RSA_EXPONENT} or too long")
    if _is_roca(numbers.n):
        raise Unsafe("is an RSA key of a generator whose keys can be factored (CVE-2017-15361)")
    return numbers.public_key()


# Primes of the flawed generator are k * M + 65537 ** a mod M, M a product of small primes; so the
# modulus is a power of 65537 modulo each of these.  By chance that is one key in 10 ** 8.
_ROCA: Final = tuple(
    (prime, frozenset(pow(65_537, exponent, prime) for exponent in range(prime)))
    for prime in (11, 13, 17, 19, 37, 53, 61, 71, 73, 79, 97, 103, 107, 109, 127, 151, 157)
)


def _is_roca(modulus: int) -> bool:
    return all(modulus % prime in powers for prime, powers in _ROCA)


def safe_secret(scheme: Scheme, secret: bytes) -> bytes:
    """Return `secret` if it is long enough (RFC 7518 section 3.2) and not a key in disguise."""
    size = scheme.secret_size
    if len(secret) < size:
        raise Unsafe(f"is a secret of {len(secret)} bytes; the least is its digest's, {size}")
    try:
        scheme.algorithm.prepare_key(secret)
        scheme.algorithm.prepare_key(_unwrap_secret(secret))
    except InvalidKeyError:
        raise Unsafe("is a key in PEM, DER, JWK or SSH form, and no shared secret") from None
    return secret


def _unwrap_secret(secret: bytes) -> bytes:
    """Return what `secret` is as base64 (a PEM without its frame), or itself."""
    try:
        return b64decode(b"".join(secret.split()), validate=True) or secret
    except ValueError:
        return secret


def public_jwk(key: PublicKey) -> dict[str, str]:
    """Return the members of `key` as a JWK that RFC 7638 section 3.2 requires, and no other."""
    if isinstance(key, RSAPublicKey):
        members: dict[str, Any] = RSAAlgorithm.to_jwk(key, as_dict=True)
    elif isinstance(key, ec.EllipticCurvePublicKey):
        members = ECAlgorithm.to_jwk(key, as_dict=True)
    else:
        members = OKPAlgorithm.to_jwk(key, as_dict=True)
    return {name: members[name] for name in ("crv", "e", "kty", "n", "x", "y") if name in members}


def thumbprint(key: PublicKey) -> str:
    """Return the SHA-256 thumbprint of `key` (RFC 7638), in base64url."""
    canonical = json.dumps(public_jwk(key), separators=(",", ":"), sort_keys=True)
    return _base64url(sha256(canonical.encode()).digest())


def _base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
