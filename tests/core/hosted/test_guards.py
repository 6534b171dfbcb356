"""The guards of a configuration, checked with every fault and its place."""

from __future__ import annotations

from typing import Any

import pytest

from legation import (
    Agent,
    AskPerson,
    ConfigurationError,
    Guard,
    Guarded,
    Judge,
    Length,
    Model,
    Platform,
    Redact,
    Run,
    Team,
    ToolAccess,
    tool,
)
from legation.config import structure
from legation.guards import MOMENTS
from legation.hosted.guards import APPROVE, HostedGuard, JudgingModel
from legation.hosted.registry import Component, build
from legation.models.conversation import ModelProtocol
from legation.tools import HostedGuardFunction
from legation_testing import ScriptedModel

AT = "agents[0].guards"


def check(guarded: Guarded) -> None: ...


async def ask(about: Guarded, run: Run, more: int = 1) -> AskPerson:
    return AskPerson("?")


def repeat(message: str) -> str:
    return message


def two(one: Guarded, other: Guarded) -> None: ...


def none() -> None: ...


def stream(guarded: Guarded) -> Any:
    yield None


class Strict:
    def __call__(self, guarded: Guarded) -> None: ...


@tool(name=APPROVE)
def approve(answer: str) -> str:
    """Approve."""
    return answer


def hosted(*guards: Any, **more: Any) -> Component:
    platform = Platform(agents=[Agent(id="a", guards=guards, **more)])
    return platform.context.registry.agents["a"]


def faults(*guards: Any, **more: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        hosted(*guards, **more)
    return str(caught.value).split("\n")


def test_guards_stand_in_the_order_of_their_moments() -> None:
    late = Guard(after_model=ask, before_run=Strict(), name=None)
    found = hosted(late, Length(3), Guard(before_run=check, name="polite")).guards

    assert [(one.name, one.at) for one in found] == [
        ("Strict", "before_run"),
        ("length", "before_run"),
        ("polite", "before_run"),
        ("ask", "after_model"),
    ]
    by = found[3].by
    assert isinstance(by, HostedGuardFunction)
    assert (by.parameter, by.context and by.context.name) == ("about", "run")


def test_every_fault_is_told_with_its_place() -> None:
    assert faults(
        Guard(before_run="m:f", before_tool=two, after_tool=none, before_model=stream),
        Length(0),
        Guard(),
        tools=[approve],
    ) == [
        (f"{AT}: not allowed beside a tool 'approve_answer': an answer that waits has the name"),
        (
            f"{AT}[0].before_run: 'm:f' is imported from a configuration file alone; give"
            " the function itself"
        ),
        (f"{AT}[0].before_model: is a generator; it returns what is to become of what it is given"),
        (f"{AT}[0].before_tool: parameter 'other' is no `Run`, and one beside that is enough"),
        f"{AT}[0].after_tool: has no parameter for what it is to look at",
        f"{AT}[1].most: must be an integer of at least 1",
        f"{AT}[2]: has no function: give one for {', '.join(MOMENTS)}",
    ]


def test_a_function_alone_is_no_guard() -> None:
    (fault,) = faults(check)

    assert fault.startswith(f"{AT}[0]: expected Guard(…), Length(…)")


def test_a_function_that_is_an_agent_has_no_guards() -> None:
    assert faults(Length(1), run=repeat) == [f"{AT}: is not allowed together with `run`"]


def judge_of(platform: Platform) -> JudgingModel:
    guard = platform.context.registry.agents["a"].guards[0]
    assert isinstance(guard, HostedGuard)
    assert isinstance(guard.by, JudgingModel)
    return guard.by


def test_an_agent_judges_with_its_model_and_instructions() -> None:
    model: ModelProtocol = ScriptedModel([])
    judge = Agent(id="j", model=model, instructions="Be strict.")
    guard = Judge(agent="j", instructions="No prices.", of="input")

    by = judge_of(Platform(agents=[Agent(id="a", guards=[guard]), judge]))

    assert (by.model, by.instructions) == (model, "Be strict.\n\nNo prices.")


def test_a_model_judges_by_its_name() -> None:
    config = structure(
        {
            "models": {"small": {"provider": "echo"}},
            "agents": [
                {"id": "a", "guards": [{"kind": "judge", "model": "small", "instructions": "x"}]}
            ],
        }
    )

    by = build(config, {}).agents["a"].guards[0].by

    assert isinstance(by, JudgingModel)
    assert by.model.id == "small"


@pytest.mark.parametrize(
    ("agent", "sentence"),
    [
        ("x", f"{AT}[0].agent: no agent 'x'"),
        ("f", f"{AT}[0].agent: the agent 'f' is a function: name one that has a model"),
        (
            "i",
            (
                f"{AT}[0].agent: the instructions of the agent 'i' are a function, and its"
                " guard needs a text"
            ),
        ),
    ],
)
def test_an_agent_that_cannot_judge(agent: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Platform(
            models=[Model("m", "echo")],
            agents=[
                Agent(id="a", guards=[Judge(agent=agent)]),
                Agent(id="f", run=repeat),
                Agent(id="i", model="m", instructions=lambda: "x"),
            ],
        )

    assert str(caught.value) == sentence


def test_scopes_are_kept_for_those_who_read_them() -> None:
    platform = Platform(
        agents=[
            Agent(id="a", guards=[Redact(words="x")]),
            Agent(id="b", guards=[ToolAccess(deny={"*": "x"})]),
            Agent(id="c", guards=[Guard(before_run=check)]),
        ],
        teams=[Team(id="t", members=["a"]), Team(id="u", members=["a", "b"])],
    )
    registry = platform.context.registry

    found = {**registry.agents, **registry.teams}
    assert {name for name, one in found.items() if one.reads_scopes} == {"b", "c", "u"}


def test_a_file_names_the_kinds() -> None:
    guards = [
        {"kind": "length", "most": 5, "of": ["input", "output"]},
        {"kind": "nothing"},
        {"most": 5},
        3,
        {"kind": "redact", "pattern": "x"},
        {"kind": "tool_access", "allow": {"a": ["b"]}, "deny": {"c": "d"}},
    ]
    with pytest.raises(ConfigurationError) as caught:
        structure({"agents": [{"id": "a", "guards": guards}]})

    kinds = "function, length, schema, tool_access, redact, judge"
    assert str(caught.value).split("\n") == [
        f"{AT}[1]: kind 'nothing' is none of: {kinds}",
        f"{AT}[2]: kind None is none of: {kinds}",
        f"{AT}[3]: expected a table",
        f"{AT}[4]: unknown: pattern",
        f"{AT}[5].deny['c']: expected an array of strings",
    ]
    assert structure({"agents": [{"id": "a", "guards": guards[:1]}]}).agents[0].guards == (
        Length(5, of=("input", "output")),
    )
