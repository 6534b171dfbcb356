"""The contexts of runs: each function that takes one is given its own, as the run is by now."""

from __future__ import annotations

import json
from typing import Any

from ..effects import Log, Now, Program
from ..tools import ContextParameter, Misfit, Run
from .event_writer import EventWriter

__all__ = ["ContextRefused", "build_context"]


class ContextRefused(Exception):
    """What came with the run does not fit the classes of a function; the log says where."""


def build_context(parameter: ContextParameter, writer: EventWriter) -> Program[Run[Any, Any]]:
    """Return the context for a function of the run that `writer` is of.

    Raises:
        ContextRefused: The dependencies or the state do not fit the classes that it takes.
    """
    journal, run = writer.journal, writer.origin.run
    now_us = journal.now_us = yield from Now()
    context = journal.given.context(parameter, run, json.loads(run.state), now_us)
    if isinstance(context, Misfit):
        fields = (
            ("run_id", run.run_id),
            ("component", run.component_id),
            ("error", context.reason),
        )
        yield from Log("error", "context_refused", fields)
        raise ContextRefused
    return context
