"""The readers of keys, of the configuration itself and of a JWKS: imported when there are keys.

The libraries below are a fifth of the memory of a server that has none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from .jose import is_clean
from .jwks import read_jwks
from .key_material import (
    ALGORITHMS,
    PublicKey,
    Scheme,
    curve_of,
    make_ready,
    safe_rsa,
    safe_secret,
)
from .key_values import KeyProblem, ReadyKey, Unsafe

__all__ = ["ALGORITHMS", "read_jwks", "read_static_keys"]


def read_static_keys(
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
