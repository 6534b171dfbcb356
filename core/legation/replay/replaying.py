"""The replay of a recording: the turns of a run taken once more, with the answers of the file.

The turns are those of production, with all that they decide.  In the place of models, of tools and
of the store stands the recording, which is looked up by place: so it makes no difference in which
order calls side by side come to their ends.  An answer is served behind a divergence as well, since
no model can be asked; what differs there may follow from the first divergence, and says so.

Whatever asks the world is yielded: functions of the author's that are live, and models that are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NoReturn, cast

from attrs import evolve, field

from ..access.decide import owner_of
from ..effects import CallFunction, Concurrently, Nudge, Program, Publish, Returned, Transact
from ..hosted.guards import APPROVE
from ..hosted.registry import Component, Registry
from ..http.messages import compact_json
from ..incidents import where
from ..models.conversation import (
    Listener,
    ModelFailed,
    ModelProtocol,
    Prompt,
    Reply,
    ToolCall,
    ToolSpec,
)
from ..programs import Handlers, give, intercept
from ..runs.agent_turn import Outcome, ToolSet, Turn, Waits
from ..runs.approvals import Reply as Answer
from ..runs.approvals import agree, apply_replies
from ..runs.endings import End, break_off, conclude
from ..runs.event_writer import CancelAsked, EventWriter, Journal
from ..runs.events import EventOrigin
from ..runs.function_turn import FunctionTurn
from ..runs.given import Given
from ..runs.output import RunSummary
from ..runs.payloads import find_waiting
from ..runs.summaries import is_summary
from ..runs.team_turn import Taking
from ..runs.turn import make_turn, turn_of
from ..runs.turn_state import CallState, Standing, TurnState, dump
from ..store.member_runs import StartMember
from ..store.run_reads import RecentRuns
from ..store.run_rows import ClaimedRun
from ..store.run_states import RunState
from ..store.runs import AppendEvents
from ..store.session_state import FetchState, apply
from ..store.steps import StepKind
from ..tools import Again
from ..values import define, frozen
from .comparing import (
    Divergence,
    Replayed,
    compare_admission,
    compare_definition,
    compare_instructions,
    compare_outcome,
    compare_schema,
    make_diff,
)
from .lookup import Lookup, show_history, split_place
from .recording import FUNCTION, Recording

__all__ = ["RECORDED", "ReplayOptions", "replay"]

_NODE: Final = "replay"


@frozen
class ReplayOptions:
    """The options of a replay.

    Attributes:
        live_tools: The author's functions are called, and their outcomes compared.
        live_model: Behind the first divergence the models of the platform are asked.
        strict: The replay ends at the first divergence.
    """

    live_tools: bool = False
    live_model: bool = False
    strict: bool = False


RECORDED: Final = ReplayOptions()
"""Models and tools answer as they did."""


def replay(
    registry: Registry, recording: Recording, options: ReplayOptions = RECORDED
) -> Program[Replayed]:
    """Take the turns of a recorded run once more, and return how they differ from it.

    `recording` is one in which `find_fault` finds none.
    """
    run = recording.run
    component = registry.components(run.kind).get(run.component)
    if component is None:
        return Replayed((_find_component(registry, recording),))
    lookup = Lookup(recording)
    if (other := _compare_sort(lookup, component)) is not None:
        return Replayed((other,))
    return (yield from _Replay(component, lookup, options).program())


def _find_component(registry: Registry, recording: Recording) -> Divergence:
    """Return the divergence of a run whose agent or team is not hosted."""
    kind, name = recording.run.kind, recording.run.component
    if kind == "agent" and name in registry.teams:
        return Divergence("0", f"{name} was an agent, and is a team")
    if kind == "team" and name in registry.agents:
        return Divergence("0", f"{name} was a team, and is an agent")
    known = ", ".join(sorted(registry.components(kind))) or "none"
    return Divergence("0", f"The platform has no {kind} {name}; there are: {known}")


def _compare_sort(lookup: Lookup, component: Component) -> Divergence | None:
    """Return the divergence of a function that used to ask a model, or the reverse."""
    first = lookup.steps.get("1")
    if first is None or (first.kind == FUNCTION) == (component.run is not None):
        return None
    sentence = f"{component.id} asked a model, and is a function"
    if component.run is None:
        sentence = f"{component.id} was a function, and asks a model"
    return Divergence("0", sentence)


class _Ends(CancelAsked):
    """Leaves the turns where the recording has no answer; never leaves this module.

    It is passed on by whoever passes on that a run was cancelled.
    """


@frozen(eq=False)
class _Served:
    """Answers in the place of a function that is an agent, which is not called."""

    find: Callable[[str], Any]
    prefix: str

    def __call__(self) -> Any:
        return self.find(self.prefix)


@define(eq=False)
class _Lane:
    """The turn of a run: all whose places begin with `prefix`.

    Attributes:
        number: How many answers of its model there were.
        admitted: How many calls of the last one were looked at.
        changed: The calls of that with other results than were recorded.
        begun: What it begins with has been compared.
        live: Its own model was asked.
        turn: As it is taken; None for a function.
        models: The ids of its models, in the order in which they are asked.
    """

    prefix: str
    number: int = 0
    admitted: int = 0
    changed: list[str] = field(factory=list[str])
    begun: bool = False
    live: bool = False
    turn: Turn | None = None
    models: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The place of the last answer."""
        return f"{self.prefix}{self.number}"


@define(eq=False)
class _Replay:
    """One replay.

    Attributes:
        state: The state of the session, as JSON.
        starting: The prefix of the run whose instructions are asked for.
        reached: The places that turns came to.
        error: The error that ended the run, with its place in the code.
    """

    component: Component
    lookup: Lookup
    options: ReplayOptions
    divergences: list[Divergence] = field(factory=list[Divergence])
    state: str = field(init=False)
    starting: str = field(default="", init=False)
    reached: set[str] = field(factory=set[str], init=False)
    error: str = field(default="", init=False)
    _lanes: dict[str, _Lane] = field(factory=dict[str, _Lane], init=False)

    def __attrs_post_init__(self) -> None:
        self.state = compact_json(self.recording.run.state)

    @property
    def recording(self) -> Recording:
        """The recording."""
        return self.lookup.recording

    @property
    def redacted(self) -> bool:
        """Whether values have given way to placeholders."""
        return self.recording.run.redacted

    def program(self) -> Program[Replayed]:
        """Take the turns, and compare the end."""
        try:
            writer, asked = self._make_writer()
            end = yield from intercept(self._take_all(writer, asked), self._handlers)
            self._compare_end(end)
        except _Ends:
            pass
        return Replayed(tuple(self.divergences))

    def note(self, divergences: Iterable[Divergence]) -> bool:
        """Keep divergences, and return whether there was one.

        Those of another place than the first stand behind it.
        """
        found = False
        for one in divergences:
            found = True
            first = self.divergences[0].place if self.divergences else one.place
            self.divergences.append(evolve(one, behind=one.place != first))
            if self.options.strict:
                raise _Ends(self.recording.run.run_id)
        return found

    # The run

    def _make_writer(self) -> tuple[EventWriter, dict[str, Any]]:
        """Return the event writer of the run, and its input."""
        recorded = self.recording.run
        asked = {**recorded.input, "stream": False}
        run = ClaimedRun(
            owner=owner_of(recorded.user) if recorded.user else "",
            session_id=recorded.session_id,
            run_id=recorded.run_id,
            kind=recorded.kind,
            component_id=recorded.component,
            input=compact_json(asked),
            created_us=0,
            attempt=1,
            run_no=2 if self.recording.history else 1,
            state=self.state,
        )
        journal = Journal(
            self.component.database, run, _NODE, 0, given=Given(asked), played=self.lookup.play
        )
        return EventWriter(journal, EventOrigin(run, self.component.name), streamed=False), asked

    def _take_all(self, writer: EventWriter, asked: Mapping[str, Any]) -> Program[End]:
        """Take the turn from pause to pause, and return the end."""
        turn: Taking | None = None
        try:
            turn = yield from self._make_turn(writer, asked)
            outcome: Outcome = yield from turn.take()
            while isinstance(outcome, Waits) and (state := self._answer_waiting(turn.state)):
                turn = yield from self._make_turn(writer, {**asked, "turn": dump(state)})
                outcome = yield from turn.take()
            return (yield from conclude(writer, self._summarize(writer, turn), outcome))
        except _Ends:
            raise
        except Exception as error:  # noqa: BLE001 (as for the executor, it is how the run ends)
            self.error = f"{where(error)}: {error}"
            summary = self._summarize(writer, turn)
            return (yield from break_off(writer, summary, error, ending=False, seconds=0))

    def _make_turn(self, writer: EventWriter, asked: Mapping[str, Any]) -> Program[Taking]:
        run, database = writer.origin.run, self.component.database
        component = self.component
        if component.history_tokens is not None or component.summaries is not None:
            # What it was told is in the recording, and stays whole.
            component = evolve(component, history_tokens=None, summaries=None)
        return turn_of(component, database, run, asked, writer, taker=self.take)

    def _summarize(self, writer: EventWriter, turn: Taking | None) -> RunSummary:
        state = None if turn is None else turn.state
        return RunSummary(writer.origin.run, self.component.name, self.component, state)

    def take(
        self, component: Component, asked: Mapping[str, Any], writer: EventWriter, state: TurnState
    ) -> Taking:
        """Return a turn whose model and tools answer as they did."""
        lane = self._lanes.setdefault(writer.prefix, _Lane(writer.prefix))
        component = component if writer.prefix else self.component
        turn = make_turn(component, asked, writer, state, self.take)
        if isinstance(turn, FunctionTurn):
            self._begin(lane, component, turn.state, turn.schema)
            if self.options.live_tools:
                self.reached.add(f"{lane.prefix}1")
            else:
                turn.hosted = evolve(turn.hosted, function=_Served(self._serve, lane.prefix))
        else:
            self._begin(lane, component, turn.state, turn.schema)
            lane.models = tuple(model.id for model in (turn.model, *turn.fallback))
            turn.model = _RecordedModel(turn.model, self, lane)
            live = turn.fallback if self.options.live_model else ()
            turn.fallback = tuple(_LiveModel(model, self, lane) for model in live)
            turn.tool_set = _RecordedTools(turn.tool_set, self, lane)
            lane.turn = turn
        return turn

    def _serve(self, prefix: str) -> Any:
        """Return what a function said that is an agent."""
        said, place = self.lookup.content(prefix), f"{prefix}1"
        if said is not None:
            self.reached.add(place)
            return said["content"]
        raise self.lookup.failure(place) or _Ends(self.recording.run.run_id)

    def _begin(
        self,
        lane: _Lane,
        component: Component,
        state: TurnState,
        schema: Mapping[str, Any] | None,
    ) -> None:
        """Compare what a turn begins with."""
        prefix, lookup = lane.prefix, self.lookup
        digest, document = lookup.definition(prefix)
        if lane.begun or document is None:
            return
        lane.begun, place = True, f"{prefix}1"
        first = next(iter(state.before), None)
        told = first is not None and first.role == "system" and not is_summary(first)
        now = first.content if told and first is not None else None
        recorded = lookup.instructions(prefix)
        self.note(compare_instructions(place, recorded, now, redacted=self.redacted))
        if digest == component.definition.digest:
            return
        self.note(compare_definition(place, document, component, lookup.list_called_tools(prefix)))
        asked = None if prefix else self.recording.run.input.get("output_schema")
        self.note(compare_schema(place, asked or document.get("output_schema"), schema))

    # What models and tools answer

    def respond(
        self, model: ModelProtocol, lane: _Lane, prompt: Prompt, listener: Listener
    ) -> Program[Reply]:
        """Return the answer of the recording; behind a divergence that of the model, if it is."""
        lane.number, lane.admitted = lane.number + 1, 0
        reply = None
        if not lane.live:
            self._compare_prompt(lane, model, prompt)
            if not self._is_live():
                reply = self._find_reply(lane)
        if reply is None:
            if not self._is_live():
                raise _Ends(self.recording.run.run_id)
            lane.live = True
            return (yield from model.respond(prompt, listener))
        listener.think(reply.reasoning)
        listener.hear(reply.content)
        return reply

    def ask_next(
        self, model: ModelProtocol, lane: _Lane, prompt: Prompt, listener: Listener
    ) -> Program[Reply]:
        """Ask the next model of an order, the first of which has failed."""
        failure = None if lane.live else self.lookup.failure(lane.place)
        if failure is not None:
            raise failure
        return model.respond(prompt, listener)

    def _is_live(self) -> bool:
        return self.options.live_model and self.divergences != []

    def _compare_prompt(self, lane: _Lane, model: ModelProtocol, prompt: Prompt) -> None:
        """Compare what has come to the conversation since the last answer."""
        lookup, prefix = self.lookup, lane.prefix
        changed, lane.changed = lane.changed, []
        if changed:
            names = ", ".join(dict.fromkeys(changed))
            self.note([Divergence(lane.place, f"The model reads another result of {names}")])
        step = lookup.steps.get(lane.place)
        if not lane.begun and step is not None and step.asked not in lane.models:
            sentence = f"The model was {step.asked}, and is {model.id}"
            self.note([Divergence(lane.place, sentence)])
        last, before = prompt.messages[-1], lookup.answer(prefix, lane.number - 1)
        if self.redacted or before is None or last.role != "user":
            return
        if last.content != before.correction:
            diff = make_diff(before.correction or None, last.content)
            self.note([Divergence(lane.place, "The model is asked for another answer", diff)])

    def _find_reply(self, lane: _Lane) -> Reply | None:
        """Return the answer of the recording; None where it has none.

        That is a divergence, unless the run ended there for a reason that is not its own.
        """
        lookup = self.lookup
        answer = lookup.answer(lane.prefix, lane.number)
        if answer is not None:
            self.reached.add(lane.place)
            last = not (answer.calls or answer.correction)
            if self.redacted and last and lane.turn is not None:
                lane.turn.schema = None  # a placeholder may not fit it
            said, usage = answer.message, answer.usage
            return Reply(said.content, usage, said.calls, said.thoughts, said.reasoning)
        if (failure := lookup.failure(lane.place)) is not None:
            raise failure
        if lane.place not in lookup.steps and not lookup.is_cut:
            sentence = "The model is asked once more, and the file has no answer of it"
            self.note([Divergence(lane.place, sentence)])
        return None

    def admit(self, tools: ToolSet, lane: _Lane, call: ToolCall, now_us: int) -> CallState:
        """Return a call as it stands now, compared with how it stood."""
        admitted = tools.admit(call, now_us)
        index, lane.admitted = lane.admitted, lane.admitted + 1
        if lane.live:
            return admitted
        place = f"{lane.place}.{lane.admitted}"
        recorded = self.lookup.calls(lane.prefix, lane.number)[index]
        if self.redacted and (like := self._find_redacted(tools, place, recorded, admitted)):
            return like
        asked = self.lookup.describe_asked(place, call.name)
        self.note(compare_admission(place, recorded, admitted, asked))
        if admitted.failed:
            self.reached.add(place)
            if admitted.result != recorded.result:
                lane.changed.append(asked)
        return admitted

    def _find_redacted(
        self, tools: ToolSet, place: str, recorded: CallState, now: CallState
    ) -> CallState | None:
        """Return a call as it stood where it may be refused for a placeholder alone."""
        step = self.lookup.steps.get(place)
        known = recorded.failed or recorded.call.name in [spec.name for spec in tools.specs]
        if not (now.failed and known):
            return None
        self.reached.update([place] if recorded.failed else ())
        arguments = dict(recorded.arguments)
        if step is not None and step.kind == StepKind.MEMBER:
            arguments = {"task": "", **arguments, "member_id": step.asked}
        return evolve(recorded, created_us=now.created_us, arguments=arguments)

    def carry_out(
        self, tools: ToolSet, lane: _Lane, call: CallState, writer: EventWriter, place: str
    ) -> Program[CallState]:
        """Return a call with what came of it, or what comes of it now."""
        kind, name = tools.step(call)
        asked = self.lookup.describe_asked(place, name)
        recorded = self._find_result(lane, call, place)
        if kind is StepKind.MEMBER:
            self.starting = f"{place}/"
        elif not self.options.live_tools and name != APPROVE:
            if recorded is None:
                self._end_at_call(lane, place, asked)
            else:
                text, failed = recorded
                return call.with_result(text, failed=failed)
        done = yield from tools.carry_out(call, writer, place)
        if recorded is not None and not done.waits:
            now = (done.result or "", done.failed)
            if self.note(compare_outcome(place, asked, recorded, now, redacted=self.redacted)):
                lane.changed.append(asked)
        return done

    def _find_result(self, lane: _Lane, call: CallState, place: str) -> tuple[str, bool] | None:
        """Return what came of a call, if it is the one that was made at its place."""
        number, _, index = split_place(place)[1].partition(".")
        recorded = self.lookup.calls(lane.prefix, int(number))[int(index) - 1 : int(index)]
        if not recorded or not self._is_same(recorded[0], call):
            return None
        self.reached.add(place)
        return self.lookup.result(place)

    def _is_same(self, recorded: CallState, now: CallState) -> bool:
        """Return whether two calls are one; of a redacted one the arguments may be others."""
        same = self.redacted or recorded.arguments == now.arguments
        return same and recorded.call.name == now.call.name

    def _end_at_call(self, lane: _Lane, place: str, asked: str) -> NoReturn:
        """Leave the turns at a call that the recording has no outcome of."""
        lookup, known = self.lookup, [one.place for one in self.divergences]
        in_doubt = place in lookup.steps  # it began, and a person was asked about it
        if (lane.live or not (lookup.is_cut or in_doubt)) and place not in known:
            sentence = f"{asked} is carried out, and the file has no outcome of it"
            was = _describe_end(self.recording.end, lookup.error_type)
            shown = sentence if lane.live else f"{sentence}: the run was {was}"
            self.note([Divergence(place, shown)])
        raise _Ends(self.recording.run.run_id)

    # Pauses

    def _answer_waiting(self, state: TurnState) -> TurnState | None:
        """Return the turn with the answers of people; None where the recording has none."""
        run_id, replies = self.recording.run.run_id, list[Answer]()
        waiting = zip(find_waiting(state), _find_places(state, ""), strict=True)
        for (call, member), place in waiting:
            decision, result = self.lookup.decision(place), self.lookup.result(place)
            if call.standing is Standing.EXTERNAL and result is not None:
                reply = agree(call, member, run_id, None, result[0])
            elif call.standing is Standing.CONFIRM and decision is not None:
                confirmed, note = decision
                reply = evolve(agree(call, member, run_id, note, None), confirmed=confirmed)
            else:
                return None
            self.reached.add(place)
            replies.append(reply)
        return cast("TurnState", apply_replies(state, replies, run_id))

    # The end

    def _compare_end(self, end: End) -> None:
        """Compare the end, or the pause, that the run came to."""
        recorded, lookup = self.recording, self.lookup
        now, was = end.output["content"], recorded.output.get("content")
        shown = _describe_end(end.state.value, end.reason)
        before = _describe_end(recorded.end, lookup.error_type)
        left = [place for place in lookup.outcomes if place not in self.reached]
        if any(lane.live for lane in self._lanes.values()):
            left = []
        elif self.divergences:  # a member that is not asked says so at its call
            left = [place for place in left if "/" not in place]
        if shown != before and (left or not lookup.is_cut):
            number = max(1, self._lanes[""].number if "" in self._lanes else 1)
            because = f" by {self.error}" if self.error else ""
            sentence = f"The run was {before}, and is {shown}{because}"
            self._note_end(str(number), sentence, make_diff(was, now))
        elif left:
            sentence = f"The run ends before place {left[0]}, which the file has"
            self._note_end("end", sentence)
        elif end.state is RunState.COMPLETED and not self._agrees(was, now):
            self._note_end("end", "The answer differs", make_diff(was, now))

    def _agrees(self, recorded: Any, now: Any) -> bool:
        """Return whether two answers are one; of a redacted one with a shape nobody knows."""
        return bool(recorded == now or (self.redacted and not isinstance(recorded, str)))

    def _note_end(self, place: str, sentence: str, diff: str = "") -> None:
        behind = self.divergences != []
        self.divergences.append(Divergence(place, sentence, diff, behind=behind))

    # The world

    @property
    def _handlers(self) -> Handlers:
        return {
            Transact: self._transact,
            Publish: lambda _: give(None),
            Nudge: lambda _: give(None),
            Concurrently: self._run_in_order,
            CallFunction: self._call_function,
        }

    def _run_in_order(self, effect: Concurrently[Any]) -> Program[tuple[Any, ...]]:
        """Run one program after the other; when one fails, the others are closed."""
        results: list[Any] = []
        try:
            for program in effect.programs:
                results.append((yield from intercept(program, self._handlers)))
        finally:
            for program in effect.programs:
                program.close()
        return tuple(results)

    def _transact(self, effect: Transact[Any]) -> Program[Any]:
        """Answer in the place of the store."""
        match effect.unit:
            case AppendEvents(records=records):
                if records.state is not None:
                    self.state = apply(self.state, *(c for _, c in records.state.changes))
                return give(False)
            case StartMember():
                return give(False)
            case FetchState():
                return give(self.state)
            case RecentRuns():
                return give(show_history(self.recording))
            case _:
                return iter(effect)

    def _call_function(self, effect: CallFunction) -> Program[Any]:
        """Answer in the place of a function that is not called."""
        if isinstance(effect.function, _Served):
            return give(Returned(effect.function()))
        if self.options.live_tools:
            return iter(effect)
        return give(Returned(self._find_instructions(self.starting)))

    def _find_instructions(self, prefix: str) -> str | None:
        """Return what a function gave as instructions; raise where a run ended without them."""
        lookup = self.lookup
        if not lookup.has_begun(prefix):
            text, failed = lookup.result(prefix.removesuffix("/")) or ("", lookup.is_cut)
            if failed and prefix:
                raise ModelFailed("recorded", text)
            if failed:
                raise _Ends(self.recording.run.run_id)
        if not lookup.was_instructed(prefix):
            sentence = "A function gives the instructions, where a text did; it is not called"
            self.note([Divergence(f"{prefix}1", sentence)])
        return lookup.instructions(prefix)


class _RecordedModel:
    """A model that answers as it did, and is in all else what it is."""

    def __init__(self, model: ModelProtocol, replaying: _Replay, lane: _Lane) -> None:
        self._model, self._replaying, self._lane = model, replaying, lane
        self.id, self.name, self.provider = model.id, model.name, model.provider

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        return self._replaying.respond(self._model, self._lane, prompt, listener)


class _LiveModel(_RecordedModel):
    """A model that is asked where a live one fails; a failure of the recording stays one."""

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        return self._replaying.ask_next(self._model, self._lane, prompt, listener)


@frozen(eq=False)
class _RecordedTools:
    """The tools of a turn, whose calls come out as they did."""

    tools: ToolSet
    replaying: _Replay
    lane: _Lane

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self.tools.specs

    def admit(self, call: ToolCall, now_us: int) -> CallState:
        return self.replaying.admit(self.tools, self.lane, call, now_us)

    def again(self, call: CallState) -> Again:
        return self.tools.again(call)

    def step(self, call: CallState) -> tuple[StepKind, str]:
        return self.tools.step(call)

    def carry_out(self, call: CallState, writer: EventWriter, place: str) -> Program[CallState]:
        return self.replaying.carry_out(self.tools, self.lane, call, writer, place)


def _find_places(state: TurnState, prefix: str) -> Iterator[str]:
    """Yield the places of the calls that wait, as `find_waiting` yields them."""
    for index, call in enumerate(state.calls):
        if call.member is not None:
            yield from _find_places(call.member.state, f"{prefix}{state.place(index)}/")
        elif call.waits:
            yield prefix + state.place(index)


def _describe_end(end: str, error_type: str | None) -> str:
    return f"{end} ({error_type})" if end == RunState.ERROR and error_type else end
