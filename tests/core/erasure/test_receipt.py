from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from legation.erasure.receipt import Receipt, verify_receipt, write_receipt
from legation.store.audit_pages import SigningKey
from legation.store.erasure import Tally

KEY = SigningKey("2026", b"k" * 32)
RECEIPT = Receipt(
    "ada|é", "root", "r1", 1_767_225_600_000_000, False, {"main": Tally(1, 2), "b": Tally(3)}
)


def test_a_receipt_says_who_when_and_how_much() -> None:
    written = write_receipt(RECEIPT, None)

    assert (written["user_id"], written["erased_by"]) == ("ada|é", "root")
    assert written["erased_at"] == "2026-01-01T00:00:00Z"
    assert written["counts"]["sessions"] == 4
    assert written["databases"]["main"]["runs"] == 2
    assert "trail" in written["kept"]


def test_one_without_a_key_says_that_it_is_not_signed() -> None:
    written = write_receipt(RECEIPT, None)

    assert written["signature"] is None
    assert "Not signed" in written["unsigned"]
    assert not verify_receipt(written, KEY)


def test_the_digest_is_of_the_other_members() -> None:
    written = write_receipt(RECEIPT, KEY)
    others = {k: v for k, v in written.items() if k not in ("digest", "signature")}
    text = json.dumps(others, ensure_ascii=False, sort_keys=True, separators=(",", ":"))

    assert written["digest"] == hashlib.sha256(text.encode()).hexdigest()


def test_a_signed_receipt_verifies_until_it_is_changed() -> None:
    written: dict[str, Any] = json.loads(json.dumps(write_receipt(RECEIPT, KEY)))

    assert written["signature"]["key_id"] == "2026"
    assert verify_receipt(written, KEY)
    assert not verify_receipt(written, SigningKey("2026", b"x" * 32))
    assert not verify_receipt({**written, "user_id": "eve"}, KEY)
    for signature in ("x", {}, {"value": 1}, {"value": "é"}):
        assert not verify_receipt({**written, "signature": signature}, KEY)


def test_a_key_does_not_show_its_secret() -> None:
    assert "kkk" not in repr(KEY)


@pytest.mark.parametrize("left", [Tally(), Tally(1, 2, 3)])
def test_counts_add_up(left: Tally) -> None:
    assert left + Tally(1, 1) == Tally(left.sessions + 1, left.runs + 1, left.events)
