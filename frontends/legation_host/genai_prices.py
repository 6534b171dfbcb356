"""The prices of the package `genai-prices`, for `[prices]` of a configuration.

It is the extra `legation[prices]`:

    [prices]
    source = "genai-prices"

Its list comes with the package and is that of its release: nothing is asked of a network, also
where another part of the process lets the package keep a newer one.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from importlib.util import find_spec
from typing import Final

from legation.models.conversation import Usage
from legation.models.prices import Priced
from legation.money import NANO

__all__ = ["find_price"]

if find_spec("genai_prices") is None:
    raise ImportError("genai-prices is missing: pip install 'legation[prices]'")

import genai_prices
from genai_prices.data import providers
from genai_prices.data_snapshot import DataSnapshot

_PRICES: Final = DataSnapshot(providers=providers, from_auto_update=False)
_ONE: Final = Decimal(1)


def find_price(model: Priced, usage: Usage, now_us: int) -> int | None:
    """Return what `usage` of `model` costs, in nano-USD; None where the list does not have it.

    A model at an address of one's own is looked up by that, else by the name of its provider: what
    is asked at an address that the list does not know has no price, whatever its name is.
    """
    address = getattr(model, "base_url", None)
    at = datetime.fromtimestamp(now_us / 1_000_000, UTC)
    provider = None if address else model.provider
    try:
        price = _PRICES.calc(_translate(usage), model.id, provider, address, at).total_price
        return int((price * NANO).quantize(_ONE, ROUND_HALF_UP))
    except (LookupError, ArithmeticError):
        return None


def _translate(usage: Usage) -> genai_prices.Usage:
    """Return `usage` in their words; a part that is more than the whole is the whole."""
    read = min(usage.cache_read_tokens, usage.input_tokens)
    written = min(usage.cache_write_tokens, usage.input_tokens - read)
    return genai_prices.Usage(
        input_tokens=usage.input_tokens,
        cache_read_tokens=read,
        cache_write_tokens=written,
        output_tokens=usage.output_tokens,
        output_reasoning_tokens=min(usage.reasoning_tokens, usage.output_tokens),
    )


# What it imports by itself, as it is first asked, it imports now: no run waits for that.
_PRICES.providers[0].models[0].calc_price(_translate(Usage(1, 1, 1)), _PRICES.providers[0])
