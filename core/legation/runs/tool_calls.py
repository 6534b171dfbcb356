"""The tool calls of an agent: functions of its author's, run by the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve

from ..effects import (
    CallFunction,
    CloseStream,
    Log,
    Program,
    Raised,
    RandomBytes,
    Returned,
    Yielding,
)
from ..incidents import hint_at, trace, where
from ..models.conversation import ToolCall, ToolSpec
from ..store.steps import StepKind
from ..tools import (
    KEY_PARAMETER,
    Again,
    Tool,
    ToolError,
    plain_arguments,
    read_arguments,
    render,
)
from ..values import frozen
from .contexts import ContextRefused, keep_state, open_context
from .event_writer import EventWriter
from .turn_state import CallState, Standing

__all__ = ["Toolbox"]

_UNKNOWN: Final = "There is no tool of the name {!r}. There are: {}"
_NO_TOOLS: Final = "There are no tools"
_LATE: Final = "The tool took longer than {:g} seconds"
_FAILED: Final = "The tool failed ({})"
_NO_TEXT: Final = "The tool failed (its result has no JSON)"
_STREAM: Final = "The tool failed (it gave a stream of results)"
_MISFIT: Final = "The tool failed (what it is given with the run does not fit)"
_SHOWN: Final = 100  # characters of a name that nothing has


@frozen
class Toolbox:
    """The tools of an agent; `timeout_seconds` is for those that do not say.

    `beside` are names of tools that are not called here, for the model that asks for another.
    """

    tools: tuple[Tool, ...] = ()
    timeout_seconds: float = 60.0
    beside: tuple[str, ...] = ()

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The descriptions of the tools for the model."""
        return tuple([tool.spec for tool in self.tools])

    def admit(self, call: ToolCall, now_us: int) -> CallState:
        """Return the call as it stands at first.

        One that cannot be made, for want of a tool or of arguments that fit it, is done at once:
        no person is asked about it.
        """
        arguments = plain_arguments(call.arguments)
        if isinstance(arguments, str):
            return CallState(call=call, created_us=now_us).with_result(arguments, failed=True)
        state = CallState(call=call, created_us=now_us, arguments=arguments)
        tool = self._find(call.name)
        if tool is None:
            return state.with_result(self._unknown(call.name), failed=True)
        fitting = read_arguments(tool, call.arguments)
        if isinstance(fitting, str):
            return state.with_result(fitting, failed=True)
        if tool.external_execution:
            return _waits_for(state, Standing.EXTERNAL)
        return _waits_for(state, Standing.CONFIRM) if tool.requires_confirmation else state

    def _find(self, name: str) -> Tool | None:
        for tool in self.tools:
            if tool.name == name:
                return tool
        return None

    def _unknown(self, name: str) -> str:
        known = ", ".join((*self.beside, *[tool.name for tool in self.tools]))
        return _UNKNOWN.format(name[:_SHOWN], known) if known else _NO_TOOLS

    def find_obstacle(self, call: CallState) -> str | None:
        """Return why the call cannot be made by now, in words for the model; None where it can."""
        prepared = self._prepare(call)
        return prepared if isinstance(prepared, str) else None

    def _prepare(self, call: CallState) -> tuple[Tool, Mapping[str, Any]] | str:
        """Return the tool and its arguments, or why the call cannot be made, for the model."""
        tool = self._find(call.call.name)
        if tool is None:  # it was taken away while the run waited
            return self._unknown(call.call.name)
        arguments = read_arguments(tool, call.call.arguments)
        return arguments if isinstance(arguments, str) else (tool, arguments)

    def again(self, call: CallState) -> Again:
        """Return whether the call may be made a second time, as its tool says.

        Of a tool that was taken away nobody knows: a call that had begun may have been carried out.
        """
        tool = self._find(call.call.name)
        return "never" if tool is None else tool.again

    def step(self, call: CallState) -> tuple[StepKind, str]:
        """Return the kind of the step that the call is, and the name of its tool."""
        return StepKind.CALL, call.call.name

    def carry_out(self, call: CallState, writer: EventWriter, place: str) -> Program[CallState]:
        """Return the call with what came of it.

        The key of a call is made of its run and its `place`, so it is the same after a crash.
        """
        prepared = self._prepare(call)
        if isinstance(prepared, str):
            return call.with_result(prepared, failed=True)
        tool, arguments = prepared
        if tool.again == "key":
            arguments = {**arguments, KEY_PARAMETER: f"{writer.journal.run.run_id}:{place}"}
        seconds = self.timeout_seconds if tool.timeout_seconds is None else tool.timeout_seconds
        context = None
        if tool.context is not None:
            try:
                context = yield from open_context(tool.context, writer)
            except ContextRefused:
                return call.with_result(_MISFIT, failed=True)
            arguments = {**arguments, tool.context.name: context.run}
        match (yield from CallFunction(tool.function, arguments, seconds)):
            case Returned(value):
                text = render(value)
                if text is None:
                    return call.with_result(_NO_TEXT, failed=True)
                if context is not None:
                    refused = yield from keep_state(context, writer, place)
                    if refused is not None:
                        return call.with_result(_FAILED.format(refused), failed=True)
                return call.with_result(text)
            case Raised(ToolError() as refusal):
                return call.with_result(_sentence(refusal), failed=True)
            case Raised(error):
                yield from _log(call, writer, where(error), error)
                return call.with_result(_FAILED.format(type(error).__name__), failed=True)
            case Yielding(stream):
                yield from CloseStream(stream)
                return call.with_result(_STREAM, failed=True)
            case _:  # `TimedOut`, the last there is
                yield from _log(call, writer, "timeout")
                return call.with_result(_LATE.format(seconds), failed=True)


def _sentence(refusal: ToolError) -> str:
    try:
        return render(str(refusal)) or ""
    except Exception as error:  # noqa: BLE001 (a text that cannot be had must not end the run)
        return _FAILED.format(type(error).__name__)


def _waits_for(call: CallState, what: Standing) -> CallState:
    return evolve(call, standing=what, needs=what)


def _log(
    call: CallState, writer: EventWriter, reason: str, error: Exception | None = None
) -> Program[None]:
    incident = (yield from RandomBytes(8)).hex()
    run = writer.origin.run
    run_id = run.run_id
    kind = "timeout" if error is None else type(error).__name__
    writer.journal.note_incident(
        incident, run, kind, "" if error is None else reason, "tool_failed"
    )
    fields = (
        ("incident", incident),
        ("run_id", run_id),
        ("tool", call.call.name),
        ("error", reason),
    )
    traced = () if error is None else (("trace", trace(error)), *hint_at(error))
    yield from Log("error", "tool_failed", (*fields, *traced), error)
