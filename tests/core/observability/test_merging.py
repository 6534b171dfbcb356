from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from random import Random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.observability.merging import (
    Snapshot,
    choose_newest,
    count_workers,
    decode_snapshot,
    encode_snapshot,
    keep_counted,
    merge,
)
from legation.observability.prometheus import Family, Merge, Sample, exposition, histogram

RULES: Final[tuple[Merge, ...]] = ("sum", "max", "min")

# Of families as processes of one code have them: a name has one kind, one rule and one help.
VALUES: Final = st.integers(0, 1 << 50) | st.floats(0, 1e15)
SERIES: Final = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)
PARTS: Final = st.lists(st.dictionaries(st.sampled_from("xyz"), SERIES, max_size=3), max_size=5)


def families_of(part: dict[str, dict[str, float]], rule: Merge = "sum") -> tuple[Family, ...]:
    return tuple(
        Family(
            name,
            "gauge",
            f"About {name}.",
            tuple(Sample(value, (("of", label),)) for label, value in series.items()),
            rule,
        )
        for name, series in part.items()
    )


def read(families: Sequence[Family]) -> dict[tuple[str, str], float]:
    return {
        (family.name, sample.labels[0][1]): sample.value
        for family in families
        for sample in family.samples
    }


# --- The merge ----------------------------------------------------------------------------------


@given(PARTS)
def test_one_is_the_sum_of_all(parts: list[dict[str, dict[str, float]]]) -> None:
    exact: dict[tuple[str, str], Fraction] = {}
    for part in parts:
        for name, series in part.items():
            for label, value in series.items():
                key = name, label
                exact[key] = exact.get(key, Fraction()) + Fraction(value)

    found = read(merge(map(families_of, parts)))
    assert found == {key: float(value) for key, value in exact.items()}


@given(PARTS, st.sampled_from(RULES), st.randoms(use_true_random=False), st.integers(0, 5))
def test_neither_order_nor_grouping_makes_a_difference(
    parts: list[dict[str, dict[str, float]]], rule: Merge, order: Random, cut: int
) -> None:
    families = [families_of(part, rule) for part in parts]
    whole = merge(families)

    assert merge(order.sample(families, len(families))) == whole
    assert merge([merge(families[:cut]), merge(families[cut:])]) == whole
    assert merge([whole]) == whole
    assert merge([whole, ()]) == whole


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=8))
def test_a_total_never_goes_back_by_rounding(spent: list[float]) -> None:
    # Each process ends in turn, and is added to those before it.
    counted = [(Family("x", "counter", "", (Sample(value),)),) for value in spent]
    ended = list(accumulate(counted, lambda before, one: merge([before, one])))
    totals = [
        merge([known, *counted[number + 1 :]])[0].samples[0].value
        for number, known in enumerate(ended)
    ]

    assert len(set(totals)) == 1


@pytest.mark.parametrize(("rule", "value"), [("sum", 5), ("max", 3), ("min", 2)])
def test_a_family_says_how_it_is_merged(rule: Merge, value: float) -> None:
    [family] = merge(families_of({"x": {"a": number}}, rule) for number in (2, 3))

    assert (family.samples, family.merge) == ((Sample(value, (("of", "a"),)),), rule)


def test_whole_numbers_stay_whole_and_others_are_written_as_floats() -> None:
    def written(*values: float) -> str:
        return exposition(merge((Family("x", "counter", "", (Sample(v),)),) for v in values))

    assert written(1, 2).endswith("\nx 3\n")
    assert written(1, 0.5).endswith("\nx 1.5\n")
    assert written(0.1, 0.2, 0.3).endswith("\nx 0.6\n")


@pytest.mark.parametrize(("value", "total"), [(math.inf, "inf"), (-math.inf, "-inf")])
def test_what_has_no_end_swallows_the_rest(value: float, total: str) -> None:
    parts = [(Family("x", "gauge", "", (Sample(each),)),) for each in (0.5, value, 0.25)]

    assert exposition(merge(parts)).endswith(f"\nx {total}\n")


def test_buckets_ascend_and_stand_together() -> None:
    def part(route: str, counts: Sequence[int]) -> tuple[Family, ...]:
        samples = histogram((("route", route),), (0.5, 2.0, 10.0), counts, sum(counts) / 4)
        return (Family("took", "histogram", "", samples),)

    parts = [part("/b", (1, 0, 0, 0)), part("/a", (0, 2, 0, 1)), part("/a", (1, 1, 0, 0))]
    [family] = merge(parts)

    assert [
        (dict(sample.labels).get("le"), sample.value)
        for sample in family.samples
        if ("route", "/a") in sample.labels and sample.suffix == "_bucket"
    ] == [("0.5", 1), ("2.0", 4), ("10.0", 4), ("+Inf", 5)]
    assert [s.value for s in family.samples if s.suffix == "_count"] == [5, 1]
    assert [s.value for s in family.samples if s.suffix == "_sum"] == [1.25, 0.25]


def test_two_versions_of_a_family_are_one() -> None:
    parts = [(Family("x", "gauge", text, (Sample(1),)),) for text in ("Old.", "New.")]

    assert merge(parts) == merge(parts[::-1]) == (Family("x", "gauge", "Old.", (Sample(2),)),)


# --- What else is kept --------------------------------------------------------------------------


def test_of_what_is_gone_the_counters_stay() -> None:
    kinds = ("counter", "gauge", "histogram")
    kept = keep_counted(Family(kind, kind, "", ()) for kind in kinds)

    assert [family.name for family in kept] == ["counter", "histogram"]


def test_the_newer_survey_is_chosen() -> None:
    old, new = (1, ()), (2, ())

    assert choose_newest(None, None) is None
    assert choose_newest(old, None) == choose_newest(None, old) == old
    assert choose_newest(old, new) == choose_newest(new, old) == new


def test_workers_are_counted() -> None:
    found = {family.name: family.samples[0].value for family in count_workers(3, 2)}

    assert found == {"legation_workers": 3, "legation_workers_scraped": 2}


# --- Between processes --------------------------------------------------------------------------


@given(PARTS, st.sampled_from(RULES), st.none() | st.integers(0, 1 << 60))
def test_what_was_encoded_is_read_again(
    parts: list[dict[str, dict[str, float]]], rule: Merge, at_us: int | None
) -> None:
    families = merge(families_of(part, rule) for part in parts)
    snapshot = Snapshot(families, None if at_us is None else (at_us, families))

    assert decode_snapshot(encode_snapshot(snapshot)) == snapshot


@pytest.mark.parametrize("content", [b"", b"[[", b"\xff"])
def test_what_is_cut_off_is_told(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_snapshot(content)
