"""The turns of runs on both engines: SQL and the model of the rules agree."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from legation.migrations.catalogue import CATALOGUE

from ..core.store.test_turns import ROUNDS, step
from ..drivers import Driver
from ..turns_model import Model
from .migrating import driver_of, move


@pytest.fixture(params=["sqlite", "postgresql"])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Driver]:
    url = f"sqlite:///{tmp_path}/main.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres")
    with closing(driver_of(url)) as made:
        move(made, CATALOGUE.latest)
        yield made


@pytest.mark.parametrize("seed", range(3))
def test_sql_and_the_model_agree(driver: Driver, seed: int) -> None:
    random, model = Random(seed), Model()
    for number in range(ROUNDS):
        step(random, driver, model, number)
