from __future__ import annotations

from typing import Any, Final

import pytest

from legation import (
    Agent,
    ConfigurationError,
    LimitOverrides,
    ModelPrice,
    Platform,
    PlatformLimits,
    Prices,
    Team,
)
from legation.config import structure
from legation.http.refusals import Fault
from legation.models.conversation import Usage
from legation.models.prices import Priced
from legation.money import SENTENCE
from legation_testing import ScriptedModel

SMALL: Final = ModelPrice(input="0.15", output="0.60")
BUDGET: Final = PlatformLimits(cost_per_day="2.50")


def answer(message: str) -> str:
    return message


def five(model: Priced, usage: Usage, now_us: int) -> int:
    return 5


def platform(**options: Any) -> Platform:
    agents = (
        Agent(id="a", model=ScriptedModel([], id="known")),
        Agent(id="b", model=ScriptedModel([], id="unknown")),
        Agent(id="c", run=answer),
        Agent(id="d"),
    )
    teams = (Team(id="t", members=("a",), model=ScriptedModel([], id="unknown")),)
    given: dict[str, Any] = {"agents": agents, "teams": teams, **options}
    return Platform(**given)


def faults_of(**options: Any) -> list[tuple[str, str]]:
    with pytest.raises(ConfigurationError) as caught:
        platform(**options)
    return [(fault.path, fault.message) for fault in caught.value.faults]


def test_models_without_a_price_are_named_where_prices_are_asked_for() -> None:
    sentence = "Legation:unknown has no price: its runs show no cost"
    made = platform(prices=Prices(models={"known": SMALL}))

    assert made.find_unpriced() == (
        Fault("agents[1].model", sentence),
        Fault("teams[0].model", sentence),
    )
    assert platform().find_unpriced() == ()
    assert platform().registry.prices is None


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"limits": BUDGET}, "limits.cost_per_day"),
        (
            {"limits": PlatformLimits(anonymous=LimitOverrides(cost_per_day="1"))},
            "limits.anonymous.cost_per_day",
        ),
        (
            {"limits": PlatformLimits(scopes={"x:y": LimitOverrides(cost_per_day="1")})},
            'limits.scopes."x:y".cost_per_day',
        ),
        (
            {"limits": PlatformLimits(subjects={"ada": LimitOverrides(cost_per_day="1")})},
            'limits.subjects."ada".cost_per_day',
        ),
        (
            {"teams": (Team(id="t", members=("a",), limits=LimitOverrides(cost_per_day="1")),)},
            "teams[0].limits.cost_per_day",
        ),
    ],
)
def test_a_model_that_a_budget_would_not_count_is_a_fault(
    options: dict[str, Any], path: str
) -> None:
    sentence = f"has no price, and {path} would not count it: give one in prices.models"
    found = faults_of(prices=Prices(models={"known": SMALL}), **options)

    assert found[0] == ("agents[1].model", f"Legation:unknown {sentence}")
    assert {one.partition(" ")[2] for _, one in found} == {sentence}
    assert ("agents[0].model", f"Legation:known {sentence}") in faults_of(**options)


def test_a_budget_of_priced_models_is_taken() -> None:
    prices = Prices(models={"known": SMALL}, source=five)

    assert platform(prices=prices, limits=BUDGET).find_unpriced() == ()


def test_what_is_no_price_and_no_source_is_a_fault_and_no_model_is_named_for_it() -> None:
    models = {"known": ModelPrice(input="NaN", output="-1")}
    assert faults_of(prices=Prices(models=models, source="genai-prices"), limits=BUDGET) == [
        ('prices.models."known".input', SENTENCE),
        ('prices.models."known".output', SENTENCE),
        (
            "prices.source",
            "'genai-prices' is imported from a configuration file alone; give the function itself",
        ),
    ]
    source: Any = 5
    assert faults_of(prices=Prices(source=source), limits=BUDGET) == [
        ("platform.prices.source", "expected a function or a string, not int")
    ]


@pytest.mark.parametrize("amount", ["-1", "NaN", "10" * 30, "2,50", ""])
def test_a_budget_that_is_no_amount_is_a_fault(amount: str) -> None:
    assert ("limits.cost_per_day", SENTENCE) in faults_of(
        limits=PlatformLimits(cost_per_day=amount), prices=Prices(source=five)
    )


def test_a_table_of_prices_is_structured() -> None:
    table = {"input": "0.15", "output": "0.60", "cached": "0.075"}
    config = structure({"prices": {"source": "genai-prices", "models": {"gpt-5": table}}})

    assert config.prices == Prices(
        source="genai-prices",
        models={"gpt-5": ModelPrice(input="0.15", output="0.60", cached="0.075")},
    )
    assert structure({}).prices is None
    assert structure({"prices": {}}).prices == Prices()
    assert structure({"limits": {"cost_per_day": "2.50"}}).limits == BUDGET


@pytest.mark.parametrize(
    ("table", "faults"),
    [
        (5, [("prices", "expected a table")]),
        (
            {"source": 5, "models": 6, "other": 7},
            [
                ("prices.other", "unknown key"),
                ("prices.source", "expected a string"),
                ("prices.models", "expected a table of tables"),
            ],
        ),
        ({"models": {"a.b": 5}}, [('prices.models."a.b"', "expected a table")]),
        (
            {"models": {"a.b": {"input": 1.25, "extra": "1"}}},
            [
                ('prices.models."a.b".input', "expected a string"),
                ('prices.models."a.b".output', "missing: output"),
                ('prices.models."a.b"', "unknown: extra"),
            ],
        ),
    ],
)
def test_a_table_that_is_none_is_a_fault(table: Any, faults: list[tuple[str, str]]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        structure({"prices": table})
    found = [(fault.path, fault.message) for fault in caught.value.faults]

    assert sorted(found) == sorted(faults)
