"""Measurements as Prometheus reads them: text exposition format, version 0.0.4.

Pure: families of samples in, text out.  See
https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, Literal, TypeAlias

from ..values import frozen

__all__ = [
    "MEDIA_TYPE",
    "Family",
    "Labels",
    "Merge",
    "Sample",
    "exposition",
    "histogram",
]

MEDIA_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"

Labels: TypeAlias = tuple[tuple[str, str], ...]

Merge: TypeAlias = Literal["sum", "max", "min"]
"""How the samples of several processes become one, see `merging`."""

_HELP: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})
_VALUE: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


@frozen
class Sample:
    """One number; `suffix` is what its name has behind that of its family."""

    value: float
    labels: Labels = ()
    suffix: str = ""


@frozen
class Family:
    """Samples of one name: `kind` is counter, gauge or histogram.

    `merge` is `sum` for what each process counts of itself, and `max` or `min` for what each of
    them says of something that they have in common.
    """

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...]
    merge: Merge = "sum"


def exposition(families: Iterable[Family], common: Labels = ()) -> str:
    """Return `families` as text; `common` labels stand on every sample.

    A family without samples is left out.
    """
    return "".join(line for family in families for line in _lines(family, common))


def histogram(
    labels: Labels, bounds: Sequence[float], counts: Sequence[int], total: float
) -> tuple[Sample, ...]:
    """Return the samples of a histogram with these labels.

    Args:
        labels: On every sample.
        bounds: The upper bounds of the buckets, ascending, without the last, which has none.
        counts: How many fell into each bucket, one more than there are bounds.
        total: The sum of what was measured, in the unit of `bounds`.
    """
    named = [*map(_number, bounds), "+Inf"]
    sums = list(accumulate(counts))
    buckets = (
        Sample(count, (*labels, ("le", bound)), "_bucket")
        for bound, count in zip(named, sums, strict=True)
    )
    return (*buckets, Sample(total, labels, "_sum"), Sample(sums[-1], labels, "_count"))


def _lines(family: Family, common: Labels) -> Iterator[str]:
    if not family.samples:
        return
    yield f"# HELP {family.name} {family.help.translate(_HELP)}\n"
    yield f"# TYPE {family.name} {family.kind}\n"
    for sample in family.samples:
        labels = _labels((*common, *sample.labels))
        yield f"{family.name}{sample.suffix}{labels} {_number(sample.value)}\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    named = ",".join(f'{name}="{value.translate(_VALUE)}"' for name, value in labels)
    return f"{{{named}}}"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(value)
