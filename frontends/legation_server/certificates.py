"""The dates of certificates, read from a file in PEM."""

from __future__ import annotations

from typing import Final

from cryptography import x509

from legation.diagnosis.trust import Validity

__all__ = ["MAX_BYTES", "find_expiry", "read_chain"]

MAX_BYTES: Final = 1 << 20
"""Of a file; a chain has some kilobytes."""


def read_chain(pem: bytes) -> tuple[Validity, ...] | str:
    """Return the validity of each certificate in `pem`, or why there is none."""
    if len(pem) > MAX_BYTES:
        return f"it is longer than {MAX_BYTES} bytes"
    try:
        chain = x509.load_pem_x509_certificates(pem)
        return tuple(
            Validity(one.not_valid_before_utc.timestamp(), one.not_valid_after_utc.timestamp())
            for one in chain
        )
    except ValueError:
        return "it holds no certificate in PEM that can be read"


def find_expiry(certfile: str) -> float | None:
    """Return when the first certificate in a file expires, in seconds since the epoch.

    It is None where none can be read.  OpenSSL has just read the file: it keeps nobody waiting.
    """
    try:
        with open(certfile, "rb") as file:  # noqa: PTH123  as OpenSSL is given it
            chain = read_chain(file.read(MAX_BYTES + 1))
    except OSError:
        return None
    return None if isinstance(chain, str) else min(one.ends for one in chain)
