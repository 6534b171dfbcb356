"""Bearer tokens, case by case.

The letters are those of the token suite that other servers were measured with; a case with a
number is one that a server in wide use got wrong.
"""

from __future__ import annotations

import json
import sys
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from legation.access.claims import LEEWAY_US, ClaimRules, Claims
from legation.access.key_material import ALGORITHMS, public_jwk
from legation.access.keys import KeySet, build_keys
from legation.access.tokens import (
    MAX_TOKEN_BYTES,
    BadToken,
    NoToken,
    SignedPayload,
    bearer_token,
    verify,
    verify_signature,
)

NOW = 1_800_000_000
SECOND = 1_000_000
RSA = rsa.generate_private_key(65_537, 2048)
RSA_2 = rsa.generate_private_key(65_537, 2048)
RSA_1024 = rsa.generate_private_key(65_537, 1024)
P256 = ec.generate_private_key(ec.SECP256R1())
P384 = ec.generate_private_key(ec.SECP384R1())
SECRET = "a shared secret that is long enough for every HMAC there is, so that it serves"
PEM = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
ABSENT: Final = object()


def jwk(key: Any, **members: Any) -> dict[str, Any]:
    return {**public_jwk(key.public_key()), **members}


def key_set(algorithm: str, texts: tuple[str, ...] = (), *members: object) -> KeySet:
    document = json.dumps({"keys": members}).encode() if members else None
    keys = build_keys(algorithm, texts, document)
    assert isinstance(keys, KeySet), keys
    return keys


KEYS: Final = key_set("RS256", (PEM.decode(),), jwk(RSA_2, kid="two"), jwk(RSA, kid="one"))
HMAC_KEYS: Final = key_set("HS256", (SECRET,))
EC_KEYS: Final = key_set("ES256", (), jwk(P256, kid="ec"))
KEY_ID: Final = KEYS.candidates(None)[0].key_id


def base64url(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


def encoded(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


GOOD: Final[dict[str, Any]] = {"sub": "ada", "scopes": ["agents:read"], "exp": NOW + 60}


def with_claims(**members: Any) -> dict[str, Any]:
    claims = {**GOOD, **members}
    return {name: value for name, value in claims.items() if value is not ABSENT}


def sign(message: bytes, algorithm: str = "RS256", key: Any = RSA) -> bytes:
    return message + b"." + base64url(ALGORITHMS[algorithm].algorithm.sign(message, key))


def token(
    payload: Any = GOOD, header: Any = None, algorithm: str = "RS256", key: Any = RSA
) -> bytes:
    header = {"alg": algorithm} if header is None else header
    return sign(base64url(encoded(header)) + b"." + base64url(encoded(payload)), algorithm, key)


def headed(**members: Any) -> bytes:
    return token(header={"alg": "RS256", **members})


def claiming(**members: Any) -> bytes:
    return token(with_claims(**members))


ANY: Final = ClaimRules()
DEMO: Final = ClaimRules(audiences=("demo",))


def told(
    token: bytes, keys: KeySet = KEYS, rules: ClaimRules = ANY, now_us: int = NOW * SECOND
) -> str:
    """Return `good`, `expired` or `bad`."""
    claims = verify(token, keys, now_us, rules)
    if isinstance(claims, Claims):
        return "good"
    return "expired" if claims.expired else "bad"


# A: transport.

HEADERS: dict[str, tuple[tuple[bytes, ...], object]] = {
    "one token": ((b"Bearer a.b.c",), b"a.b.c"),
    "scheme in lower case (A06)": ((b"bearer a.b.c",), b"a.b.c"),
    "scheme in upper case (A07)": ((b"BEARER a.b.c",), b"a.b.c"),
    "several spaces": ((b"Bearer   a.b.c",), b"a.b.c"),
    "all of token68": ((b"Bearer aZ09-._~+/==",), b"aZ09-._~+/=="),
    "as long as may be": ((b"Bearer " + b"a" * MAX_TOKEN_BYTES,), b"a" * MAX_TOKEN_BYTES),
    "one byte too long": ((b"Bearer " + b"a" * (MAX_TOKEN_BYTES + 1),), BadToken),
    "no header": ((), NoToken),
    "an empty header": ((b"",), NoToken),
    "a bare token (A08)": ((b"eyJhbGciOiJSUzI1NiJ9.e30.AAAA",), NoToken),
    "another scheme": ((b"Basic YTpi",), NoToken),
    "a scheme that begins alike": ((b"Bearerx a.b.c",), NoToken),
    "a token glued to the scheme": ((b"Bearer:a.b.c",), NoToken),
    "a tab": ((b"Bearer\ta.b.c",), NoToken),
    "a space before": ((b" Bearer a.b.c",), NoToken),
    "nothing after Bearer": ((b"Bearer",), BadToken),
    "a space after Bearer": ((b"Bearer ",), BadToken),
    "two tokens": ((b"Bearer a.b.c d.e.f",), BadToken),
    "two tokens with a comma": ((b"Bearer a.b.c, Bearer d.e.f",), BadToken),
    "a space behind": ((b"Bearer a.b.c ",), BadToken),
    "quotes": ((b'Bearer "a.b.c"',), BadToken),
    "padding inside": ((b"Bearer a=.b.c",), BadToken),
    "not ASCII": ((b"Bearer \xe9",), BadToken),
    "a line feed": ((b"Bearer a.b.c\n",), BadToken),
    "two headers (A15)": ((b"Bearer a.b.c", b"Bearer d.e.f"), BadToken),
    "the same header twice (A16)": ((b"Bearer a.b.c", b"Bearer a.b.c"), BadToken),
    "a second, empty header": ((b"Bearer a.b.c", b""), BadToken),
}


@pytest.mark.parametrize("name", HEADERS)
def test_the_authorization_header(name: str) -> None:
    values, expected = HEADERS[name]
    found = bearer_token(values)

    assert found == expected or (isinstance(expected, type) and isinstance(found, expected))


@given(st.lists(st.binary() | st.binary().map(lambda data: b"Bearer " + data), max_size=2))
def test_any_headers_are_a_token_or_none_or_bad(values: list[bytes]) -> None:
    assert isinstance(bearer_token(tuple(values)), bytes | NoToken | BadToken)


# B: the three parts, base64url, JSON.

GOOD_TOKEN: Final = token()
HEAD, BODY, SIGNATURE = GOOD_TOKEN.split(b".")
SPECIAL: Final = base64url(encoded(with_claims(x="???>>>~~~")))  # has both - and _


def signed_parts(head: bytes = HEAD, body: bytes = BODY) -> bytes:
    return sign(head + b"." + body)


def header_text(text: str) -> bytes:
    return token(header=text.encode())


def payload_text(text: str) -> bytes:
    return token(payload=text.encode())


NESTED: Final = "[" * 5000
DIGITS: Final = "1" * 5000

FORM: dict[str, tuple[bytes, str]] = {
    "good": (GOOD_TOKEN, "good"),
    "white space in the JSON": (token(b' {"sub" :\r\n"ada"}\n', b' {"alg":"RS256"} '), "good"),
    "as long as may be": (token(with_claims(x="x" * 5600)), "good"),
    "longer than the limit (B54)": (token(with_claims(x="x" * 48_000)), "bad"),
    "nothing": (b"", "bad"),
    "one part": (HEAD, "bad"),
    "two parts": (HEAD + b"." + BODY, "bad"),
    "four parts": (GOOD_TOKEN + b".", "bad"),
    "five parts, as a JWE": (GOOD_TOKEN + b".AAAA.AAAA", "bad"),
    "dots only": (b".." + b"." * 8000, "bad"),
    "no header": (b"." + BODY + b"." + SIGNATURE, "bad"),
    "no payload": (signed_parts(body=b""), "bad"),
    "no signature": (HEAD + b"." + BODY + b".", "bad"),
    "padded header (B12)": (signed_parts(head=base64url(b'{"alg":"RS256" }') + b"=="), "bad"),
    "padded payload (B13)": (signed_parts(body=BODY + b"="), "bad"),
    "padded signature": (GOOD_TOKEN + b"==", "bad"),
    "payload in plain base64 (B14)": (
        signed_parts(body=SPECIAL.replace(b"-", b"+").replace(b"_", b"/")),
        "bad",
    ),
    "the same in base64url": (signed_parts(body=SPECIAL), "good"),
    "signature in plain base64": (
        HEAD + b"." + BODY + b"." + SIGNATURE.translate(bytes.maketrans(b"-_", b"+/")) + b"+",
        "bad",
    ),
    "rubbish behind the signature (B17)": (GOOD_TOKEN + b"!!!!", "bad"),
    "a group behind the signature": (GOOD_TOKEN + b"AAAA", "bad"),
    "a line feed behind": (GOOD_TOKEN + b"\n", "bad"),
    "a line feed inside": (HEAD + b".\n" + BODY + b"." + SIGNATURE, "bad"),
    "a space inside": (HEAD + b". " + BODY + b"." + SIGNATURE, "bad"),
    "stray bits in the header": (
        signed_parts(head=base64url(b'{"alg":"RS256"}  ')[:-1] + b"B"),
        "bad",
    ),
    "stray bits in the signature": (GOOD_TOKEN[:-1] + b"x", "bad"),
    "NUL": (GOOD_TOKEN + b"\0", "bad"),
    "not ASCII": (b"\xff" + GOOD_TOKEN, "bad"),
    "header not JSON": (header_text("alg=RS256"), "bad"),
    "header an array": (header_text('["RS256"]'), "bad"),
    "header null": (header_text("null"), "bad"),
    "header in UTF-16 (B28)": (token(header='{"alg":"RS256"}'.encode("utf-16")), "bad"),
    "header with a byte order mark (B29)": (header_text('\ufeff{"alg":"RS256"}'), "bad"),
    "header not UTF-8": (token(header=b'{"alg":"RS256","x":"\xff"}'), "bad"),
    "NaN in the header (B27)": (header_text('{"alg":"RS256","x":NaN}'), "bad"),
    "a repeated header parameter (B31)": (header_text('{"alg":"none","alg":"RS256"}'), "bad"),
    "a parameter repeated in escapes": (header_text('{"alg":"RS256","\\u0061lg":"RS256"}'), "bad"),
    "a deep header": (header_text('{"alg":"RS256","x":' + NESTED), "bad"),
    "a deep header, closed": (
        header_text('{"alg":"RS256","x":' + "[" * 2500 + "]" * 2500 + "}"),
        "bad",
    ),
    "a long number in the header": (header_text('{"alg":"RS256","x":' + DIGITS + "}"), "bad"),
    "something after the header": (header_text('{"alg":"RS256"}{}'), "bad"),
    "payload in UTF-16 (B40)": (token(json.dumps(GOOD).encode("utf-16")), "bad"),
    "payload in UTF-32 (B41)": (token(json.dumps(GOOD).encode("utf-32")), "bad"),
    "payload with a byte order mark": (payload_text('\ufeff{"sub":"ada"}'), "bad"),
    "payload not UTF-8": (token(b'{"sub":"\xff"}'), "bad"),
    "a repeated claim (B42)": (payload_text('{"sub":"ada","sub":"eve"}'), "bad"),
    "scopes repeated (B44)": (payload_text('{"scopes":[],"scopes":["platform:admin"]}'), "bad"),
    "a name repeated inside a claim (B45)": (payload_text('{"x":{"a":1,"a":2}}'), "bad"),
    "payload an array": (payload_text("[]"), "bad"),
    "payload a text": (payload_text('"ada"'), "bad"),
    "payload null": (payload_text("null"), "bad"),
    "payload not JSON": (payload_text("sub=ada"), "bad"),
    "payload NaN": (payload_text('{"x":NaN}'), "bad"),
    "payload -Infinity": (payload_text('{"x":-Infinity}'), "bad"),
    "payload 1e999": (payload_text('{"x":1e999}'), "bad"),
    "a deep payload": (payload_text('{"x":' + NESTED), "bad"),
    "a long number in the payload": (payload_text('{"x":' + DIGITS + "}"), "bad"),
    "claims nobody knows": (payload_text('{"x":{"y":[1,2.5,true,null]}}'), "good"),
}


@pytest.mark.parametrize("name", FORM)
def test_form(name: str) -> None:
    token, expected = FORM[name]

    assert told(token) == expected


# C: algorithms and signatures.


def confused(algorithm: str, secret: bytes) -> bytes:
    """A token signed by HMAC with what is public: the confusion of RFC 8725 section 2.1."""
    message = base64url(encoded({"alg": algorithm})) + b"." + BODY
    return sign(message, algorithm, secret)


def unsigned(algorithm: object) -> bytes:
    return base64url(encoded({"alg": algorithm})) + b"." + BODY + b"."


def resigned(signature: bytes) -> bytes:
    return HEAD + b"." + BODY + b"." + base64url(signature)


N: Final = RSA.public_key().public_numbers().n
S: Final = int.from_bytes(urlsafe_b64decode(SIGNATURE + b"=="), "big")

SIGNATURES: dict[str, tuple[bytes, str]] = {
    "another key": (token(key=RSA_2), "bad"),
    "the other key by its kid": (token(header={"alg": "RS256", "kid": "two"}, key=RSA_2), "good"),
    "the right key under a wrong kid": (token(header={"alg": "RS256", "kid": "two"}), "bad"),
    "an unknown kid falls to the static keys": (headed(kid="?"), "good"),
    "an unknown kid and a key of the JWKS": (
        token(header={"alg": "RS256", "kid": "?"}, key=RSA_2),
        "bad",
    ),
    "none": (unsigned("none"), "bad"),
    "None": (unsigned("None"), "bad"),
    "NONE": (unsigned("NONE"), "bad"),
    "empty": (unsigned(""), "bad"),
    "null": (unsigned(None), "bad"),
    "none with a signature": (token(header={"alg": "none"}), "bad"),
    "missing": (token(header={}), "bad"),
    "an array": (token(header={"alg": ["RS256"]}), "bad"),
    "a number": (token(header={"alg": 256}), "bad"),
    "in lower case": (token(header={"alg": "rs256"}), "bad"),
    "with a space": (token(header={"alg": "RS256 "}), "bad"),
    "HS256 with the PEM": (confused("HS256", PEM), "bad"),
    "HS256 with the PEM, stripped": (confused("HS256", PEM.strip()), "bad"),
    "HS384 with the PEM": (confused("HS384", PEM), "bad"),
    "HS256 with the modulus": (confused("HS256", N.to_bytes(256, "big")), "bad"),
    "RS384 by the right key": (token(algorithm="RS384"), "bad"),
    "RS512 by the right key": (token(algorithm="RS512"), "bad"),
    "PS256 by the right key": (token(algorithm="PS256"), "bad"),
    "PS256 that says RS256": (token(header={"alg": "RS256"}, algorithm="PS256"), "bad"),
    "RS512 that says RS256": (token(header={"alg": "RS256"}, algorithm="RS512"), "bad"),
    "ES256": (token(algorithm="ES256", key=P256), "bad"),
    "s + n": (resigned((S + N).to_bytes(257, "big")), "bad"),
    "n - s": (resigned((N - S).to_bytes(256, "big")), "bad"),
    "0": (resigned(bytes(256)), "bad"),
    "1": (resigned(bytes(255) + b"\1"), "bad"),
    "n": (resigned(N.to_bytes(256, "big")), "bad"),
    "n - 1": (resigned((N - 1).to_bytes(256, "big")), "bad"),
    "a zero in front": (resigned(b"\0" + S.to_bytes(256, "big")), "bad"),
    "a zero behind": (resigned(S.to_bytes(256, "big") + b"\0"), "bad"),
    "one byte short": (resigned(S.to_bytes(256, "big")[:-1]), "bad"),
    "one byte": (resigned(b"A"), "bad"),
    "of another payload": (
        HEAD + b"." + base64url(encoded(with_claims(sub="eve"))) + b"." + SIGNATURE,
        "bad",
    ),
    "of another header": (
        base64url(encoded({"alg": "RS256", "kid": "one"})) + b"." + BODY + b"." + SIGNATURE,
        "bad",
    ),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_algorithm_and_signature(name: str) -> None:
    token, expected = SIGNATURES[name]

    assert told(token) == expected


def test_the_signature_itself_is_good() -> None:
    assert told(resigned(S.to_bytes(256, "big"))) == "good"


# D: header parameters.

OWN: Final = jwk(RSA_2)
PARAMETERS: dict[str, tuple[bytes, str]] = {
    "typ JWT": (headed(typ="JWT"), "good"),
    "typ jwt": (headed(typ="jwt"), "good"),
    "typ at+jwt (D21)": (headed(typ="at+jwt"), "good"),
    "typ AT+JWT": (headed(typ="AT+JWT"), "good"),
    "typ application/at+jwt (D22)": (headed(typ="application/at+jwt"), "good"),
    "typ logout+jwt (D24)": (headed(typ="logout+jwt"), "bad"),
    "typ dpop+jwt (D25)": (headed(typ="dpop+jwt"), "bad"),
    "typ secevent+jwt (D26)": (headed(typ="secevent+jwt"), "bad"),
    "typ JOSE (D27)": (headed(typ="JOSE"), "bad"),
    "typ a number (D28)": (headed(typ=1), "bad"),
    "typ null": (headed(typ=None), "bad"),
    "typ empty": (headed(typ=""), "bad"),
    "crit unknown (D01)": (headed(crit=["urn:x"], **{"urn:x": 1}), "bad"),
    "crit without its parameter (D02)": (headed(crit=["urn:x"]), "bad"),
    "crit empty (D03)": (headed(crit=[]), "bad"),
    "crit a text (D04)": (headed(crit="exp"), "bad"),
    "crit null (D05)": (headed(crit=None), "bad"),
    "crit of a known parameter (D06)": (headed(crit=["alg"]), "bad"),
    "crit twice the same (D07)": (headed(crit=["urn:x", "urn:x"], **{"urn:x": 1}), "bad"),
    "b64 false": (headed(b64=False, crit=["b64"]), "bad"),
    "b64 false without crit": (headed(b64=False), "bad"),
    "b64 true": (headed(b64=True), "bad"),
    "an embedded key": (token(header={"alg": "RS256", "jwk": OWN}, key=RSA_2), "bad"),
    "an embedded key, though the right one": (headed(jwk=jwk(RSA)), "bad"),
    "jku": (headed(jku="http://127.0.0.1/jwks.json"), "bad"),
    "x5u": (headed(x5u="http://127.0.0.1/cert.pem"), "bad"),
    "x5c": (headed(x5c=["AAAA"]), "bad"),
    "enc": (headed(enc="A256GCM"), "bad"),
    "cty": (headed(cty="JWT"), "bad"),
    "x5t, which is no key": (headed(x5t="AAAA"), "good"),
    "a parameter nobody knows": (headed(x={"y": 1}), "good"),
    "kid known": (headed(kid="one"), "good"),
    "kid empty": (headed(kid=""), "good"),
    "kid of 256 characters": (headed(kid="k" * 256), "good"),
    "kid of 257 characters": (headed(kid="k" * 257), "bad"),
    "kid a number": (headed(kid=1), "bad"),
    "kid null": (headed(kid=None), "bad"),
    "kid an array": (headed(kid=["one"]), "bad"),
    "kid a path": (headed(kid="../../dev/null"), "good"),
    "kid an injection": (headed(kid="x' UNION SELECT 'secret"), "good"),
    "kid half a surrogate pair": (headed(kid="\ud800"), "good"),
    "kid an address": (headed(kid="http://127.0.0.1/key"), "good"),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_header_parameter(name: str) -> None:
    token, expected = PARAMETERS[name]

    assert told(token) == expected


def test_the_audit_sees_the_key_and_never_the_kid_that_was_asked_for() -> None:
    for kid in ("../../dev/null", "\ud800", ""):
        claims = verify(headed(kid=kid), KEYS, NOW * SECOND)

        assert isinstance(claims, Claims)
        assert claims.key_id == KEY_ID


# E: the key's own word about itself.

BOUND: dict[str, dict[str, Any]] = {
    "use enc (E06)": {"use": "enc"},
    "key_ops encrypt (E07)": {"key_ops": ["encrypt"]},
    "alg RS512 (E09)": {"alg": "RS512"},
    "alg PS256 (E10)": {"alg": "PS256"},
}


@pytest.mark.parametrize("name", BOUND)
def test_a_key_for_something_else_verifies_nothing(name: str) -> None:
    keys = key_set("RS256", (), jwk(RSA, kid="one"), jwk(RSA_2, kid="two", **BOUND[name]))
    by_two = token(header={"alg": "RS256", "kid": "two"}, key=RSA_2)

    assert told(by_two, keys) == "bad"
    assert told(headed(kid="one"), keys) == "good"


@pytest.mark.parametrize("bits", [1024, 512], ids=["RSA-1024 (E19)", "RSA-512 (E20)"])
def test_a_weak_rsa_key_is_never_in_force(bits: int) -> None:
    weak = jwk(RSA_1024, kid="weak")
    if bits == 512:
        weak["n"] = base64url(urlsafe_b64decode(weak["n"] + "==")[:64]).decode()
    document = json.dumps({"keys": [weak, jwk(RSA, kid="one")]}).encode()

    assert not isinstance(build_keys("RS256", (), document), KeySet)


def test_a_repeated_kid_is_never_in_force() -> None:
    """E24: elsewhere the last one wins."""
    document = json.dumps({"keys": [jwk(RSA, kid="k"), jwk(RSA_2, kid="k")]}).encode()

    assert not isinstance(build_keys("RS256", (), document), KeySet)


def test_without_a_kid_several_named_keys_verify_nothing() -> None:
    keys = key_set("RS256", (), jwk(RSA, kid="one"), jwk(RSA_2, kid="two"))

    assert verify_signature(GOOD_TOKEN, keys) == BadToken("no key for this kid")
    assert verify_signature(headed(kid="three"), keys) == BadToken("no key for this kid")
    assert told(headed(kid="one"), keys) == "good"


def test_a_rotation_ends_the_old_key_and_begins_the_new() -> None:
    old, new = jwk(RSA, kid="old"), jwk(RSA_2, kid="new")
    by_old = headed(kid="old")
    by_new = token(header={"alg": "RS256", "kid": "new"}, key=RSA_2)
    outcomes = [
        (told(by_old, keys), told(by_new, keys))
        for keys in (
            key_set("RS256", (), old),
            key_set("RS256", (), old, new),
            key_set("RS256", (), new),
        )
    ]

    assert outcomes == [("good", "bad"), ("good", "good"), ("bad", "good")]


# F: claims.

FAR: Final = (1 << 53) - 1
CLAIMS: dict[str, tuple[bytes, str]] = {
    "none at all": (token({}), "good"),
    "exp a float": (claiming(exp=NOW + 0.5), "good"),
    "exp in an exponent": (payload_text('{"exp":1.9e9}'), "good"),
    "exp long ago": (claiming(exp=1), "expired"),
    "exp zero": (claiming(exp=0), "expired"),
    "exp negative": (claiming(exp=-1), "expired"),
    "exp minus zero": (payload_text('{"exp":-0.0}'), "expired"),
    "exp as far as may be": (claiming(exp=FAR), "good"),
    "exp too far": (claiming(exp=FAR + 1), "bad"),
    "exp too far, a float": (claiming(exp=1e300), "bad"),
    "exp too early": (claiming(exp=-FAR - 1), "bad"),
    "exp a text (F09)": (claiming(exp=str(NOW + 60)), "bad"),
    "exp a word": (claiming(exp="never"), "bad"),
    "exp true": (claiming(exp=True), "bad"),
    "exp null": (claiming(exp=None), "bad"),
    "exp an array": (claiming(exp=[NOW + 60]), "bad"),
    "exp an object": (claiming(exp={}), "bad"),
    "exp NaN": (payload_text('{"exp":NaN}'), "bad"),
    "exp Infinity": (payload_text('{"exp":Infinity}'), "bad"),
    "exp 1e999": (payload_text('{"exp":1e999}'), "bad"),
    "exp absent": (claiming(exp=ABSENT), "good"),
    "nbf past": (claiming(nbf=NOW - 60), "good"),
    "nbf future": (claiming(nbf=NOW + 60), "bad"),
    "nbf a text (F32)": (claiming(nbf=str(NOW - 60)), "bad"),
    "nbf true (F34)": (claiming(nbf=True), "bad"),
    "nbf null": (claiming(nbf=None), "bad"),
    "iat past": (claiming(iat=NOW - 60), "good"),
    "iat future": (claiming(iat=NOW + 60), "bad"),
    "iat a text": (claiming(iat=str(NOW)), "bad"),
    "iat false": (claiming(iat=False), "bad"),
    "sub absent": (claiming(sub=ABSENT), "good"),
    "sub empty (F56)": (claiming(sub=""), "bad"),
    "sub a number": (claiming(sub=7), "bad"),
    "sub null": (claiming(sub=None), "bad"),
    "sub an array": (claiming(sub=["ada"]), "bad"),
    "sub of 256 characters": (claiming(sub="ä" * 256), "good"),
    "sub of 257 characters": (claiming(sub="a" * 257), "bad"),
    "sub with NUL": (claiming(sub="a\0b"), "bad"),
    "sub half a surrogate pair": (claiming(sub="\ud800"), "bad"),
    "sub a whole surrogate pair": (claiming(sub="\U0001f600"), "good"),
    "session_id": (claiming(session_id="s1"), "good"),
    "session_id a number (F59)": (claiming(session_id=7), "bad"),
    "session_id an object (F60)": (claiming(session_id={"id": "s1"}), "bad"),
    "session_id empty": (claiming(session_id=""), "bad"),
    "session_id with NUL": (claiming(session_id="\0"), "bad"),
    "iss a text": (claiming(iss="https://issuer.example"), "good"),
    "iss a number (F62)": (claiming(iss=7), "bad"),
    "jti a text": (claiming(jti="t1"), "good"),
    "jti a number": (claiming(jti=7), "bad"),
    "aud a text": (claiming(aud="demo"), "good"),
    "aud an array": (claiming(aud=["demo", "other"]), "good"),
    "aud empty array": (claiming(aud=[]), "good"),
    "aud a number": (claiming(aud=7), "bad"),
    "aud null": (claiming(aud=None), "bad"),
    "aud an array with a number": (claiming(aud=["demo", 7]), "bad"),
    "aud an object": (claiming(aud={"demo": 1}), "bad"),
    "scopes absent": (claiming(scopes=ABSENT), "good"),
    "scopes empty": (claiming(scopes=[]), "good"),
    "scopes twice the same": (claiming(scopes=["a:b", "a:b"]), "good"),
    "scopes a text (G04)": (claiming(scopes="agents:read"), "bad"),
    "scopes null": (claiming(scopes=None), "bad"),
    "scopes a number": (claiming(scopes=1), "bad"),
    "scopes an object": (claiming(scopes={"agents:read": True}), "bad"),
    "scopes with a number": (claiming(scopes=["agents:read", 7]), "bad"),
    "scopes with null": (claiming(scopes=[None]), "bad"),
    "scopes nested": (claiming(scopes=[["agents:read"]]), "bad"),
    "scopes half a surrogate pair": (claiming(scopes=["\ud800"]), "bad"),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_claims(name: str) -> None:
    token, expected = CLAIMS[name]

    assert told(token) == expected


@pytest.mark.parametrize(
    ("aud", "expected"),
    [
        ("demo", "good"),
        (["other", "demo"], "good"),
        (ABSENT, "bad"),
        ("other", "bad"),
        ("dem", "bad"),
        ("demo ", "bad"),
        ("Demo", "bad"),
        ("", "bad"),
        ([], "bad"),
        (["demonstration"], "bad"),
        (7, "bad"),
        ([7, "demo"], "bad"),
    ],
)
def test_the_audience_is_equal_or_it_is_somebody_else(aud: object, expected: str) -> None:
    assert told(claiming(aud=aud), rules=DEMO) == expected


@pytest.mark.parametrize(
    ("claim", "microseconds", "expected"),
    [
        ("exp", -LEEWAY_US + 1, "good"),
        ("exp", -LEEWAY_US, "expired"),
        ("exp", -LEEWAY_US - 1, "expired"),
        ("exp", 0, "good"),
        ("nbf", LEEWAY_US, "good"),
        ("nbf", LEEWAY_US + 1, "bad"),
        ("nbf", 0, "good"),
        ("iat", LEEWAY_US, "good"),
        ("iat", LEEWAY_US + 1, "bad"),
        ("iat", 0, "good"),
    ],
)
def test_time_is_compared_to_the_microsecond(claim: str, microseconds: int, expected: str) -> None:
    """`exp` is the first instant that is too late (RFC 7519 section 4.1.4)."""
    assert told(token({claim: NOW}), now_us=NOW * SECOND - microseconds) == expected


@pytest.mark.parametrize("seconds", [9, 10, 11])
def test_ten_seconds_of_leeway(seconds: int) -> None:
    assert told(claiming(exp=NOW - seconds)) == ("good" if seconds < 10 else "expired")
    assert told(claiming(nbf=NOW + seconds)) == ("good" if seconds <= 10 else "bad")
    assert told(claiming(iat=NOW + seconds)) == ("good" if seconds <= 10 else "bad")


def test_an_expired_token_of_a_stranger_is_not_called_expired() -> None:
    assert told(token(with_claims(exp=1), key=RSA_2)) == "bad"


def test_everything_a_token_says_comes_back() -> None:
    claims = {
        "sub": "ada",
        "session_id": "s1",
        "scopes": ["b:c", "a:b", "b:c"],
        "exp": NOW + 1.5,
        "nbf": NOW - 1,
        "iat": NOW,
        "aud": ["x", "demo"],
        "iss": "issuer",
        "jti": "t1",
    }

    assert verify(token(claims), KEYS, NOW * SECOND, DEMO) == Claims(
        subject="ada",
        session_id="s1",
        scopes=frozenset({"a:b", "b:c"}),
        key_id=KEY_ID,
        expires_us=NOW * SECOND + 1_500_000,
        not_before_us=(NOW - 1) * SECOND,
        issued_us=NOW * SECOND,
        audience=("x", "demo"),
        issuer="issuer",
        token_id="t1",
    )


def test_an_empty_token_grants_nothing() -> None:
    assert verify(token({}), KEYS, NOW * SECOND) == Claims(
        subject=None, session_id=None, scopes=frozenset(), key_id=KEY_ID
    )


# H, I: HMAC and ECDSA.


def hmac_token(secret: str = SECRET, algorithm: str = "HS256", **header: Any) -> bytes:
    return token(GOOD, {"alg": algorithm, **header}, algorithm, secret.encode())


def test_hmac() -> None:
    good = hmac_token()
    cut = good.rpartition(b".")[0] + b"."

    assert told(good, HMAC_KEYS) == "good"
    assert told(hmac_token("another" + SECRET), HMAC_KEYS) == "bad"
    assert told(hmac_token(algorithm="HS512"), HMAC_KEYS) == "bad"
    assert told(cut, HMAC_KEYS) == "bad"
    assert told(cut + good.rpartition(b".")[2][:22], HMAC_KEYS) == "bad"
    assert told(GOOD_TOKEN, HMAC_KEYS) == "bad"


def test_hmac_with_crit_is_refused() -> None:
    """H12, CVE-2026-32597."""
    critical: dict[str, Any] = {"crit": ["urn:x"], "urn:x": 1}

    assert told(hmac_token(**critical), HMAC_KEYS) == "bad"


def test_an_ecdsa_signature_is_r_and_s_of_full_length() -> None:
    good = token(algorithm="ES256", key=P256)
    message, _, text = good.rpartition(b".")
    raw = urlsafe_b64decode(text + b"==")
    r, s = raw[:32], raw[32:]
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    der = P256.sign(message, ec.ECDSA(SHA256()))
    forms = {
        "DER": der,
        "swapped": s + r,
        "r alone": r,
        "zeros": bytes(64),
        "r is 0": bytes(32) + s,
        "s is 0": r + bytes(32),
        "r and s are n": order.to_bytes(32, "big") * 2,
        "65 bytes": b"\0" + raw,
        "64 bytes in two, padded": b"\0" + r + b"\0" + s,
        "zero behind": raw + b"\0",
    }

    assert told(good, EC_KEYS) == "good"
    assert [
        name
        for name, form in forms.items()
        if told(message + b"." + base64url(form), EC_KEYS) != "bad"
    ] == []


def test_the_curve_is_that_of_the_algorithm() -> None:
    by_other = token(header={"alg": "ES256", "kid": "ec"}, algorithm="ES384", key=P384)

    assert told(by_other, EC_KEYS) == "bad"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_token_of_another_algorithm_is_good(algorithm: str) -> None:
    """GHSA-jq35: a prepared key must not bring its own algorithm."""
    keys = {"RS256": KEYS, "HS256": HMAC_KEYS, "ES256": EC_KEYS}
    for own, key in keys.items():
        for signer in (RSA, P256, SECRET.encode()):
            try:
                forged = token(GOOD, {"alg": algorithm}, algorithm, signer)
            except (AttributeError, TypeError, ValueError):
                continue  # this key cannot sign so
            assert (told(forged, key) == "good") == (
                algorithm == own
                and {"RS256": RSA, "ES256": P256}.get(own, SECRET.encode()) == signer
            )


# R: the examples of RFC 7515, appendix A.

RFC_7515_PAYLOAD: Final = (
    b"eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVl"
    b"fQ"
)


def test_the_hmac_example_of_rfc_7515_section_a_1() -> None:
    secret = {
        "kty": "oct",
        "k": "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CA"
        "ow",
    }
    token = (
        b"eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9."
        + RFC_7515_PAYLOAD
        + b".dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    )
    keys = key_set("HS256", (), secret)

    claims = verify(token, keys, 1_300_819_380 * SECOND)

    assert isinstance(claims, Claims)
    assert (claims.issuer, claims.expires_us) == ("joe", 1_300_819_380 * SECOND)
    assert told(token, keys) == "expired"


def test_the_ecdsa_example_of_rfc_7515_section_a_3() -> None:
    key = {
        "kty": "EC",
        "crv": "P-256",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    }
    token = (
        b"eyJhbGciOiJFUzI1NiJ9."
        + RFC_7515_PAYLOAD
        + b".DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
    )

    assert told(token, key_set("ES256", (), key)) == "expired"


def test_the_unsecured_example_of_rfc_7515_section_a_5_is_refused() -> None:
    token = b"eyJhbGciOiJub25lIn0." + RFC_7515_PAYLOAD + b"."

    assert told(token) == told(token, HMAC_KEYS) == told(token, EC_KEYS) == "bad"


# Totality and work.


def test_every_change_of_one_character_is_refused() -> None:
    changed = 0
    for index, byte in enumerate(GOOD_TOKEN):
        for other in b"A_.=":
            if other != byte:
                mutant = GOOD_TOKEN[:index] + bytes([other]) + GOOD_TOKEN[index + 1 :]
                changed += told(mutant) != "bad"

    assert changed == 0


def test_every_cut_is_refused() -> None:
    good = hmac_token()

    assert {told(good[:length], HMAC_KEYS) for length in range(len(good))} == {"bad"}
    assert {told(good[start:], HMAC_KEYS) for start in range(1, len(good))} == {"bad"}


@given(st.binary() | st.text(alphabet="eyJhbGciOi.-_=", max_size=200).map(str.encode))
def test_any_bytes_are_refused(data: bytes) -> None:
    assert isinstance(verify(data, KEYS, NOW * SECOND), BadToken)
    assert isinstance(verify_signature(data, KEYS), BadToken)


JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
NAMES: Final = ["alg", "typ", "kid", "crit", "sub", "session_id", "scopes", "aud", "exp", "nbf"]


@given(
    st.dictionaries(st.sampled_from([*NAMES, "iat", "iss", "jti"]), JSON_VALUES),
    st.dictionaries(st.sampled_from(NAMES), JSON_VALUES, max_size=2),
    st.sampled_from([ANY, DEMO]),
    st.integers(0, 1 << 62),
)
def test_any_signed_json_is_claims_or_refused(
    payload: dict[str, Any], header: dict[str, Any], rules: ClaimRules, now_us: int
) -> None:
    signed = token(payload, {"alg": "HS256", **header}, "HS256", SECRET.encode())
    claims = verify(signed, HMAC_KEYS, now_us, rules)

    assert isinstance(claims, Claims | BadToken)
    if isinstance(claims, Claims):
        json.dumps([claims.subject, *claims.scopes, *claims.audience], ensure_ascii=False).encode()


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_signed_bytes_are_claims_or_refused(payload: bytes, header: bytes) -> None:
    assert isinstance(
        verify(token(payload, header, "HS256", SECRET.encode()), HMAC_KEYS, 0),
        Claims | BadToken,
    )


def calls(action: Callable[[], object]) -> int:
    """Count the calls of functions and builtins that `action` makes."""
    count = 0

    def watch(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


LONG: Final = 6000  # bytes of JSON: 8,000 in base64url
HOSTILE: Final = {
    "deep arrays": b'{"alg":"RS256","x":' + b"[" * LONG,
    "flat arrays": b'{"alg":"RS256","x":[' + b"[]," * (LONG // 3) + b"[]]}",
    "flat objects": b'{"alg":"RS256","x":[' + b"{}," * (LONG // 3) + b"{}]}",
    "many names": b'{"alg":"RS256"' + b"".join(b',"%x":0' % n for n in range(LONG // 8)) + b"}",
    "a long number": b'{"alg":"RS256","x":' + b"1" * LONG + b"}",
    "a long text": b'{"alg":"RS256","x":"' + b"\\n" * (LONG // 2) + b'"}',
    "an open text of quotes": b'{"alg":"RS256","x":"' + b'\\"' * (LONG // 2),
    "brackets in text": b'{"alg":"RS256","x":"' + b"[" * LONG + b'"}',
    "a long kid": b'{"alg":"RS256","kid":"' + b"k" * LONG + b'"}',
    "white space": b" " * LONG + b'{"alg":"RS256"}',
}


@pytest.mark.parametrize("place", ["header", "payload"])
@pytest.mark.parametrize("name", HOSTILE)
def test_no_token_is_more_work_than_its_length_explains(name: str, place: str) -> None:
    data = HOSTILE[name]
    hostile = token(header=data) if place == "header" else token(data)
    good = calls(lambda: told(GOOD_TOKEN))

    assert len(hostile) < MAX_TOKEN_BYTES + 600
    assert calls(lambda: told(hostile)) <= good + len(hostile)


def test_a_refused_token_is_never_more_signature_checks_than_there_are_static_keys() -> None:
    checks = 0
    algorithm = ALGORITHMS["RS256"].algorithm

    def watch(frame: FrameType, event: str, _: object) -> None:
        nonlocal checks
        checks += event == "call" and frame.f_code is type(algorithm).verify.__code__

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        told(token(key=RSA_2))
        told(resigned(b"A"))
        told(unsigned("none"))
        told(headed(kid="two"))
    finally:
        sys.setprofile(before)

    assert checks == 2


def test_a_reason_quotes_nothing_of_the_token() -> None:
    for tokens in (FORM, SIGNATURES, PARAMETERS, CLAIMS):
        for name, (token, _) in tokens.items():
            claims = verify(token, KEYS, NOW * SECOND)
            if isinstance(claims, BadToken):
                assert claims.reason.isascii(), name
                assert len(claims.reason) < 60, name
                assert "ada" not in claims.reason


def test_a_signature_is_verified_whatever_it_signs() -> None:
    signed = token(b"not even JSON")

    assert verify_signature(signed, KEYS) == SignedPayload(b"not even JSON", KEY_ID)
    assert told(signed) == "bad"
