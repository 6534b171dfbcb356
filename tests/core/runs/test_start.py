from __future__ import annotations

import pytest

from legation import Platform
from legation.config import Agent
from legation.effects import Now, RandomBytes, Sleep, ThisNode
from legation.runs.start import NewRun, start
from legation.store.failures import Busy, Conflict
from legation.store.run_reads import FetchRun
from legation.store.run_rows import RunRow
from legation.store.runs import Started, StartRun
from legation_testing import play

PLATFORM = Platform(agents=(Agent(id="a"),))
MEMBER = PLATFORM.context.cluster.member("main")
MEMBER.beaten_us, MEMBER.late_us = 1, 2
NEW = NewRun("o", "s", "r", "hello", pieces=False)
ROW = RunRow(
    *("o", "s", 1, "r", None, "agent", "a", "RUNNING", "{}", None, None, 0, 0, None, 0),
    *("n", 9, 1),
)


def test_a_run_that_is_there_is_somebody_elses_to_execute() -> None:
    started = play(
        start(PLATFORM.context, PLATFORM.registry.agents["a"], NEW),
        [(ThisNode(), "n"), (Now(), 1), (StartRun, Conflict("there")), (FetchRun, ROW)],
    )

    assert started == Started(1, None)


def test_a_database_that_stays_busy_is_not_asked_for_ever() -> None:
    tries = [
        step
        for pause in (0.05, 0.1, 0.2)
        for step in (
            (StartRun, Busy("x")),
            (FetchRun, None),
            (RandomBytes(2), b"\xff\xff"),
            (Sleep(pause), None),
        )
    ]
    script = [(ThisNode(), "n"), (Now(), 1), *tries]
    agent = PLATFORM.registry.agents["a"]

    with pytest.raises(Busy):
        play(start(PLATFORM.context, agent, NEW), [*script, (StartRun, Busy("x"))])
    waits = Started(2, None)
    assert play(start(PLATFORM.context, agent, NEW), [*script, (StartRun, waits)]) == waits
