"""Secrets that can be guessed are found, and drawn ones are not."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.access.secret_strength import (
    KEY_BITS,
    WEBHOOK_BITS,
    estimate_bits,
    find_weakness,
)

DRAWN = [sha256(str(number).encode()).digest() for number in range(200)]


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "x",
        "secret",
        "hunter2",
        "a" * 64,
        "ab" * 32,
        "changeme" * 8,
        "abcdefghijklmnopqrstuvwxyzabcdef",
        "0123456789012345678901234567890123",
        "zyxwvutsrqponmlkjihgfedcba",
    ],
)
def test_secret_that_can_be_guessed_is_found(secret: str) -> None:
    told = find_weakness(secret, WEBHOOK_BITS)

    assert told is not None
    assert "can be guessed" in told
    assert len(secret) < 3 or secret not in told


@pytest.mark.parametrize("digest", DRAWN, ids=bytes.hex)
def test_drawn_secrets_pass(digest: bytes) -> None:
    assert find_weakness(digest.hex()[:32], KEY_BITS) is None
    assert find_weakness(b64encode(digest[:24]).decode(), KEY_BITS) is None
    assert find_weakness(digest.hex()[:16], WEBHOOK_BITS) is None


@given(st.text(max_size=40), st.integers(2, 5))
def test_a_repeated_secret_is_no_stronger(secret: str, times: int) -> None:
    assert estimate_bits(secret * times) == pytest.approx(estimate_bits(secret), abs=1e-6)


@given(st.text(max_size=200))
def test_every_text_has_an_estimate(secret: str) -> None:
    assert 0 <= estimate_bits(secret) <= 21 * len(secret)
