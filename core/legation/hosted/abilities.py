"""The abilities of an agent or a team, and their limits, checked with every fault reported."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast, get_args

from attrs import fields

from ..config import Again, Agent, InDoubt, Summaries, Team, ToolLike
from ..tools import (
    Hosted,
    HostedInstructions,
    Tool,
    ToolFault,
    Unfit,
    as_tool,
    host_function,
    host_instructions,
)
from ..tools.answer_class import AnswerClass, as_answer_class
from ..tools.structured import check_schema
from ..values import frozen

__all__ = ["DELEGATION", "NOT_IMPORTED", "Abilities", "abilities", "is_count", "is_duration"]

Say: TypeAlias = Callable[[str, str], None]  # takes the path and the text of a fault

DELEGATION: Final = ("delegate_task_to_member", "delegate_task_to_members")
"""Names that the tools of a team's leader have."""

NOT_IMPORTED: Final = "is imported from a configuration file alone; give the function itself"
# A hosted function does not get these, and so would not heed them.
_OF_A_MODEL: Final = (
    "model",
    "fallback",
    "instructions",
    "tools",
    "guards",
    "summaries",
    "max_rounds",
    "max_tokens",
    "tool_timeout_seconds",
)
_MOST_OF_SUMMARIES: Final = {"after_runs": 200, "after_tokens": 1_000_000, "max_tokens": 16_000}
_FEW_RUNS: Final = "must be more than history_runs, {}: so many runs are told as they were"
_IN_DOUBT: Final = get_args(InDoubt)
_AGAIN: Final = get_args(Again)  # of a function that answers; it is given no key
_OF_A_FUNCTION: Final = "is allowed together with `run` alone; of a tool, @tool(again=…) says it"
_DEFAULTS: Final[Mapping[str, Any]] = {a.name: a.default for a in fields(Agent)}


@frozen(eq=False)
class Abilities:
    """The abilities of an agent or a team.

    Attributes:
        tools: The tools that its model may call.
        run: The function that answers instead of a model.
        instruct: The function that gives the instructions, where they are no text.
        output_schema: The schema of its answers.
        answer: The class of its answers, where that was given instead of a schema.
        history_runs: The number of earlier runs of the session that the model reads.
        history_tokens: The number of tokens that their messages may have together.
        summaries: The rule by which sessions are summarized; None: they are not.
        max_rounds: The number of times that the model may be asked in one run.
        max_tokens: The number of tokens that one run may cost.
        tool_timeout_seconds: The time-out of a call whose tool has none of its own.
        in_doubt: What becomes of a call whose outcome a crash took away: `ask`, `tell` or `end`;
            None is as the run was asked for.
        again: Whether `run` may be called a second time after a crash: `never` or `safe`.
    """

    tools: tuple[Tool, ...] = ()
    run: Hosted | None = None
    instruct: HostedInstructions | None = None
    output_schema: Mapping[str, Any] | None = None
    answer: AnswerClass[Any] | None = None
    history_runs: int = 3
    history_tokens: int | None = None
    summaries: Summaries | None = None
    max_rounds: int = 10
    max_tokens: int | None = None
    tool_timeout_seconds: float = 60.0
    in_doubt: str | None = None
    again: str = "never"


def is_duration(value: Any) -> bool:
    """Return whether `value` is a number of seconds: more than none, and not for ever."""
    return type(value) in (int, float) and 0 < value < math.inf


def is_count(value: Any, least: int) -> bool:
    """Return whether `value` is a whole number of at least `least`."""
    return type(value) is int and value >= least


def abilities(item: Agent | Team, path: str, say: Say) -> Abilities:
    """Return the abilities of `item`; `say` gets every fault, and what has one is left out."""
    _check_limits(item, path, say)
    if item.in_doubt is not None and item.in_doubt not in _IN_DOUBT:
        say(f"{path}.in_doubt", f"{item.in_doubt!r} is none of: {', '.join(_IN_DOUBT)}")
    schema, answer = _output(item, path, say)
    return Abilities(
        tools=_tools(item.tools, path, say),
        run=_make_hosted(item, path, say) if isinstance(item, Agent) else None,
        instruct=_make_instructions(item, path, say),
        output_schema=schema,
        answer=answer,
        history_runs=item.history_runs,
        history_tokens=item.history_tokens,
        summaries=item.summaries,
        max_rounds=item.max_rounds,
        max_tokens=item.max_tokens,
        tool_timeout_seconds=item.tool_timeout_seconds,
        in_doubt=item.in_doubt,
        again=_check_again(item, path, say) if isinstance(item, Agent) else "never",
    )


def _output(
    item: Agent | Team, path: str, say: Say
) -> tuple[Mapping[str, Any] | None, AnswerClass[Any] | None]:
    """Return the schema of the answers, and the class that it is of."""
    given: Any = item.output_schema
    if given is None:
        return None, None
    if isinstance(given, type):
        try:
            answer = as_answer_class(cast(type[Any], given))
        except Unfit as unfit:
            say(f"{path}.output_schema", str(unfit))
            return None, None
        return answer.schema, answer
    if sentence := _flaw(given):
        say(f"{path}.output_schema", sentence)
        return None, None
    return given, None


def _flaw(schema: Any) -> str | None:
    if not isinstance(schema, Mapping):
        return "must be a JSON schema, as a mapping, or a class"
    return check_schema(cast(Mapping[str, Any], schema))


def _check_limits(item: Agent | Team, path: str, say: Say) -> None:
    if not is_count(item.history_runs, 0):
        say(f"{path}.history_runs", "must be an integer of at least 0")
    if item.history_tokens is not None and not is_count(item.history_tokens, 1):
        say(f"{path}.history_tokens", "must be an integer of at least 1")
    if item.summaries is not None:
        _check_summaries(item, item.summaries, f"{path}.summaries", say)
    if not is_count(item.max_rounds, 1):
        say(f"{path}.max_rounds", "must be an integer of at least 1")
    if item.max_tokens is not None and not is_count(item.max_tokens, 1):
        say(f"{path}.max_tokens", "must be an integer of at least 1")
    if not is_duration(item.tool_timeout_seconds):
        say(f"{path}.tool_timeout_seconds", "must be a finite number of more than 0")


def _check_summaries(item: Agent | Team, rule: Summaries, path: str, say: Say) -> None:
    for name in ("after_runs", "after_tokens", "max_tokens"):
        if not is_count(getattr(rule, name), 1):
            say(f"{path}.{name}", "must be an integer of at least 1")
        elif getattr(rule, name) > _MOST_OF_SUMMARIES[name]:
            say(f"{path}.{name}", f"must be at most {_MOST_OF_SUMMARIES[name]}")
    counts = is_count(item.history_runs, 0) and is_count(rule.after_runs, 1)
    if counts and item.history_runs >= rule.after_runs:
        say(f"{path}.after_runs", _FEW_RUNS.format(item.history_runs))


def _check_again(agent: Agent, path: str, say: Say) -> str:
    if agent.again not in _AGAIN:
        say(f"{path}.again", f"{agent.again!r} is none of: {', '.join(_AGAIN)}")
    elif agent.run is None and agent.again != _DEFAULTS["again"]:
        say(f"{path}.again", _OF_A_FUNCTION)
    return agent.again


def _tools(items: tuple[ToolLike, ...], path: str, say: Say) -> tuple[Tool, ...]:
    made: dict[str, Tool] = {}
    for index, item in enumerate(items):
        here = f"{path}.tools[{index}]"
        if isinstance(item, str):
            say(here, f"{item!r} {NOT_IMPORTED}")
            continue
        try:
            tool = as_tool(item)
        except ToolFault as fault:
            say(here, str(fault))
            continue
        if tool.name in made:
            say(here, f"tool {tool.name!r}: the name is taken")
        if tool.name in DELEGATION:
            say(here, f"tool {tool.name!r}: the name means delegation to a team's members")
        made[tool.name] = tool
    return tuple(made.values())


def _make_hosted(agent: Agent, path: str, say: Say) -> Hosted | None:
    if agent.run is None:
        return None
    for key in _OF_A_MODEL:
        if getattr(agent, key) != _DEFAULTS[key]:
            say(f"{path}.{key}", "is not allowed together with `run`")
    if isinstance(agent.run, str):
        say(f"{path}.run", f"{agent.run!r} {NOT_IMPORTED}")
        return None
    try:
        return host_function(agent.run)
    except ToolFault as fault:
        say(f"{path}.run", str(fault))
        return None


def _make_instructions(item: Agent | Team, path: str, say: Say) -> HostedInstructions | None:
    given: Any = item.instructions
    if given is None or isinstance(given, str):
        return None
    try:
        return host_instructions(given)
    except ToolFault as fault:
        say(f"{path}.instructions", f"{fault}; give a text, or a function of the `Run`")
        return None
