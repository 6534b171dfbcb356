"""A model for agents of agno: chat completions on loopback, answered by what was said so far."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from attrs import define, field

from ..providers.chat_completions import ChatCompletionsServer
from ..providers.model_server import Item, Said

__all__ = ["AgnoModel", "Answer", "call"]

Messages: TypeAlias = list[Mapping[str, Any]]
Answer: TypeAlias = Callable[[Messages], Item]

_OF_AGNO: Final = ("requires_confirmation", "external_execution", "approval_type")
"""What agno sends with the functions of its tools, and the API does not know."""


@define(eq=False)
class AgnoModel(ChatCompletionsServer):
    """Answers by a function of the messages; refuses what neither the API nor agno knows."""

    answer: Answer = field(default=lambda _: Said(("OK",)))

    def faults(self, headers: Mapping[str, str], body: bytes) -> Iterator[str]:
        """Yield what the API does not allow, and agno did not add."""
        request = json.loads(body)
        for tool in request.get("tools", ()):
            for name in _OF_AGNO:
                tool["function"].pop(name, None)
        yield from super().faults(headers, json.dumps(request).encode())

    def take(self, path: str, headers: Mapping[str, str], body: bytes) -> Item:
        """Judge a request; a sound one is answered by its messages."""
        judged = super().take(path, headers, body)
        return self.answer(json.loads(body)["messages"]) if isinstance(judged, Said) else judged


def call(call_id: str, name: str, /, **arguments: Any) -> tuple[str, str, str]:
    """Return a call of a tool, as `Said` has it."""
    return call_id, name, json.dumps(arguments)
