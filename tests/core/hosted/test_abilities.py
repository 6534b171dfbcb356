from __future__ import annotations

import math
from typing import Any

import pytest
from attrs import frozen

from legation.config import Agent, InDoubt, Summaries, Team
from legation.hosted.abilities import DELEGATION, Abilities, abilities, is_count, is_duration
from legation.tools import Tool, tool


@frozen
class Order:
    number: int


class Odd:
    pass


@frozen
class Lock:
    key: Odd


def add(a: int) -> int:
    return a


def unannotated(a): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201


def answer(message: str) -> str:
    return message


def checked(item: Agent | Team) -> tuple[Abilities, list[str]]:
    said: list[str] = []
    found = abilities(item, "x", lambda path, text: said.append(f"{path}: {text}"))
    return found, said


def said(**configuration: Any) -> list[str]:
    return checked(Agent(id="a", **configuration))[1]


def test_nothing_said_is_the_default() -> None:
    for item in (Agent(id="a"), Team(id="t")):
        found, faults = checked(item)

        assert not faults
        assert found.tools == ()
        assert found.run is None
        assert found.output_schema is None
        assert (found.history_runs, found.max_rounds, found.max_tokens) == (3, 10, None)
        assert found.tool_timeout_seconds == Abilities().tool_timeout_seconds == 60.0


def test_functions_become_tools() -> None:
    named = tool(name="plus")(add)
    found, faults = checked(Agent(id="a", tools=[add, named]))

    assert not faults
    assert [type(made) for made in found.tools] == [Tool, Tool]
    assert found.tools[1] is named


def test_what_cannot_be_a_tool_is_told_with_its_place_and_the_rest_is_kept() -> None:
    tools: list[Any] = [
        unannotated,
        add,
        add,
        "m:f",
        *(tool(name=name)(add) for name in DELEGATION),
    ]
    found, faults = checked(Team(id="t", tools=tools))

    assert faults == [
        "x.tools[0]: tool 'unannotated': parameter 'a' is not annotated",
        "x.tools[2]: tool 'add': the name is taken",
        ("x.tools[3]: 'm:f' is imported from a configuration file alone; give the function itself"),
        (
            "x.tools[4]: tool 'delegate_task_to_member': "
            "the name means delegation to a team's members"
        ),
        (
            "x.tools[5]: tool 'delegate_task_to_members': "
            "the name means delegation to a team's members"
        ),
    ]
    assert found.tools[0].name == "add"


@pytest.mark.parametrize("value", [-1, 1.0, True, "1", None])
def test_history_is_a_count(value: Any) -> None:
    assert said(history_runs=value) == ["x.history_runs: must be an integer of at least 0"]
    assert said(history_runs=0) == []


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "1"])
def test_the_tokens_of_history_are_a_count(value: Any) -> None:
    assert said(history_tokens=value) == ["x.history_tokens: must be an integer of at least 1"]
    assert said(history_tokens=1) == []


@pytest.mark.parametrize("value", [0, 1.0, True, "1", None])
@pytest.mark.parametrize("name", ["after_runs", "after_tokens", "max_tokens"])
def test_summaries_are_made_of_counts(name: str, value: Any) -> None:
    rule: Any = Summaries(**{name: value})
    assert said(summaries=rule) == [f"x.summaries.{name}: must be an integer of at least 1"]


def test_a_rule_of_summaries_is_bounded_and_has_runs_to_summarize() -> None:
    rule = Summaries(after_runs=201, after_tokens=1_000_001, max_tokens=16_001)
    assert said(summaries=rule) == [
        "x.summaries.after_runs: must be at most 200",
        "x.summaries.after_tokens: must be at most 1000000",
        "x.summaries.max_tokens: must be at most 16000",
    ]
    few = "must be more than history_runs, 3: so many runs are told as they were"
    assert said(summaries=Summaries(after_runs=3)) == [f"x.summaries.after_runs: {few}"]
    assert said(summaries=Summaries(), history_runs=None) == [
        "x.history_runs: must be an integer of at least 0"
    ]
    assert said(summaries=Summaries(after_runs=4)) == []


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "1", None])
def test_rounds_are_a_count(value: Any) -> None:
    assert said(max_rounds=value) == ["x.max_rounds: must be an integer of at least 1"]


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "1"])
def test_tokens_are_a_count(value: Any) -> None:
    assert said(max_tokens=value) == ["x.max_tokens: must be an integer of at least 1"]


@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan, True, "1", None])
def test_a_time_is_finite(value: Any) -> None:
    told = ["x.tool_timeout_seconds: must be a finite number of more than 0"]

    assert said(tool_timeout_seconds=value) == told


@pytest.mark.parametrize("value", ["ask", "tell", "end", None])
def test_what_becomes_of_a_call_in_doubt_is_said_of_agents_and_teams(value: InDoubt | None) -> None:
    for item in (
        Agent(id="a", in_doubt=value),
        Agent(id="a", run=answer, in_doubt=value),
        Team(id="t", in_doubt=value),
    ):
        found, faults = checked(item)

        assert not faults
        assert (found.in_doubt, found.again) == (value, "never")


@pytest.mark.parametrize("value", ["never", "Ask", "", 0, False, ["ask"], "a" * 10])
def test_another_answer_to_a_doubt_is_a_fault(value: Any) -> None:
    for item in (Agent(id="a", in_doubt=value), Team(id="t", in_doubt=value)):
        assert checked(item)[1] == [f"x.in_doubt: {value!r} is none of: ask, tell, end"]


def test_function_may_be_called_again_where_its_agent_says_so() -> None:
    found, faults = checked(Agent(id="a", run=answer, again="safe"))

    assert not faults
    assert found.again == "safe"
    assert said(again="never") == said(run=answer, again="never") == []


@pytest.mark.parametrize("value", ["key", "always", "", None, True, ["safe"]])
def test_function_has_no_key_and_nothing_else_to_say(value: Any) -> None:
    sentence = f"x.again: {value!r} is none of: never, safe"

    assert said(again=value) == said(run=answer, again=value) == [sentence]


def test_model_is_not_called_again_by_a_setting() -> None:
    assert said(again="safe") == [
        "x.again: is allowed together with `run` alone; of a tool, @tool(again=…) says it"
    ]


def test_a_schema_that_cannot_be_checked_is_told() -> None:
    told = said(output_schema={"type": "object", "$ref": "https://evil.test"})

    assert told == [
        "x.output_schema: unsupported $ref 'https://evil.test': it must lead into the schema"
    ]
    assert said(output_schema="Order") == [
        "x.output_schema: must be a JSON schema, as a mapping, or a class"
    ]


def test_a_class_is_the_schema_of_its_answers() -> None:
    found, faults = checked(Agent(id="a", output_schema=Order))

    assert not faults
    assert found.answer is not None
    assert found.answer.cls is Order
    assert found.output_schema == found.answer.schema
    assert found.answer.schema["title"] == "Order"
    assert found.answer.schema["required"] == ["number"]


def test_a_class_that_answers_cannot_be_read_as_is_a_fault() -> None:
    assert said(output_schema=Lock) == [
        "x.output_schema: contains Lock, whose key contains Odd, which has no form in JSON"
    ]
    assert said(output_schema=int) == [
        "x.output_schema: is int, whose values are no objects of JSON"
    ]


def test_an_agent_may_be_a_function() -> None:
    schema = {"type": "object"}
    item = Agent(id="a", run=answer, history_runs=1, role="R", output_schema=schema)
    found, faults = checked(item)

    assert not faults
    assert found.run is not None
    assert found.run.function is answer


def test_a_function_that_cannot_answer_is_told() -> None:
    assert said(run=add)[0].startswith("x.run: parameter 'a' is no `Run`, and none of: ")
    assert said(run="m:f") == [
        "x.run: 'm:f' is imported from a configuration file alone; give the function itself"
    ]


def test_what_a_function_is_not_told_is_a_fault_beside_it() -> None:
    told = said(
        run=answer,
        model="fast",
        instructions="Be brief.",
        tools=[add],
        max_rounds=3,
        max_tokens=3,
        tool_timeout_seconds=3.0,
    )

    assert [line.partition(":")[0] for line in told] == [
        "x.model",
        "x.instructions",
        "x.tools",
        "x.max_rounds",
        "x.max_tokens",
        "x.tool_timeout_seconds",
    ]
    assert all(line.endswith("is not allowed together with `run`") for line in told)


def test_numbers_are_what_they_are_called() -> None:
    assert is_duration(0.1)
    assert is_duration(1)
    assert not is_duration(True)
    assert is_count(2, 2)
    assert not is_count(1, 2)


def test_instructions_may_be_a_function() -> None:
    def brief() -> str:
        return "Be brief."

    found = abilities(Agent(id="a", instructions=brief), "x", print)

    assert found.instruct is not None
    assert found.instruct.function is brief
    assert abilities(Agent(id="a", instructions="Be brief."), "x", print).instruct is None
    assert said(instructions=3)[0] == (
        "x.instructions: is no function; give a text, or a function of the `Run`"
    )
