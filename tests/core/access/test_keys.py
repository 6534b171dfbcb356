"""The keys a server starts with, and the 21 configurations it must not start with."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa, x25519
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from legation.access.key_material import ALGORITHMS, public_jwk, thumbprint
from legation.access.keys import KeyProblem, KeySet, build_keys

RSA = rsa.generate_private_key(65_537, 2048)
RSA_2 = rsa.generate_private_key(65_537, 2048)
RSA_1024 = rsa.generate_private_key(65_537, 1024)
P256 = ec.generate_private_key(ec.SECP256R1())
P384 = ec.generate_private_key(ec.SECP384R1())
P521 = ec.generate_private_key(ec.SECP521R1())
K256 = ec.generate_private_key(ec.SECP256K1())
ED25519 = ed25519.Ed25519PrivateKey.generate()
ED448 = ed448.Ed448PrivateKey.generate()
N = RSA.public_key().public_numbers().n
SECRET = "correct horse battery staple, twice over and then some more of it"


def pem(key: PublicKeyTypes) -> str:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def private_pem(key: Any, form: PrivateFormat = PrivateFormat.PKCS8) -> str:
    text: bytes = key.private_bytes(Encoding.PEM, form, NoEncryption())
    return text.decode()


def rsa_pem(e: int, n: int) -> str:
    return pem(RSAPublicNumbers(e, n).public_key())


def base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int) -> str:
    return base64url(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def oct_jwk(secret: str | bytes = SECRET, **members: Any) -> dict[str, Any]:
    data = secret.encode() if isinstance(secret, str) else secret
    return {"kty": "oct", "k": base64url(data), **members}


def jwk(key: Any, **members: Any) -> dict[str, Any]:
    return {**public_jwk(key.public_key()), **members}


def private_jwk(key: Any, **members: Any) -> dict[str, Any]:
    kinds: dict[type, Any] = {
        rsa.RSAPrivateKey: RSAAlgorithm,
        ec.EllipticCurvePrivateKey: ECAlgorithm,
    }
    kind = next((kinds[kind] for kind in kinds if isinstance(key, kind)), OKPAlgorithm)
    return {**kind.to_jwk(key, as_dict=True), **members}


def jwks(*members: object) -> bytes:
    return json.dumps({"keys": members}).encode()


def built(algorithm: str, texts: tuple[str, ...] = (), jwks: bytes | None = None) -> KeySet:
    keys = build_keys(algorithm, texts, jwks)
    assert isinstance(keys, KeySet), keys
    return keys


def problems(
    algorithm: str, texts: tuple[str, ...] = (), jwks: bytes | None = None
) -> tuple[KeyProblem, ...]:
    found = build_keys(algorithm, texts, jwks)
    assert isinstance(found, tuple), found
    return found


def only_path_and_message(found: tuple[KeyProblem, ...]) -> tuple[str, str]:
    (problem,) = found
    return problem.path, problem.message


# One algorithm, one key of its own.

KEYS: dict[str, Any] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), RSA),
    "ES256": P256,
    "ES384": P384,
    "ES512": P521,
    "EdDSA": ED25519,
}


def test_every_algorithm_is_tried_here() -> None:
    assert {*KEYS, "HS256", "HS384", "HS512"} == set(ALGORITHMS)


@pytest.mark.parametrize("algorithm", KEYS)
def test_a_pem_and_a_jwk_of_every_algorithm_verify_what_its_key_signs(algorithm: str) -> None:
    key = KEYS[algorithm]
    signature = ALGORITHMS[algorithm].algorithm.sign(b"message", key)
    for keys in (
        built(algorithm, (pem(key.public_key()),)),
        built(algorithm, (), jwks(jwk(key, kid="k"))),
    ):
        (ready,) = keys.candidates(None)
        assert ready.signature_size == len(signature)
        assert ready.verifies(b"message", signature)
        assert not ready.verifies(b"Message", signature)
        assert not ready.verifies(b"message", b"\0" + signature)
        assert not ready.verifies(b"message", signature[:-1])
        assert not ready.verifies(b"message", bytes(len(signature)))


@pytest.mark.parametrize("size", [256, 384, 512])
def test_a_secret_verifies_what_it_signs(size: int) -> None:
    algorithm = f"HS{size}"
    signature = ALGORITHMS[algorithm].algorithm.sign(b"message", SECRET.encode())
    for keys in (built(algorithm, (SECRET,)), built(algorithm, (), jwks(oct_jwk()))):
        (ready,) = keys.candidates(None)
        assert ready.verifies(b"message", signature)
        assert not ready.verifies(b"message", signature[:-1])


def test_both_curves_of_edwards_serve_eddsa() -> None:
    keys = built(
        "EdDSA", (pem(ED448.public_key()),), jwks(jwk(ED448, kid="a"), jwk(ED25519, kid="b"))
    )

    assert [key.signature_size for key in keys.candidates("a")] == [114]
    assert [key.signature_size for key in keys.candidates("b")] == [64]
    assert keys.candidates("c")[0].verifies(b"message", ED448.sign(b"message"))


def test_pkcs1_and_escaped_line_ends_are_read_as_well() -> None:
    text = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.PKCS1).decode()
    ids = {
        built("RS256", (form,)).candidates(None)[0].key_id
        for form in (text, text.replace("\n", "\\n"), f"\n{text}\n\n", pem(RSA.public_key()))
    }

    assert ids == {thumbprint(RSA.public_key())}


# The start-up table: what must not start, and the sentence that says why.

NOT_STARTED = {
    "algorithm none": ("none", (pem(RSA.public_key()),), None, "algorithm"),
    "algorithm unknown": ("RS257", (pem(RSA.public_key()),), None, "is not one of RS256"),
    "algorithm in lower case": ("rs256", (pem(RSA.public_key()),), None, "algorithm"),
    "algorithm empty": ("", (pem(RSA.public_key()),), None, "algorithm"),
    "no key": ("RS256", (), None, "there is no key"),
    "text that is not a key": ("RS256", ("not a key",), None, "not one public key in PEM"),
    "a PEM frame around nothing": (
        "RS256",
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",),
        None,
        "cannot be read",
    ),
    "an empty key": ("RS256", (" \n",), None, "is empty"),
    "an empty secret": ("HS256", ("",), None, "is empty"),
    "a private key in PKCS 8": ("RS256", (private_pem(RSA),), None, "is a private key"),
    "a private key in PKCS 1": (
        "RS256",
        (private_pem(RSA, PrivateFormat.TraditionalOpenSSL),),
        None,
        "is a private key",
    ),
    "a private key beside its public one": (
        "RS256",
        (pem(RSA.public_key()) + private_pem(RSA),),
        None,
        "is a private key",
    ),
    "a private RSA JWK": ("RS256", (), jwks(private_jwk(RSA, kid="k")), "is a private key"),
    "a private EC JWK": ("ES256", (), jwks(private_jwk(P256, kid="k")), "is a private key"),
    "a private OKP JWK": ("EdDSA", (), jwks(private_jwk(ED25519, kid="k")), "is a private key"),
    "a private JWK for another use": (
        "RS256",
        (),
        jwks(jwk(RSA, kid="k"), private_jwk(P256, kid="e", use="enc")),
        "is a private key",
    ),
    "two public keys in one PEM": (
        "RS256",
        (pem(RSA.public_key()) + pem(RSA_2.public_key()),),
        None,
        "not one public key",
    ),
    "a certificate": (
        "RS256",
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",),
        None,
        "not one public key",
    ),
    "an SSH key": (
        "RS256",
        (RSA.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode(),),
        None,
        "not one public key",
    ),
    "a JWK as text": ("RS256", (json.dumps(jwk(RSA)),), None, "not one public key"),
    "an EC key under RS256": ("RS256", (pem(P256.public_key()),), None, "of another type"),
    "an RSA key under ES256": ("ES256", (pem(RSA.public_key()),), None, "of another type"),
    "an X25519 key under EdDSA": (
        "EdDSA",
        (pem(x25519.X25519PrivateKey.generate().public_key()),),
        None,
        "of another type",
    ),
    "an EdDSA key under ES256": ("ES256", (pem(ED25519.public_key()),), None, "of another type"),
    "P-384 under ES256": ("ES256", (pem(P384.public_key()),), None, "on the curve P-384"),
    "secp256k1 under ES256": ("ES256", (pem(K256.public_key()),), None, "on the curve secp256k1"),
    "ES256 named beside P-384": (
        "ES256",
        (),
        jwks(jwk(P384, kid="k", alg="ES256")),
        "do not belong together",
    ),
    "a point off its curve": (
        "ES256",
        (),
        jwks(jwk(P256, kid="k") | {"x": base64url(bytes(31) + b"\5")}),
        "not a point on its curve",
    ),
    "RSA of 1024 bits in PEM": ("RS256", (pem(RSA_1024.public_key()),), None, "of 1024 bits"),
    "RSA of 1024 bits in a JWK": ("RS256", (), jwks(jwk(RSA_1024, kid="k")), "of 1024 bits"),
    "RSA of 512 bits in a JWK": (
        "RS256",
        (),
        jwks({"kty": "RSA", "n": number(N >> 1536), "e": "AQAB"}),
        "of 512 bits",
    ),
    "RSA of 0 bits": ("RS256", (), jwks({"kty": "RSA", "n": "", "e": "AQAB"}), "of 0 bits"),
    "RSA of 20,000 bits": (
        "RS256",
        (),
        jwks({"kty": "RSA", "n": number((1 << 20_000) + 1), "e": "AQAB"}),
        "over 16384 bits",
    ),
    "RSA with an even modulus": (
        "RS256",
        (),
        jwks({"kty": "RSA", "n": number(N - 1), "e": "AQAB"}),
        "is even",
    ),
    "RSA exponent 3": ("RS256", (rsa_pem(3, N),), None, "exponent"),
    "RSA exponent 1": (
        "RS256",
        (),
        jwks({"kty": "RSA", "n": number(N), "e": "AQ"}),
        "exponent",
    ),
    "RSA exponent even": (
        "RS256",
        (),
        jwks({"kty": "RSA", "n": number(N), "e": number(65_538)}),
        "exponent",
    ),
    "RSA exponent of 65 bits": ("RS256", (rsa_pem((1 << 64) + 1, N),), None, "exponent"),
    "a secret of 8 bytes": ("HS256", ("8 bytes!",), None, "of 8 bytes; the least"),
    "a secret of 31 bytes": ("HS256", ("s" * 31,), None, "of 31 bytes; the least"),
    "a secret of 47 bytes": ("HS384", ("s" * 47,), None, "of 47 bytes; the least"),
    "a secret of 63 bytes": ("HS512", ("s" * 63,), None, "of 63 bytes; the least"),
    "a short secret as JWK": ("HS256", (), jwks(oct_jwk("short")), "of 5 bytes; the least"),
    "an empty secret as JWK": ("HS256", (), jwks(oct_jwk("")), "of 0 bytes; the least"),
    "a PEM as secret": ("HS256", (pem(RSA.public_key()),), None, "no shared secret"),
    "a private PEM as secret": ("HS256", (private_pem(RSA),), None, "no shared secret"),
    "a PEM without its frame as secret": (
        "HS256",
        ("".join(pem(RSA.public_key()).splitlines()[1:-1]),),
        None,
        "no shared secret",
    ),
    "a JWK as secret": ("HS256", (json.dumps(jwk(RSA)),), None, "no shared secret"),
    "a JWK Set as secret": ("HS256", (jwks(jwk(RSA)).decode(),), None, "no shared secret"),
    "an SSH key as secret": (
        "HS256",
        (RSA.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode(),),
        None,
        "no shared secret",
    ),
    "a PEM inside an oct JWK": (
        "HS256",
        (),
        jwks(oct_jwk(pem(RSA.public_key()))),
        "no shared secret",
    ),
    "a DER key inside an oct JWK": (
        "HS256",
        (),
        jwks(
            oct_jwk(RSA.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
        ),
        "no shared secret",
    ),
    "a secret that is not UTF-8": ("HS256", (SECRET + "\udcff",), None, "is not UTF-8"),
    "the same kid twice": (
        "RS256",
        (),
        jwks(jwk(RSA, kid="k"), jwk(RSA_2, kid="k")),
        "several keys with the kid 'k'",
    ),
    "the same kid twice, once unreadable": (
        "RS256",
        (),
        jwks(jwk(RSA, kid="k"), jwk(RSA_2, kid="k", n="=")),
        "several keys with the kid 'k'",
    ),
    "a JWKS that is not JSON": ("RS256", (), b"{", "is not a JWK Set"),
    "an empty JWKS file": ("RS256", (), b"", "is not a JWK Set"),
    "a JWKS that is an array": ("RS256", (), b"[]", "is not a JWK Set"),
    "a JWKS without keys": ("RS256", (), b"{}", "no array `keys`"),
    "a JWKS with keys of another type": ("RS256", (), b'{"keys":{}}', "no array `keys`"),
    "a JWKS that repeats keys": ("RS256", (), b'{"keys":[],"keys":[]}', "repeated"),
    "a JWKS with no member": ("RS256", (), jwks(), "it is empty"),
    "a JWKS with none of ours": (
        "RS256",
        (),
        jwks(jwk(P256, kid="k")),
        "no key that RS256 can use (jwks.keys[0] is passed over: RS256 needs a key of type RSA)",
    ),
    "a JWKS with none of ours, beside a good PEM": (
        "RS256",
        (pem(RSA.public_key()),),
        jwks(jwk(RSA, kid="k", use="enc")),
        "no key that RS256 can use",
    ),
    "a JWKS with the kid that stands for no key": (
        "RS256",
        (),
        jwks(jwk(RSA, kid="outer application")),
        "which names no key in the audit trail",
    ),
    "a JWKS with two keys and no kid": (
        "RS256",
        (),
        jwks(jwk(RSA), jwk(RSA_2)),
        "bears no kid beside other keys",
    ),
}


@pytest.mark.parametrize("name", NOT_STARTED)
def test_it_does_not_start_with(name: str) -> None:
    algorithm, texts, document, message = NOT_STARTED[name]

    path, sentence = only_path_and_message(problems(algorithm, texts, document))

    assert message in f"{path} {sentence}"
    assert SECRET not in sentence and "8 bytes!" not in sentence


def test_the_generator_of_roca_is_refused() -> None:
    """CVE-2017-15361: the moduli of one generator are powers of 65537 modulo small primes."""
    primorial = 1
    for prime in (p for p in range(2, 701) if all(p % q for q in range(2, p))):
        primorial *= prime
    modulus = pow(65_537, 12_345, primorial) + primorial * (1 << (2050 - primorial.bit_length()))
    modulus += 0 if modulus % 2 else primorial

    found = problems("RS256", (), jwks({"kty": "RSA", "n": number(modulus), "e": "AQAB"}))

    assert "CVE-2017-15361" in only_path_and_message(found)[1]


def test_every_problem_is_listed_at_once_under_its_path() -> None:
    found = problems(
        "RS256",
        ("no key", pem(RSA.public_key()), pem(RSA_1024.public_key()), "no key"),
        jwks(jwk(RSA, kid="k"), private_jwk(RSA), jwk(RSA_2, kid="k")),
    )

    assert [problem.path for problem in found] == [
        "verification_keys[0]",
        "verification_keys[2]",
        "verification_keys[3]",
        "jwks.keys[1]",
        "jwks",
    ]


# Members that are meant for something else.

PASSED_OVER: dict[str, tuple[Any, str]] = {
    "use is enc (E06)": (jwk(RSA_2, kid="x", use="enc"), "its use is not sig"),
    "use is null": (jwk(RSA_2, kid="x", use=None), "its use is not sig"),
    "key_ops without verify (E07)": (jwk(RSA_2, kid="x", key_ops=["encrypt"]), "key_ops"),
    "key_ops is a text": (jwk(RSA_2, kid="x", key_ops="verify"), "key_ops"),
    "key_ops is empty": (jwk(RSA_2, kid="x", key_ops=[]), "key_ops"),
    "alg is RS512 (E09)": (jwk(RSA_2, kid="x", alg="RS512"), "its alg is another"),
    "alg is PS256 (E10)": (jwk(RSA_2, kid="x", alg="PS256"), "its alg is another"),
    "alg is a number": (jwk(RSA_2, kid="x", alg=1), "its alg is another"),
    "kty is unknown": ({"kty": "AKP", "kid": "x"}, "needs a key of type RSA"),
    "kty is missing": ({"kid": "x"}, "needs a key of type RSA"),
    "kty is an array": ({"kid": "x", "kty": []}, "needs a key of type RSA"),
    "kty is EC": (jwk(P256, kid="x"), "needs a key of type RSA"),
    "a shared secret": (oct_jwk(kid="x", alg="HS256"), "needs a key of type RSA"),
    "n is missing": ({"kty": "RSA", "e": "AQAB", "kid": "x"}, "a member is missing"),
    "n is a number": ({"kty": "RSA", "e": "AQAB", "kid": "x", "n": 5}, "a member is missing"),
    "n is padded": (jwk(RSA_2, kid="x", e="AQAB=="), "base64url"),
    "n is not ASCII": (jwk(RSA_2, kid="x", n="\ud800"), "base64url"),
    "kid is empty": (jwk(RSA_2, kid=""), "its kid is not a text"),
    "kid is a number": (jwk(RSA_2, kid=7), "its kid is not a text"),
    "kid is too long": (jwk(RSA_2, kid="x" * 257), "its kid is not a text"),
    "kid is half a surrogate pair": (jwk(RSA_2, kid="\ud800"), "its kid is not a text"),
    "no kid": (jwk(RSA_2), "bears no kid"),
    "null": (None, "not an object"),
    "a text": ("key", "not an object"),
}


@pytest.mark.parametrize("name", PASSED_OVER)
def test_a_member_is_passed_over_with_a_note(name: str) -> None:
    member, reason = PASSED_OVER[name]

    keys = built("RS256", (), jwks(member, jwk(RSA, kid="k")))

    assert len(keys.notes) == 1
    assert keys.notes[0].startswith("jwks.keys[0] is passed over: ")
    assert reason in keys.notes[0]
    assert [*keys.by_kid] == ["k"]
    assert keys.candidates("x") == ()


@pytest.mark.parametrize(
    ("algorithm", "member", "reason"),
    [
        ("ES256", jwk(P384, kid="x"), "curve is that of another algorithm"),
        ("ES256", jwk(P256, kid="x") | {"crv": ["P-256"]}, "curve is that of another algorithm"),
        ("ES256", jwk(P256, kid="x", x="AAAA"), "not of the curve's size"),
        ("ES256", jwk(P256, kid="x") | {"y": base64url(bytes(33))}, "not of the curve's size"),
        ("EdDSA", {"kty": "OKP", "crv": "X25519", "x": "AAAA", "kid": "x"}, "another algorithm"),
        ("EdDSA", jwk(ED25519, kid="x", x="AAAA"), "not of the curve's size"),
        ("EdDSA", jwk(ED448, kid="x") | {"x": base64url(bytes(32))}, "not of the curve's size"),
    ],
)
def test_a_member_on_another_curve_is_passed_over(
    algorithm: str, member: dict[str, Any], reason: str
) -> None:
    keys = built(algorithm, (), jwks(jwk(KEYS[algorithm], kid="k"), member))

    assert reason in keys.notes[0]
    assert [*keys.by_kid] == ["k"]


def test_members_that_say_what_they_are_for_are_used() -> None:
    members = jwk(RSA, kid="k", use="sig", alg="RS256", key_ops=["verify"], x5c=["AAAA"])

    assert built("RS256", (), jwks(members)).notes == ()


# Which key for which token.

STATIC = thumbprint(RSA_2.public_key())
ALONE = thumbprint(RSA.public_key())
CHOICES: dict[str, tuple[tuple[str, ...], bytes | None, list[str], list[str], list[str]]] = {
    "static only": ((pem(RSA_2.public_key()),), None, [STATIC], [STATIC], [STATIC]),
    "one named": ((), jwks(jwk(RSA, kid="a")), ["a"], [], ["a"]),
    "one without a kid": ((), jwks(jwk(RSA)), [ALONE], [ALONE], [ALONE]),
    "two named": ((), jwks(jwk(RSA, kid="a"), jwk(RSA_2, kid="b")), ["a"], [], []),
    "one named, and static": (
        (pem(RSA_2.public_key()),),
        jwks(jwk(RSA, kid="a")),
        ["a"],
        [STATIC],
        ["a", STATIC],
    ),
    "two named, and static": (
        (pem(RSA_2.public_key()),),
        jwks(jwk(RSA, kid="a"), jwk(RSA, kid="b")),
        ["a"],
        [STATIC],
        [STATIC],
    ),
    "one without a kid, and static": (
        (pem(RSA_2.public_key()),),
        jwks(jwk(RSA)),
        [ALONE, STATIC],
        [ALONE, STATIC],
        [ALONE, STATIC],
    ),
}


@pytest.mark.parametrize("name", CHOICES)
def test_the_kid_chooses(name: str) -> None:
    texts, document, named, other, without = CHOICES[name]
    keys = built("RS256", texts, document)

    assert [key.key_id for key in keys.candidates("a")] == named
    assert [key.key_id for key in keys.candidates("?")] == other
    assert [key.key_id for key in keys.candidates("")] == other
    assert [key.key_id for key in keys.candidates(None)] == without


def test_static_keys_keep_their_order_and_lose_their_copies() -> None:
    first, second = pem(RSA.public_key()), pem(RSA_2.public_key())

    keys = built("RS256", (second, first, second + "\n"))

    assert [key.key_id for key in keys.candidates(None)] == [STATIC, ALONE]


# Names and generations.


def test_the_thumbprint_is_that_of_rfc_7638_section_3_1() -> None:
    n = (
        "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECP"
        "ebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2Qvz"
        "qY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6We"
        "Zu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"
    )
    member = {"kty": "RSA", "n": n, "e": "AQAB", "alg": "RS256", "kid": "2011-04-29"}

    keys = built("RS256", (), jwks({**member, "kid": None}))

    assert keys.candidates(None)[0].key_id == "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"


@pytest.mark.parametrize("key", [RSA, P256, P384, P521, ED25519, ED448])
def test_a_public_jwk_has_the_required_members_only(key: Any) -> None:
    names = {"RSA": {"kty", "n", "e"}, "EC": {"kty", "crv", "x", "y"}, "OKP": {"kty", "crv", "x"}}
    members = public_jwk(key.public_key())

    assert set(members) == names[members["kty"]]


def test_a_secret_shows_in_no_representation() -> None:
    keys = built("HS256", (SECRET,), jwks(oct_jwk(SECRET[::-1])))
    shown = repr(keys)

    for form in (SECRET, SECRET[::-1]):
        assert form not in shown
        assert b64encode(form.encode()).decode() not in shown
        assert base64url(form.encode()) not in shown
    assert keys.candidates(None)[0].key_id.startswith("secret-")


def test_the_generation_changes_with_every_change_of_keys() -> None:
    first, second = pem(RSA.public_key()), pem(RSA_2.public_key())
    sets = [
        built("RS256", (first,)),
        built("RS384", (first,)),
        built("RS256", (second,)),
        built("RS256", (first, second)),
        built("RS256", (second, first)),
        built("RS256", (), jwks(jwk(RSA))),
        built("RS256", (), jwks(jwk(RSA, kid="a"))),
        built("RS256", (), jwks(jwk(RSA, kid="b"))),
        built("RS256", (), jwks(jwk(RSA_2, kid="a"))),
        built("RS256", (first,), jwks(jwk(RSA, kid="a"))),
        built("RS256", (), jwks(jwk(RSA, kid="a"), jwk(RSA_2, kid="b"))),
        built("HS256", (SECRET,)),
        built("HS256", (SECRET + "!",)),
    ]

    assert len({keys.generation for keys in sets}) == len(sets)


def test_the_same_keys_have_the_same_generation() -> None:
    one = built("RS256", (), jwks(jwk(RSA, kid="a"), jwk(RSA_2, kid="b")))
    two = built("RS256", (), jwks(jwk(RSA_2, kid="b", use="sig"), None, jwk(RSA, kid="a")))

    assert one.generation == two.generation
    assert one == two


MEMBERS = st.dictionaries(
    st.sampled_from(["kty", "alg", "use", "key_ops", "kid", "crv", "n", "e", "x", "y", "k", "d"]),
    st.sampled_from(["RSA", "EC", "OKP", "oct", "sig", "P-256", "Ed25519", "AQAB", "verify"])
    | st.text()
    | st.none()
    | st.integers()
    | st.lists(st.text()),
)


@given(
    st.sampled_from([*ALGORITHMS]) | st.text(),
    st.lists(st.text() | st.just(pem(P256.public_key())), max_size=2),
    st.none() | st.binary() | st.lists(MEMBERS | st.none(), max_size=3).map(lambda m: jwks(*m)),
)
def test_any_configuration_is_a_key_set_or_problems(
    algorithm: str, texts: list[str], document: bytes | None
) -> None:
    keys = build_keys(algorithm, texts, document)

    assert isinstance(keys, KeySet) or keys


# A set that takes the place of another.


def replaced(jwks: bytes, texts: tuple[str, ...] = ()) -> KeySet:
    keys = build_keys("RS256", texts, jwks, lenient=True)
    assert isinstance(keys, KeySet)
    return keys


def test_what_stops_a_start_is_passed_over_where_keys_are_replaced() -> None:
    weak, private = jwk(RSA_1024, kid="weak"), private_jwk(RSA_2, kid="private")
    keys = replaced(jwks(weak, jwk(RSA, kid="k"), private))

    assert [*keys.by_kid] == ["k"]
    assert keys.notes == (
        "jwks.keys[0] is passed over: it is an RSA key of 1024 bits; the least is 2048",
        "jwks.keys[2] is passed over: it is a private key; the server needs the public one only",
    )


def test_of_keys_that_bear_one_name_none_is_used_and_copies_count_once() -> None:
    keys = replaced(jwks(jwk(RSA, kid="k"), jwk(RSA_2, kid="k"), jwk(RSA_2, kid="other")))
    assert [*keys.by_kid] == ["other"]
    assert [note.partition(": ")[2] for note in keys.notes] == [
        "other keys bear its kid, 'k', too"
    ] * 2

    keys = replaced(jwks(jwk(RSA, kid="k"), jwk(RSA, kid="k")))
    assert [*keys.by_kid] == ["k"]
    assert keys.without_kid == keys.by_kid["k"], "it is the only one"
    assert keys.notes == ("jwks.keys[1] is passed over: it is a copy of a key before it",)
    assert len(replaced(jwks(jwk(RSA), jwk(RSA))).without_kid) == 1


def test_an_empty_set_revokes_all_but_the_keys_of_the_configuration() -> None:
    assert replaced(jwks()).listed == ()
    (left,) = replaced(jwks(), (pem(RSA.public_key()),)).listed
    assert left.path == "verification_keys[0]"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"keys": null}'])
def test_what_is_no_set_replaces_none(content: bytes) -> None:
    found = build_keys("RS256", (pem(RSA.public_key()),), content, lenient=True)

    assert isinstance(found, tuple)
    assert [problem.path for problem in found] == ["jwks"]
