"""Turns in a world of one program, whose batches are kept: what a crash behind each would leave."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, cast

from attrs import define, evolve, field

from legation import Agent, Platform, Team, tool
from legation.config import Mode
from legation.effects import (
    CallFunction,
    Concurrently,
    Log,
    Now,
    Program,
    Publish,
    RandomBytes,
    Returned,
    Transact,
)
from legation.models.conversation import Listener, Prompt, Reply, ToolCall, Usage
from legation.runs.agent_turn import Answered, Outcome
from legation.runs.approvals import Reply as PersonsReply
from legation.runs.approvals import apply_replies
from legation.runs.event_writer import EventWriter, Journal
from legation.runs.events import EventOrigin
from legation.runs.fold import RunRecord
from legation.runs.payloads import find_waiting
from legation.runs.team_turn import Taking
from legation.runs.turn import turn_of
from legation.runs.turn_state import Standing, TurnState, dump
from legation.store.run_rows import ClaimedRun
from legation.store.runs import AppendEvents
from legation.store.session_state import EMPTY, FetchState
from legation.store.steps import Step

__all__ = ["Batch", "Pupil", "Script", "World", "host", "last_words", "look", "play_out"]

Round: TypeAlias = tuple[tuple[str, str], ...]
"""The calls of one answer: the name of a tool, or of a member behind `>`, and an argument."""

Script: TypeAlias = tuple[Round, ...]
"""The answers of a model that have calls; the one behind them is a text."""


@define(eq=False)
class Pupil:
    """A model that answers by how often it has answered in this conversation, and by no memory."""

    id: str
    script: Script
    name: str = "Pupil"
    provider: str = "Legation"

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        """Answer, with calls while the script has some."""
        yield from listener.settle()
        number = sum(message.role == "assistant" for message in prompt.messages)
        # A team that collaborates has asked its members before its leader was.
        number -= sum(call.id.startswith("call_") for m in prompt.messages for call in m.calls) > 0
        usage = Usage(len(prompt.messages), number + 1)
        if number >= len(self.script):
            heard = [message.content for message in prompt.messages if message.role == "tool"]
            listener.hear(f"{self.id} has ")
            listener.hear(json.dumps(heard, ensure_ascii=False))
            return Reply(f"{self.id} has {json.dumps(heard, ensure_ascii=False)}", usage)
        calls = [self._call(number, *one) for one in enumerate(self.script[number])]
        return Reply("", usage, tuple(calls), reasoning=f"thought {number}")

    def _call(self, number: int, index: int, one: tuple[str, str]) -> ToolCall:
        name, argument = one
        call_id = f"c{number}.{index}"
        if name.startswith(">"):
            arguments = {"member_id": name[1:], "task": argument}
            return ToolCall(call_id, "delegate_task_to_member", json.dumps(arguments))
        return ToolCall(call_id, name, json.dumps({"what": argument}))


@tool(again="safe")
def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


@tool(again="key")
def pay(what: str, idempotency_key: str) -> str:
    """Pay."""
    return f"paid {what} under {idempotency_key}"


@tool
def book(what: str) -> str:
    """Book."""
    return f"booked {what}"


@tool(requires_confirmation=True)
def ask(what: str) -> str:
    """Ask first."""
    return f"was allowed {what}"


@tool(external_execution=True)
def shell(what: str) -> str:
    """Run a command elsewhere."""
    raise AssertionError(what)


def answer_alone(message: str) -> str:
    """Answer without a model."""
    return f"alone: {message}"


TOOLS: Final = (look, pay, book, ask, shell)


def host(
    scripts: dict[str, Script], mode: Mode = "coordinate", members: Sequence[str] = ()
) -> Platform:
    """Return a platform: agents `a` and `b`, a function `f`, a team `inner` of both, and `team`."""

    def made(name: str) -> Pupil:
        return Pupil(name, scripts.get(name, ()))

    return Platform(
        agents=[
            Agent(id="a", model=made("a"), tools=TOOLS, instructions="Be brief."),
            Agent(id="b", model=made("b"), tools=TOOLS),
            Agent(id="f", run=answer_alone),
        ],
        teams=[
            Team(id="inner", members=["a", "b"], model=made("inner"), tools=[look]),
            Team(
                id="team",
                mode=mode,
                members=members or ["a", "f", "inner"],
                model=made("team"),
                tools=TOOLS,
            ),
        ],
    )


@define(eq=False)
class Batch:
    """All that is stored behind one batch, and how far the turn had come."""

    steps: dict[str, Step]
    members: dict[str, tuple[str, str]]
    definitions: dict[str, str]
    events: list[tuple[str, dict[str, Any]]]
    state: TurnState
    asked: dict[str, Any]
    paused_at: int
    attempt: int


@define(eq=False)
class World:
    """A world in which one run is executed; `order` says which of calls side by side ends first."""

    order: Callable[[int], Sequence[int]] = range
    now_us: int = 1_000
    batches: list[Batch] = field(factory=list[Batch])
    executed: list[str] = field(factory=list[str])
    turn: Taking | None = None
    steps: dict[str, Step] = field(factory=dict[str, Step])
    members: dict[str, tuple[str, str]] = field(factory=dict[str, tuple[str, str]])
    definitions: dict[str, str] = field(factory=dict[str, str])
    events: list[tuple[str, dict[str, Any]]] = field(factory=list[tuple[str, dict[str, Any]]])
    asked: dict[str, Any] = field(factory=lambda: {"message": "go", "stream": True})
    paused_at: int = 0
    attempt: int = 1

    def after(self, batch: Batch) -> World:
        """Return the world in which the executor died behind `batch`, an hour later."""
        return World(
            self.order,
            self.now_us + 3_600_000_000,
            steps=dict(batch.steps),
            members=dict(batch.members),
            definitions=dict(batch.definitions),
            events=list(batch.events),
            asked=batch.asked,
            paused_at=batch.paused_at,
            attempt=batch.attempt + 1,
        )

    def record(self) -> RunRecord:
        """Return the record of the run."""
        return RunRecord("r", 0, self.steps, self.members, self.definitions, self.paused_at)

    def drive(self, program: Program[Any]) -> Any:
        """Return the result of `program`."""
        try:
            effect = next(program)
            while True:
                effect = program.send(self._perform(effect))
        except StopIteration as stop:
            return stop.value

    def _perform(self, effect: Any) -> Any:
        match effect:
            case Now():
                self.now_us += 10
                return self.now_us
            case RandomBytes(size):
                return bytes(size)
            case Transact(_, AppendEvents() as unit):
                self._store(unit)
                return False
            case Transact(_, FetchState()):
                return EMPTY
            case Transact():  # the row of a member
                return False
            case CallFunction(function, arguments):
                self.executed.append(getattr(function, "__name__", type(function).__name__))
                return Returned(function(**arguments))
            case Concurrently():
                programs: tuple[Program[Any], ...] = cast(Any, effect).programs
                order = self.order(len(programs))
                results = {index: self.drive(programs[index]) for index in order}
                return tuple(results[index] for index in range(len(programs)))
            case _:
                assert isinstance(effect, Publish | Log)
                return None

    def _store(self, unit: AppendEvents) -> None:
        for step in unit.records.steps:
            known = self.steps.get(step.place)
            if known is None or (known.outcome is None and step.outcome is not None):
                self.steps[step.place] = evolve(step, attempt=unit.lease.attempt)
        for move in unit.records.moves:
            self.members[move.run_id] = (move.status, move.output)
        for definition in unit.records.definitions:
            self.definitions[definition.digest] = definition.document
        self.events += [(event.name, json.loads(event.data)) for event in unit.events]
        state = TurnState() if self.turn is None else self.turn.state
        self.batches.append(
            Batch(
                dict(self.steps),
                dict(self.members),
                dict(self.definitions),
                list(self.events),
                state,
                self.asked,
                self.paused_at,
                self.attempt,
            )
        )


def play_out(platform: Platform, kind: str, name: str, world: World) -> TurnState:
    """Return the turn at its end; where it waits for people, they agree to all."""
    component = platform.context.registry.components(kind)[name]
    record = world.record() if world.events else None
    for _ in range(40):
        run = ClaimedRun(
            "o", "s", "r", kind, name, json.dumps(world.asked), 0, world.attempt, 1,
            len(world.events),
        )  # fmt: skip
        journal = Journal("main", run, "n", world.now_us)
        writer = EventWriter(journal, EventOrigin(run, name), streamed=True)
        turn: Taking = world.drive(turn_of(component, "main", run, world.asked, writer, record))
        world.turn = turn
        outcome: Outcome = world.drive(turn.take())
        if isinstance(outcome, Answered):
            return turn.state
        assert list(find_waiting(turn.state)), outcome
        _pause(world, writer, turn.state)
        record = None
    raise AssertionError("it never ends")


def _pause(world: World, writer: EventWriter, state: TurnState) -> None:
    """Store the pause, and the answers of people to it."""
    world.drive(writer.settle())
    replies = [
        PersonsReply(
            call.call.id,
            None,
            None,
            None if call.standing is Standing.EXTERNAL else True,
            None,
            "done outside" if call.standing is Standing.EXTERNAL else None,
            member_run_id="r" if member is None else member.run_id,
            in_doubt=call.in_doubt,
        )
        for call, member in find_waiting(state)
    ]
    answered = apply_replies(state, replies, "r")
    assert isinstance(answered, TurnState), answered
    world.asked = {**world.asked, "turn": json.loads(json.dumps(dump(answered)))}
    world.paused_at = world.attempt
    world.attempt += 1


def last_words(state: TurnState) -> Any:
    """Return all of a turn but its times, and what it shows of a doubt that there was."""
    said = [evolve(one, at_us=0) for one in state.said]
    calls = [
        (c.call, c.arguments, c.standing, c.result, c.failed, c.last, c.child_run_id)
        for c in state.calls
    ]
    return said, calls, state.answered, state.rounds, state.usage, state.corrected, state.before
