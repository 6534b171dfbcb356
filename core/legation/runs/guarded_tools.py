"""The tools of a turn with guards: admitted as the guards said, and their results looked at."""

from __future__ import annotations

from attrs import evolve

from ..effects import Program
from ..guards import Refuse
from ..hosted.guards import APPROVE
from ..models.conversation import ToolCall, ToolSpec
from ..store.steps import StepKind
from ..tools import Again, plain_arguments
from ..values import frozen
from .event_writer import EventWriter
from .guarding import Guards, read_answer
from .team_turn import LeaderToolSet
from .tool_calls import Toolbox
from .turn_state import CallState, Standing

__all__ = ["GuardedToolSet"]


@frozen(eq=False)
class GuardedToolSet:
    """The tools of a turn with guards; `inner` are those that are called.

    Without `guards` it only knows which calls there can be.
    """

    inner: Toolbox | LeaderToolSet
    guards: Guards | None = None

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The descriptions of the tools for the model."""
        return self.inner.specs

    def admit(self, call: ToolCall, now_us: int) -> CallState:
        """Return the call as it stands at first, by what the guards said of it."""
        said = None if self.guards is None else self.guards.verdicts.get(call.id)
        arguments = plain_arguments(call.arguments)
        state = CallState(
            call=call,
            created_us=now_us,
            arguments={} if isinstance(arguments, str) else arguments,
        )
        if isinstance(said, Refuse):
            return state.with_result(said.sentence, failed=True)
        if said is None or call.name != APPROVE:
            state = self.inner.admit(call, now_us)
        if said is None or state.standing not in (Standing.DUE, Standing.CONFIRM):
            return state
        return evolve(state, standing=Standing.CONFIRM, needs=Standing.CONFIRM, reason=said.why)

    def find_obstacle(self, call: CallState) -> str | None:
        """Return why the call cannot be carried out by now; None where it can."""
        if call.call.name == APPROVE:
            return None
        return self.inner.find_obstacle(call)

    def again(self, call: CallState) -> Again:
        """Return whether the call may be made a second time."""
        if call.call.name == APPROVE:
            return "safe"
        return self.inner.again(call)

    def step(self, call: CallState) -> tuple[StepKind, str]:
        """Return the kind of the step that the call is, and whom or what it asks."""
        if call.call.name == APPROVE:
            return StepKind.CALL, APPROVE
        return self.inner.step(call)

    def carry_out(self, call: CallState, writer: EventWriter, place: str) -> Program[CallState]:
        """Return the call with what came of it; an answer that is approved is that of the turn."""
        if call.call.name == APPROVE:
            return call.with_result(read_answer(call.call), last=True)
        done = yield from self.inner.carry_out(call, writer, place)
        guards = self.guards
        if guards is None or done.waits or not guards.component.guards_at("after_tool"):
            return done
        return (yield from guards.check_result(done))
