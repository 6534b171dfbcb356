"""The guards of an agent or a team, ready to be asked, checked with every fault reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from attrs import evolve

from ..config import Agent, ModelLike, Team
from ..guards import MOMENTS, Guard, GuardLike, Judge, PureGuard, ToolAccess
from ..models.conversation import ModelProtocol
from ..models.echo import Echo
from ..tools import HostedGuardFunction, ToolFault, host_guard
from ..values import frozen
from .abilities import NOT_IMPORTED, Say

__all__ = ["APPROVE", "HostedGuard", "JudgingModel", "host_guards"]

APPROVE: Final = "approve_answer"
"""The name of the call that stands for an answer which waits for a person."""

_TAKEN: Final = f"not allowed beside a tool {APPROVE!r}: an answer that waits has the name"
_NO_AGENT: Final = "no agent {!r}"
_NO_TEXT: Final = "the instructions of the agent {!r} are a function, and its guard needs a text"
_ALONE: Final = "the agent {!r} is a function: name one that has a model"

FindModel: TypeAlias = Callable[[ModelLike, str], ModelProtocol | None]


@frozen(eq=False)
class JudgingModel:
    """A model that judges, and by which rules."""

    model: ModelProtocol
    instructions: str
    sentence: str | None = None


@frozen(eq=False)
class HostedGuard:
    """A guard at one of its moments: what it is called, and who decides."""

    name: str
    at: str
    by: PureGuard | HostedGuardFunction | JudgingModel

    @property
    def reads_scopes(self) -> bool:
        """Whether it is given the scopes of the caller."""
        return isinstance(self.by, ToolAccess | HostedGuardFunction)

    def with_model(self, choose: Callable[[ModelProtocol], ModelProtocol]) -> HostedGuard:
        """Return the same with another model, where it asks one."""
        if not isinstance(self.by, JudgingModel):
            return self
        return evolve(self, by=evolve(self.by, model=choose(self.by.model)))


def host_guards(
    item: Agent | Team, path: str, agents: Iterable[Agent], find_model: FindModel, say: Say
) -> tuple[HostedGuard, ...]:
    """Return the guards of `item` in their order; `say` gets every fault."""
    if item.guards and any(getattr(tool, "name", "") == APPROVE for tool in item.tools):
        say(f"{path}.guards", _TAKEN)
    by_id = {agent.id: agent for agent in agents}
    found: list[HostedGuard] = []
    for index, guard in enumerate(item.guards):
        here = f"{path}.guards[{index}]"
        faults = list(guard.faults())
        for key, sentence in faults:
            say(f"{here}.{key}" if key else here, sentence)
        if not faults:
            found += _host(guard, here, by_id, find_model, say)
    return tuple(sorted(found, key=lambda one: MOMENTS.index(one.at)))


def _host(
    guard: GuardLike, path: str, agents: dict[str, Agent], find_model: FindModel, say: Say
) -> Iterator[HostedGuard]:
    if isinstance(guard, Guard):
        yield from _host_functions(guard, path, say)
    elif isinstance(guard, Judge):
        judging = _find_judge(guard, path, agents, find_model, say)
        yield from (HostedGuard(guard.kind, at, judging) for at in guard.moments)
    else:
        yield from (HostedGuard(guard.kind, at, guard) for at in guard.moments)


def _host_functions(guard: Guard, path: str, say: Say) -> Iterator[HostedGuard]:
    for moment, function in guard.functions.items():
        here = f"{path}.{moment}"
        if isinstance(function, str):
            say(here, f"{function!r} {NOT_IMPORTED}")
            continue
        own: str = getattr(function, "__name__", type(function).__name__)
        try:
            yield HostedGuard(guard.name or own, moment, host_guard(function))
        except ToolFault as fault:
            say(here, str(fault))


def _find_judge(
    guard: Judge, path: str, agents: dict[str, Agent], find_model: FindModel, say: Say
) -> JudgingModel:
    model, rules = guard.model, guard.instructions
    if guard.agent is not None:
        agent = agents.get(guard.agent)
        if agent is None:
            say(f"{path}.agent", _NO_AGENT.format(guard.agent))
        elif agent.run is not None:
            say(f"{path}.agent", _ALONE.format(guard.agent))
        elif agent.instructions is not None and not isinstance(agent.instructions, str):
            say(f"{path}.agent", _NO_TEXT.format(guard.agent))
        else:
            rules = "\n\n".join(filter(None, (agent.instructions, rules)))
        model = "echo" if agent is None else agent.model
    found = find_model(model or "echo", f"{path}.model")
    return JudgingModel(found or Echo(), rules, guard.sentence)
