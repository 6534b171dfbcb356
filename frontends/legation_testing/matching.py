"""The matching of effects: by value, by type, by unit of work, or by a predicate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeGuard, cast

from legation.effects import Asks, Transact
from legation.store.audit import Audited
from legation.store.units import Unit

__all__ = ["Expected", "describe", "is_audited", "matches", "show"]

LONGEST: Final = 400

Expected: TypeAlias = (
    Asks[Any] | type[Asks[Any]] | Unit[Any] | type[Unit[Any]] | Callable[[Any], bool]
)
"""An effect, a type of effect, a unit or a type of unit (for its `Transact`), or a predicate.

A unit matches also where it is audited, as a change that a caller asked for is.
"""


def matches(expected: Expected, effect: Asks[Any]) -> bool:
    """Tell whether `effect` is one that `expected` describes."""
    if isinstance(expected, Asks):
        return expected == effect
    if isinstance(expected, Unit):
        return expected in _units(effect)
    if isinstance(expected, type):
        return any(isinstance(one, expected) for one in (effect, *_units(effect)))
    return expected(effect)


def _units(effect: Asks[Any]) -> tuple[Unit[Any], ...]:
    """Return the unit of work of `effect`, and the one that is audited within it."""
    if not isinstance(effect, Transact):
        return ()
    unit: Unit[Any] = effect.unit
    return (unit, unit.unit) if is_audited(unit) else (unit,)


def is_audited(unit: Unit[Any]) -> TypeGuard[Audited[Any]]:
    """Tell whether `unit` is a change with its record."""
    return isinstance(unit, Audited)


def show(value: object) -> str:
    """Return `value` as Python writes it, its middle left out when it is very long."""
    text = repr(value)
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 100]} … {text[-100:]}"


def describe(expected: Expected) -> str:
    """Return `expected` as a person would write it."""
    if isinstance(expected, (Asks, Unit)):
        return show(cast("object", expected))
    if isinstance(expected, type):
        return f"any {expected.__name__}"
    return f"an effect for which {getattr(expected, '__name__', expected)} holds"
