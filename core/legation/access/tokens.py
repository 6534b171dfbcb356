"""Bearer tokens: from the Authorization header to a verified payload, and to its claims.

The order is that of trust.  What is read before the signature is verified (the header of the
token) only chooses among keys configured beforehand; the payload is not even decoded until then.
The algorithm is the configuration's, never the token's (RFC 8725 section 3.1), and nothing in a
token makes the server fetch or believe a key (section 3.10).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from ..values import frozen
from .claims import ClaimRules, Claims, Expired, read_claims
from .jose import Malformed, decode_base64url, decode_header, decode_object
from .key_values import MAX_KID, KeySet

__all__ = [
    "MAX_TOKEN_BYTES",
    "BadToken",
    "NoToken",
    "SignedPayload",
    "bearer_token",
    "verify",
    "verify_signature",
]

MAX_TOKEN_BYTES: Final = 8192

_CREDENTIALS: Final = re.compile(rb"(?i:bearer) +([A-Za-z0-9._~+/-]+=*)")  # RFC 6750 section 2.1
_BEARER: Final = re.compile(rb"(?i:bearer)(?: |$)")

# Each would give the token a say in how it is verified, or make it something else than a JWT in
# plain: RFC 7515 section 4.1, RFC 7797 section 7, RFC 7519 section 5.2, RFC 7516 section 4.1.2.
_REFUSED: Final = frozenset({"crit", "b64", "jwk", "jku", "x5c", "x5u", "cty", "enc"})

# RFC 8725 section 3.11: an ID token, a logout token or a proof of possession is no access token.
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/jwt", "application/at+jwt"})

_DOCUMENTED: Final = ClaimRules()


@frozen
class NoToken:
    """The request carries no bearer token.  `reason` is for the log."""

    reason: str


@frozen
class BadToken:
    """The token does not verify.  `reason` is for the log and quotes nothing of the token."""

    reason: str
    expired: bool = False


@frozen
class SignedPayload:
    """Bytes that the key named `key_id` signed; what they say is not looked at."""

    payload: bytes
    key_id: str


def bearer_token(values: tuple[bytes, ...]) -> bytes | NoToken | BadToken:
    """Return the token in the Authorization header (RFC 6750 section 2.1).

    Args:
        values: Those of every Authorization field of the request; there may be one only.
    """
    if len(values) > 1:
        return BadToken("several Authorization headers")
    if not values or not values[0]:
        return NoToken("no Authorization header")
    match = _CREDENTIALS.fullmatch(values[0])
    if match is None:
        if _BEARER.match(values[0]):
            return BadToken("not one token after Bearer")
        return NoToken("the scheme is not Bearer")
    if len(match[1]) > MAX_TOKEN_BYTES:
        return BadToken("longer than the limit")
    return match[1]


def verify(
    token: bytes, keys: KeySet, now_us: int, rules: ClaimRules = _DOCUMENTED
) -> Claims | BadToken:
    """Verify `token` and return its claims.

    Total: any bytes have an answer.

    Args:
        token: Compact JWS, ASCII, as it stood in the Authorization header.
        keys: Those configured.
        now_us: Microseconds since the epoch.
        rules: What it has to say, and by which claims.
    """
    signed = verify_signature(token, keys)
    if isinstance(signed, BadToken):
        return signed
    try:
        return read_claims(decode_object(signed.payload), signed.key_id, now_us, rules)
    except Malformed as problem:
        return BadToken(str(problem), expired=isinstance(problem, Expired))


def verify_signature(token: bytes, keys: KeySet) -> SignedPayload | BadToken:
    """Verify `token` as a JWS (RFC 7515 section 5.2), whatever its payload says."""
    try:
        return SignedPayload(*_verify_signed(token, keys))
    except Malformed as problem:
        return BadToken(str(problem))


def _verify_signed(token: bytes, keys: KeySet) -> tuple[bytes, str]:
    if len(token) > MAX_TOKEN_BYTES:
        raise Malformed("longer than the limit")
    parts = token.split(b".", 3)
    if len(parts) != 3:
        raise Malformed("not a compact JWS")
    kid = _kid(parts[0], keys.algorithm)
    payload = decode_base64url(parts[1])
    signature = decode_base64url(parts[2])
    message = token[: len(parts[0]) + 1 + len(parts[1])]
    candidates = keys.candidates(kid)
    for key in candidates:
        if key.verifies(message, signature):
            return payload, key.key_id
    raise Malformed("no key verifies the signature" if candidates else "no key for this kid")


@lru_cache(maxsize=64)
def _kid(encoded: bytes, algorithm: str) -> str | None:
    """Check the header of a token and return the one thing it may say: the name of a key.

    An issuer writes the same bytes into every token, so what they mean is remembered; what is
    refused is an exception and is not.
    """
    header = decode_header(decode_base64url(encoded))
    if header.get("alg") != algorithm:
        raise Malformed("alg is not the configured one")
    if not _REFUSED.isdisjoint(header):
        raise Malformed("a header parameter that is not accepted")
    typ = header.get("typ", "JWT")
    if not isinstance(typ, str) or typ.lower() not in _TYPES:
        raise Malformed("typ is not that of an access token")
    if "kid" not in header:
        return None
    kid = header["kid"]
    if not isinstance(kid, str) or len(kid) > MAX_KID:
        raise Malformed("kid is not a text of an acceptable length")
    return kid
