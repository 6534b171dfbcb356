"""A database that is away for minutes: it costs no run its end, wherever the run stands."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from legation import Agent, Platform, Team
from legation.effects import Asks, Now, RandomBytes, Sleep, Transact
from legation.runs.retry import MANY, OUTAGE_US, Patience, persist
from legation.store.failures import CommitLost, DatabaseFull, StatementFailed, Unavailable
from legation.store.run_keeping import CancelsAsked
from legation.store.runs import FinishRun, StartRun
from legation.tools import tool
from legation_testing import Client, Says, ScriptedModel, call, play

from ...two_databases import IN_MEMORY

UNIT: Final = CancelsAsked(("r",))


def weather(city: str) -> str:
    """Return the weather."""
    return f"Rain in {city}"


@tool(requires_confirmation=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"Paid {amount}"


def history() -> Platform:
    return platform(["Hello."], ["Again."])


def tools() -> Platform:
    answers = [Says(["It ", "rains."])]
    calls = (call("weather", city="Oslo"), call("weather", city="Rome"))
    return platform([*calls[:1], *calls[1:], *answers])


def team() -> Platform:
    ask = call("delegate_task_to_member", member_id="clerk", task="How is it?")
    return platform([call("weather", city="Oslo"), "It rains."], leader=[ask, "Done."])


def pause() -> Platform:
    return platform([call("pay", amount=1)])


def platform(*steps: list[Any], leader: list[Any] | None = None) -> Platform:
    script = [step for several in steps for step in several]
    agent = Agent(id="clerk", model=ScriptedModel(script), tools=[weather, pay], database="main")
    crew = Team(id="crew", model=ScriptedModel(leader or []), members=["clerk"], database="main")
    return Platform(agents=[agent], teams=[crew], databases=IN_MEMORY)


class Outage:
    """An outage of `seconds` that begins before the unit of a number behind the start of a run."""

    def __init__(self, client: Client, first: int, seconds: float) -> None:
        self.client, self.first, self.seconds = client, first, seconds
        self.started = False
        self.units = 0
        self.began: float | None = None

    def __call__(self, effect: Asks[Any]) -> bool:
        """Return whether the effect meets it."""
        if not isinstance(effect, Transact) or effect.database != "main":
            return False
        before, self.started = self.started, self.started or _starts(effect)
        self.units += before
        if self.began is None and before and self.units > self.first:
            self.began = self.client.clock.elapsed
        return self.began is not None and self.client.clock.elapsed - self.began < self.seconds


def _starts(effect: Transact[Any]) -> bool:
    return isinstance(getattr(effect.unit, "unit", effect.unit), StartRun)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("made", "runs", "path", "status"),
    [
        (history, 2, "/agents/clerk/runs", "COMPLETED"),
        (tools, 1, "/agents/clerk/runs", "COMPLETED"),
        (team, 1, "/teams/crew/runs", "COMPLETED"),
        (pause, 1, "/agents/clerk/runs", "PAUSED"),
    ],
)
def test_an_outage_of_a_minute_ends_no_run_wherever_it_begins(
    made: Callable[[], Platform], runs: int, path: str, status: str, stream: bool
) -> None:
    tried = 0
    for first in range(60):
        with Client(made()) as client:
            form = {"message": "hi", "session_id": "s", "stream": json.dumps(stream)}
            for _ in range(runs - 1):
                client.post(path, form=form)
            outage = Outage(client, first, 60.0)
            client.fail_at(outage, Unavailable("away"), times=None)
            client.post(path, form=form)
            if outage.began is None:
                break
            client.advance(90.0)
            tried += 1
            found = client.get(
                f"/sessions/s/runs?type={path.split('s/', maxsplit=1)[0][1:]}&db_id=main"
            ).json()
            assert found[-1]["status"] == status, first
            logged = {log.event for log in client.logs}
            assert not logged & {"run_failed", "run_record_failed", "run_stalled"}
    # Behind the start of a joined run that pauses at once there is its end alone.
    assert tried >= (1 if made is pause and not stream else 2)


def test_patience_ends_after_a_quarter_of_an_hour() -> None:
    with Client(tools()) as client:
        client.fail_at(FinishRun, Unavailable("away"), times=None)
        client.begin("POST", "/agents/clerk/runs", form={"message": "hi", "session_id": "s"})
        client.advance(OUTAGE_US / 1_000_000 - 30)
        assert not [log for log in client.logs if log.event == "run_record_failed"]
        client.advance(60.0)

        assert [log.event for log in client.logs if log.event == "run_record_failed"]


def test_a_disk_that_is_full_is_not_waited_for_as_long() -> None:
    with Client(tools()) as client:
        fault = client.fail_at(FinishRun, DatabaseFull("full"), times=None)
        client.begin("POST", "/agents/clerk/runs", form={"message": "hi", "session_id": "s"})
        client.advance(60.0)

        assert [log.event for log in client.logs if log.event == "run_record_failed"]
        assert fault.hits >= MANY + 1


def test_a_process_that_ends_waits_no_longer_than_who_has_no_lease() -> None:
    with Client(tools()) as client:
        client.fail_at(FinishRun, Unavailable("away"), times=None)
        client.begin("POST", "/agents/clerk/runs", form={"message": "hi", "session_id": "s"})
        client.advance(60.0)
        client.close()

        assert client.clock.elapsed < 200.0


def waits(now_us: int) -> list[Any]:
    return [(Now(), now_us), (RandomBytes(2), b"\0\0"), (Sleep, None)]


@pytest.mark.parametrize("step_us", [31_536_000_000_000, -31_536_000_000_000, 0])
def test_a_clock_that_is_set_is_no_outage(step_us: int) -> None:
    script: list[Any] = []
    for attempt in range(10):
        script += [(Transact("main", UNIT), Unavailable("away")), *waits(attempt * step_us)]
    result = play(persist("main", UNIT), [*script, (Transact("main", UNIT), ("r",))])

    assert result == ("r",)


def test_attempts_that_hang_count_as_long_as_they_hang_but_a_minute_at_most() -> None:
    script: list[Any] = []
    for attempt in range(16):
        script += [(Transact("main", UNIT), CommitLost("")), *waits(attempt * 70_000_000)]
    with pytest.raises(Unavailable):
        play(persist("main", UNIT), [*script, (Transact("main", UNIT), Unavailable("away"))])
    assert play(persist("main", UNIT), [*script, (Transact("main", UNIT), ("r",))]) == ("r",)


def test_only_what_passes_is_tried_again_unless_named() -> None:
    with pytest.raises(StatementFailed):
        play(persist("main", UNIT), [(Transact("main", UNIT), StatementFailed("no"))])
    script: list[Any] = []
    for attempt in range(MANY):
        script += [(Transact("main", UNIT), StatementFailed("no")), *waits(attempt)]
    script.append((Transact("main", UNIT), StatementFailed("no")))
    with pytest.raises(StatementFailed):
        play(persist("main", UNIT, others=(StatementFailed,)), script)


def test_patience_of_a_process_that_ends_is_over_after_as_many_attempts_as_without() -> None:
    ending = Patience(lambda: True, attempts=MANY)

    assert (Patience().exhausted, ending.exhausted) == (False, True)
    assert not Patience(lambda: True, attempts=MANY - 1).exhausted
