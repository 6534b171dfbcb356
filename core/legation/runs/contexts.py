"""The contexts of runs: each function that takes one is given its own, as the run is by now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import field

from ..effects import Log, Now, Program
from ..store.session_state import StateChange
from ..tools import (
    ContextParameter,
    Misfit,
    Run,
)
from ..tools.state_values import Unstorable, compare_state, encode_state
from ..values import frozen
from .event_writer import EventWriter
from .state_writer import StateRead, StateTooLarge

__all__ = ["Context", "ContextRefused", "keep_state", "log_refused_state", "open_context"]

_TOO_LARGE: Final = "the state of the session would be too large"
_UNSTORABLE: Final = "what it wrote to the state of the session cannot be stored"


class ContextRefused(Exception):
    """The dependencies or the state of a run do not fit the classes of a function; see the text."""


@frozen(eq=False)
class Context:
    """The context that a function is given, and the state of the session as it was before."""

    parameter: ContextParameter
    run: Run[Any, Any]
    read: StateRead
    before: Mapping[str, str] = field(repr=False)

    def find_change(self) -> StateChange:
        """Return what the function wrote to the state.

        Raises:
            Unstorable: It cannot be stored.
        """
        return compare_state(self.parameter.state, self.before, self.run.state)


def open_context(
    parameter: ContextParameter, writer: EventWriter, read: StateRead | None = None
) -> Program[Context]:
    """Return the context for a function of the run that `writer` is of.

    `read` is the state where it is read already.

    Raises:
        ContextRefused: The dependencies or the state do not fit the classes that it takes.
    """
    journal, run = writer.journal, writer.origin.run
    if read is None:
        read = yield from journal.read_state()
    now_us = journal.now_us = yield from Now()
    try:
        return _make(parameter, writer, read, now_us)
    except ContextRefused as error:
        fields = (("run_id", run.run_id), ("component", run.component_id), ("error", str(error)))
        yield from Log("error", "context_refused", fields, error)
        raise


def _make(
    parameter: ContextParameter, writer: EventWriter, read: StateRead, now_us: int
) -> Context:
    run, given = writer.origin.run, writer.journal.given
    made = given.context(parameter, run, read.document, now_us)
    if isinstance(made, Misfit):
        raise ContextRefused(made.reason)
    try:
        before = encode_state(parameter.state, made.state)
    except Unstorable as error:
        raise ContextRefused(str(error)) from None
    return Context(parameter, made, read, before)


def keep_state(context: Context, writer: EventWriter, place: str) -> Program[str | None]:
    """Let what a tool wrote to the state be stored with the outcome of its call, at `place`.

    Returns:
        Why that cannot be, for the model; the log has the key.
    """
    try:
        writer.journal.change_state(place, context.read, context.find_change())
    except (Unstorable, StateTooLarge) as error:
        return (yield from log_refused_state(writer, error))
    return None


def log_refused_state(writer: EventWriter, error: Exception) -> Program[str]:
    """Log why the state cannot be stored, and return it in the words that anybody may read."""
    run = writer.origin.run
    fields = (("run_id", run.run_id), ("component", run.component_id), ("error", str(error)))
    yield from Log("error", "state_refused", fields, error)
    return _TOO_LARGE if isinstance(error, StateTooLarge) else _UNSTORABLE
