"""The receipt of an erasure: who erased whom, when, and how much there was.

Its digest is the SHA-256 of all other members but the signature, as canonical JSON: members sorted
by their names, no spaces, UTF-8.  The signature is an HMAC-SHA256 of the same bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any, Final

from attrs import asdict

from ..runs.output import iso_time
from ..store.audit_pages import SigningKey
from ..store.erasure import Tally
from ..values import frozen

__all__ = ["Receipt", "verify_receipt", "write_receipt"]

_KEPT: Final = (
    "The audit trail keeps the user id and the ids of what was asked for until its own retention"
    " ends, and no content. A message of a channel leaves its id for 30 days. An opt-out of"
    " messages stays. Backups, replicas and what was sent to others are not reached."
)
_UNSIGNED: Final = "Not signed: no key is configured for it"
_ALGORITHM: Final = "HMAC-SHA256"
_SEAL: Final = ("digest", "signature", "unsigned")


@frozen
class Receipt:
    """An erasure, or its rehearsal: `by` asked for it, in the request `request_id`."""

    user_id: str
    by: str | None
    request_id: str
    at_us: int
    dry_run: bool
    counts: Mapping[str, Tally]


def write_receipt(receipt: Receipt, key: SigningKey | None) -> dict[str, Any]:
    """Return the receipt as JSON, signed where there is a key."""
    total = sum(receipt.counts.values(), Tally())
    written: dict[str, Any] = {
        "user_id": receipt.user_id,
        "dry_run": receipt.dry_run,
        "erased_by": receipt.by,
        "erased_at": iso_time(receipt.at_us),
        "request_id": receipt.request_id,
        "counts": asdict(total),
        "databases": {name: asdict(tally) for name, tally in receipt.counts.items()},
        "kept": _KEPT,
    }
    content = _canonical(written)
    written["digest"] = hashlib.sha256(content).hexdigest()
    if key is None:
        return {**written, "signature": None, "unsigned": _UNSIGNED}
    value = hmac.digest(key.secret, content, "sha256").hex()
    return {**written, "signature": {"key_id": key.id, "algorithm": _ALGORITHM, "value": value}}


def verify_receipt(written: Mapping[str, Any], key: SigningKey) -> bool:
    """Return whether a receipt is as it was signed by `key`."""
    content = _canonical({name: one for name, one in written.items() if name not in _SEAL})
    value = hmac.digest(key.secret, content, "sha256").hex()
    match written.get("signature"):
        case {"value": str(signed)}:
            return hmac.compare_digest(signed.encode(), value.encode())
        case _:
            return False


def _canonical(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
