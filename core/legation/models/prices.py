"""The prices of models: what a request cost, by the tokens that its provider reported.

A table of one's own comes first, then a source: a function of the host's, as that over the package
`genai-prices`.  A request has the price of the moment at which its answer is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol, TypeAlias

from attrs import field, fields

from ..money import MOST_NANO, SENTENCE, parse_usd
from ..values import frozen
from .conversation import Usage
from .echo import Echo

__all__ = [
    "ModelName",
    "ModelPrice",
    "PriceList",
    "PriceSource",
    "Priced",
    "find_price_faults",
    "make_price_list",
]

_PER: Final = 1_000_000
"""How many tokens a price is for."""

_MOST_PRICES: Final = 10_000
_ONE: Final = Usage(1, 1)


class Priced(Protocol):
    """A thing with a price: a model, or the name of one."""

    @property
    def id(self) -> str:
        """Its name, as its provider knows it."""
        ...

    @property
    def provider(self) -> str:
        """The provider that runs it."""
        ...


@frozen
class ModelName:
    """The name of a model that a function asks by itself."""

    id: str
    provider: str


PriceSource: TypeAlias = Callable[[Priced, Usage, int], int | None]
"""A function that knows prices: it is given a model, its usage and the time in microseconds, and
returns the cost in nano-USD, or None where it knows of none.  It computes, and does nothing else.
"""


@frozen(kw_only=True)
class ModelPrice:
    """The price of a model, in US dollars for a million tokens: decimals, as "1.25".

    Attributes:
        input: Of what goes in.
        output: Of what comes out.
        cached: Of the input that the provider's cache knows; as other input, unless given.
        cache_write: Of the input that goes into it; as other input, unless given.
        reasoning: Of the output that is thought and not said; as other output, unless given.
    """

    input: str
    output: str
    cached: str | None = None
    cache_write: str | None = None
    reasoning: str | None = None


def find_price_faults(prices: Mapping[str, ModelPrice]) -> Iterator[tuple[str, str]]:
    """Yield the path of each price that is none, and what is expected of it."""
    if len(prices) > _MOST_PRICES:
        yield "", f"has {len(prices)} prices: no more than {_MOST_PRICES} are taken"
        return
    cls: Any = ModelPrice
    names = [attribute.name for attribute in fields(cls)]
    for key, price in prices.items():
        for name in names:
            amount = getattr(price, name)
            if amount is not None and parse_usd(amount) is None:
                yield f'."{key}".{name}', SENTENCE


@frozen
class _Rates:
    """The price of a model in nano-USD for a million tokens."""

    input: int
    output: int
    cached: int
    cache_write: int
    reasoning: int

    def price(self, usage: Usage) -> int:
        """Return what `usage` costs, in nano-USD, rounded once: a half is rounded up.

        A part that a provider reports as more than the whole is the whole.
        """
        read = min(usage.cache_read_tokens, usage.input_tokens)
        written = min(usage.cache_write_tokens, usage.input_tokens - read)
        thought = min(usage.reasoning_tokens, usage.output_tokens)
        whole = (
            (usage.input_tokens - read - written) * self.input
            + read * self.cached
            + written * self.cache_write
            + (usage.output_tokens - thought) * self.output
            + thought * self.reasoning
        )
        return (whole + _PER // 2) // _PER


@frozen
class PriceList:
    """The known prices: by `id` or `provider:id` of a model, and by a source.

    Attributes:
        rates: One's own, which come first.
        source: What knows the others.
    """

    rates: Mapping[str, _Rates] = field(factory=dict[str, _Rates])
    source: PriceSource | None = None

    def price(self, model: Priced, usage: Usage, now_us: int) -> int | None:
        """Return what `usage` of `model` costs, in nano-USD; None where nobody knows.

        What echoes costs nothing.

        Raises:
            ValueError: The source gave what is no amount.
        """
        rates = self.rates.get(f"{model.provider}:{model.id}") or self.rates.get(model.id)
        if rates is not None:
            return min(rates.price(usage), MOST_NANO)
        if isinstance(model, Echo):
            return 0
        cost: Any = None if self.source is None else self.source(model, usage, now_us)
        if cost is None:
            return None
        if type(cost) is not int or cost < 0:
            raise ValueError(f"a source of prices gave {cost!r}, which is no number of nano-USD")
        return min(cost, MOST_NANO)

    def knows(self, model: Priced) -> bool:
        """Return whether there is a price of `model`; what is no amount is none."""
        try:
            return self.price(model, _ONE, 0) is not None
        except ValueError:
            return False


def make_price_list(prices: Mapping[str, ModelPrice], source: PriceSource | None) -> PriceList:
    """Return the list of `prices` without faults, and of a source."""
    return PriceList({key: _read_rates(price) for key, price in prices.items()}, source)


def _read_rates(price: ModelPrice) -> _Rates:
    came_in, went_out = parse_usd(price.input) or 0, parse_usd(price.output) or 0
    cached, written = parse_usd(price.cached), parse_usd(price.cache_write)
    thought = parse_usd(price.reasoning)
    return _Rates(
        came_in,
        went_out,
        came_in if cached is None else cached,
        came_in if written is None else written,
        went_out if thought is None else thought,
    )
