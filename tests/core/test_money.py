from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.money import MOST_NANO, nano_of, number_of, parse_usd, render_usd


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("0", 0),
        ("2.50", 2_500_000_000),
        ("0.15", 150_000_000),
        ("0.000000001", 1),
        ("007", 7_000_000_000),
        ("999999.999999999", MOST_NANO),
    ],
)
def test_a_decimal_is_read_exactly(text: str, nano: int) -> None:
    assert parse_usd(text) == nano


@pytest.mark.parametrize(
    "text",
    [
        *("", "-1", "+1", "1.", ".5", "1,5", "NaN", "inf", "Infinity", "1e30", "1e-9", " 1", "1\n"),
        *("0x10", "1_000", "٣", "1" + "0" * 30, "0.0000000001", "9" * 100_000),
        *(None, 1, 2.5, True, float("nan"), ["1"]),
    ],
    ids=lambda text: repr(text)[:20],
)
def test_whatever_else_there_is_is_no_amount(text: Any) -> None:
    assert parse_usd(text) is None


@pytest.mark.parametrize(
    ("nano", "text"),
    [
        (0, "0.00"),
        (2_500_000_000, "2.50"),
        (1, "0.000000001"),
        (1_234_000_000, "1.234"),
        (MOST_NANO, "999999.999999999"),
    ],
)
def test_an_amount_is_shown_as_a_decimal(nano: int, text: str) -> None:
    assert (render_usd(nano), parse_usd(render_usd(nano))) == (text, nano)


@given(st.integers(0, MOST_NANO))
def test_a_number_of_json_loses_nothing(nano: int) -> None:
    assert nano_of(number_of(nano)) == nano
    assert repr(float(render_usd(nano))) == repr(number_of(nano))


@pytest.mark.parametrize(
    "amount", [-1e-9, -1, 1e30, float("nan"), float("inf"), True, "1", None, 10**400]
)
def test_a_number_that_is_no_amount_is_none(amount: object) -> None:
    assert nano_of(amount) is None
