from __future__ import annotations

import pytest

from legation import Platform
from legation.config import Agent, Database, Model
from legation.effects import Now, Outcome, RandomBytes, Sleep, ThisNode
from legation.runs.start import NewRun, start
from legation.shares.limits import LimitOverrides, PlatformLimits
from legation.store.failures import Busy, Conflict
from legation.store.run_reads import FetchRun
from legation.store.run_rows import RunRow
from legation.store.runs import Started, StartRun
from legation_testing import Client, play

from ...callers import Issuer

PLATFORM = Platform(agents=(Agent(id="a"),))
MEMBER = PLATFORM.context.cluster.member("main")
MEMBER.beaten_us, MEMBER.late_us = 1, 2
NEW = NewRun("o", "s", "r", "hello", pieces=False)
ROW = RunRow(
    *("o", "s", 1, "r", None, "agent", "a", "RUNNING", "{}", None, None, 0, 0, None, 0),
    *("n", 9, 1),
)


@pytest.mark.parametrize("outcome", [None, Outcome[str]()], ids=["left", "joined"])
def test_a_run_that_is_there_is_somebody_elses_to_execute(outcome: Outcome[str] | None) -> None:
    started = play(
        start(PLATFORM.context, PLATFORM.registry.agents["a"], NEW, outcome=outcome),
        [(ThisNode(), "n"), (Now(), 1), (StartRun, Conflict("there")), (FetchRun, ROW)],
    )

    assert started == Started(1, None)
    assert outcome is None or (outcome.over, outcome.result) == (True, None)


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


def test_the_calls_of_models_of_a_run_are_limited_by_the_scope_it_was_asked_with() -> None:
    issuer = Issuer()
    platform = Platform(
        databases=(Database("main", "sqlite://"),),
        models=(Model("slow", "echo", delay_seconds=10.0),),
        agents=(Agent(id="slow", model="slow"),),
        authorization=True,
        authorization_config=issuer.authorization(),
        limits=PlatformLimits(scopes={"batch:run": LimitOverrides(model_calls=1)}),
    )
    scopes = ("agents:run", "agents:read", "sessions:read")
    with Client(platform, token=issuer.token(*scopes, "batch:run", sub="ada")) as client:
        path = "/agents/slow/runs"
        for session in ("s", "t"):
            form = {"message": "x", "background": True, "session_id": session}
            client.post(path, form=form).expect_success()
        other = issuer.token(*scopes, sub="bob")
        for session in ("u", "v"):
            form = {"message": "x", "background": True, "session_id": session}
            client.post(path, form=form, token=other).expect_success()

        client.advance(11)
        assert statuses(client) == ["COMPLETED", "RUNNING"]
        assert statuses(client, other, "uv") == ["COMPLETED", "COMPLETED"]
        client.advance(12)
        assert statuses(client) == ["COMPLETED", "COMPLETED"]


def statuses(client: Client, token: str | None = None, sessions: str = "st") -> list[str]:
    paths = [f"/sessions/{one}/runs" for one in sessions]
    found = [client.get(path, token=token) if token else client.get(path) for path in paths]
    return [answer.json()[0]["status"] for answer in found]
