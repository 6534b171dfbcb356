from __future__ import annotations

import re

import pytest

from legation import Platform
from legation.config import Agent
from legation.effects import Now, RandomBytes, Sleep, ThisNode
from legation.runs.starting import NewRun, new_id, start
from legation.store.failures import Busy, Conflict
from legation.store.runs import FetchRun, RunRow, Started, StartRun
from legation_testing import play

PLATFORM = Platform(agents=(Agent(id="a"),))
NEW = NewRun("o", "s", "r", "hello", stream=False)
ROW = RunRow(
    *("o", "s", 1, "r", None, "agent", "a", "RUNNING", "{}", None, None, 0, 0, None, 0),
    *("n", 9, 1),
)


def test_an_id_is_a_random_uuid() -> None:
    made = play(new_id(), [(RandomBytes(16), bytes(range(16)))])

    assert re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", made
    )


def test_a_run_that_is_there_is_somebody_elses_to_execute() -> None:
    started = play(
        start(PLATFORM.workshop, PLATFORM.registry.agents["a"], NEW),
        [(ThisNode(), "n"), (Now(), 1), (StartRun, Conflict("there")), (FetchRun, ROW)],
    )

    assert started == Started(1, None)


def test_a_database_that_stays_busy_is_not_asked_for_ever() -> None:
    tries = [
        step
        for pause in (0.05, 0.1, 0.2)
        for step in ((StartRun, Busy("x")), (FetchRun, None), (Sleep(pause), None))
    ]
    script = [(ThisNode(), "n"), (Now(), 1), *tries]
    agent = PLATFORM.registry.agents["a"]

    with pytest.raises(Busy):
        play(start(PLATFORM.workshop, agent, NEW), [*script, (StartRun, Busy("x"))])
    waits = Started(2, None)
    assert play(start(PLATFORM.workshop, agent, NEW), [*script, (StartRun, waits)]) == waits
