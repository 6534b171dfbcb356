"""The names of spans and metrics: OpenTelemetry's conventions, for generative AI, HTTP, messaging.

Those for generative AI and for messaging are still in development, so every name that may change
stands here and nowhere else; `SCHEMA_URL` says which edition they are from.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "AGENT_ID",
    "AGENT_NAME",
    "CHAT",
    "CONVERSATION_ID",
    "COST",
    "ERROR_TYPE",
    "EXECUTE_TOOL",
    "FIRST_CHUNK_SECONDS",
    "HTTP_METHOD",
    "HTTP_ROUTE",
    "HTTP_STATUS",
    "INPUT_TOKENS",
    "INVOKE_AGENT",
    "MESSAGING_DESTINATION",
    "MESSAGING_OPERATION",
    "MESSAGING_OPERATION_TYPE",
    "MESSAGING_SYSTEM",
    "MODEL",
    "OPERATION",
    "OPERATION_SECONDS",
    "OUTPUT_TOKENS",
    "PROCESS",
    "PROVIDER",
    "REQUEST_ID",
    "RUN_ID",
    "SCHEMA_URL",
    "SEND",
    "TOKEN_TYPE",
    "TOKEN_USAGE",
    "TOOL_CALL_ID",
    "TOOL_NAME",
    "TOOL_SECONDS",
]

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.41.1"

INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
AGENT_ID: Final = "gen_ai.agent.id"
AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
MODEL: Final = "gen_ai.request.model"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"

TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105  no secret
TOKEN_USAGE: Final = "gen_ai.client.token.usage"  # noqa: S105
OPERATION_SECONDS: Final = "gen_ai.client.operation.duration"
FIRST_CHUNK_SECONDS: Final = "gen_ai.client.operation.time_to_first_chunk"
TOOL_SECONDS: Final = "gen_ai.execute_tool.duration"

HTTP_METHOD: Final = "http.request.method"
HTTP_ROUTE: Final = "http.route"
HTTP_STATUS: Final = "http.response.status_code"

MESSAGING_SYSTEM: Final = "messaging.system"
MESSAGING_DESTINATION: Final = "messaging.destination.name"
MESSAGING_OPERATION: Final = "messaging.operation.name"
MESSAGING_OPERATION_TYPE: Final = "messaging.operation.type"
PROCESS: Final = "process"
SEND: Final = "send"

ERROR_TYPE: Final = "error.type"

# No convention has a name for these.
RUN_ID: Final = "legation.run.id"
REQUEST_ID: Final = "legation.request.id"
COST: Final = "legation.model.cost"
