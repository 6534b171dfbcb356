"""A joined run whose outcome is told to whoever began it: the same answer, whatever comes between.

Whoever waits may leave, and the run may be cancelled, deleted or given back, at any turn.
`LEGATION_NIGHTLY=1` tries every pair of turns, and not every fifth.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import islice, product
from typing import Any, Final

import pytest
from attrs import define, field

from legation import Agent, Platform, Request, tool
from legation.effects import AwaitOutcome, Inspect, Program, Sleep, Spawn, Transact
from legation.http.messages import Answer, Response
from legation.models.conversation import Listener, Prompt, Reply
from legation.store.failures import CommitLost, Unavailable
from legation.store.run_reads import FetchEvents, FetchRun
from legation.store.runs import FinishRun, StartRun
from legation_testing import Client, Exchange, ScriptedModel, call

PATH: Final = "/agents/a/runs"
HEADERS: Final = ((b"host", b"localhost"),)
READS: Final = (FetchRun, FetchEvents)
LONG: Final = "a long message " * 100


@define(eq=False)
class Counting:
    """A model that counts how often it is asked, and takes its time."""

    asked: int = 0
    id: str = "counting"
    name: str = "Counting"
    provider: str = "Legation"

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        self.asked += 1
        yield from listener.settle()
        yield from Sleep(MODEL_SECONDS)
        return Reply("done")


@tool(requires_confirmation=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def fail(message: str) -> str:
    """Fail."""
    raise ZeroDivisionError(message)


def reads_behind_the_start(client: Client) -> list[Any]:
    """Return what was read of the run by the request that began it, and after it began."""
    effects = [done.effect for done in client.effects if done.program != "ExecuteRun"]
    begun = [index for index, one in enumerate(effects) if isinstance(one, Spawn)]
    units = [one.unit for one in effects[begun[-1] :] if isinstance(one, Transact)]
    return [unit for unit in units if isinstance(unit, READS)]


@pytest.mark.parametrize(
    ("agent", "form"),
    [
        (Agent(id="a"), {"message": "hello"}),
        (Agent(id="a"), {"message": LONG, "session_state": '{"seen": [1, "\\u00e9"]}'}),
        (Agent(id="a", run=fail), {"message": "hello"}),
        (
            Agent(id="a", model=ScriptedModel([call("pay", amount=3)]), tools=[pay]),
            {"message": "x"},
        ),
    ],
    ids=["completed", "long and with a state", "failed", "paused"],
)
def test_what_is_told_is_what_is_stored(agent: Agent, form: dict[str, str]) -> None:
    with Client(Platform(agents=[agent]), raise_errors=False) as client:
        told = client.post(PATH, form={**form, "session_id": "s", "stream": "false"})
        assert told.expect_success().json()["status"] in {"COMPLETED", "ERROR", "PAUSED"}
        assert reads_behind_the_start(client) == []

        stored = client.get(f"{PATH}/{told.json()['run_id']}?session_id=s")
        assert stored.body == told.body


def test_what_is_told_within_a_trace_is_what_is_stored() -> None:
    with Client(Platform(agents=[Agent(id="a")])) as client:
        trace = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
        form = {"message": "x", "session_id": "s", "stream": "false"}
        told = client.post(PATH, form=form, headers=trace).expect_success()

        assert reads_behind_the_start(client) == []
        assert client.get(f"{PATH}/{told.json()['run_id']}?session_id=s").body == told.body


def test_what_a_continued_run_tells_is_what_is_stored() -> None:
    model = ScriptedModel([call("pay", amount=3), "Paid."])
    with Client(Platform(agents=[Agent(id="a", model=model, tools=[pay])])) as client:
        paused = client.post(
            PATH, form={"message": "x", "session_id": "s", "stream": "false"}
        ).json()
        tools = [{**paused["tools"][0], "confirmed": True}]
        form = {"tools": json.dumps(tools), "session_id": "s", "stream": "false"}
        told = client.post(f"{PATH}/{paused['run_id']}/continue", form=form).expect_success()

        assert told.json()["status"] == "COMPLETED"
        assert reads_behind_the_start(client) == []
        assert client.get(f"{PATH}/{paused['run_id']}?session_id=s").body == told.body


def test_a_run_whose_start_is_found_again_tells_its_outcome() -> None:
    with Client(Platform(agents=[Agent(id="a")])) as client:
        client.fail_at(lambda effect: is_unit(effect, StartRun), CommitLost("x"), after=True)
        told = client.post(PATH, form={"message": "x", "stream": "false"}).expect_success()

        assert told.json()["status"] == "COMPLETED"
        assert sum(isinstance(done.effect, AwaitOutcome) for done in client.effects) == 1


def test_an_end_that_is_stored_twice_is_told_as_it_was_stored() -> None:
    with Client(Platform(agents=[Agent(id="a")])) as client:
        client.fail_at(lambda effect: is_unit(effect, FinishRun), CommitLost("x"), after=True)
        form = {"message": "x", "stream": "false", "session_id": "s", "session_state": '{"n": 1}'}
        told = client.post(PATH, form=form).expect_success()

        assert told.json()["session_state"] == {"n": 1}
        assert client.get(f"{PATH}/{told.json()['run_id']}?session_id=s").body == told.body


def test_a_run_whose_end_is_not_stored_here_is_followed() -> None:
    with Client(Platform(agents=[Agent(id="a")])) as client:
        client.fail_at(lambda effect: is_unit(effect, FinishRun), Unavailable("x"), times=None)
        waiting = client.begin("POST", PATH, form={"message": "x", "stream": "false"})
        client.advance(3_600)

        assert waiting.response().status == 503
        assert "The run does not go on" in waiting.response().json()["detail"]
        assert "run_record_failed" in {line.event for line in client.logs}


def test_a_run_that_waits_for_its_turn_is_followed() -> None:
    with Client(Platform(agents=[Agent(id="a", model=Counting())])) as client:
        form = {"message": "x", "session_id": "s", "stream": "false"}
        first, second = (client.begin("POST", PATH, form=form) for _ in range(2))

        assert second.response().json()["status"] == "COMPLETED"
        assert first.response().json()["status"] == "COMPLETED"


def is_unit(effect: object, kind: type[Any]) -> bool:
    unit: Any = getattr(effect, "unit", None)
    return isinstance(getattr(unit, "unit", unit), kind)


# --- Every interleaving ------------------------------------------------------------------------

TURNS: Final = 13
"""Behind so many turns beside it the model is asked, or the run is over."""

MODEL_SECONDS: Final = 1.0
EVERY: Final = 1 if "LEGATION_NIGHTLY" in os.environ else 5


def after(seconds: float, turns: int, act: Callable[[], Program[Any]]) -> Program[Any]:
    """Do `act` when all others have had so many turns behind `seconds`."""
    if seconds:  # to sleep for none is to come after all others
        yield from Sleep(seconds)
    for _ in range(turns):
        yield from Inspect("main")
    return (yield from act())


def ask(client: Client, method: str, path: str) -> Program[Answer]:
    platform = client.platform
    assert isinstance(platform, Platform)
    return (yield from platform.answer(Request(method, path, HEADERS)))


def find_runs(client: Client) -> Program[list[str]]:
    listed = yield from ask(client, "GET", "/sessions/s/runs")
    assert isinstance(listed, Response)
    return [] if listed.status != 200 else [run["run_id"] for run in json.loads(listed.body)]


def cancel(client: Client) -> Program[None]:
    for run_id in (yield from find_runs(client)):
        yield from ask(client, "POST", f"{PATH}/{run_id}/cancel")


def delete(client: Client) -> Program[None]:
    yield from ask(client, "DELETE", "/sessions/s")


def drain(client: Client) -> Program[None]:
    assert isinstance(client.platform, Platform)
    yield from client.platform.shutdown(0.0)


def nothing(client: Client) -> Program[None]:
    yield from Inspect("main")


ACTS: Final = {"nothing": nothing, "cancel": cancel, "delete": delete, "drain": drain}


@define(eq=False)
class Case:
    """A joined run, of which its client leaves, and with which something is done meanwhile."""

    act: str
    seconds: float
    acts_at: int
    leaves_at: int | None
    model: Counting = field(factory=Counting)

    def run(self) -> None:
        platform = Platform(agents=[Agent(id="a", model=self.model)])
        with Client(platform, jobs=False) as client:
            form = {"message": "x", "session_id": "s", "stream": "false"}
            waiting = client.begin("POST", PATH, form=form)
            act = after(self.seconds, self.acts_at, lambda: ACTS[self.act](client))
            acting = client.simulation.start(act, body=b"")
            if self.leaves_at is not None:
                leaving = after(self.seconds, self.leaves_at, lambda: self.leave(waiting))
                client.simulation.start(leaving)
            client.advance(60)
            assert acting.done
            self.check(client, platform, waiting)

    def leave(self, waiting: Exchange) -> Program[None]:
        waiting.disconnect()
        yield from ()

    def check(self, client: Client, platform: Platform, waiting: Exchange) -> None:
        """Nothing hangs or is done twice, and what was told is what is stored."""
        assert self.model.asked <= 1
        assert len(platform.context.executing) == 0
        assert platform.context.shares.runs.total == 0
        stored = client.get("/sessions/s/runs")
        runs: list[dict[str, Any]] = stored.json() if stored.status == 200 else []
        states = [run["status"] for run in runs]
        assert set(states) <= self.possible
        assert waiting.done
        if self.leaves_at is None:
            self.check_answer(client, waiting.response(), states)

    @property
    def possible(self) -> set[str]:
        """The states that the run may be in at the end.

        A client that leaves while its run is being stored leaves one that nobody has begun: the
        jobs of the node, of which there are none here, find it.
        """
        others = {"cancel": {"CANCELLED"}, "drain": {"PENDING"}}.get(self.act, set[str]())
        unbegun = self.model.asked == 0 and self.leaves_at is not None
        return {"COMPLETED"} | others | ({"RUNNING"} if unbegun else set[str]())

    def check_answer(self, client: Client, answer: Any, states: list[str]) -> None:
        if answer.status == 200:
            told = answer.json()
            if states:
                assert [told["status"]] == states
                found = client.get(f"{PATH}/{told['run_id']}?session_id=s")
                assert found.body == answer.body
        else:
            assert (self.act, answer.status) in {("delete", 409), ("drain", 503)}


def cases() -> Iterator[Case]:
    turns = range(TURNS)
    moments = (0.0, MODEL_SECONDS)
    for act, seconds, acts_at, leaves_at in product(ACTS, moments, turns, (None, *turns)):
        if act != "nothing" or acts_at == 0:
            yield Case(act, seconds, acts_at, leaves_at)


@pytest.mark.enumeration
def test_every_interleaving_of_leaving_and_ending(figures: Callable[[str], None]) -> None:
    asked: list[int] = []
    for case in islice(cases(), 0, None, EVERY):
        try:
            case.run()
        except BaseException as error:
            error.add_note(repr(case))
            raise
        asked.append(case.model.asked)
    figures(f"{len(asked)} interleavings of leaving, cancelling, deleting and ending a joined run")
    assert 0 < sum(asked) < len(asked)
