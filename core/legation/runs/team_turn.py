"""The turn of a team: a leader whose tools are its members.

A member's turn is taken within the call of `delegate_task_to_member` that asked for it.  It is a
run of its own, under the one that it is part of; its events stand in the journal of the run at the
top, which also has the lease.  What becomes of it is the result of the call: an answer, a failure
that the leader reads, or a pause, which is then a pause of the whole.

The modes differ in little: in `coordinate` the leader asks whom it likes; in `route` it must choose
one, and that one's answer is the team's; in `collaborate` every member has been asked already when
the leader is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

from attrs import evolve, field

from ..effects import Now, Program
from ..hosted.abilities import DELEGATION
from ..hosted.registry import Component
from ..http.messages import compact_json
from ..models.conversation import Message, ToolCall, ToolSpec
from ..store.failures import StoreFailure
from ..store.member_runs import MemberMove, Root, StartMember
from ..store.once import WORTH, message_of, shorten_output
from ..store.run_rows import ClaimedRun
from ..store.run_states import RunState
from ..store.steps import StepKind
from ..store.units import Unit
from ..store.usage import count_octets
from ..tools import Again, plain_arguments, render
from ..values import define, frozen
from .agent_turn import Outcome
from .endings import End, conclude, fail, fail_by_error
from .event_writer import CancelAsked, EventWriter, Journal, LeaseLost
from .events import ABSENT, EventOrigin, RunContinued, RunStarted
from .guarding import check_message
from .ids import member_run_id
from .instructions import instruct, store_start
from .output import RunSummary, model_of, render_running
from .retry import persist
from .tool_calls import Toolbox
from .turn_state import CallState, MemberState, ModelTurn, Standing, TurnState, unlike

__all__ = [
    "DELEGATE",
    "MAX_TASKS",
    "LeaderToolSet",
    "Taker",
    "Taking",
    "delegate_to_all",
    "find_member_id",
]

DELEGATE: Final = DELEGATION[0]

MAX_TASKS: Final = 64
"""How many tasks a leader may give between two pauses of a run."""

_COORDINATE: Final = "Give a task to a member of the team; the result is the member's answer."
_ROUTE: Final = "Choose the one member of the team that answers, and say what it is to answer."
_MEMBERS: Final = "The members, by id:"
_NO_MEMBER: Final = "There is no member {!r}. There are: {}"
_ARGUMENTS: Final = "The arguments must be member_id and task, two texts that are not empty"
_ONE: Final = "One member is to answer, and another was chosen already"
_MANY: Final = f"No more than {MAX_TASKS} tasks can be given in one run"
_UNHOSTED: Final = "The run failed: the team no longer has this member"
_SHOWN: Final = 100  # characters of an id that nobody has


class Taking(Protocol):
    """A turn: of a model, or of a function of the user's."""

    @property
    def state(self) -> TurnState:
        """The state that it has come to."""
        ...

    def take(self) -> Program[Outcome]:
        """Go on as far as can be."""
        ...


Taker: TypeAlias = Callable[[Component, Mapping[str, Any], EventWriter, TurnState], Taking]
"""Makes the turn of an agent or a team: of whom, what was asked, who speaks, and how far it is."""


@frozen
class _MemberRun:
    """A member at work: None if the team has it no more; `error` is of its instructions."""

    member: Component | None
    run: ClaimedRun
    writer: EventWriter
    state: TurnState
    error: Exception | None = None

    def summarize(self, state: TurnState, now_us: int, began_us: int) -> RunSummary:
        worked_us = state.worked_us + now_us - began_us
        origin = self.writer.origin
        state = evolve(state, worked_us=worked_us)
        return RunSummary(
            self.run, origin.name, self.member, state, worked_us, origin.parent_run_id
        )


@define(eq=False)
class LeaderToolSet:
    """The tool set of a team's leader: it asks members, and calls tools of its own.

    Attributes:
        asked: The message that the team was asked; each member is shown the files of it.
    """

    team: Component
    toolbox: Toolbox
    taker: Taker
    asked: Message = Message("user", "")
    _tasks: int = field(default=0, init=False)
    _chosen: bool = field(default=False, init=False)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The descriptions of the tools for the model."""
        members = self.team.members
        return (*((_delegation(self.team),) if members else ()), *self.toolbox.specs)

    @property
    def tool_choice(self) -> str | None:
        """The tool that the model must call first."""
        if self.team.mode != "route" or not self.team.members:
            return None
        return "*" if self.toolbox.tools else DELEGATE

    def admit(self, call: ToolCall, now_us: int) -> CallState:
        """Return the call as it stands at first."""
        if call.name != DELEGATE or not self.team.members:
            return self.toolbox.admit(call, now_us)
        arguments = plain_arguments(call.arguments)
        if isinstance(arguments, str):
            return CallState(call=call, created_us=now_us).with_result(arguments, failed=True)
        state = CallState(call=call, created_us=now_us, arguments=arguments)
        wrong = self._wrong(arguments)
        if wrong is not None:
            return state.with_result(wrong, failed=True)
        self._tasks += 1
        self._chosen = True
        return state

    def _wrong(self, arguments: Mapping[str, Any]) -> str | None:
        """Return why the task cannot be given, in words for the model."""
        texts = [value for value in arguments.values() if isinstance(value, str) and value.strip()]
        if sorted(arguments) != ["member_id", "task"] or len(texts) < len(arguments):
            return _ARGUMENTS
        if self.team.member(arguments["member_id"]) is None:
            known = ", ".join(member.id for member in self.team.members)
            return _NO_MEMBER.format(arguments["member_id"][:_SHOWN], known)
        if self.team.mode == "route" and self._chosen:
            return _ONE
        return _MANY if self._tasks >= MAX_TASKS else None

    def find_obstacle(self, call: CallState) -> str | None:
        """Return why the call cannot be carried out by now; None where it can."""
        if call.call.name != DELEGATE:
            return self.toolbox.find_obstacle(call)
        return _UNHOSTED if self.team.member(find_member_id(call)) is None else None

    def again(self, call: CallState) -> Again:
        """Return whether the call may be made a second time: a member goes on where it was."""
        return "safe" if call.call.name == DELEGATE else self.toolbox.again(call)

    def step(self, call: CallState) -> tuple[StepKind, str]:
        """Return the kind of the step that the call is, and the member or the tool that it asks."""
        if call.call.name != DELEGATE or not self.team.members:
            return self.toolbox.step(call)
        return StepKind.MEMBER, call.arguments["member_id"]

    def carry_out(self, call: CallState, writer: EventWriter, place: str) -> Program[CallState]:
        """Return the call with what came of it, or waiting with the member."""
        if call.call.name != DELEGATE:
            return (yield from self.toolbox.carry_out(call, writer, place))
        journal, member = writer.journal, self.team.member(call.arguments["member_id"])
        if call.response is not None:  # the member was done when a node went away
            return self._answer(call, call.response)
        if call.member is not None:
            member_run = yield from self._resume(call.member, writer, place)
        elif member is not None:
            member_run = yield from self._begin(member, call, writer, place)
        else:  # who was asked before the team was changed
            return call.with_result(_UNHOSTED, failed=True)
        began_us = journal.now_us
        end, state = yield from self._run(member_run, began_us)
        self._move(member_run, end)
        yield from journal.settle()
        run_id = member_run.run.run_id
        return self._conclude(evolve(call, child_run_id=run_id), member_run, end, state)

    def _begin(
        self, member: Component, call: CallState, writer: EventWriter, place: str
    ) -> Program[_MemberRun]:
        """Store the run of a member that has not begun, or of which that is not in the log."""
        journal, task = writer.journal, call.arguments["task"]
        run_id = member_run_id(journal.run.run_id, place, journal.run.created_us)
        now_us = journal.now_us = yield from Now()
        run = _claim(writer, run_id, member.kind, member.id, task, now_us)
        said = ModelTurn(evolve(self.asked, content=task), now_us)
        own = _writer(writer, run, member.name, place)
        member_run = _MemberRun(member, run, own, TurnState(said=(said,)))
        start = StartMember(
            _root(journal),
            run_id,
            writer.origin.run.run_id,
            member.kind,
            member.id,
            run.input,
            _render_running(member_run, now_us),
            now_us,
        )
        yield from _store(journal, start)
        journal.bytes += count_octets((run.input,))
        own.note(RunStarted(**model_of(member), parent_tool_call_id=call.call.id))
        return (yield from _instruct(member, member_run))

    def _resume(self, kept: MemberState, writer: EventWriter, place: str) -> Program[_MemberRun]:
        """Go on with a member that has what it was waiting for, or whose node went away."""
        journal = writer.journal
        task = kept.state.said[0].message.content
        run = _claim(writer, kept.run_id, kept.kind, kept.component_id, task, kept.created_us)
        own = _writer(writer, run, kept.name, place)
        own.resumed = journal.resumed
        now_us = journal.now_us = yield from Now()
        member_run = _MemberRun(self.team.member(kept.component_id), run, own, kept.state)
        output = _render_running(member_run, now_us)
        journal.moves.append(_build_move(run, RunState.RUNNING, output, now_us))
        answers = ABSENT if own.resumed else _answers_of(journal, kept.run_id)
        own.note(RunContinued(answers, resumed=True if own.resumed else ABSENT))
        return member_run

    def _move(self, member_run: _MemberRun, end: End) -> None:
        """Store with the next batch, which has the events of it, how a member's run ended."""
        run, journal = member_run.run, member_run.writer.journal
        output = _shorten(journal, run, compact_json(end.output))
        move = _build_move(run, end.state, output, journal.now_us)
        journal.moves.append(evolve(move, reason=end.reason, usage=end.usage))

    def _run(self, member_run: _MemberRun, began_us: int) -> Program[tuple[End, TurnState]]:
        """Take the member's turn; return its end and how far it came."""
        writer, journal = member_run.writer, member_run.writer.journal
        if member_run.member is None:
            summary = member_run.summarize(member_run.state, began_us, began_us)
            end = yield from fail(writer, summary, _UNHOSTED, "not_hosted")
            return end, member_run.state
        if member_run.error is not None:
            summary = member_run.summarize(member_run.state, journal.now_us, began_us)
            return (yield from fail_by_error(writer, summary, member_run.error)), member_run.state
        turn = self.taker(
            member_run.member, json.loads(member_run.run.input), writer, member_run.state
        )
        one = member_run.member
        if one.instruct is None and not (one.guards and one.guards_at("before_run")):
            writer.note_start()
        else:
            yield from store_start(writer)
        outcome = yield from _take(turn)
        now_us = journal.now_us = yield from Now()
        summary = member_run.summarize(turn.state, now_us, began_us)
        if isinstance(outcome, Exception):
            return (yield from fail_by_error(writer, summary, outcome)), turn.state
        end = yield from conclude(writer, summary, outcome)
        return end, summary.state or turn.state

    def _conclude(
        self, call: CallState, member_run: _MemberRun, end: End, state: TurnState
    ) -> CallState:
        """Return the call as the end of the member's run leaves it."""
        run = member_run.run
        if end.state is RunState.PAUSED:
            kept = MemberState(
                run_id=run.run_id,
                kind=run.kind,
                component_id=run.component_id,
                name=member_run.writer.origin.name,
                created_us=run.created_us,
                state=state,
            )
            return evolve(call, standing=Standing.MEMBER, member=kept)
        return self._answer(call, end.output)

    def _answer(self, call: CallState, output: Mapping[str, Any]) -> CallState:
        """Return the call with the answer of the member, whose run is over with `output`."""
        failed = output["status"] == RunState.ERROR.value
        if failed:
            self._chosen = False
        last = self.team.mode == "route" and not failed
        answered = evolve(call, response=output)
        return answered.with_result(render(output["content"]) or "", failed=failed, last=last)


def _instruct(member: Component, member_run: _MemberRun) -> Program[_MemberRun]:
    """Return the member with its instructions, or with why there are none."""
    own, start = member_run.writer, {"kind": member.kind, "name": member.name}
    instructions, recorded = member.instructions, dict[str, Any]()
    if member.instruct is not None:
        try:
            instructions = yield from instruct(member.instruct, member, own)
        except StoreFailure:
            raise
        except Exception as error:  # noqa: BLE001 (a bug in one member is not the team's end)
            return evolve(member_run, error=error)
        recorded = {"instructions": instructions}
    before = () if instructions is None else (Message("system", instructions),)
    state = evolve(member_run.state, before=before)
    if member.guards:
        try:
            state, guarded = yield from check_message(member, own, state)
        except StoreFailure:
            raise
        except Exception as error:  # noqa: BLE001 (as for the instructions)
            return evolve(member_run, error=error)
        recorded |= guarded
    own.start = (member.definition, {**start, **recorded})
    return evolve(member_run, state=state)


def find_member_id(call: CallState) -> str:
    """Return the id of the member that a call is for, or that has it already."""
    member_id: str = call.arguments["member_id"]
    return member_id if call.member is None else call.member.component_id


def delegate_to_all(team: Component, state: TurnState, now_us: int) -> TurnState:
    """Return the turn of a team that collaborates, with every member asked."""
    task = state.said[0].message.content
    # The prompt has those of earlier runs as well, and a provider may want every id to be unique.
    taken = [call.id for message in state.messages for call in message.calls]
    calls = tuple(
        ToolCall(
            unlike(f"call_{number}", taken),
            DELEGATE,
            compact_json({"member_id": m.id, "task": task}),
        )
        for number, m in enumerate(team.members, 1)
    )
    due = tuple(
        CallState(call=call, created_us=now_us, arguments={"member_id": m.id, "task": task})
        for call, m in zip(calls, team.members, strict=True)
    )
    return state.with_calls(due, now_us)


def _delegation(team: Component) -> ToolSpec:
    """Return the leader's tool, with the members in its description."""
    members = "\n".join(f"- {member.id}: {_about(member)}" for member in team.members)
    does = _ROUTE if team.mode == "route" else _COORDINATE
    ids = [member.id for member in team.members]
    properties = {
        "member_id": {"type": "string", "enum": ids, "description": "Who is asked."},
        "task": {"type": "string", "description": "What is asked, with all that it takes."},
    }
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return ToolSpec(DELEGATE, f"{does}\n\n{_MEMBERS}\n{members}", parameters)


def _about(member: Component) -> str:
    return ". ".join(filter(None, (member.name, member.role, member.description)))


def _claim(
    writer: EventWriter, run_id: str, kind: str, component_id: str, task: str, created_us: int
) -> ClaimedRun:
    """Return the run of a member, under the lease of the run at the top."""
    return evolve(
        writer.journal.run,
        run_id=run_id,
        kind=kind,
        component_id=component_id,
        input=compact_json({"message": task, "stream": writer.streamed}),
        created_us=created_us,
        run_no=1,
        events=0,
    )


def _writer(writer: EventWriter, run: ClaimedRun, name: str, place: str) -> EventWriter:
    """Return the writer of a member, whose steps stand below the `place` of its call."""
    origin = EventOrigin(run, name, writer.origin.run.run_id)
    return EventWriter(writer.journal, origin, writer.streamed, f"{place}/")


def _render_running(member_run: _MemberRun, now_us: int) -> str:
    """Return what is shown of a member at work, as it is stored."""
    summary = member_run.summarize(member_run.state, now_us, now_us)
    output = compact_json(render_running(summary))
    return _shorten(member_run.writer.journal, member_run.run, output)


def _shorten(journal: Journal, run: ClaimedRun, output: str) -> str:
    """Return the output of a member's run as it is stored beside the task, its input."""
    if journal.message is None or len(output) < WORTH:
        return output
    return shorten_output(output, message_of(run.input))[0]


def _build_move(run: ClaimedRun, state: RunState, output: str, now_us: int) -> MemberMove:
    return MemberMove(
        run.owner, run.session_id, run.run_id, state.value, output, None, None, now_us
    )


def _root(journal: Journal) -> Root:
    run = journal.run
    return Root(run.owner, run.session_id, run.run_id, journal.lease())


def _answers_of(journal: Journal, run_id: str) -> Any:
    """Return what people answered to the calls of a member's run, as in the run at the top."""
    answers = journal.answers
    return ABSENT if answers is None else [a for a in answers if a.get("member_run_id") == run_id]


def _store(journal: Journal, unit: Unit[bool | None]) -> Program[None]:
    asked = yield from persist(journal.database, unit, journal.is_over)
    if asked is None:
        raise LeaseLost(journal.run.run_id)
    if asked:
        raise CancelAsked(journal.run.run_id)


def _take(turn: Taking) -> Program[Outcome | Exception]:
    """Take the turn of a member; what goes wrong in it is its result, and ends nothing else."""
    try:
        return (yield from turn.take())
    except (StoreFailure, CancelAsked, LeaseLost):
        raise
    except Exception as error:  # noqa: BLE001 (a bug in one member is not the team's end)
        return error
