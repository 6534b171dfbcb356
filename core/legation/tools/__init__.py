"""Tools: functions of an author's that a model may have called.

Nothing here calls one.  A function is looked at once, when it becomes a `Tool`; then a model is
told of it, and what the model wants it called with is read.
"""

from __future__ import annotations

from .arguments import plain_arguments, read_arguments
from .definition import Tool, ToolError, ToolFault, as_tool, tool
from .hosted_function import OFFERED, Hosted, host_function
from .results import MAX_RESULT, render

__all__ = [
    "MAX_RESULT",
    "OFFERED",
    "Hosted",
    "Tool",
    "ToolError",
    "ToolFault",
    "as_tool",
    "host_function",
    "plain_arguments",
    "read_arguments",
    "render",
    "tool",
]
