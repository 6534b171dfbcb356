from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from legation.tools.bounds import unmet_bounds

SIZES: dict[str, Any] = {"minLength": 2, "maxLength": 3, "minItems": 1, "maxProperties": 0}
RANGE: dict[str, Any] = {"minimum": 0, "exclusiveMaximum": 0.3, "multipleOf": 0.1}


@pytest.mark.parametrize(
    ("keywords", "value", "unmet"),
    [
        (SIZES, "a", ["must have at least 2 characters"]),
        (SIZES, "abcd", ["must have at most 3 characters"]),
        (SIZES, [], ["must have at least 1 items"]),
        (SIZES, {"a": 1}, ["must have at most 0 members"]),
        (SIZES, 7, []),
        (RANGE, -1, ["must be at least 0"]),
        (RANGE, 0.3, ["must be less than 0.3"]),
        (RANGE, 0.25, ["must be a multiple of 0.1"]),
        (RANGE, "a", []),
        (RANGE, True, []),
        (RANGE, None, []),
        ({"exclusiveMinimum": 1, "maximum": 1}, 1, ["must be more than 1"]),
        ({"maximum": 1}, 2, ["must be at most 1"]),
        ({"multipleOf": 3}, 10**400, ["must be a multiple of 3"]),
        ({"multipleOf": 0.5}, 10**400, ["must be a multiple of 0.5"]),
        (RANGE, Decimal("0.2"), []),
        (RANGE, Decimal("0.30"), ["must be less than 0.3"]),
        (RANGE, Decimal("0.15"), ["must be a multiple of 0.1"]),
        ({"minimum": 0.1}, Decimal("0.1"), []),
        ({"multipleOf": 0.01}, Decimal("1E+999"), []),
        ({"multipleOf": 3}, Decimal("1E-999"), ["must be a multiple of 3"]),
    ],
)
def test_bounds_that_a_value_does_not_meet_are_said(
    keywords: dict[str, Any], value: Any, unmet: list[str]
) -> None:
    assert list(unmet_bounds(keywords, value)) == unmet
