"""The choice of a turn: by an agent, by a team's leader, or by a function."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..effects import Program
from ..hosted.registry import Component
from ..store.run_rows import ClaimedRun
from ..store.steps import COPIED
from .agent_turn import Limits, Turn
from .event_writer import EventWriter
from .events import ABSENT, RunContinued, RunStarted
from .fold import RunRecord, fold
from .function_turn import FunctionTurn
from .guarded_tools import GuardedToolSet
from .guarding import check_message, make_guards
from .instructions import instruct, store_start
from .output import model_of
from .prompt import begin
from .session_history import NO_HISTORY, fetch_history, fetch_same_history
from .step_outcomes import START, decode_calls, encode_calls
from .team_turn import DELEGATE, LeaderToolSet, Taker, Taking, delegate_to_all
from .terms import HISTORY_RUNS, OF_HISTORY
from .tool_calls import Toolbox
from .turn_state import TurnState, load

__all__ = ["add_first_calls", "begins_again", "make_tool_set", "make_turn", "turn_of"]


def turn_of(
    component: Component,
    database: str,
    run: ClaimedRun,
    asked: Mapping[str, Any],
    writer: EventWriter,
    record: RunRecord | None = None,
    taker: Taker | None = None,
) -> Program[Taking]:
    """Return the turn of a run, where it begins, paused or broke off.

    Its first event is noted, unless it is stored with the run.

    `record` is what is known of one that goes on after a crash, or begins as a fork of another.
    `taker` makes the turn, and those of members, in place of `make_turn`.
    """
    if record is not None and run.events:
        writer.note(RunContinued(resumed=True))
        writer.resumed = writer.journal.resumed = True
    elif "turn" in asked:
        answers = writer.journal.answers = asked.get("answered", {}).get("tools")
        writer.note(RunContinued(ABSENT if answers is None else answers))
    elif not writer.journal.begun:
        writer.note(RunStarted(**model_of(component)))
    if "turn" in asked:
        state = load(asked["turn"])
    elif record is not None and (start := record.start()) is not None:
        state = yield from _begin_again(component, database, run, asked, writer, record, start)
    else:
        instructions = component.instructions
        if component.instruct is not None:
            instructions = yield from instruct(component.instruct, component, writer)
        told = NO_HISTORY
        if run.run_no > 1:
            told = yield from fetch_history(component, database, asked, writer)
        state = begin(run, asked, instructions, told.messages, told.usage)
        members = dict(told.members)
        if component.guards:
            state, guarded = yield from check_message(component, writer, state)
            members |= guarded
        if component.instruct is not None:
            members["instructions"] = instructions
        writer.start = (component.definition, members)
    if record is not None:
        state = fold(record, "", state)
    turn = (taker or make_turn)(component, asked, writer, state)
    if component.instruct is not None or (component.guards and component.guards_at("before_run")):
        yield from store_start(writer)
    elif component.history_is_chosen or HISTORY_RUNS in asked:
        writer.note_start()
    return turn


def _begin_again(
    component: Component,
    database: str,
    run: ClaimedRun,
    asked: Mapping[str, Any],
    writer: EventWriter,
    record: RunRecord,
    start: Mapping[str, Any],
) -> Program[TurnState]:
    """Return the state as it was at the start, which may have been another day.

    A fork that begins in another session is told the history of that.
    """
    instructions = record.instructions("", component.instructions)
    step = record.steps.get(START)
    if step is None:
        told = NO_HISTORY
        if run.run_no > 1:
            told = yield from fetch_history(component, database, asked, writer)
        members = {name: start[name] for name in start if name not in ("definition", *OF_HISTORY)}
        members |= told.members
        writer.start = (record.define(start, run.kind, run.component_id), members)
        writer.note_start()
    else:
        paid = step.attempt != COPIED
        told = yield from fetch_same_history(database, writer, start, paid=paid)
    state = begin(run, asked, instructions, told.messages, told.usage)
    state = record.start_turn("", state)
    return add_first_calls(state, start, run.created_us)


def add_first_calls(state: TurnState, start: Mapping[str, Any], at_us: int) -> TurnState:
    """Return the state with the calls of a start, which no model asked for."""
    calls = decode_calls(start.get("calls", ()), at_us)
    return state.with_calls(calls, at_us) if calls else state


def begins_again(component: Component, state: TurnState) -> bool:
    """Return whether an agent was a function when the run began, and is none now, or was none.

    Then the calls are not its own.
    """
    if component.kind != "agent" or not (state.calls or state.recorded):
        return False
    return (component.run is None) == state.of_function


def make_tool_set(component: Component, state: TurnState) -> GuardedToolSet:
    """Return the tools that the turn of `component` may call by now."""
    if component.kind == "agent":
        return GuardedToolSet(Toolbox(component.tools, component.tool_timeout_seconds))
    return GuardedToolSet(_leader_tools(component, state, make_turn))


def make_turn(
    component: Component,
    asked: Mapping[str, Any],
    writer: EventWriter,
    state: TurnState,
    taker: Taker | None = None,
) -> Turn | FunctionTurn:
    """Return the turn of `component` at `state`; `taker` makes those of its members."""
    schema, shape = asked.get("output_schema"), None
    if not schema:
        schema = component.output_schema
        shape = None if component.answer is None else component.answer.shape
    in_doubt = component.in_doubt or writer.journal.in_doubt
    if begins_again(component, state):
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
    guards = make_guards(component, writer) if component.guards else None
    choice: str | None = None
    tools: Toolbox | LeaderToolSet = Toolbox(component.tools, component.tool_timeout_seconds)
    if component.kind != "agent":
        tools = leading = _leader_tools(component, state, taker or make_turn)
        choice, state = leading.tool_choice, _begin_leading(component, writer, state)
    return Turn(
        writer,
        component.model,
        tools if guards is None else GuardedToolSet(tools, guards),
        state,
        limits,
        schema,
        choice,
        in_doubt,
        shape,
        component.fallback,
        guards,
    )


def _begin_leading(team: Component, writer: EventWriter, state: TurnState) -> TurnState:
    """Return the state of a leader, which begins with a call of each member where all are asked."""
    asks_all = team.mode == "collaborate" and team.members and not state.calls
    if not asks_all or writer.start is None:
        return state
    state = delegate_to_all(team, state, writer.journal.now_us)
    definition, members = writer.start
    writer.start = definition, {**members, "calls": encode_calls(state.calls)}
    return state


def _leader_tools(team: Component, state: TurnState, taker: Taker) -> LeaderToolSet:
    beside = (DELEGATE,) if team.members else ()
    tools = Toolbox(team.tools, team.tool_timeout_seconds, beside)
    return LeaderToolSet(team, tools, taker, state.said[0].message)
