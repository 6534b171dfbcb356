"""Which effects are meant: by value, by type, by unit of work, or by a predicate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, cast

from legation.effects import Asks, Transact
from legation.store.units import Unit

__all__ = ["Expected", "describe", "matches", "shown"]

LONGEST: Final = 400

Expected: TypeAlias = (
    Asks[Any] | type[Asks[Any]] | Unit[Any] | type[Unit[Any]] | Callable[[Any], bool]
)
"""An effect, a type of effect, a unit or a type of unit (for its `Transact`), or a predicate."""


def matches(expected: Expected, effect: Asks[Any]) -> bool:
    """Tell whether `effect` is meant by `expected`."""
    if isinstance(expected, Asks):
        return expected == effect
    if isinstance(expected, Unit):
        return isinstance(effect, Transact) and effect.unit == expected
    if isinstance(expected, type):
        unit = effect.unit if isinstance(effect, Transact) else None
        return isinstance(effect, expected) or isinstance(unit, expected)
    return expected(effect)


def shown(value: object) -> str:
    """Return `value` as Python writes it, its middle left out when it is very long."""
    text = repr(value)
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 100]} … {text[-100:]}"


def describe(expected: Expected) -> str:
    """Return `expected` as a person would write it."""
    if isinstance(expected, (Asks, Unit)):
        return shown(cast("object", expected))
    if isinstance(expected, type):
        return f"any {expected.__name__}"
    return f"an effect for which {getattr(expected, '__name__', expected)} holds"
