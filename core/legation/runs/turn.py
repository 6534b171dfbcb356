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
from .events import ABSENT, RunContinued, RunStarted
from .fold import RunRecord, fold
from .function_turn import FunctionTurn
from .instructions import instruct, store_start
from .output import model_of
from .prompt import begin
from .step_outcomes import decode_calls, encode_calls
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
    record: RunRecord | None = None,
) -> Program[Taking]:
    """Return the turn of a run, where it begins, paused or broke off; its first event is noted.

    `record` is what is known of one that goes on after a crash.
    """
    if record is not None:
        writer.note(RunContinued(resumed=True))
        writer.resumed = writer.journal.resumed = True
    elif "turn" in asked:
        answers = writer.journal.answers = asked.get("answered", {}).get("tools")
        writer.note(RunContinued(ABSENT if answers is None else answers))
    else:
        writer.note(RunStarted(**model_of(component)))
    if "turn" in asked:
        state = load(asked["turn"])
    elif record is not None and (start := record.start()) is not None:
        state = yield from _begin_again(component, database, run, asked, record, start)
    else:
        instructions = component.instructions
        if component.instruct is not None:
            instructions = yield from instruct(component.instruct, component, writer)
        state, numbers = yield from begin(
            database, run, asked, instructions, component.history_runs
        )
        members: dict[str, Any] = {"history": numbers} if numbers else {}
        if component.instruct is not None:
            members["instructions"] = instructions
        writer.start = (component.definition, members)
    if record is not None:
        state = fold(record, "", state)
    turn = _turn(component, asked, writer, state)
    if component.instruct is not None:
        yield from store_start(writer)
    return turn


def _begin_again(
    component: Component,
    database: str,
    run: ClaimedRun,
    asked: Mapping[str, Any],
    record: RunRecord,
    start: Mapping[str, Any],
) -> Program[TurnState]:
    """Return the state as it was at the start, which may have been another day."""
    instructions = record.instructions("", component.instructions)
    numbers = tuple(start.get("history", ()))
    state, _ = yield from begin(database, run, asked, instructions, 0, numbers or None)
    calls = decode_calls(start.get("calls", ()), run.created_us)
    return state.with_calls(calls, run.created_us) if calls else state


def _turn(
    component: Component, asked: Mapping[str, Any], writer: EventWriter, state: TurnState
) -> Taking:
    schema, shape = asked.get("output_schema"), None
    if not schema:
        schema = component.output_schema
        shape = None if component.answer is None else component.answer.shape
    in_doubt = component.in_doubt or writer.journal.in_doubt
    if component.kind == "agent" and state.calls and (component.run is None) == (state.rounds == 0):
        # Its calls are of what it was when the run began: a function, or the user of a model.
        state = TurnState(before=state.before, said=state.said[:1], worked_us=state.worked_us)
    if component.run is not None:
        return FunctionTurn(
            writer,
            component.run,
            state,
            math.inf,
            schema,
            component.again,
            in_doubt,
            shape,
        )
    limits = Limits(component.max_rounds, component.max_tokens)
    if component.kind == "agent":
        hands: ToolSet = Toolbox(component.tools, component.tool_timeout_seconds)
        return Turn(
            writer, component.model, hands, state, limits, schema, in_doubt=in_doubt, shape=shape
        )
    leading = _leader_tools(component, state)
    if component.mode == "collaborate" and component.members and writer.start is not None:
        state = delegate_to_all(component, state, writer.journal.now_us)
        definition, members = writer.start
        writer.start = definition, {**members, "calls": encode_calls(state.calls)}
    choice = leading.tool_choice
    return Turn(writer, component.model, leading, state, limits, schema, choice, in_doubt, shape)


def _leader_tools(team: Component, state: TurnState) -> LeaderToolSet:
    beside = (DELEGATE,) if team.members else ()
    tools = Toolbox(team.tools, team.tool_timeout_seconds, beside)
    return LeaderToolSet(team, tools, _turn, state.said[0].message)
