"""Legation: a server that hosts AI agents, as a pure core.

The core turns requests into responses by programs that yield effects; what acts is in the
frontends.  A platform is made of configuration and answers requests:

    platform = Platform(agents=[Agent(id="concierge")])
    program = platform.answer(Request("GET", "/agents"))

A name is imported when it is first asked for (PEP 562), so that a part of the core costs what it
needs: `import legation.http.sse` loads four modules of this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

__all__ = [
    "Agent",
    "AnthropicModel",
    "Audit",
    "AuditKey",
    "AuthorizationConfig",
    "CallStep",
    "Channel",
    "ConfigurationError",
    "Console",
    "CustomChannel",
    "CustomRoute",
    "Database",
    "EchoModel",
    "FinalAnswer",
    "FromModel",
    "LimitOverrides",
    "Model",
    "ModelStep",
    "NodeLimits",
    "Notify",
    "OpenAIModel",
    "Platform",
    "PlatformLimits",
    "Principal",
    "Request",
    "Response",
    "Retention",
    "Run",
    "RunFile",
    "Sender",
    "SlackChannel",
    "StandardChannel",
    "Streamed",
    "Team",
    "TelegramChannel",
    "Tool",
    "ToolError",
    "WhatsAppChannel",
    "__version__",
    "read_answer",
    "tool",
]

if TYPE_CHECKING:
    from .access.decide import Principal
    from .api.custom_routes import CustomRoute
    from .config import (
        Agent,
        Audit,
        AuditKey,
        AuthorizationConfig,
        Channel,
        ConfigurationError,
        Console,
        Database,
        Model,
        Notify,
        Retention,
        Team,
    )
    from .http.messages import Request, Response, Streamed
    from .kinds import (
        AnthropicModel,
        CustomChannel,
        EchoModel,
        OpenAIModel,
        Sender,
        SlackChannel,
        StandardChannel,
        TelegramChannel,
        WhatsAppChannel,
    )
    from .platform import Platform
    from .shares.limits import LimitOverrides, NodeLimits, PlatformLimits
    from .tools import (
        CallStep,
        FinalAnswer,
        FromModel,
        ModelStep,
        Run,
        RunFile,
        Tool,
        ToolError,
        tool,
    )
    from .tools.answer_class import read_answer
    from .version import VERSION as __version__
else:

    def __getattr__(name: str) -> Any:
        """Import the public name `name` from its module.

        Raises:
            AttributeError: There is none of that name.
        """
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = __import__(f"{__name__}.{home}", fromlist=[name])
        value = globals()[name] = getattr(module, "VERSION" if name == "__version__" else name)
        return value


_CONFIG: Final = (
    "Agent Audit AuditKey AuthorizationConfig Channel ConfigurationError Console Database Model"
    " Notify Retention Team"
)
_KINDS: Final = (
    "AnthropicModel CustomChannel EchoModel OpenAIModel Sender SlackChannel StandardChannel"
    " TelegramChannel WhatsAppChannel"
)
_TOOLS: Final = "CallStep FinalAnswer FromModel ModelStep Run RunFile Tool ToolError tool"
_HOMES: Final = {
    **dict.fromkeys(_CONFIG.split(), "config"),
    **dict.fromkeys(_KINDS.split(), "kinds"),
    **dict.fromkeys(("Request", "Response", "Streamed"), "http.messages"),
    **dict.fromkeys(_TOOLS.split(), "tools"),
    **dict.fromkeys(("LimitOverrides", "NodeLimits", "PlatformLimits"), "shares.limits"),
    "CustomRoute": "api.custom_routes",
    "Platform": "platform",
    "Principal": "access.decide",
    "__version__": "version",
    "read_answer": "tools.answer_class",
}
"""The module of each name; a checker reads the imports instead, and refuses an unknown name."""


def __dir__() -> list[str]:
    """Return what is here, and what can be had."""
    return sorted({*globals(), *__all__})
