"""The counts of runs, through the platform: each way in which models and tools are asked."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
import pytest

from legation import (
    Agent,
    CallStep,
    FinalAnswer,
    Judge,
    ModelPrice,
    ModelStep,
    Platform,
    Prices,
    Summaries,
    Team,
    ToolError,
    tool,
)
from legation.effects import Program, Sleep
from legation.models.conversation import Listener, ModelFailed, Prompt, Reply, Usage
from legation.runs.meter import Meter
from legation.store.runs import AppendEvents, Ended, FinishRun
from legation.values import define
from legation_testing import Client, Says, ScriptedModel, call

from ...two_databases import IN_MEMORY

RUNS: Final = "/agents/clerk/runs"
DOWN: Final = ModelFailed("unreachable", "Nobody is there")


@tool(again="safe")
def look(what: str) -> str:
    """Look."""
    if what == "bug":
        raise ValueError(what)
    if what == "refuse":
        raise ToolError("There is none")
    return f"saw {what}"


@tool(requires_confirmation=True)
def book(what: str) -> str:
    """Book."""
    return f"booked {what}"


@define
class Slow:
    """A model that says a word, and the next a minute later."""

    id: str = "slow"
    name: str = "Slow"
    provider: str = "acme"

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        listener.hear("one ")
        yield from listener.settle()
        yield from Sleep(60)
        listener.hear("two")
        return Reply("one two")


def scripted(name: str, *steps: Any, **more: Any) -> ScriptedModel:
    return ScriptedModel(steps, id=name, **more)


def hosting(*agents: Agent, **more: Any) -> Platform:
    return Platform(databases=IN_MEMORY, agents=agents, **more)


def clerk(*steps: Any, **more: Any) -> Platform:
    return hosting(Agent(id="clerk", model=scripted("small", *steps), tools=[look, book], **more))


def meter_of(client: Client) -> Meter:
    assert isinstance(client.platform, Platform)
    return client.platform.context.meter


def requests(client: Client) -> dict[tuple[str, str], dict[str, int]]:
    """Return the outcomes of requests, by who asked and by the model."""
    return {(key[0], key[2]): tally.counts for key, tally in meter_of(client).models.items()}


def calls(client: Client) -> dict[tuple[str, str], dict[str, int]]:
    return {key: tally.counts for key, tally in meter_of(client).tools.items()}


# --- Models ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["joined", "streamed"])
def test_a_run_counts_its_requests_its_tokens_and_its_calls(stream: bool) -> None:
    usage = Usage(10, 4, cache_read_tokens=6)
    platform = clerk(
        Says("Let me look.", [call("look", what="x")], usage=usage), Says("Done.", usage=usage)
    )
    with Client(platform) as client:
        (client.stream if stream else client.run)("clerk", "go")
        [tally] = meter_of(client).models.values()

    assert requests(client) == {("clerk", "small"): {"ok": 2}}
    assert calls(client) == {("clerk", "look"): {"ok": 1}}
    assert (tally.input.total, tally.output.total, tally.cached, tally.cost) == (20, 8, 12, None)
    assert sum(tally.first.counts) == 2


def test_the_time_to_the_first_piece_is_less_than_that_of_the_answer() -> None:
    with Client(hosting(Agent(id="clerk", model=Slow()))) as client:
        client.stream("clerk", "go")
        [tally] = meter_of(client).models.values()

    assert tally.first.total < 1_000_000 < tally.durations["ok"].total


def test_members_count_as_themselves_and_the_call_of_one_as_the_leaders() -> None:
    task = call("delegate_task_to_member", member_id="clerk", task="look")
    member = Agent(
        id="clerk", model=scripted("small", call("look", what="x"), "Seen."), tools=[look]
    )
    desk = Team(id="desk", members=("clerk",), model=scripted("large", task, "Good."))
    with Client(Platform(databases=IN_MEMORY, agents=[member], teams=[desk])) as client:
        client.run_team("desk", "go")

    assert requests(client) == {("desk", "large"): {"ok": 2}, ("clerk", "small"): {"ok": 2}}
    assert calls(client) == {
        ("desk", "delegate_task_to_member"): {"ok": 1},
        ("clerk", "look"): {"ok": 1},
    }


def test_each_model_of_an_order_counts_for_itself() -> None:
    second = scripted("second", Says("Here.", usage=Usage(3, 1)))
    agent = Agent(id="clerk", model=scripted("first", DOWN), fallback=[second])
    with Client(hosting(agent)) as client:
        client.run("clerk", "go")
        tallies = {key[2]: tally for key, tally in meter_of(client).models.items()}

    assert requests(client) == {
        ("clerk", "first"): {"unreachable": 1},
        ("clerk", "second"): {"ok": 1},
    }
    assert (tallies["first"].input.total, tallies["second"].input.total) == (0, 3)


def test_a_model_that_fails_counts_what_it_used_and_what_that_cost() -> None:
    failed = ModelFailed("truncated", "Cut", Usage(1_000, 1_000))
    agent = Agent(id="clerk", model=scripted("small", failed))
    prices = Prices(models={"small": ModelPrice(input="1", output="2")})
    with Client(hosting(agent, prices=prices), raise_errors=False) as client:
        client.post(RUNS, form={"message": "go", "stream": "false"})
        [tally] = meter_of(client).models.values()
        page = client.get("/metrics/prometheus").text

    assert (tally.counts, tally.input.total) == ({"truncated": 1}, 1_000)
    assert 'legation_model_cost_usd_total{model="small",component="clerk"} 0.003\n' in page


def test_a_bug_in_a_model_is_an_error() -> None:
    class Broken(ScriptedModel):
        def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
            yield from Sleep(1)
            raise ValueError

    agent = Agent(id="clerk", model=Broken([], id="small"))
    with Client(hosting(agent), raise_errors=False) as client:
        client.post(RUNS, form={"message": "go", "stream": "false"})
        [tally] = meter_of(client).models.values()

    assert (tally.counts, tally.durations["error"].total) == ({"error": 1}, 1_000_000)


def test_a_guard_that_is_a_model_counts_for_the_agent_that_it_guards() -> None:
    judge = scripted("judge", '{"allowed": true, "reason": ""}')
    guard = Judge(model=judge, instructions="Be strict.", of="input")
    agent = Agent(id="clerk", model=scripted("small", "Done."), guards=[guard])
    with Client(hosting(agent)) as client:
        client.run("clerk", "go")

    assert requests(client) == {("clerk", "judge"): {"ok": 1}, ("clerk", "small"): {"ok": 1}}


def test_a_summary_counts_for_the_agent_whose_session_it_is_of() -> None:
    agent = Agent(
        id="clerk",
        model=scripted("small", *["Done."] * 9),
        history_runs=1,
        summaries=Summaries(after_runs=2),
    )
    with Client(hosting(agent)) as client:
        for number in range(4):
            client.run("clerk", f"q{number}", session_id="s")
        found = requests(client)

    assert found["clerk", "small"]["ok"] > 4


def test_a_run_that_is_cancelled_is_no_failure_of_its_model() -> None:
    with Client(hosting(Agent(id="clerk", model=Slow()))) as client:
        client.begin("POST", RUNS, form={"message": "go", "session_id": "s", "stream": "true"})
        client.advance(1)
        [run] = client.get(f"{RUNS}?session_id=s").json()
        client.post(f"{RUNS}/{run['run_id']}/cancel")
        client.advance(5)
        [tally] = meter_of(client).models.values()

    assert (tally.counts, tally.durations) == ({"cancelled": 1}, {})


def test_a_client_that_leaves_changes_nothing() -> None:
    with Client(hosting(Agent(id="clerk", model=Slow()))) as client:
        begun = client.begin("POST", RUNS, form={"message": "go", "stream": "true"})
        client.advance(1)
        begun.disconnect()
        client.advance(120)

    assert requests(client) == {("clerk", "slow"): {"ok": 1}}


# --- Tools -------------------------------------------------------------------------------------


def test_tools_fail_by_an_error_a_refusal_or_a_call_that_cannot_be_made() -> None:
    asked = [
        call("look", what="bug"),
        call("look", what="refuse"),
        call("look", what="x"),
        call("look"),
        call("fancy", what="x"),
    ]
    with Client(clerk(asked, "Done."), raise_errors=False) as client:
        client.post(RUNS, form={"message": "go", "stream": "false"}).expect_success()
        tally = meter_of(client).tools["clerk", "look"]

    assert calls(client) == {
        ("clerk", "look"): {"ok": 1, "error": 2, "rejected": 1},
        ("clerk", "other"): {"rejected": 1},
    }
    assert {outcome: sum(one.counts) for outcome, one in tally.durations.items()} == {
        "ok": 1,
        "error": 2,
    }


def test_a_tool_that_is_closed_with_its_run_is_cancelled() -> None:
    @tool
    async def wait() -> str:
        """Wait."""
        await anyio.sleep(60)
        return "waited"

    agent = Agent(id="clerk", model=scripted("small", call("wait")), tools=[wait])
    with Client(hosting(agent)) as client:
        client.begin("POST", RUNS, form={"message": "go", "session_id": "s", "stream": "true"})
        client.advance(1)
        [run] = client.get(f"{RUNS}?session_id=s").json()
        client.post(f"{RUNS}/{run['run_id']}/cancel")
        client.advance(5)

    assert calls(client) == {("clerk", "wait"): {"cancelled": 1}}


def test_a_call_that_waits_for_a_person_counts_when_it_is_made() -> None:
    with Client(clerk(call("book", what="x"), "Done.")) as client:
        run: Any = client.run("clerk", "go", session_id="s")
        waiting = calls(client)
        tools = [{**one["tool_execution"], "confirmed": True} for one in run["requirements"]]
        form = {"tools": json.dumps(tools), "stream": "false"}
        client.advance(100)
        client.post(f"{RUNS}/{run['run_id']}/continue", form=form).expect_success()
        [tally] = meter_of(client).tools.values()

    assert (waiting, tally.counts) == ({}, {"ok": 1})
    assert tally.durations["ok"].total < 10_000_000


# --- Functions ---------------------------------------------------------------------------------


async def answer(message: str) -> AsyncIterator[Any]:
    plan = ModelStep("gpt", "openai")
    yield plan
    yield "Well. "
    yield plan.answered("Pay.", Usage(10, 5, cost_nano=3_000))
    for name in ("pay", "look"):
        step = CallStep(name, {})
        yield step
        yield step.raised("No") if name == "look" else step.returned("done")
    yield FinalAnswer("Paid.")


async def fail(message: str) -> AsyncIterator[Any]:
    yield ModelStep("gpt", "openai")
    yield CallStep("pay", {})
    raise ValueError(message)


async def hang(message: str) -> AsyncIterator[Any]:
    yield ModelStep("gpt", "openai")
    yield CallStep("pay", {})
    await anyio.sleep(1000)


def test_a_function_counts_what_it_reports() -> None:
    with Client(hosting(Agent(id="clerk", run=answer))) as client:
        client.run("clerk", "go")
        [(key, tally)] = meter_of(client).models.items()

    assert (key, tally.counts) == (("clerk", "openai", "gpt"), {"ok": 1})
    assert (tally.input.total, tally.cost, sum(tally.first.counts)) == (10, 3_000, 1)
    assert calls(client) == {("clerk", "pay"): {"ok": 1}, ("clerk", "look"): {"error": 1}}


def test_a_function_that_reports_nothing_counts_as_a_run_alone() -> None:
    async def alone(message: str) -> str:
        return message

    with Client(hosting(Agent(id="clerk", run=alone))) as client:
        client.run("clerk", "go")
        meter = meter_of(client)

    assert (meter.models, meter.tools) == ({}, {})
    assert sum(meter.queues["main"].counts) == 1


def test_what_a_function_was_at_when_it_failed_failed_too() -> None:
    with Client(hosting(Agent(id="clerk", run=fail)), raise_errors=False) as client:
        client.post(RUNS, form={"message": "go", "stream": "false"})

    assert requests(client) == {("clerk", "gpt"): {"error": 1}}
    assert calls(client) == {("clerk", "pay"): {"error": 1}}


def test_what_a_function_was_at_when_it_was_closed_is_cancelled() -> None:
    with Client(hosting(Agent(id="clerk", run=hang), run_timeout_seconds=10)) as client:
        client.post(RUNS, form={"message": "go", "stream": "false"})

    assert requests(client) == {("clerk", "gpt"): {"cancelled": 1}}
    assert calls(client) == {("clerk", "pay"): {"cancelled": 1}}


# --- Queues and leases -------------------------------------------------------------------------


def test_a_run_that_waits_for_another_of_its_session_waits_in_the_queue() -> None:
    slow = Agent(id="clerk", model=Slow(), database="second")
    with Client(hosting(slow)) as client:
        form = {"message": "go", "session_id": "s", "stream": "false", "background": "true"}
        for _ in range(2):
            client.post(RUNS, form=form).expect_success()
        client.advance(200)
        page = client.get("/metrics/prometheus").text
        queue = meter_of(client).queues["second"]

    assert (sum(queue.counts), queue.counts[0]) == (2, 1)
    assert 60_000_000 <= queue.total < 70_000_000
    assert 'legation_run_queue_seconds_count{database="second"} 2\n' in page
    assert 'legation_run_queue_seconds_count{database="main"} 0\n' in page


def test_a_lease_that_is_lost_is_counted() -> None:
    for unit, answer in ((AppendEvents, None), (FinishRun, Ended(kept=False))):
        with Client(clerk(call("look", what="x"), "Done."), raise_errors=False) as client:
            client.fail_at(unit, answer)
            client.begin("POST", RUNS, form={"message": "go", "stream": "false"})
            client.advance(1)
            lost = meter_of(client).lost

        assert lost == {"main": 1}


# --- Pauses ------------------------------------------------------------------------------------


def test_paused_runs_are_counted_and_the_oldest_has_an_age() -> None:
    def paused(client: Client) -> tuple[str, str]:
        page = client.get("/metrics/prometheus").text
        found = re.findall(r'^legation_runs_paused\w*{database="main"} (\S+)$', page, re.MULTILINE)
        return found[0], found[1]

    with Client(clerk(*[call("book", what="x")] * 2)) as client:
        before = paused(client)
        client.run("clerk", "go", session_id="s")
        client.advance(60)
        client.run("clerk", "go", session_id="t")
        client.advance(40)
        after = paused(client)

    assert before == ("0", "0")
    assert after[0] == "2"
    assert 99 < float(after[1]) < 102
