"""Legation: a server that hosts AI agents, as a pure core.

The core turns requests into responses by programs that yield effects; what acts is in the
frontends.  A platform is made of configuration and answers requests:

    platform = Platform(agents=[Agent(id="concierge")])
    program = platform.answer(Request("GET", "/agents"))
"""

from __future__ import annotations

from .config import Agent, AuthorizationConfig, Channel, ConfigurationError, Database, Model, Team
from .http.messages import Request, Response, Streamed
from .platform import Platform
from .tools import Tool, ToolError, tool
from .version import VERSION as __version__

__all__ = [
    "Agent",
    "AuthorizationConfig",
    "Channel",
    "ConfigurationError",
    "Database",
    "Model",
    "Platform",
    "Request",
    "Response",
    "Streamed",
    "Team",
    "Tool",
    "ToolError",
    "__version__",
    "tool",
]
