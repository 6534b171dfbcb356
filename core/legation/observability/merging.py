"""The measurements of several processes as those of one.

Each process that answers at an address has counted its own part.  A scrape reaches one of them,
and is to say what all have counted: `merge` makes one set of families of theirs, by the rule that
each family names.  The order of the parts makes no difference, nor does it which of them were
merged before: a sum of floats is exact until it is written.  A counter that was rounded now here
and now there could go back by its last digit, which Prometheus reads as a restart.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, Final, TypeAlias

from ..values import frozen
from .prometheus import Family, Labels, Merge, Sample

__all__ = [
    "Snapshot",
    "Survey",
    "choose_newest",
    "count_workers",
    "decode_snapshot",
    "encode_snapshot",
    "keep_counted",
    "merge",
]

Survey: TypeAlias = tuple[int, tuple[Family, ...]]
"""What the databases said, and when: microseconds since the epoch."""

_Key: TypeAlias = tuple[Labels, str]
_Head: TypeAlias = tuple[str, str, Merge]


@frozen
class Snapshot:
    """The measurements of a process, or of several: what they counted, and the newest survey."""

    families: tuple[Family, ...]
    surveyed: Survey | None = None


def merge(parts: Iterable[Iterable[Family]]) -> tuple[Family, ...]:
    """Return the families of all `parts` as one, sorted by name, their samples by labels."""
    heads: dict[str, _Head] = {}
    values: dict[str, dict[_Key, float]] = {}
    for family in chain.from_iterable(parts):
        name = family.name
        head: _Head = (family.kind, family.help, family.merge)
        heads[name] = max(heads.get(name, head), head)
        known, join = values.setdefault(name, {}), _JOINS[family.merge]
        for sample in family.samples:
            key = sample.labels, sample.suffix
            before = known.get(key)
            known[key] = sample.value if before is None else join(before, sample.value)
    return tuple(_build(name, *heads[name], values[name]) for name in sorted(heads))


def _build(name: str, kind: str, text: str, rule: Merge, values: dict[_Key, float]) -> Family:
    samples = (Sample(values[key], *key) for key in sorted(values, key=_order))
    return Family(name, kind, text, tuple(samples), rule)


def _order(key: _Key) -> tuple[Labels, str, float]:
    """Let the buckets of a histogram stand together, and ascend."""
    labels, suffix = key
    if suffix != "_bucket":
        return labels, suffix, 0.0
    others = tuple(label for label in labels if label[0] != "le")
    return others, suffix, float(dict(labels)["le"])


class _Total(float):
    """A sum of floats, rounded; `units` is the sum itself, in the least that a float can be."""

    __slots__ = ("units",)

    units: int


_ONE: Final = 1 << 1074
"""1.0 in units."""


def _add(one: float, other: float) -> float:
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    if not (math.isfinite(one) and math.isfinite(other)):
        return one + other
    units = _count_units(one) + _count_units(other)
    total = _Total(units / _ONE)
    total.units = units
    return total


def _count_units(value: float) -> int:
    if isinstance(value, _Total):
        return value.units
    numerator, denominator = value.as_integer_ratio()
    return numerator * (_ONE // denominator)


_JOINS: Final[dict[Merge, Callable[[float, float], float]]] = {
    "sum": _add,
    "max": max,
    "min": min,
}


def keep_counted(families: Iterable[Family]) -> tuple[Family, ...]:
    """Return what stays true of a process that is gone: its counters and histograms."""
    return tuple(family for family in families if family.kind != "gauge")


def choose_newest(one: Survey | None, other: Survey | None) -> Survey | None:
    """Return the newer of two surveys, if there is any."""
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda survey: survey[0])


def count_workers(workers: int, scraped: int) -> tuple[Family, ...]:
    """Return how many `workers` serve, and how many of them told what they measure."""
    text = "Processes of this server that answer requests."
    told = "Those whose gauges are in this scrape; the counters of all are."
    return (
        Family("legation_workers", "gauge", text, (Sample(workers),)),
        Family("legation_workers_scraped", "gauge", told, (Sample(scraped),)),
    )


# --- Between processes ---------------------------------------------------------------------------


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return `snapshot` as JSON; `decode_snapshot` reads it."""
    surveyed = snapshot.surveyed
    value = [
        _pack(snapshot.families),
        None if surveyed is None else (surveyed[0], _pack(surveyed[1])),
    ]
    return json.dumps(value, separators=(",", ":")).encode()


def decode_snapshot(content: bytes) -> Snapshot:
    """Return what was encoded.

    Raises:
        ValueError: It is no JSON.
    """
    families, surveyed = json.loads(content)
    return Snapshot(
        _unpack(families), None if surveyed is None else (surveyed[0], _unpack(surveyed[1]))
    )


def _pack(families: Iterable[Family]) -> list[Any]:
    return [
        (
            family.name,
            family.kind,
            family.help,
            family.merge,
            [(sample.value, sample.labels, sample.suffix) for sample in family.samples],
        )
        for family in families
    ]


def _unpack(families: list[Any]) -> tuple[Family, ...]:
    return tuple(
        Family(name, kind, text, tuple(map(_unpack_sample, samples)), rule)
        for name, kind, text, rule, samples in families
    )


def _unpack_sample(packed: list[Any]) -> Sample:
    value, labels, suffix = packed
    return Sample(value, tuple((name, text) for name, text in labels), suffix)
