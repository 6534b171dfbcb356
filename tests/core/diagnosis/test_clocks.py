"""The clock of the machine against others."""

from __future__ import annotations

import pytest

from legation.diagnosis.clocks import TOLERANCE_US, judge_clock

NOW_US = 1_767_225_600_000_000


@pytest.mark.parametrize(
    ("ahead_us", "spread_us", "told"),
    [
        (0, 0, None),
        (TOLERANCE_US, 0, None),
        (-TOLERANCE_US, 0, None),
        (TOLERANCE_US + 1, 0, "5 s ahead of"),
        (TOLERANCE_US + 1, 1, None),
        (-90_000_000, 1_000_000, "90 s behind"),
    ],
)
def test_a_clock_differs_where_that_is_sure(
    ahead_us: int, spread_us: int, told: str | None
) -> None:
    found = list(judge_clock("databases.main", NOW_US, NOW_US - ahead_us, spread_us))

    assert [one.code for one in found] == ["clock_differs"] * (told is not None)
    assert all(str(told) in one.message for one in found)
