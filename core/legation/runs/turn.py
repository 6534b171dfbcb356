"""The choice of a turn: by an agent, by a team's leader, or by a function."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..effects import Program
from ..hosted.registry import Component
from ..store.run_rows import ClaimedRun
from .agent_turn import Limits, ToolSet, Turn
from .event_writer import EventWriter
from .events import RunContinued, RunStarted
from .function_turn import FunctionTurn
from .output import model_of
from .prompt import begin
from .team_turn import DELEGATE, LeaderToolSet, Taking, delegate_to_all
from .tool_calls import Toolbox
from .turn_state import TurnState, load

__all__ = ["turn_of"]


def turn_of(
    component: Component,
    database: str,
    run: ClaimedRun,
    asked: Mapping[str, Any],
    writer: EventWriter,
) -> Program[Taking]:
    """Return the turn of a run, where it begins or where it paused; its first event is noted."""
    state: TurnState
    if "turn" in asked:
        writer.note(RunContinued())
        state = load(asked["turn"])
    else:
        writer.note(RunStarted(**model_of(component)))
        state = yield from begin(
            database, run, asked, component.instructions, component.history_runs
        )
    return _turn(component, asked, writer, state)


def _turn(
    component: Component, asked: Mapping[str, Any], writer: EventWriter, state: TurnState
) -> Taking:
    schema = asked.get("output_schema") or component.output_schema
    if component.run is not None:
        return FunctionTurn(writer, component.run, state, asked, math.inf, schema)
    limits = Limits(component.max_rounds, component.max_tokens)
    if component.kind == "agent":
        hands: ToolSet = Toolbox(component.tools, component.tool_timeout_seconds)
        return Turn(writer, component.model, hands, state, limits, schema)
    leading = _leader_tools(component, state)
    if component.mode == "collaborate" and component.members and len(state.said) == 1:
        state = delegate_to_all(component, state, writer.journal.now_us)
    return Turn(writer, component.model, leading, state, limits, schema, leading.tool_choice)


def _leader_tools(team: Component, state: TurnState) -> LeaderToolSet:
    beside = (DELEGATE,) if team.members else ()
    tools = Toolbox(team.tools, team.tool_timeout_seconds, beside)
    return LeaderToolSet(team, tools, _turn, state.said[0].message.images)
