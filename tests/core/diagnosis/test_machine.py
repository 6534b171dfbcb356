"""The limit of open files."""

from __future__ import annotations

import pytest

from legation.diagnosis.machine import SPARE_FILES, judge_open_files


@pytest.mark.parametrize(
    ("limit", "codes"),
    [(None, []), (1_000 + SPARE_FILES, []), (999 + SPARE_FILES, ["open_files_low"])],
)
def test_a_process_has_to_be_allowed_all_that_it_may_open(
    limit: int | None, codes: list[str]
) -> None:
    assert [one.code for one in judge_open_files(limit, 1_000)] == codes
