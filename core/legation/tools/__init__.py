"""Tools: functions of an author's that a model may call.

Nothing here calls one.  A function is inspected once, when it becomes a `Tool`: that gives the
description for the model, and the reader of the arguments that the model sends.  What only a run
needs is in modules of its own (`answer_class`, `state_values`): to define an agent loads neither.
"""

from __future__ import annotations

from .arguments import plain_arguments, read_arguments
from .context_parameter import ContextParameter, Misfit, read_given
from .definition import KEY_PARAMETER, Again, Tool, ToolError, ToolFault, as_tool, tool
from .hosted_function import (
    OFFERED,
    Hosted,
    HostedInstructions,
    host_function,
    host_instructions,
)
from .results import MAX_RESULT, render
from .run_context import FromModel, Run, RunFile
from .run_steps import CallStep, FinalAnswer, ModelStep, StepEnd
from .shapes import Unfit

__all__ = [
    "KEY_PARAMETER",
    "MAX_RESULT",
    "OFFERED",
    "Again",
    "CallStep",
    "ContextParameter",
    "FinalAnswer",
    "FromModel",
    "Hosted",
    "HostedInstructions",
    "Misfit",
    "ModelStep",
    "Run",
    "RunFile",
    "StepEnd",
    "Tool",
    "ToolError",
    "ToolFault",
    "Unfit",
    "as_tool",
    "host_function",
    "host_instructions",
    "plain_arguments",
    "read_arguments",
    "read_given",
    "render",
    "tool",
]
