"""A JWK Set (RFC 7517 section 5), read for its verification keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

from .jose import Malformed, decode_base64url, decode_object, is_clean
from .key_material import (
    CURVES,
    MAX_KID,
    OUTER_APPLICATION,
    KeyProblem,
    NotForUs,
    PublicKey,
    ReadyKey,
    Scheme,
    Unsafe,
    make_ready,
    safe_rsa,
    safe_secret,
)

__all__ = ["read_jwks"]

_PRIVATE_MEMBERS: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth"})  # RFC 7518 section 6
_EDWARDS: Final[Mapping[str, type[Ed25519PublicKey | Ed448PublicKey]]] = {
    "Ed25519": Ed25519PublicKey,
    "Ed448": Ed448PublicKey,
}


def read_jwks(
    scheme: Scheme, algorithm: str, jwks: bytes | None, *, lenient: bool = False
) -> tuple[tuple[ReadyKey | KeyProblem, ...], tuple[str, ...]]:
    """Return the usable keys and the problems of the set, and the notes on its other members.

    A `lenient` reader passes over each member that is a problem, and takes a set without any that
    is usable; the only problem left is a set that cannot be read.
    """
    if jwks is None:
        return (), ()
    try:
        members = decode_object(jwks).get("keys")
    except Malformed as problem:
        return (KeyProblem("jwks", f"is not a JWK Set: {problem}"),), ()
    if not isinstance(members, list):
        return (KeyProblem("jwks", "is not a JWK Set: it has no array `keys`"),), ()
    found: dict[str, ReadyKey | KeyProblem] = {}
    notes: dict[str, str] = {}
    kids: list[str | None] = []
    for index, member in enumerate(cast(list[object], members)):
        path = f"jwks.keys[{index}]"
        try:
            jwk, kid = _check_member(scheme, algorithm, member)
            kids.append(kid)
            found[path] = make_ready(scheme, _READERS[scheme.kty](scheme, jwk), kid)
        except Unsafe as problem:
            found[path] = KeyProblem(path, str(problem))
        except NotForUs as reason:
            notes[path] = str(reason)
        except Malformed as problem:
            notes[path] = f"a member is missing or {problem}"
    if lenient:
        _pass_over(found, notes)
    _drop_nameless(found, notes)
    lines = tuple(f"{path} is passed over: {reason}" for path, reason in notes.items())
    if lenient:
        return tuple(found.values()), lines
    if not found:
        return (_useless(algorithm, lines),), lines
    return (*found.values(), *_find_repeated(kids)), lines


def _pass_over(found: dict[str, ReadyKey | KeyProblem], notes: dict[str, str]) -> None:
    """Move to `notes` what is unsafe, copies, and all keys of which several bear one name."""
    ready: dict[str, ReadyKey] = {}
    known: set[tuple[str | None, str]] = set()
    for path, item in found.items():
        if isinstance(item, KeyProblem):
            notes[path] = f"it {item.message}"
        elif (item.kid, item.fingerprint) in known:
            notes[path] = "it is a copy of a key before it"
        else:
            ready[path] = item
            known.add((item.kid, item.fingerprint))
    again = Counter(key.kid for key in ready.values() if key.kid is not None)
    found.clear()
    for path, key in ready.items():
        if key.kid is not None and again[key.kid] > 1:
            notes[path] = f"other keys bear its kid, {key.kid!r}, too"
        else:
            found[path] = key


def _drop_nameless(found: dict[str, ReadyKey | KeyProblem], notes: dict[str, str]) -> None:
    """Move to `notes` the keys without a kid, unless there is but one key."""
    for path, item in tuple(found.items()) if len(found) > 1 else ():
        if isinstance(item, ReadyKey) and item.kid is None:
            notes[path] = "it bears no kid beside other keys, so no token can ask for it"
            del found[path]


def _useless(algorithm: str, notes: tuple[str, ...]) -> KeyProblem:
    reasons = "; ".join(notes) or "it is empty"
    return KeyProblem("jwks", f"has no key that {algorithm} can use ({reasons})")


def _find_repeated(kids: list[str | None]) -> tuple[KeyProblem, ...]:
    """Return a problem for each name of several keys (RFC 7517 section 4.5), readable or not."""
    again = sorted({kid for kid in kids if kid is not None and kids.count(kid) > 1})
    return tuple(KeyProblem("jwks", f"has several keys with the kid {kid!r}") for kid in again)


def _check_member(
    scheme: Scheme, algorithm: str, member: object
) -> tuple[Mapping[str, Any], str | None]:
    """Return a member and its name.  Its `use`, `key_ops` and `alg` bind (RFC 7517 section 4)."""
    if not isinstance(member, dict):
        raise NotForUs("it is not an object")
    jwk = cast(dict[str, Any], member)
    if jwk.get("kty") != "oct" and not _PRIVATE_MEMBERS.isdisjoint(jwk):
        raise Unsafe("is a private key; the server needs the public one only")
    _check_purpose(scheme, algorithm, jwk)
    return jwk, _kid(jwk)


def _check_purpose(scheme: Scheme, algorithm: str, jwk: Mapping[str, Any]) -> None:
    if jwk.get("kty") != scheme.kty:
        raise NotForUs(f"{algorithm} needs a key of type {scheme.kty}")
    if jwk.get("alg", algorithm) != algorithm:
        raise NotForUs("its alg is another")
    if jwk.get("use", "sig") != "sig":
        raise NotForUs("its use is not sig")
    operations = jwk.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        raise NotForUs("its key_ops are without verify")


def _kid(jwk: Mapping[str, Any]) -> str | None:
    kid = jwk.get("kid")
    if kid is None:
        return None
    if not isinstance(kid, str) or not 0 < len(kid) <= MAX_KID or not is_clean(kid):
        raise NotForUs(f"its kid is not a text of 1 to {MAX_KID} characters, so no token can ask")
    if kid == OUTER_APPLICATION:
        raise NotForUs(f"its kid is {kid!r}, which names no key in the audit trail")
    return kid


def _octets(jwk: Mapping[str, Any], name: str) -> bytes:
    value = jwk.get(name)
    if not isinstance(value, str):
        raise Malformed("not a text")
    return decode_base64url(value.encode(errors="replace"))


def _read_rsa(_: Scheme, jwk: Mapping[str, Any]) -> PublicKey:
    modulus, exponent = _octets(jwk, "n"), _octets(jwk, "e")
    return safe_rsa(
        RSAPublicNumbers(int.from_bytes(exponent, "big"), int.from_bytes(modulus, "big"))
    )


def _check_curve(scheme: Scheme, jwk: Mapping[str, Any]) -> str:
    crv = jwk.get("crv")
    if isinstance(crv, str) and crv in scheme.curves:
        return crv
    if "alg" in jwk:
        raise Unsafe("names an algorithm and a curve that do not belong together")
    raise NotForUs("its curve is that of another algorithm")


def _read_ec(scheme: Scheme, jwk: Mapping[str, Any]) -> PublicKey:
    curve = CURVES[_check_curve(scheme, jwk)]
    x, y = _octets(jwk, "x"), _octets(jwk, "y")
    if not len(x) == len(y) == (curve.key_size + 7) // 8:
        raise Malformed("not of the curve's size")
    try:
        return ec.EllipticCurvePublicNumbers(
            int.from_bytes(x, "big"), int.from_bytes(y, "big"), curve
        ).public_key()
    except ValueError:
        raise Unsafe("is not a point on its curve") from None


def _read_okp(scheme: Scheme, jwk: Mapping[str, Any]) -> PublicKey:
    kind = _EDWARDS[_check_curve(scheme, jwk)]
    try:
        return kind.from_public_bytes(_octets(jwk, "x"))
    except ValueError as error:
        raise Malformed("not of the curve's size") from error


def _read_secret(scheme: Scheme, jwk: Mapping[str, Any]) -> bytes:
    return safe_secret(scheme, _octets(jwk, "k"))


_READERS: Final[Mapping[str, Callable[[Scheme, Mapping[str, Any]], PublicKey | bytes]]] = {
    "RSA": _read_rsa,
    "EC": _read_ec,
    "OKP": _read_okp,
    "oct": _read_secret,
}
