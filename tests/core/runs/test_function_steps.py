"""The steps of functions: what was done is not done again, whatever crashes, and people decide."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from enum import Enum
from functools import partial
from typing import Any

import pytest
from attrs import define, evolve, field

from legation import (
    Agent,
    CallStep,
    FinalAnswer,
    ModelStep,
    Platform,
    PlatformLimits,
    Team,
)
from legation.models.conversation import Usage
from legation.runs.function_steps import MAX_STEPS, find_steps
from legation.runs.function_turn import MAX_ANSWER
from legation.runs.payloads import NOT_KNOWN
from legation.runs.step_outcomes import MAX_OUTCOME
from legation.runs.team_turn import DELEGATE
from legation.store.runs import AppendEvents
from legation_testing import Client, ScriptedModel, call, crash_everywhere

from ...two_databases import IN_MEMORY

PATH = "/agents/clerk/runs"
LEASE_SECONDS = 40
USAGE = Usage(10, 5)


@define
class Shop:
    """An agent that asks a model, pays twice, and asks the model again; `done` outlives crashes."""

    again: Any = "safe"
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

    def open_client(self) -> Client:
        """Return a client whose start is no part of the scenario."""
        client = self.client()
        client.open()
        return client


PAID = ["pay a 0.2", "pay b 0.3"]
DONE = {"plan": 1, "last": 1, **dict.fromkeys(PAID, 1)}


def step(every: int) -> int:
    """Return how far a crash is from the next: each point is tried at night."""
    return 1 if "LEGATION_NIGHTLY" in os.environ else every


def names(client: Client, run: Any) -> list[str]:
    return [event.name for event in client.get(f"{PATH}/{run['run_id']}/events").events()]


def latest(client: Client) -> dict[str, Any]:
    run: dict[str, Any] = client.get(f"{PATH}?session_id=s").json()[0]
    return run


def go_on(client: Client, run: Any, **answer: Any) -> dict[str, Any]:
    tools = [{**one["tool_execution"], **answer} for one in run["requirements"]]
    form = {"tools": json.dumps(tools), "stream": "false"}
    after: dict[str, Any] = client.post(f"{PATH}/{run['run_id']}/continue", form=form).json()
    return after


def test_steps_are_events_usage_calls_and_messages() -> None:
    shop = Shop()
    with shop.client() as client:
        run: Any = client.run("clerk", "go", session_id="s")

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
@pytest.mark.parametrize(
    ("way", "call_again", "stream", "every"),
    [
        ("ask", "never", True, 5),
        ("tell", "never", False, 15),
        ("end", "never", True, 15),
        ("ask", "key", True, 15),
    ],
)
def test_nothing_is_done_twice_whatever_crashes(
    way: str, call_again: str, stream: bool, every: int, figures: Callable[[str], None]
) -> None:
    shop = Shop(call_again=call_again, in_doubt=way)

    def check(client: Client) -> None:
        client.advance(60)
        for run in client.get(f"{PATH}?session_id=s").json():
            check_run(client, run)

    def check_run(client: Client, run: dict[str, Any]) -> None:
        if run["status"] == "PAUSED":
            assert (way, call_again) == ("ask", "never")
            assert [one["tool_execution"]["in_doubt"] for one in run["requirements"]] == [True]
            run = go_on(client, run, result={"paid": "by hand"})
        assert all(shop.done[one] <= 1 for one in PAID) or call_again == "key"
        if run["status"] == "ERROR":
            assert (way, run["error_type"]) == ("end", "interrupted")
            return
        check_completed(client, run)

    def check_completed(client: Client, run: dict[str, Any]) -> None:
        assert (run["status"], run["content"]) == ("COMPLETED", "Paid all.")
        assert run["metrics"]["total_tokens"] == 30
        assert len(run["tools"]) == 2
        seen = names(client, run)
        assert seen.count("ToolCallStarted") == seen.count("ToolCallCompleted") == 2
        assert seen.count("ModelRequestCompleted") == 2
        if stream:
            assert find_last_text(client, run) == "Paid "

    tried = crash_everywhere(
        shop.open_client, partial(begin, stream=stream), check, every=step(every)
    )
    figures(f"steps of functions, {way}, {call_again}: a crash at each of {tried.points} effects")


def begin(client: Client, *, stream: bool) -> None:
    client.begin("POST", PATH, form={"message": "go", "session_id": "s", "stream": stream})
    client.settle()


def find_last_text(client: Client, run: Any) -> str:
    """Return what clients show: what was said since the last request to the model."""
    text = ""
    for event in client.get(f"{PATH}/{run['run_id']}/events").events():
        if event.name == "ModelRequestStarted":
            text = ""
        elif event.name == "RunContent":
            text += json.loads(event.data)["content"]
    return text


# --- People ------------------------------------------------------------------------------------


@pytest.mark.parametrize("confirmed", [True, False])
def test_people_are_asked_before_a_call_and_one_after_the_other(confirmed: bool) -> None:
    shop = Shop(confirm=True)
    with shop.client() as client:
        run: Any = client.run("clerk", "go", session_id="s")
        for item in ("a", "b"):
            (asked,) = run["requirements"]
            assert run["status"] == "PAUSED"
            assert asked["tool_execution"]["tool_args"] == {"item": item}
            assert asked["tool_execution"]["requires_confirmation"] is True
            run = go_on(client, run, confirmed=confirmed, confirmation_note="so")

        assert run["content"] == "Paid all."
        assert shop.done == (DONE if confirmed else {"plan": 1, "last": 1})
        assert [one["confirmed"] for one in run["tools"]] == [confirmed] * 2
        seen = names(client, run)
        assert seen.count("ToolCallStarted") == 2
        assert seen.count("ToolCallCompleted") == (2 if confirmed else 0)


@pytest.mark.enumeration
@pytest.mark.parametrize("confirmed", [True, False])
def test_a_pause_survives_whatever_crashes_after_it(confirmed: bool) -> None:
    shop = Shop(confirm=True, in_doubt="tell")

    def make() -> Client:
        client = shop.open_client()
        begin(client, stream=False)
        return client

    def act(client: Client) -> None:
        go_on(client, latest(client), confirmed=confirmed)

    def check(client: Client) -> None:
        client.advance(60)
        run = latest(client)
        for _ in range(2):
            if run["status"] == "PAUSED":
                run = go_on(client, run, confirmed=confirmed)
        assert (run["status"], run["content"]) == ("COMPLETED", "Paid all.")
        assert all(shop.done[one] <= confirmed for one in PAID)
        assert shop.done["plan"] == 1
        assert run["metrics"]["total_tokens"] == 30

    crash_everywhere(make, act, check, every=step(9))


def of(function: Any, **more: Any) -> Client:
    agent = Agent(id="clerk", run=function, **more)
    return Client(lambda: Platform(databases=IN_MEMORY, agents=[agent]))


def ask_at_once(*steps: CallStep) -> Any:
    """Return a function that takes steps side by side, and says what came of them."""
    made: list[str] = []

    async def answer(message: str) -> AsyncIterator[Any]:
        own = [evolve(step) for step in steps]
        before = CallStep("before")
        yield before
        yield tuple(own)
        for step in own:
            if not step.done:
                made.append(step.name)
                yield step.returned(None)
        yield [[step.result, step.failed, step.confirmed, step.note] for step in own]

    return answer, made


def test_several_are_asked_about_in_one_pause_and_nothing_else_begins() -> None:
    answer, made = ask_at_once(
        CallStep("pay", {"n": 1}, requires_confirmation=True),
        CallStep("look"),
        CallStep("pay", {"n": 2}, requires_confirmation=True),
        CallStep("sign", external_execution=True),
    )
    with of(answer, again="safe", in_doubt="tell") as client:
        run: Any = client.run("clerk", "go", session_id="s")
        waiting = [one["tool_execution"] for one in run["requirements"]]
        assert [one["tool_call_id"] for one in waiting] == ["pay", "pay-2", "sign"]
        assert made == []
        said: list[dict[str, Any]] = [
            {"confirmed": True},
            {"confirmed": False, "confirmation_note": "dear"},
        ]
        tools = [
            {**one, **more} for one, more in zip(waiting, [*said, {"result": [1]}], strict=True)
        ]
        form = {"tools": json.dumps(tools), "stream": "false"}
        run = client.post(f"{PATH}/{run['run_id']}/continue", form=form).json()

    assert made == ["pay", "look"]
    assert run["content"] == [
        [None, False, True, None],
        [None, False, None, None],
        ["Function call was rejected by the user: dear", True, False, "dear"],
        [[1], False, None, None],
    ]


# --- Crashes, one by one -----------------------------------------------------------------------


def lose(client: Client, batch: int, **form: Any) -> dict[str, Any]:
    """Return a run whose node lost its lease with a batch of events, as another leaves it."""
    client.fail_at(AppendEvents, None, skip=batch)
    asked = {"message": "go", "stream": False, "session_id": "s", **form}
    exchange = client.begin("POST", PATH, form=asked)
    client.settle()
    client.advance(LEASE_SECONDS)
    run: dict[str, Any] = exchange.response().json()
    return run


WAYS = {
    "ask": ("never", "ask", "PAUSED"),
    "tell": ("never", "tell", "COMPLETED"),
    "end": ("never", "end", "ERROR"),
    "again": ("safe", "ask", "COMPLETED"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_call_that_had_begun_is_in_doubt(way: str) -> None:
    call_again, in_doubt, status = WAYS[way]
    shop = Shop(call_again=call_again, in_doubt=in_doubt)
    with shop.client() as client:
        run = lose(client, 4)  # the outcome of the first payment

        assert run["status"] == status
        assert shop.done["pay a 0.2"] == (2 if way == "again" else 1)
        assert shop.done["plan"] == 1
        if way == "tell":
            assert run["tools"][0]["result"] == NOT_KNOWN
        if way == "ask":
            (asked,) = run["requirements"]
            assert asked["tool_execution"]["in_doubt"] is True
            assert asked["tool_execution"]["tool_args"] == {"item": "a"}


ANSWERS: dict[str, tuple[dict[str, Any], int, Any]] = {
    "again": ({"confirmed": True}, 2, '{"paid":"a"}'),
    "left": ({"confirmed": False}, 1, NOT_KNOWN),
    "over": ({"result": {"paid": "a"}}, 1, '{"paid":"a"}'),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_what_a_person_says_of_a_doubt_becomes_of_the_call(answer: str) -> None:
    said, times, result = ANSWERS[answer]
    shop = Shop()
    with shop.client() as client:
        run = go_on(client, lose(client, 4), **said)

        assert (run["status"], run["content"]) == ("COMPLETED", "Paid all.")
        assert run["tools"][0]["result"] == result
        assert shop.done["pay a 0.2"] == times
        assert shop.done["pay b 0.3"] == 1


def test_text_that_is_no_json_is_what_a_person_said() -> None:
    async def answer(message: str) -> AsyncIterator[Any]:
        pay = CallStep("pay")
        yield pay
        if not pay.done:
            yield pay.returned("first")
        yield pay.result

    with of(answer, again="safe") as client:
        run = go_on(client, lose(client, 2), result="by hand")

    assert run["content"] == "by hand"


def test_a_function_that_must_not_be_called_again_asks_about_that_first() -> None:
    shop = Shop(again="never")
    with shop.client() as client:
        run = lose(client, 4)
        (asked,) = run["requirements"]
        assert asked["tool_execution"]["tool_name"] == "answer"
        run = go_on(client, run, confirmed=True)
        (asked,) = run["requirements"]
        assert asked["tool_execution"]["tool_name"] == "pay"
        run = go_on(client, run, result={"paid": "a"})

        assert (run["status"], shop.done) == ("COMPLETED", DONE)
        assert [one["tool_name"] for one in run["tools"]] == ["answer", "pay", "pay"]


def test_a_crash_after_a_pause_knows_both() -> None:
    shop = Shop(confirm=True, in_doubt="tell")
    with shop.client() as client:
        run: Any = client.run("clerk", "go", session_id="s")
        client.fail_at(AppendEvents, None, skip=2)
        run = go_on(client, run, confirmed=True)  # its outcome is lost
        client.advance(LEASE_SECONDS)
        run = latest(client)
        assert run["status"] == "PAUSED"
        assert run["tools"][0]["result"] == NOT_KNOWN
        run = go_on(client, run, confirmed=True)

        assert (run["status"], shop.done) == ("COMPLETED", DONE)
        assert run["tools"][0]["confirmed"] is True


def test_calls_side_by_side_are_in_doubt_where_another_pauses_the_run() -> None:
    made: list[str] = []

    async def answer(message: str) -> AsyncIterator[Any]:
        look, pay = CallStep("look"), CallStep("pay", requires_confirmation=True)
        yield look
        yield pay
        made.append("pay")
        yield (look.returned(1), pay.returned(2))
        yield "Done"

    with of(answer, again="safe", in_doubt="ask") as client:
        run: Any = client.run("clerk", "go", session_id="s")
        assert [one["in_doubt"] for one in run["tools"] if "in_doubt" in one] == []
        run = go_on(client, run, confirmed=True)
        assert run["requirements"][0]["tool_execution"]["in_doubt"] is True
        run = go_on(client, run, confirmed=True)

    assert (run["status"], made) == ("COMPLETED", ["pay"])


def test_a_member_of_a_team_takes_steps_as_well() -> None:
    shop = Shop()

    def platform() -> Platform:
        clerk = Agent(id="clerk", run=shop.answer, again="safe")
        wants: list[Any] = [call(DELEGATE, member_id="clerk", task="go"), "Done."]
        team = Team(id="team", model=ScriptedModel(wants * 3), members=["clerk"])
        return Platform(databases=IN_MEMORY, agents=[clerk], teams=[team])

    with Client(platform) as client:
        client.fail_at(AppendEvents, None, skip=5)
        form = {"message": "go", "stream": False, "session_id": "s"}
        exchange = client.begin("POST", "/teams/team/runs", form=form)
        client.settle()
        client.advance(LEASE_SECONDS)
        run = exchange.response().json()
        assert run["status"] == "PAUSED"
        (asked,) = run["requirements"]
        tools = [{**asked["tool_execution"], "result": {"paid": "a"}}]
        after = {"tools": json.dumps(tools), "stream": "false"}
        run = client.post(f"/teams/team/runs/{run['run_id']}/continue", form=after).json()

    made = {name: count for name, count in shop.done.items() if name.startswith("pay")}
    assert (run["status"], made) == ("COMPLETED", {"pay a 1.1/0.2": 1, "pay b 1.1/0.3": 1})


def test_a_run_whose_function_became_a_model_begins_again() -> None:
    shop, asks = Shop(confirm=True), True

    def platform() -> Platform:
        agent = Agent(id="clerk", run=shop.answer) if asks else Agent(id="clerk")
        return Platform(databases=IN_MEMORY, agents=[agent])

    with Client(platform) as client:
        run: Any = client.run("clerk", "go", session_id="s")
        asks = False
        client.restart()
        run = go_on(client, run, confirmed=True)

    assert (run["status"], run["content"]) == ("COMPLETED", "go")


# --- Budgets -----------------------------------------------------------------------------------


def test_what_models_cost_counts_against_the_budget_of_the_day() -> None:
    shop = Shop()

    def platform() -> Platform:
        agent = Agent(id="clerk", run=shop.answer, again="safe")
        limits = PlatformLimits(tokens_per_day=12)
        return Platform(databases=IN_MEMORY, agents=[agent], limits=limits)

    with Client(platform) as client:
        run: Any = client.run("clerk", "go", session_id="s")

    assert (run["status"], run["error_type"]) == ("ERROR", "budget")
    assert shop.done == {"plan": 1, **dict.fromkeys(PAID, 1)}


# --- Mistakes of authors -----------------------------------------------------------------------


class Color(Enum):
    RED = "red"


async def begin_twice() -> AsyncIterator[Any]:
    pay = CallStep("pay")
    yield pay
    yield pay


async def end_unbegun() -> AsyncIterator[Any]:
    yield ModelStep("m").answered({})


async def end_twice() -> AsyncIterator[Any]:
    pay = CallStep("pay")
    yield pay
    yield pay.returned(1)
    yield pay.returned(2)


async def give_no_json() -> AsyncIterator[Any]:
    pay = CallStep("pay")
    yield pay
    yield pay.returned(object())


async def give_deep() -> AsyncIterator[Any]:
    value: list[Any] = []
    for _ in range(99):
        value = [value]
    plan = ModelStep("m")
    yield plan
    yield plan.answered(value)


async def give_no_object() -> AsyncIterator[Any]:
    arguments: Any = [1]
    yield CallStep("pay", arguments)


async def give_much() -> AsyncIterator[Any]:
    pay = CallStep("pay")
    yield pay
    yield pay.returned("x" * (MAX_OUTCOME + 1))


async def give_more_than_fits() -> AsyncIterator[Any]:
    pay = CallStep("pay")
    yield pay
    yield pay.returned("\u20ac" * (MAX_OUTCOME // 2))


async def take_many() -> AsyncIterator[Any]:
    for _ in range(MAX_STEPS // 10 + 1):
        yield tuple(CallStep("pay") for _ in range(10))


async def say_much() -> AsyncIterator[Any]:
    yield FinalAnswer("x" * (MAX_ANSWER + 1))


MISTAKES: dict[Any, tuple[str, str]] = {
    begin_twice: ("run_failed", "The agent began the step pay a second time"),
    end_unbegun: ("run_failed", "The agent ended the step m, which it had not begun"),
    end_twice: ("run_failed", "The agent ended the step pay, which it had not begun"),
    give_no_json: (
        "run_failed",
        "The agent gave the step pay a value that JSON does not have (object)",
    ),
    give_deep: (
        "run_failed",
        "The agent gave the step m a value that JSON does not have (nested deeper than 64 levels)",
    ),
    give_no_object: ("run_failed", "The agent gave the step pay arguments that are no object"),
    give_much: ("too_large", "The run was ended: step 0 (pay)"),
    give_more_than_fits: ("too_large", "The run was ended: step 0.1 (pay)"),
    take_many: ("max_steps", "The run was ended: the agent took 1000 steps"),
    say_much: ("too_large", "The agent's answer is longer than"),
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda one: one.__name__)
def test_a_mistake_ends_the_run_with_a_sentence(mistake: Any) -> None:
    with of(mistake) as client:
        run: Any = client.run("clerk", "go", session_id="s")

    reason, sentence = MISTAKES[mistake]
    assert (run["status"], run["error_type"]) == ("ERROR", reason)
    assert run["content"].startswith(sentence)


def test_names_and_values_may_be_anything() -> None:
    async def answer() -> AsyncIterator[Any]:
        calls = [
            CallStep("pay #1", id="a b"),
            CallStep("pay", id="pay-2"),
            CallStep("pay"),
            CallStep("pay"),
            CallStep("\0"),
            CallStep(" "),
        ]
        for one in calls:
            yield one
        ends: list[Any] = [Color.RED, "text", {"a": "\0\\0\\\0\ud800"}, None, 1.5]
        yield tuple(one.returned(end) for one, end in zip(calls, ends, strict=False))
        yield calls[5].raised("No")
        plan = ModelStep("m")
        yield plan
        yield plan.answered(Color.RED)
        yield FinalAnswer([plan.answer, *((one.result, one.failed) for one in calls)])

    with of(answer) as client:
        run: Any = client.run("clerk", "go", session_id="s")

    assert run["content"] == [
        "red",
        *(
            ["red", False],
            ["text", False],
            [{"a": "\ufffd\\0\\\ufffd\ufffd"}, False],
            [None, False],
            [1.5, False],
        ),
        ["No", True],
    ]
    assert [one["tool_call_id"] for one in run["tools"]] == [
        *("a_b", "pay-2", "pay", "pay-3", "\ufffd", "call")
    ]


def test_only_steps_and_tuples_of_them_are_steps() -> None:
    pay = CallStep("pay")

    assert find_steps(pay) == (pay,)
    assert find_steps((pay, pay.returned(1))) is not None
    assert [find_steps(one) for one in ((), (pay, 1), [pay], "pay", 1)] == [None] * 5


def test_a_final_answer_is_told_those_who_listen_unless_they_heard_it() -> None:
    async def silent() -> AsyncIterator[Any]:
        yield FinalAnswer("whole")

    async def heard() -> AsyncIterator[Any]:
        yield "wh"
        yield FinalAnswer("whole")

    for function, said in ((silent, "whole"), (heard, "wh")):
        with of(function) as client:
            form = {"message": "x", "session_id": "s", "stream": True}
            events = client.post(PATH, form=form).events()
        told = [json.loads(event.data) for event in events if event.name == "RunContent"]
        assert [one["content"] for one in told] == [said]
        assert json.loads(events[-1].data)["content"] == "whole"
