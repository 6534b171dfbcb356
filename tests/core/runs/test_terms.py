from __future__ import annotations

import pytest

from legation.runs.terms import STATE_BYTES, TOKENS_PER_DAY, list_terms
from legation.shares.limits import Limits


@pytest.mark.parametrize(
    ("limits", "terms"),
    [
        (Limits(), {}),
        (Limits(tokens_per_day=0), {TOKENS_PER_DAY: 0}),
        (Limits(state_bytes=10), {STATE_BYTES: 10}),
        (Limits(tokens_per_day=5, state_bytes=10), {TOKENS_PER_DAY: 5, STATE_BYTES: 10}),
    ],
)
def test_a_run_takes_those_limits_along_that_are_not_everybodys(
    limits: Limits, terms: dict[str, int]
) -> None:
    assert list_terms(limits) == terms
