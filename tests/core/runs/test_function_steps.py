"""The steps of functions: what was done is not done again, whatever crashes, and people are asked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from enum import Enum
from typing import Any, ClassVar

import pytest
from attrs import define, field

from legation import (
    Agent,
    CallStep,
    Database,
    FinalAnswer,
    ModelStep,
    Platform,
    Team,
    ToolError,
)
from legation.models.conversation import Usage
from legation.runs.function_steps import MAX_STEPS, find_steps
from legation.runs.function_turn import MAX_ANSWER
from legation_testing import Client, Point, ScriptedModel, call, crash_everywhere

from ...two_databases import IN_MEMORY

PATH = "/agents/clerk/runs"
USAGE = Usage(10, 5)


@define
class Shop:
    """An agent that asks a model, pays twice, and asks the model again; `done` outlives crashes."""

    again: str = "safe"
    call_again: Any = "never"
    confirm: bool = False
    in_doubt: Any = None
    done: Counter[str] = field(factory=Counter[str])

    async def answer(self, message: str) -> AsyncIterator[Any]:
        yield "Looking. "
        plan = ModelStep("m", "p")
        yield plan
        if not plan.done:
            self.done["plan"] += 1
            yield "Thin"
            yield "king. "
            yield plan.answered({"items": ["a", "b"]}, USAGE)
        for item in plan.answer["items"]:
            pay = CallStep(
                "pay", {"item": item}, again=self.call_again, requires_confirmation=self.confirm
            )
            yield pay
            if not pay.done:
                self.done[f"pay {item} {pay.key.partition(':')[2]}"] += 1
                yield pay.returned({"paid": item})
            yield f"{pay.result if pay.failed else pay.result['paid']}! "
        last = ModelStep("m", "p")
        yield last
        if not last.done:
            self.done["last"] += 1
            yield "Paid "
            yield last.answered("Paid all.", USAGE)
        yield FinalAnswer(last.answer)

    def platform(self) -> Platform:
        agent = Agent(id="clerk", run=self.answer, again=self.again, in_doubt=self.in_doubt)
        return Platform(databases=IN_MEMORY, agents=[agent])

    def client(self) -> Client:
        self.done.clear()
        return Client(self.platform)


PAID = ["pay a 0.2", "pay b 0.3"]
DONE = {"plan": 1, "last": 1, **dict.fromkeys(PAID, 1)}


def names(client: Client, run: dict[str, Any]) -> list[str]:
    return [event.name for event in client.get(f"{PATH}/{run['run_id']}/events").events()]


def latest(client: Client) -> dict[str, Any]:
    run: dict[str, Any] = client.get(f"{PATH}?session_id=s").json()[0]
    return run


def go_on(client: Client, run: dict[str, Any], **answer: Any) -> dict[str, Any]:
    tools = [{**one["tool_execution"], **answer} for one in run["requirements"]]
    form = {"tools": json.dumps(tools), "stream": "false"}
    after: dict[str, Any] = client.post(f"{PATH}/{run['run_id']}/continue", form=form).json()
    return after


def test_steps_are_events_usage_calls_and_messages() -> None:
    shop = Shop()
    with shop.client() as client:
        run = client.run("clerk", "go", session_id="s", stream=False)

        assert (run["status"], run["content"]) == ("COMPLETED", "Paid all.")
        assert shop.done == DONE
        assert run["metrics"]["total_tokens"] == 30
        assert [(one["tool_call_id"], one["result"]) for one in run["tools"]] == [
            ("pay", '{"paid":"a"}'),
            ("pay-2", '{"paid":"b"}'),
        ]
        assert [one["role"] for one in run["messages"]] == [
            *("user", "assistant", "tool", "assistant", "tool", "assistant")
        ]
        assert names(client, run) == [
            "RunStarted",
            *("ModelRequestStarted", "ModelRequestCompleted"),
            *("ToolCallStarted", "ToolCallCompleted") * 2,
            *("ModelRequestStarted", "ModelRequestCompleted"),
            *("RunContentCompleted", "RunCompleted"),
        ]
        snapshot = client.get(f"{PATH}/{run['run_id']}/checkpoints").json()
        assert snapshot


def test_the_function_is_given_its_history_without_the_steps() -> None:
    told: list[Any] = []

    async def answer(message: str, history: list[dict[str, str]]) -> AsyncIterator[Any]:
        told.append(history)
        step = CallStep("look")
        yield step
        yield step.returned(1)
        yield message

    with Client(Platform(agents=[Agent(id="clerk", run=answer, history_runs=3)])) as client:
        client.run("clerk", "one", session_id="s")
        client.run("clerk", "two", session_id="s")

    assert told[1] == [{"role": "user", "content": "one"}, {"role": "assistant", "content": "one"}]


@pytest.mark.enumeration
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("way", "call_again"), [("ask", "never"), ("tell", "never"), ("end", "never"), ("ask", "safe")]
)
def test_nothing_is_done_twice_whatever_crashes(
    way: str, call_again: str, stream: bool, figures: Callable[[str], None]
) -> None:
    shop = Shop(call_again=call_again, in_doubt=way)

    def act(client: Client) -> None:
        client.begin("POST", PATH, form={"message": "go", "session_id": "s", "stream": stream})
        client.settle()

    def check(client: Client) -> None:
        client.advance(60)
        for run in client.get(f"{PATH}?session_id=s").json():
            check_run(client, run)

    def check_run(client: Client, run: dict[str, Any]) -> None:
        if run["status"] == "PAUSED":
            assert way == "ask"
            assert [one["tool_execution"]["in_doubt"] for one in run["requirements"]] == [True]
            run = go_on(client, run, result='{"paid":"by hand"}')
            assert run["status"] == "COMPLETED"
        assert all(shop.done[one] <= 1 for one in PAID) or call_again == "safe"
        if run["status"] == "ERROR":
            assert (way, run["error_type"]) == ("end", "interrupted")
            return
        assert run["content"] == "Paid all."
        assert run["metrics"]["total_tokens"] == 30
        assert len(run["tools"]) == 2
        seen = names(client, run)
        assert seen.count("ToolCallStarted") == seen.count("ToolCallCompleted") == 2
        assert seen.count("ModelRequestCompleted") == 2
        events = client.get(f"{PATH}/{run['run_id']}/events").events()
        text, begun = "", 0
        for event in events:
            if event.name == "ModelRequestStarted":
                begun, text = begun + 1, ""
                assert json.loads(event.data).get("again") or begun
            elif event.name == "RunContent":
                text += json.loads(event.data)["content"]
        assert text in ("Paid ", "") if stream else text == ""

    tried = crash_everywhere(shop.client, act, check)
    figures(f"steps of functions, {way}, {call_again}: a crash at each of {tried.points} effects")
