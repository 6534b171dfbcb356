from __future__ import annotations

import pytest

from legation.runs.terms import MODEL_CALLS, STATE_BYTES, TOKENS_PER_DAY, list_terms
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
    assert list_terms(limits, scoped=False) == terms


def test_a_run_of_a_caller_with_scopes_takes_its_calls_of_models_along() -> None:
    assert list_terms(Limits(model_calls=3), scoped=True) == {MODEL_CALLS: 3}
