"""Runs wait for their turn, whoever asks for them, and every place is given back."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any, Final

import pytest

from legation import Platform
from legation.config import Agent, Model
from legation.effects import Now, Nudge, Outcome, RandomBytes, Spawn, ThisNode, Transact
from legation.runs.continuation import go_on
from legation.runs.executor import execute_next, execute_waiting
from legation.runs.start import NewRun, start
from legation.runs.turn_state import TurnState
from legation.shares.limits import NodeLimits, PlatformLimits
from legation.shares.shares import Shares
from legation.store.failures import Unavailable
from legation.store.run_keeping import ClaimWaiting, Missed
from legation.store.run_rows import ClaimedRun, RunRow
from legation.store.run_steering import Continued, ContinueRun
from legation.store.runs import StartRun
from legation_testing import Client, play

SLOW: Final = "/agents/sloth/runs"


def platform(**limits: Any) -> Platform:
    return Platform(
        models=(Model("slow", "echo", delay_seconds=5.0),),
        agents=(Agent(id="sloth", model="slow"),),
        limits=PlatformLimits(**limits),
    )


def ask(client: Client, session_id: str, user: str = "ada", **fields: Any) -> int:
    form = {"message": "x", "session_id": session_id, "user_id": user, "background": True}
    return client.post(SLOW, form={**form, **fields}).status


def shares_of(client: Client) -> Shares:
    node = client.platform
    assert isinstance(node, Platform)
    return node.context.shares


def states(client: Client, user: str = "ada") -> list[str]:
    runs = [
        client.get(SLOW, query={"session_id": f"s{n}", "user_id": user}).json() for n in range(4)
    ]
    return [run["status"] for found in runs for run in found]


def test_the_runs_of_a_subject_take_turns_and_another_waits_for_none_of_them() -> None:
    with Client(partial(platform, runs=1)) as client:
        for n in range(3):
            assert ask(client, f"s{n}") == 202
        assert ask(client, "s0", "bob") == 202
        client.settle()
        assert states(client) == ["RUNNING", "PENDING", "PENDING"]
        assert states(client, "bob") == ["RUNNING"]

        client.advance(5.5)  # who ends a run lets the next one begin, and not a later look
        client.settle()
        assert states(client) == ["COMPLETED", "RUNNING", "PENDING"]
        client.advance(11.0)
        client.settle()
        assert states(client) == ["COMPLETED"] * 3
        assert shares_of(client).runs.total == 0


def test_a_node_without_room_lets_runs_wait() -> None:
    with Client(partial(platform, node=NodeLimits(runs=2))) as client:
        for n in range(2):
            ask(client, f"s{n}")
        ask(client, "s0", "bob")
        client.settle()
        assert states(client) == ["RUNNING", "PENDING"]  # one is left to who comes
        assert states(client, "bob") == ["RUNNING"]

        client.advance(12.0)
        client.settle()
        assert states(client) == ["COMPLETED"] * 2
        assert shares_of(client).runs.total == 0


def test_no_more_wait_than_may_and_who_is_refused_is_told_which_share() -> None:
    with Client(partial(platform, runs=1, waiting=1)) as client:
        assert [ask(client, f"s{n}") for n in range(2)] == [202, 202]
        form = {"message": "x", "session_id": "s3", "user_id": "ada", "background": True}
        refused = client.post(SLOW, form=form)

        assert (refused.status, refused.json()["error_code"]) == (429, "TOO_MANY_REQUESTS")
        assert dict(refused.headers)[b"ratelimit"].startswith(b'"waiting";r=0')
        assert len(states(client)) == 2
        assert ask(client, "s0", "bob") == 202


def test_a_run_that_goes_on_and_has_to_wait_gives_its_place_back(node: Platform) -> None:
    columns = ("ada", "s", 1, "r", None, "agent", "sloth", "PAUSED", '{"stream":false}', "{}")
    row = RunRow(*columns, None, 0, 0, 0, 0, None, None, 1)
    queued = Continued("PAUSED", kept=True, queued=True)
    state, outcome = TurnState(), Outcome[str]()
    going = go_on(node.context, "main", row, state, state, stream=False, outcome=outcome)
    steps = [(RandomBytes(8), b"12345678"), *WHO, (ContinueRun, queued), (Nudge, None)]

    assert play(going, steps) == queued
    assert (outcome.over, outcome.result) == (True, None)


CLAIMED: Final = ClaimedRun("ada", "s", "r", "agent", "sloth", '{"stream":false}', 1, 1)


@pytest.fixture
def node() -> Generator[Platform]:
    made = platform()
    member = made.context.cluster.member("main")
    member.beaten_us, member.late_us = 1, 2
    yield made
    assert made.context.shares.runs.total == 0
    assert made.context.shares.claims == {}


WHO: Final = [(ThisNode(), "n"), (Now(), 1)]


def test_a_run_that_is_missed_is_looked_for_once_more(node: Platform) -> None:
    steps = [*WHO, (ClaimWaiting, Missed()), *WHO, (ClaimWaiting, None)]

    assert play(execute_waiting(node.context, "main"), steps) is None


def test_one_program_claims_at_a_time_and_looks_again_for_the_others(node: Platform) -> None:
    claiming = execute_waiting(node.context, "main")
    for effect, answer in ((ThisNode(), "n"), (Now(), 1)):
        assert (next(claiming) if answer == "n" else claiming.send("n")) == effect
    assert isinstance(claiming.send(1), Transact)
    assert play(execute_waiting(node.context, "main"), []) is None

    assert claiming.send(None) == ThisNode()
    claiming.close()


def test_a_database_that_is_away_takes_no_place(node: Platform) -> None:
    with pytest.raises(Unavailable):
        play(execute_waiting(node.context, "main"), [*WHO, (ClaimWaiting, Unavailable("x"))])
    new = NewRun("ada", "s", "r", "hello", pieces=False)
    sloth = node.registry.agents["sloth"]
    with pytest.raises(Unavailable):
        play(start(node.context, sloth, new), [*WHO, (StartRun, Unavailable("x"))])


@pytest.mark.parametrize("closed", [True, False])
def test_a_program_that_is_closed_gives_its_place_back(node: Platform, closed: bool) -> None:
    handing = execute_next(node.context, "main", "n", CLAIMED)
    assert isinstance(next(handing), Spawn)
    assert node.context.shares.runs.count_held("ada") == 1
    if closed:
        handing.close()
        return
    with pytest.raises(StopIteration):
        handing.send(None)
    node.context.shares.runs.release("ada")  # as the program there does at its end


def test_an_end_beside_others_that_wait_is_no_failure_where_the_database_is_away() -> None:
    """The look that comes every second finds them."""
    with Client(partial(platform, runs=1)) as client:
        for n in range(2):
            ask(client, f"s{n}")
        client.settle()
        fault = client.fail_at(ClaimWaiting, Unavailable("away"))
        client.advance(5.5)
        client.settle()
        assert fault.hits == 1
        client.advance(12.0)
        client.settle()
        assert states(client) == ["COMPLETED"] * 2
