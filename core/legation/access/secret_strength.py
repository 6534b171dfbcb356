"""The strength of a secret that somebody has chosen: an estimate, to find what can be guessed.

No estimate knows words and keyboards.  This one finds what is short, repeated, counted up or made
of few characters; a drawn secret of the length passes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import log2
from typing import Final

__all__ = ["KEY_BITS", "WEBHOOK_BITS", "estimate_bits", "find_weakness"]

WEBHOOK_BITS: Final = 32
"""The least of a secret that a stranger has to guess over the network, request by request.

A drawn secret of 16 hexadecimal digits has 64; its own frequencies show 35 to 60 of them.
"""
KEY_BITS: Final = 80
"""The least of a secret that signs tokens: whoever has one token guesses without asking anybody.

A drawn secret of 32 hexadecimal digits has 128; its own frequencies show 90 to 120 of them.
"""

_ADVICE: Final = "draw one, as by `openssl rand -hex 32`"


def find_weakness(secret: str, least: float) -> str | None:
    """Return what is wrong with `secret`, without a part of it; None where nothing is.

    Args:
        secret: As it stands in the configuration.
        least: So many bits it has to have, as they are estimated.
    """
    bits = estimate_bits(secret)
    if bits >= least:
        return None
    return f"can be guessed: some {bits:.0f} bits, and {least:g} are the least; {_ADVICE}"


def estimate_bits(secret: str) -> float:
    """Return the bits of one period of `secret`, by its characters and by the steps between them.

    A secret that is repeated is no stronger than its part.
    """
    codes = [ord(character) for character in secret[: _period(secret)]]
    steps = [second - first for first, second in pairwise(codes)]
    return min(_information(codes), _information(steps)) if steps else _information(codes)


def _period(secret: str) -> int:
    """Return after how many characters `secret` repeats itself; its length where it does not."""
    return (secret + secret).find(secret, 1)


def _information(values: Sequence[int]) -> float:
    """Return the bits of `values`, drawn one by one as often as they stand here (Shannon, 1948)."""
    size = len(values)
    return sum(count * log2(size / count) for count in Counter(values).values())
