"""Published vectors: Wycheproof's JSON Web Signature and Key, and the examples of RFC 7520.

They are read from the folder that `LEGATION_VECTORS` names, and are not part of this repository.
A set or a key is configured with each algorithm that the key or the token names, so that a forged
`alg` meets the configuration it was made for.
"""

from __future__ import annotations

import json
import os
import sys
from base64 import urlsafe_b64decode
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import frozen

from legation.access.key_material import ALGORITHMS
from legation.access.keys import KeySet, build_keys
from legation.access.tokens import SignedPayload, verify_signature

VECTORS: Final = Path(
    os.environ.get("LEGATION_VECTORS")
    or Path(__file__).resolve().parents[3].parent / "shared" / "vectors"
)


EXCEPTIONS: Final[dict[tuple[str, int], str]] = {
    ("signature", 346): "labelled valid: PS384 by a key whose alg is PS256, and that alg binds",
    ("signature", 350): "labelled valid: PS384 by a key whose alg is PS256, and that alg binds",
    ("signature", 347): "labelled valid: the key's alg is ES521, which nobody registered",
    ("signature", 351): "labelled valid: the key's alg is ES521, which nobody registered",
    ("signature", 367): "labelled invalid: byte for byte the token of the valid vector 357",
    ("signature", 370): "labelled invalid: byte for byte the token of the valid vector 357",
    ("signature", 372): "labelled valid: a ? in the header is not base64url (RFC 7515 section 2)",
    ("signature", 373): "labelled valid: a ? in the payload is not base64url (RFC 7515 section 2)",
    ("key", 1): "a set of both families: the key that the one algorithm cannot use is passed over",
}
"""Vectors answered otherwise than they are labelled, and why.  Every other one is answered so."""


@frozen
class Vector:
    """One token of Wycheproof, and the keys that are to verify it or not."""

    number: int
    comment: str
    valid: bool
    token: str
    keys: tuple[dict[str, Any], ...]


def document(name: str) -> Any:
    path = VECTORS / name
    if not path.is_file():
        pytest.skip(f"NOT RUN: {path} is not there; LEGATION_VECTORS may name the folder")
    return json.loads(path.read_bytes())


def vectors(kind: str) -> Iterator[Vector]:
    for group in document(f"wycheproof/json_web_{kind}_test.json")["testGroups"]:
        key = group.get("public", group["private"])
        keys = tuple(key.get("keys", [key]))
        for test in group["tests"]:
            valid = test["result"] == "valid"
            yield Vector(test["tcId"], test["comment"], valid, test["jws"], keys)


def named_algorithm(token: str) -> str:
    try:
        header = token.partition(".")[0]
        return str(json.loads(urlsafe_b64decode(header + "=="))["alg"])
    except (ValueError, KeyError, TypeError):
        return ""


def accepted(vector: Vector) -> bool:
    """Tell whether the token verifies under any algorithm it could be meant for."""
    named = {str(key.get("alg")) for key in vector.keys} | {named_algorithm(vector.token)}
    document = json.dumps({"keys": vector.keys}).encode()
    for algorithm in sorted(named & set(ALGORITHMS)):
        keys = build_keys(algorithm, (), document)
        if isinstance(keys, KeySet) and isinstance(
            verify_signature(vector.token.encode(), keys), SignedPayload
        ):
            return True
    return False


@pytest.mark.parametrize(("kind", "total"), [("signature", 401), ("key", 26)])
def test_wycheproof(kind: str, total: int, capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[str] = Counter()
    otherwise: set[tuple[str, int]] = set()
    for vector in vectors(kind):
        answer = accepted(vector)
        counts["accepted" if answer else "refused"] += 1
        if answer != vector.valid:
            otherwise.add((kind, vector.number))
    with capsys.disabled():
        sys.stdout.write(
            f"\nWycheproof {kind}: {dict(counts)}, as labelled {counts.total() - len(otherwise)},"
            f" otherwise {len(otherwise)} (see EXCEPTIONS)\n"
        )

    assert otherwise == {vector for vector in EXCEPTIONS if vector[0] == kind}
    assert counts.total() == total


def test_two_exceptions_are_copies_of_a_valid_vector() -> None:
    tokens = {vector.number: vector.token for vector in vectors("signature")}

    assert tokens[367] == tokens[370] == tokens[357]


def example(name: str) -> Any:
    return document(f"jose-cookbook/{name}.json")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("jws_4_1.rsa_v15_signature", "jwk_3_3.rsa_public_key"),
        ("jws_4_2.rsa-pss_signature", "jwk_3_3.rsa_public_key"),
        ("jws_4_3.ecdsa_signature", "jwk_3_1.ec_public_key"),
        ("jws_4_4.hmac-sha2_integrity_protection", "jwk_3_5.symmetric_key_mac_computation"),
    ],
)
def test_a_compact_example_of_rfc_7520_verifies(name: str, key: str) -> None:
    vector = example(name)
    keys = build_keys(vector["input"]["alg"], (), json.dumps({"keys": [example(key)]}).encode())

    assert isinstance(keys, KeySet)
    assert verify_signature(vector["output"]["compact"].encode(), keys) == SignedPayload(
        vector["input"]["payload"].encode(), example(key)["kid"]
    )


@pytest.mark.parametrize(
    "name",
    [
        "jws_4_5.signature_with_detached_content",
        "jws_4_6.protecting_specific_header_fields",
        "jws_4_7.protecting_content_only",
        "jws_4_8.multiple_signatures",
    ],
)
def test_another_form_of_rfc_7520_is_no_token(name: str) -> None:
    """Only the compact serialization is a JWT (RFC 7519 section 3)."""
    key = example("jwk_3_5.symmetric_key_mac_computation")
    keys = build_keys("HS256", (), json.dumps({"keys": [key]}).encode())

    assert isinstance(keys, KeySet)
    for form in example(name)["output"].values():
        text = form if isinstance(form, str) else json.dumps(form)
        assert not isinstance(verify_signature(text.encode(), keys), SignedPayload)


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [("RS256", "jwk_3_4.rsa_private_key"), ("ES512", "jwk_3_2.ec_private_key")],
)
def test_a_private_key_of_rfc_7520_does_not_start(algorithm: str, name: str) -> None:
    document = json.dumps({"keys": [example(name)]}).encode()

    assert not isinstance(build_keys(algorithm, (), document), KeySet)
