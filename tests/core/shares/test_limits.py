"""Limits: each is a number in its range, and some subjects differ in some of them."""

from __future__ import annotations

import math

import pytest
from attrs import evolve

from legation.shares.limits import (
    LimitOverrides,
    Limits,
    NodeLimits,
    PlatformLimits,
    apply_overrides,
    find_faults,
)


@pytest.mark.parametrize(
    "wrong",
    [
        Limits(weight=0),
        Limits(weight=math.nan),
        Limits(runs=0),
        Limits(waiting=-1),
        Limits(tokens_per_day=-1),
        Limits(requests_per_second=math.inf),
        LimitOverrides(state_bytes=1),
        NodeLimits(body_bytes=1 << 20),
        PlatformLimits(runs=1 << 60),
    ],
    ids=str,
)
def test_a_limit_out_of_range_is_a_fault(wrong: object) -> None:
    ((name, sentence),) = find_faults(wrong)

    assert hasattr(wrong, name)
    assert sentence.startswith("must be a number from ")


@pytest.mark.parametrize("cls", [Limits, LimitOverrides, NodeLimits, PlatformLimits])
def test_the_defaults_are_in_range(cls: type[object]) -> None:
    assert [*find_faults(cls())] == []


def test_an_override_says_only_how_a_subject_differs() -> None:
    limits = Limits(runs=3, tokens_per_day=10)

    assert apply_overrides(limits, LimitOverrides(runs=5)) == evolve(limits, runs=5)
    assert apply_overrides(limits, LimitOverrides(tokens_per_day=0)) == evolve(
        limits, tokens_per_day=0
    )
    assert apply_overrides(limits, None) is limits
