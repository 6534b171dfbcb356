"""Models of agno whose answers, and the calls of tools made for them, are recorded steps of a run.

agno calls a model, and its tools, through four public methods of the model.  `record` makes a copy
of a model that overrides them; nothing of agno is patched.  The class of the copy has the name of
that of the model, which agno looks at.  Outside of a hosted run the copy does what the model does.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import cache
from typing import Any, Final

from attrs import fields

from .agno_steps import STEPS, Flow
from .agno_tools import call_tool, take_gate
from .frameworks import load
from .recorder import Usage

__all__ = ["record"]

_messages: Any = load("agno.models.message", "agno")
_metrics: Any = load("agno.metrics", "agno")
_responses: Any = load("agno.models.response", "agno")

_COUNTED: Final = tuple(attribute.name for attribute in fields(Usage))
_KEPT: Final = (
    "content", "reasoning_content", "redacted_reasoning_content", "provider_data", "tool_calls",
    "audio_output", "metrics",
)  # fmt: skip
"""What an answer that is read again puts into its message; with the citations."""


def record(model: Any, purpose: str) -> Any:
    """Return a copy of `model` that records; it has the clients of `model`.

    Args:
        model: Of agno.
        purpose: Of what asks it beside an agent, as a manager of memories; else empty.
    """
    kind: Any = _class_of(model.__class__)
    made: Any = kind.__new__(kind)
    members: dict[str, Any] = made.__dict__
    members.update(model.__dict__, recorded_purpose=purpose)
    return made


@cache
def _class_of(kind: Any) -> Any:
    return type(kind.__name__, (_Recorded, kind), {"__module__": kind.__module__})


class _Recorded:
    """The four methods; its subclasses are models."""

    async def ainvoke(self, *args: Any, **kwargs: Any) -> Any:
        model: Any = super()
        steps, ask = STEPS.get(), model.ainvoke
        if steps is None:
            return await ask(*args, **kwargs)

        async def answer() -> Any:
            return _encode_response(await ask(*args, **kwargs))

        return _decode_response(
            await steps.model(self, kwargs.get("run_response"), answer, _read_usage)
        )

    async def aprocess_response_stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        model: Any = super()
        steps, ask = STEPS.get(), model.aprocess_response_stream
        if steps is None:
            async for piece in ask(*args, **kwargs):
                yield piece
            return
        message, data = kwargs["assistant_message"], kwargs["stream_data"]
        asked = False
        flow = Flow(steps)

        async def answer() -> Any:
            nonlocal asked
            asked = True
            async with aclosing(ask(*args, **kwargs)) as pieces:
                async for piece in pieces:
                    await flow.put(piece)
            return _encode_message(message, data)

        run = kwargs.get("run_response")
        async with aclosing(
            flow.take(lambda: steps.model(self, run, answer, _read_usage))
        ) as pieces:
            async for piece in pieces:
                yield piece
        if not asked:
            yield _restore(flow.result, message, data)

    async def arun_function_calls(
        self, function_calls: list[Any], *args: Any, **kwargs: Any
    ) -> AsyncGenerator[Any]:
        model: Any = super()
        steps = STEPS.get()
        if steps is not None:
            kwargs["skip_pause_check"] = True
            for call in function_calls:
                if (gate := take_gate(call)) is not None:
                    steps.gates[id(call)] = gate
        async with aclosing(model.arun_function_calls(function_calls, *args, **kwargs)) as items:
            async for item in items:
                yield item

    async def arun_function_call(self, function_call: Any) -> Any:
        model: Any = super()
        steps, run = STEPS.get(), model.arun_function_call
        if steps is None:
            return await run(function_call)
        return await call_tool(steps, function_call, run)


def _encode_response(response: Any) -> Any:
    """Return an answer that came in one as JSON; agno reads `parsed` from its content again."""
    metrics: Any = response.response_usage
    response.response_usage = response.parsed = None
    made = response.to_dict()
    return {**made, "response_usage": metrics.to_dict() if metrics else None}


def _decode_response(made: Any) -> Any:
    return _responses.ModelResponse.from_dict(dict(made))


def _encode_message(message: Any, data: Any) -> Any:
    """Return an answer that was streamed as JSON: its message, and what its provider adds."""
    made = message.to_dict()
    return {
        "role": message.role,
        "message": {name: made[name] for name in _KEPT if name in made},
        "citations": message.citations.model_dump(mode="json") if message.citations else None,
        "extra": data.extra,
    }


def _restore(made: Any, message: Any, data: Any) -> Any:
    """Put a recorded answer in place of a streamed one; return it as its only piece."""
    kept = _messages.Message.from_dict({"role": made["role"], **made["message"]})
    message.role = kept.role
    for name in _KEPT:
        if name in made["message"]:
            setattr(message, name, getattr(kept, name))
    if not isinstance(message.metrics, _metrics.MessageMetrics):
        message.metrics = _metrics.MessageMetrics.from_dict(message.metrics or {})
    if made["citations"] is not None:
        message.citations = _messages.Citations(**made["citations"])
    data.extra = made["extra"]
    return _responses.ModelResponse(
        role=kept.role,
        content=kept.content,
        reasoning_content=kept.reasoning_content,
        citations=message.citations,
        audio=kept.audio_output,
    )


def _read_usage(made: Any) -> Usage:
    """Return the tokens of an encoded answer."""
    streamed: dict[str, Any] | None = made.get("message")
    metrics: Any = made["response_usage"] if streamed is None else streamed.get("metrics")
    counted: dict[str, int] = metrics or {}
    return Usage(**{name: counted.get(name, 0) for name in _COUNTED})
