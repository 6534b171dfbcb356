"""The prices of a platform, made of its configuration and checked, and the models without one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol, TypeAlias

from ..config import PlatformConfig
from ..http.refusals import Fault
from ..models.conversation import ModelProtocol
from ..models.prices import PriceList, find_price_faults, make_price_list
from ..shares.limits import LimitOverrides, Limits
from ..tools.hosted_function import Hosted
from .abilities import NOT_IMPORTED
from .guards import HostedGuard, JudgingModel

__all__ = ["find_unpriced", "read_prices"]

_UNPRICED: Final = "{}:{} has no price: its runs show no cost"
_UNCOUNTED: Final = "{}:{} has no price, and {} would not count it: give one in prices.models"


class _Asking(Protocol):
    """An agent or a team: what asks a model."""

    @property
    def model(self) -> ModelProtocol:
        """The model that it asks."""
        ...

    @property
    def fallback(self) -> tuple[ModelProtocol, ...]:
        """The models that it asks where that fails."""
        ...

    @property
    def summarizer(self) -> ModelProtocol | None:
        """The model that summarizes its sessions."""
        ...

    @property
    def guards(self) -> tuple[HostedGuard, ...]:
        """Its guards, of which some ask a model."""
        ...

    @property
    def run(self) -> Hosted | None:
        """The function that answers in place of a model."""
        ...


_Placed: TypeAlias = Iterable[tuple[str, _Asking]]
"""Agents and teams, each with its path in the configuration."""


def read_prices(
    config: PlatformConfig, components: _Placed, fault: Callable[[str, str], None]
) -> PriceList | None:
    """Return the prices, None where none are asked for; report each that is none.

    Where there is a budget, a model without a price is a fault: it would not count.
    """
    made = _make(config, fault)
    budget = _find_budget(config)
    if budget is not None and (made is not None or config.prices is None):
        for path, model in _find_models(made or PriceList(), components):
            fault(path, _UNCOUNTED.format(model.provider, model.id, budget))
    return made


def find_unpriced(prices: PriceList | None, components: _Placed) -> tuple[Fault, ...]:
    """Return a sentence for each model without a price, where prices are asked for."""
    if prices is None:
        return ()
    return tuple(
        Fault(path, _UNPRICED.format(model.provider, model.id))
        for path, model in _find_models(prices, components)
    )


def _make(config: PlatformConfig, fault: Callable[[str, str], None]) -> PriceList | None:
    prices = config.prices
    if prices is None:
        return None
    source, faults = prices.source, list(find_price_faults(prices.models))
    for path, sentence in faults:
        fault(f"prices.models{path}", sentence)
    if isinstance(source, str):
        fault("prices.source", f"{source!r} {NOT_IMPORTED}")
        return None
    return None if faults else make_price_list(prices.models, source)


def _find_models(prices: PriceList, components: _Placed) -> Iterator[tuple[str, ModelProtocol]]:
    """Yield the models without a price, with the path of who asks each."""
    for path, component in components:
        asked = {f"{path}.model": component.model}
        asked |= {f"{path}.fallback[{n}]": one for n, one in enumerate(component.fallback)}
        summarizer = component.summarizer
        if summarizer is not None and summarizer is not component.model:
            asked[f"{path}.summaries.model"] = summarizer
        judges = (guard.by for guard in component.guards)
        asked |= {f"{path}.guards": by.model for by in judges if isinstance(by, JudgingModel)}
        if component.run is None:
            unknown = {place: one for place, one in asked.items() if not prices.knows(one)}
            yield from unknown.items()


def _find_budget(config: PlatformConfig) -> str | None:
    """Return the path of the first budget; None where there is none."""
    limits = config.limits
    tables: dict[str, Limits | LimitOverrides] = {"limits": limits}
    tables["limits.anonymous"] = limits.anonymous
    paths = [path for path, table in tables.items() if table.cost_per_day is not None]
    for name, by_key in (("scopes", limits.scopes), ("subjects", limits.subjects)):
        paths += [
            f'limits.{name}."{key}"'
            for key, table in by_key.items()
            if table.cost_per_day is not None
        ]
    for kind, items in (("agents", config.agents), ("teams", config.teams)):
        paths += [
            f"{kind}[{index}].limits"
            for index, item in enumerate(items)
            if item.limits is not None and item.limits.cost_per_day is not None
        ]
    return f"{paths[0]}.cost_per_day" if paths else None
