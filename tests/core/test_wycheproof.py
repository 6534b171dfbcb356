"""Published vectors: Wycheproof's JSON Web Signature and Key, and the examples of RFC 7520.

They are read from the folder that `LEGATION_VECTORS` names, and are not part of this repository.
A set or a key is configured with each algorithm that the key or the token names, so that a forged
`alg` meets the configuration it was made for.
"""

from __future__ import annotations

import json
import os
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
    or Path(__file__).resolve().parents[2].parent / "shared" / "vectors"
)


@frozen
class Exception_:
    """A vector answered otherwise than it is labelled, and why."""

    reason: str


EXCEPTIONS: Final[dict[tuple[str, int], str]] = {}


@frozen
class Vector:
    file: str
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
            yield Vector(kind, test["tcId"], test["comment"], valid, test["jws"], keys)


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


@pytest.mark.parametrize("kind", ["signature", "key"])
def test_wycheproof(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[str] = Counter()
    wrong: dict[tuple[str, int], str] = {}
    for vector in vectors(kind):
        answer = accepted(vector)
        counts["accepted" if answer else "refused"] += 1
        if answer != vector.valid:
            wrong[vector.file, vector.number] = f"{vector.comment} {vector.valid}  {vector.token[:90]} { {k:v for k,v in vector.keys[0].items() if k in ('alg','use','kty')} }"
    for w in wrong.items(): print(w)
    print(counts)
    assert not wrong
