from __future__ import annotations

from typing import Any, Final

import pytest

from legation.models.conversation import Usage
from legation.models.echo import Echo
from legation.models.prices import (
    ModelPrice,
    Priced,
    PriceList,
    PriceSource,
    find_price_faults,
    make_price_list,
)
from legation.money import MOST_NANO, SENTENCE
from legation_testing import ScriptedModel

SMALL: Final = ModelPrice(input="0.15", output="0.60", cached="0.075")
LARGE: Final = ModelPrice(input="3", output="15", cached="0.30", cache_write="3.75", reasoning="20")
MODEL: Final = ScriptedModel([], id="m")


def source_of(cost: Any) -> PriceSource:
    """Return a source that says `cost` of everything."""

    def source(model: Priced, usage: Usage, now_us: int) -> int | None:
        found: int | None = cost
        return found

    return source


def price(one: ModelPrice, usage: Usage) -> int | None:
    return make_price_list({"m": one}, None).price(MODEL, usage, 0)


@pytest.mark.parametrize(
    ("one", "usage", "nano"),
    [
        # 800 of 0.15, 200 of 0.075 and 500 of 0.60 for a million: 0.000435 dollars.
        (SMALL, Usage(1_000, 500, cache_read_tokens=200), 435_000),
        # 5,000 of 3, 4,000 of 0.30, 1,000 of 3.75, 1,500 of 15 and 500 of 20: 0.05245 dollars.
        (LARGE, Usage(10_000, 2_000, 500, 4_000, 1_000), 52_450_000),
        # What has no price of its own has that of other input and output.
        (ModelPrice(input="1", output="2"), Usage(10, 10, 5, 5, 5), 30_000),
        (SMALL, Usage(), 0),
        # More in the cache than there is at all, and more thought than said.
        (SMALL, Usage(10, 0, 0, 99, 99), 750),
        (LARGE, Usage(0, 10, 99), 200_000),
        # A half is rounded up, and less than that is nothing: the sum once, not each part.
        (ModelPrice(input="0.0005", output="0"), Usage(1), 1),
        (ModelPrice(input="0.000499999", output="0"), Usage(1), 0),
        (ModelPrice(input="0.00025", output="0.00025"), Usage(1, 1), 1),
        (ModelPrice(input="999999.999999999", output="0"), Usage(1 << 31), MOST_NANO),
    ],
)
def test_a_price_is_exact(one: ModelPrice, usage: Usage, nano: int) -> None:
    assert price(one, usage) == nano


def test_ones_own_price_comes_first_and_that_of_a_provider_before_others() -> None:
    def source(model: Priced, usage: Usage, now_us: int) -> int | None:
        return now_us if model.id == "other" else None

    own = {"m": SMALL, f"{MODEL.provider}:m": LARGE, "x": SMALL}
    known = make_price_list(own, source)

    assert known.price(MODEL, Usage(1_000_000), 7) == 3_000_000_000
    assert known.price(ScriptedModel([], id="x"), Usage(1_000_000), 7) == 150_000_000
    assert known.price(ScriptedModel([], id="other"), Usage(), 7) == 7
    assert known.price(ScriptedModel([], id="nobody knows"), Usage(), 7) is None
    assert [known.knows(ScriptedModel([], id=name)) for name in ("m", "other", "no")] == [
        *(True, True, False)
    ]


def test_what_echoes_costs_nothing_unless_it_has_a_price() -> None:
    assert PriceList().price(Echo(), Usage(5, 5), 0) == 0
    assert make_price_list({"echo": SMALL}, None).price(Echo(), Usage(1_000_000), 0) == 150_000_000
    assert PriceList().price(MODEL, Usage(5, 5), 0) is None


@pytest.mark.parametrize("cost", [-1, 0.5, float("nan"), "1", True, ["1"]])
def test_a_source_that_gives_no_amount_is_an_error(cost: Any) -> None:
    with pytest.raises(ValueError, match="no number of nano-USD"):
        PriceList(source=source_of(cost)).price(MODEL, Usage(1), 0)
    assert not PriceList(source=source_of(cost)).knows(MODEL)


def test_an_amount_beyond_all_measure_is_the_most_there_is() -> None:
    assert PriceList(source=source_of(10**30)).price(MODEL, Usage(1), 0) == MOST_NANO


@pytest.mark.parametrize("amount", ["-1", "NaN", "1" + "0" * 30, "inf", "", "1e3"])
def test_an_amount_that_is_none_is_a_fault_with_its_path(amount: str) -> None:
    prices = {"a.b": ModelPrice(input=amount, output="1", cached=amount), "c": SMALL}

    assert list(find_price_faults(prices)) == [
        ('."a.b".input', SENTENCE),
        ('."a.b".cached', SENTENCE),
    ]


def test_a_long_list_is_taken_and_one_without_end_is_not() -> None:
    prices = {f"m{number}": SMALL for number in range(10_000)}
    assert list(find_price_faults(prices)) == []
    assert make_price_list(prices, None).knows(ScriptedModel([], id="m9999"))

    prices["one more"] = SMALL
    assert list(find_price_faults(prices)) == [
        ("", "has 10001 prices: no more than 10000 are taken")
    ]
