"""The instructions of a run whose author gave a function for them.

It is called once, when the run begins.  Its text is stored with the start of the run before a model
reads it, and whoever goes on with the run reads it there: a model never sees two of them.
"""

from __future__ import annotations

from typing import Any, Final

from ..effects import CallFunction, CloseStream, Log, Program, Raised, Returned, Yielding
from ..hosted.registry import Component
from ..models.conversation import ModelFailed, storable
from ..store.failures import StoreFailure
from ..tools import HostedInstructions
from ..tools.state_values import Unstorable
from .contexts import Context, open_context
from .event_writer import CancelAsked, EventWriter, LeaseLost

__all__ = ["MAX_INSTRUCTIONS", "InstructionsFailed", "detach", "instruct", "store_start"]

MAX_INSTRUCTIONS: Final = 1 << 17
"""How long instructions that a function gives may be, in characters."""

_LATE: Final = "it took longer than {:g} seconds"
_NO_TEXT: Final = "it returned no text but a value of the type {}"
_WROTE: Final = "it wrote to the state of the session, which is for tools"
_LONG: Final = f"it returned more than {MAX_INSTRUCTIONS} characters"

# Errors that mean something else where the error of a function ends up.
_OURS: Final = (StoreFailure, ModelFailed, CancelAsked, LeaseLost)


class InstructionsFailed(Exception):
    """The function gave no instructions; the text says why."""


def detach(error: Exception) -> Exception:
    """Return the error of an author's function, so that it is never taken for one of ours."""
    if isinstance(error, _OURS):
        other = RuntimeError(type(error).__name__).with_traceback(error.__traceback__)
        other.__cause__ = error
        return other
    return error


def instruct(
    hosted: HostedInstructions, component: Component, writer: EventWriter
) -> Program[str | None]:
    """Return the instructions that a function gives for a run of `component`.

    Raises:
        InstructionsFailed: There are none to be had.
        Exception: What the function raised.
    """
    try:
        return (yield from _call(hosted, writer, component.tool_timeout_seconds))
    except InstructionsFailed as error:
        run = writer.origin.run
        fields = (("run_id", run.run_id), ("component", run.component_id), ("error", str(error)))
        yield from Log("error", "instructions_failed", fields)
        raise


def _call(hosted: HostedInstructions, writer: EventWriter, seconds: float) -> Program[str | None]:
    arguments: dict[str, Any] = {}
    context = None
    if hosted.context is not None:
        context = yield from open_context(hosted.context, writer)
        arguments[hosted.context.name] = context.run
    match (yield from CallFunction(hosted.function, arguments, seconds)):
        case Returned(value):
            if context is not None and _has_written(context):
                raise InstructionsFailed(_WROTE)
            return _read_text(value)
        case Raised(error):
            raise detach(error)
        case Yielding(stream):
            yield from CloseStream(stream)
            raise InstructionsFailed(_NO_TEXT.format("AsyncIterator"))
        case _:
            raise InstructionsFailed(_LATE.format(seconds))


def _has_written(context: Context) -> bool:
    try:
        return bool(context.find_change().keys)
    except Unstorable:
        return True


def _read_text(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise InstructionsFailed(_NO_TEXT.format(type(value).__name__))
    if len(value) > MAX_INSTRUCTIONS:
        raise InstructionsFailed(_LONG)
    return storable(value)


def store_start(writer: EventWriter) -> Program[None]:
    """Store the start of a run, before its model reads the instructions."""
    writer.note_start()
    yield from writer.settle()
