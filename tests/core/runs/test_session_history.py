"""The history of a run: how much of its session a model is told."""

from __future__ import annotations

from typing import Any

import pytest

from legation.effects import Transact
from legation.store.run_reads import LongRecentRuns
from legation_testing import Client

from .summary_kit import Scribe, ask, platform, questions


def test_the_history_is_bounded_by_tokens() -> None:
    model = Scribe()
    with Client(platform(model, summaries=None, history_runs=9, history_tokens=4)) as client:
        ask(client, 1, 5)

    assert questions(model.told[-1]) == ["q3", "q4", "q5"]


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ({"num_history_runs": 1}, ["q2", "q3"]),
        ({"num_history_runs": 0}, ["q3"]),
        ({"num_history_runs": 99}, ["q1", "q2", "q3"]),
        ({"add_history_to_context": False}, ["q3"]),
        ({"add_history_to_context": True}, ["q1", "q2", "q3"]),
    ],
)
def test_a_request_may_ask_for_less_history(argument: Any, expected: list[str]) -> None:
    model = Scribe()
    with Client(platform(model, summaries=None)) as client:
        ask(client, 1, 2)
        ask(client, 3, 3, **argument)

    assert questions(model.told[-1]) == expected


def test_a_long_history_is_read_where_nobody_waits_for_it() -> None:
    model = Scribe()
    with Client(platform(model, summaries=None)) as client:
        for _ in range(2):
            client.run("a", "x" * 200_000, session_id="s")
        ask(client, 3, 3)
        units = [one.effect.unit for one in client.effects if isinstance(one.effect, Transact)]

    assert sum(isinstance(unit, LongRecentRuns) for unit in units) == 1
    assert len(model.told[-1].messages) == 5
