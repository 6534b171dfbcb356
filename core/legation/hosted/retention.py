"""The retention of each database, made of the configuration and checked, and what has none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from ..config import Database, Retention
from ..http.refusals import Fault
from ..store.periods import FOR_EVER, Kind, Periods

__all__ = ["MOST_DAYS", "find_growth", "make_periods"]

MOST_DAYS: Final = 36_500
"""No period is longer: a hundred years."""

_LEAST: Final[Mapping[Kind, int]] = {
    Kind.MESSAGES: 7,  # providers deliver again for a week
    Kind.DEAD_LETTERS: 7,
    Kind.TRAIL: 30,
}
_PARTS: Final = (Kind.EVENTS, Kind.STEPS)
_PATH: Final = "retention"


def make_periods(
    retention: Retention, databases: Iterable[Database], fault: Callable[[str, str], None]
) -> dict[str, Periods]:
    """Return the periods of each database by its id; report what is out of range or pointless.

    Args:
        retention: It counts where a database says nothing.
        databases: All of them.
        fault: Takes a path and a sentence.
    """
    usual = _read(retention, _PATH, fault)
    pointless = tuple(_list_pointless(usual))
    for kind in pointless:
        fault(f"{_PATH}.{kind.value}_days", _longer(usual, kind))
    made: dict[str, Periods] = {}
    for database in databases:
        path = f"databases.{database.id}.{_PATH}"
        own = FOR_EVER if database.retention is None else _read(database.retention, path, fault)
        made[database.id] = periods = own.over(usual)
        for kind in _list_pointless(periods):
            if own.days(kind) is not None:
                fault(f"{path}.{kind.value}_days", _longer(periods, kind))
            elif kind not in pointless:
                sentence = f"is less than {kind.value}_days ({periods.days(kind)}): {_WITH}"
                fault(f"{path}.runs_days", sentence.format(kind.value))
    return made


_WITH: Final = "the {} of a run go with it"


def _list_pointless(periods: Periods) -> Iterator[Kind]:
    """Yield the parts of runs that would be kept for longer than their runs."""
    for kind in _PARTS:
        days = periods.days(kind)
        if periods.runs is not None and days is not None and days > periods.runs:
            yield kind


def _longer(periods: Periods, kind: Kind) -> str:
    return f"is more than runs_days ({periods.runs}): {_WITH.format(kind.value)}"


def _read(retention: Retention, path: str, fault: Callable[[str, str], None]) -> Periods:
    """Return what `retention` says, without what is out of range."""
    said: dict[str, int] = {}
    for kind in Kind:
        days: int | None = getattr(retention, f"{kind.value}_days")
        least = _LEAST.get(kind, 1)
        if days is None:
            continue
        if least <= days <= MOST_DAYS:
            said[kind.value] = days
        else:
            fault(f"{path}.{kind.value}_days", f"must be a number from {least} to {MOST_DAYS}")
    return Periods(**said)


# --- What grows ---------------------------------------------------------------------------------

_NAMES: Final[Mapping[Kind, str]] = {
    Kind.SESSIONS: "sessions with their runs, events and steps",
    Kind.DEAD_LETTERS: "dead letters",
    Kind.TRAIL: "the audit trail",
}
_GROWS: Final = "{} {} without a bound; {} in [retention] would bound {}"


def find_growth(periods: Mapping[str, Periods], with_channels: Iterable[str]) -> tuple[Fault, ...]:
    """Return a sentence for each database in which something grows without a bound.

    Args:
        periods: Those of each database.
        with_channels: The databases that have dead letters.
    """
    lettered = frozenset(with_channels)
    found: list[Fault] = []
    for name, own in periods.items():
        kinds = [kind for kind in _NAMES if own.days(kind) is None]
        if name not in lettered:
            kinds = [kind for kind in kinds if kind is not Kind.DEAD_LETTERS]
        if kinds:
            things = _enumerate([_NAMES[kind] for kind in kinds])
            keys = _enumerate([f"{kind.value}_days" for kind in kinds])
            grows, them = ("grows", "it") if kinds == [Kind.TRAIL] else ("grow", "them")
            found.append(Fault(f"databases.{name}", _GROWS.format(things, grows, keys, them)))
    return tuple(found)


def _enumerate(names: list[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
