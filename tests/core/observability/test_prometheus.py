from __future__ import annotations

import math
import re
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from legation.observability.prometheus import Family, Labels, Sample, exposition, histogram

NAMES: Final = st.from_regex(re.compile(r"[a-z][a-z0-9_]{0,9}", re.ASCII), fullmatch=True)
# The parser splits lines as Python does, at more places than the format.
TEXTS: Final = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp", "Cs")))
LABELS: Final = st.dictionaries(NAMES, TEXTS | st.just('\\n"\n\\'), max_size=3)
NUMBERS: Final = st.integers(-(1 << 50), 1 << 50) | st.floats(allow_nan=False)


def read(text: str) -> list[tuple[str, str, str, list[tuple[str, dict[str, str], float]]]]:
    return [
        (f.name, f.type, f.documentation, [(s.name, s.labels, s.value) for s in f.samples])
        for f in text_string_to_metric_families(text)
    ]


def test_a_family_is_its_help_its_type_and_its_samples() -> None:
    samples = (Sample(1, (("a", "x"), ("b", "y"))), Sample(0.25))
    text = exposition([Family("things", "gauge", "How many.", samples)])

    assert text == (
        "# HELP things How many.\n"
        "# TYPE things gauge\n"
        'things{a="x",b="y"} 1\n'
        "things 0.25\n"
    )  # fmt: skip


def test_a_family_without_samples_is_left_out() -> None:
    assert exposition([Family("things", "gauge", "How many.", ())]) == ""


def test_common_labels_are_on_every_sample() -> None:
    families = [Family("things", "gauge", "", (Sample(1, (("a", "x"),)), Sample(2)))]

    [(_, _, _, samples)] = read(exposition(families, (("worker", "7"),)))
    assert [labels for _, labels, _ in samples] == [{"worker": "7", "a": "x"}, {"worker": "7"}]


@given(NAMES, LABELS, NUMBERS, TEXTS)
def test_prometheus_reads_what_was_written(
    name: str, labels: dict[str, str], value: float, text: str
) -> None:
    family = Family(name, "gauge", text, (Sample(value, tuple(labels.items())),))
    [(found, kind, _, samples)] = read(exposition([family]))

    assert (found, kind) == (name, "gauge")
    assert samples == [(name, labels, float(value))]


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_what_has_no_end_is_read_as_that(value: float) -> None:
    [(_, _, _, [(_, _, found)])] = read(exposition([Family("x", "gauge", "", (Sample(value),))]))
    assert found == value


@given(st.lists(st.integers(0, 1000), min_size=4, max_size=4))
def test_buckets_of_a_histogram_hold_those_before_them(counts: list[int]) -> None:
    labels: Labels = (("route", "/x"),)
    samples = histogram(labels, (0.1, 0.5, 1.0), counts, 12.5)
    [(name, kind, _, found)] = read(exposition([Family("took", "histogram", "", samples)]))

    assert (name, kind) == ("took", "histogram")
    bounds = [told["le"] for n, told, _ in found if n == "took_bucket"]
    held = [value for n, _, value in found if n == "took_bucket"]
    assert bounds == ["0.1", "0.5", "1.0", "+Inf"]
    assert held == [sum(counts[: end + 1]) for end in range(4)]
    assert ("took_sum", {"route": "/x"}, 12.5) in found
    assert ("took_count", {"route": "/x"}, sum(counts)) in found
