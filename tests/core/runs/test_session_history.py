"""The history of a run: how much of its session a model is told."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from legation.effects import Transact
from legation.models.conversation import Usage
from legation.runs.event_writer import EventWriter, Journal
from legation.runs.events import EventOrigin
from legation.runs.session_history import NO_HISTORY, History, fetch_same_history
from legation.store.run_reads import LongRecentRuns, RunsOfNumbers
from legation.store.run_rows import ClaimedRun
from legation.store.summaries import Summary, SummaryOfNumber
from legation_testing import Client, play

from .summary_kit import Scribe, ask, platform, questions

RUN: Final = ClaimedRun("o", "s", "r", "agent", "a", "{}", 5, 1, 4)
OUTPUT: Final = json.dumps({"messages": [{"role": "user", "content": "before"}]})
START: Final = {"history": [2, 3], "summary": 1, "summary_usage": [7, 2, 0, 0, 0]}
RUNS: Final = Transact("main", RunsOfNumbers("o", "s", (2, 3)))
SUMMARY: Final = Transact("main", SummaryOfNumber("o", "s", 1))


def same(start: Any, script: Any, *, paid: bool = True) -> History:
    writer = EventWriter(Journal("main", RUN, "n", 1), EventOrigin(RUN, "A"), streamed=True)
    return play(fetch_same_history("main", writer, start, paid=paid), script)


def test_a_run_that_goes_on_is_told_what_its_start_names() -> None:
    summary = Summary(1, "S", "r", "m", None, 5)
    script = [(RUNS, ((2, OUTPUT), (3, OUTPUT))), (SUMMARY, summary)]

    told = same(START, script)
    assert [m.role for m in told.messages] == ["system", "user", "user"]
    assert told.members == {"history": (2, 3), "summary": 1, "summary_usage": [7, 2, 0, 0, 0]}
    assert told.usage == Usage(7, 2)
    assert same(START, script, paid=False).usage == Usage()


def test_what_was_deleted_meanwhile_is_not_told() -> None:
    told = same(START, [(RUNS, ((3, OUTPUT),)), (SUMMARY, None)])

    assert [m.content for m in told.messages] == ["before"]
    assert (told.members["history"], "summary" in told.members) == ((3,), False)
    assert same({}, []) == NO_HISTORY


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
