"""Limits: each is a number in its range."""

from __future__ import annotations

from typing import Any

import pytest

from legation.shares.limits import Limits


@pytest.mark.parametrize(
    "wrong",
    [{"weight": 0}, {"runs": 0}, {"waiting": -1}, {"tokens_per_day": -1}, {"state_bytes": 1}],
    ids=str,
)
def test_a_limit_out_of_range_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Limits(**wrong)
