"""Bearer tokens: from the Authorization header to verified claims.

The order is that of trust.  What is read before the signature is verified (the header of the
token) only chooses among keys configured beforehand; the payload is not even decoded until then.
The algorithm is the configuration's, never the token's (RFC 8725 section 3.1), and nothing in a
token makes the server fetch or believe a key (section 3.10).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, cast

from ..values import frozen
from .jose import Malformed, decode_base64url, decode_object, is_clean
from .key_material import MAX_KID
from .keys import KeySet

__all__ = [
    "LEEWAY_US",
    "MAX_TOKEN_BYTES",
    "BadToken",
    "Claims",
    "NoToken",
    "SignedPayload",
    "bearer_token",
    "verify",
    "verify_signature",
]

LEEWAY_US: Final = 10_000_000  # for clocks that differ (RFC 7519 section 4.1.4)
MAX_TOKEN_BYTES: Final = 8192
MAX_IDENTIFIER: Final = 256  # characters of sub, session_id, iss and jti

_CREDENTIALS: Final = re.compile(rb"(?i:bearer) +([A-Za-z0-9._~+/-]+=*)")  # RFC 6750 section 2.1
_BEARER: Final = re.compile(rb"(?i:bearer)(?: |$)")

# Each would give the token a say in how it is verified, or make it something else than a JWT in
# plain: RFC 7515 section 4.1, RFC 7797 section 7, RFC 7519 section 5.2, RFC 7516 section 4.1.2.
_REFUSED: Final = frozenset({"crit", "b64", "jwk", "jku", "x5c", "x5u", "cty", "enc"})

# RFC 8725 section 3.11: an ID token, a logout token or a proof of possession is no access token.
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/jwt", "application/at+jwt"})

_MAX_SECONDS: Final = 1 << 53  # beyond, a double no longer counts seconds (RFC 7493 section 2.2)
_ABSENT: Final = object()
_NONE: Final[list[str]] = []


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
class Claims:
    """What a verified token says (RFC 7519 section 4.1), and the key that vouches for it.

    Times are in microseconds since the epoch, as the token states them, without leeway.
    """

    subject: str | None
    session_id: str | None
    scopes: frozenset[str]
    key_id: str
    expires_us: int | None = None
    not_before_us: int | None = None
    issued_us: int | None = None
    audience: tuple[str, ...] = ()
    issuer: str | None = None
    token_id: str | None = None


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


def verify(token: bytes, keys: KeySet, now_us: int, *, audience: str | None) -> Claims | BadToken:
    """Verify `token` and return its claims.

    Total: any bytes have an answer.

    Args:
        token: Compact JWS, ASCII, as it stood in the Authorization header.
        keys: Those configured.
        now_us: Microseconds since the epoch; `exp`, `nbf` and `iat` get 10 s of leeway.
        audience: What `aud` must contain; None when that is not to be verified.
    """
    try:
        payload, key_id = _signed(token, keys)
        return _claims(decode_object(payload), key_id, now_us, audience)
    except Malformed as problem:
        return BadToken(str(problem), expired=isinstance(problem, _Expired))


def verify_signature(token: bytes, keys: KeySet) -> SignedPayload | BadToken:
    """Verify `token` as a JWS (RFC 7515 section 5.2), whatever its payload says."""
    try:
        return SignedPayload(*_signed(token, keys))
    except Malformed as problem:
        return BadToken(str(problem))


class _Expired(Malformed):
    """The one reason that a caller is told."""


def _signed(token: bytes, keys: KeySet) -> tuple[bytes, str]:
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
    header = decode_object(decode_base64url(encoded))
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


def _claims(claims: dict[str, Any], key_id: str, now_us: int, audience: str | None) -> Claims:
    expires_us = _instant(claims, "exp")
    not_before_us = _instant(claims, "nbf")
    issued_us = _instant(claims, "iat")
    if expires_us is not None and now_us >= expires_us + LEEWAY_US:
        raise _Expired("expired")
    if not_before_us is not None and now_us + LEEWAY_US < not_before_us:
        raise Malformed("not valid yet (nbf)")
    if issued_us is not None and now_us + LEEWAY_US < issued_us:
        raise Malformed("issued in the future (iat)")
    return Claims(
        subject=_identifier(claims, "sub"),
        session_id=_identifier(claims, "session_id"),
        scopes=frozenset(_texts(claims.get("scopes", _NONE), "scopes")),
        key_id=key_id,
        expires_us=expires_us,
        not_before_us=not_before_us,
        issued_us=issued_us,
        audience=_audience(claims, audience),
        issuer=_identifier(claims, "iss"),
        token_id=_identifier(claims, "jti"),
    )


def _instant(claims: dict[str, Any], name: str) -> int | None:
    """Return a NumericDate (RFC 7519 section 2) in microseconds; True is not the number 1."""
    seconds = claims.get(name, _ABSENT)
    if seconds is _ABSENT:
        return None
    if type(seconds) is not int and type(seconds) is not float:
        raise Malformed(f"{name} is not a number")
    if not -_MAX_SECONDS < seconds < _MAX_SECONDS:
        raise Malformed(f"{name} is out of range")
    return round(seconds * 1_000_000)


def _identifier(claims: dict[str, Any], name: str) -> str | None:
    """Return a claim that names something: text that is not empty and that a database can hold."""
    text = claims.get(name, _ABSENT)
    if text is _ABSENT:
        return None
    if type(text) is not str or not 0 < len(text) <= MAX_IDENTIFIER:
        raise Malformed(f"{name} is not a text of 1 to {MAX_IDENTIFIER} characters")
    if "\0" in text or not is_clean(text):
        raise Malformed(f"{name} has a character that is not accepted")
    return text


def _texts(value: object, name: str) -> tuple[str, ...]:
    if type(value) is not list:
        raise Malformed(f"{name} is not an array")
    texts = cast(list[str], value)
    try:
        together = "".join(texts)
    except TypeError:
        raise Malformed(f"{name} holds something else than texts") from None
    if not is_clean(together):
        raise Malformed(f"{name} has a character that is not accepted")
    return tuple(texts)


def _audience(claims: dict[str, Any], audience: str | None) -> tuple[str, ...]:
    """Return `aud`, a text or an array of them, which must hold `audience` where one is wanted."""
    value = claims.get("aud", _NONE)
    members = _texts([value] if type(value) is str else value, "aud")
    if audience is not None and audience not in members:
        raise Malformed("aud is somebody else")
    return members
