"""Which effects are meant, and how they are shown."""

from __future__ import annotations

from typing import Any

import pytest

from legation.effects import Now, RandomBytes, Transact
from legation_testing.matching import Expected, describe, matches, show

from .parcels import Accept, Claim, Deliveries

ACCEPT = Transact("main", Accept("p"))


def is_now(effect: Any) -> bool:
    """Tell whether `effect` reads the clock."""
    return bool(effect == Now())


@pytest.mark.parametrize(
    ("expected", "effect", "meant"),
    [
        (Now(), Now(), True),
        (RandomBytes(1), RandomBytes(2), False),
        (RandomBytes, RandomBytes(2), True),
        (RandomBytes, Now(), False),
        (Accept("p"), ACCEPT, True),
        (Accept("q"), ACCEPT, False),
        (Accept("p"), Now(), False),
        (Accept, ACCEPT, True),
        (Claim, ACCEPT, False),
        (is_now, Now(), True),
        (is_now, ACCEPT, False),
    ],
)
def test_an_effect_is_meant_by_value_type_unit_or_predicate(
    expected: Expected, effect: Any, meant: bool
) -> None:
    assert matches(expected, effect) is meant


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (RandomBytes(1), "RandomBytes(size=1)"),
        (Deliveries(), "Deliveries()"),
        (Claim, "any Claim"),
        (is_now, "an effect for which is_now holds"),
    ],
)
def test_what_is_expected_is_shown_as_a_person_would_write_it(
    expected: Expected, text: str
) -> None:
    assert describe(expected) == text


def test_a_long_value_is_shown_without_its_middle() -> None:
    text = show("a" * 1_000 + "b" * 1_000)

    assert len(text) == 403
    assert text.startswith("'aaa")
    assert text.endswith("bbb'")
