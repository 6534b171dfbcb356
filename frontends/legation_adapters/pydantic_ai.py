"""The host of agents of Pydantic AI.

Each run of an agent gets a capability that wraps its model and its tools: answers of the model and
results of tools are recorded, and calls that wait for approval, or are made elsewhere, wait for a
person or for the client.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from legation import Agent, Run
from legation.tools.accepted import is_object

from .frameworks import load
from .recorder import Asked, Recorder, Usage, host

__all__ = ["hosted"]

_EXTRA: Final = "pydantic-ai"

load("pydantic_ai", _EXTRA)  # says what is missing
_capabilities: Final = load("pydantic_ai.capabilities", _EXTRA)
_exceptions: Final = load("pydantic_ai.exceptions", _EXTRA)
_messages: Final = load("pydantic_ai.messages", _EXTRA)
_models: Final = load("pydantic_ai.models", _EXTRA)
_wrapper: Final = load("pydantic_ai.models.wrapper", _EXTRA)
_tools: Final = load("pydantic_ai.tools", _EXTRA)
_pydantic: Final = load("pydantic", _EXTRA)
_core: Final = load("pydantic_core", _EXTRA)

# The framework is no dependency of the checkers, so its classes are of no type.
_Capability: Any = _capabilities.AbstractCapability
_WrapperModel: Any = _wrapper.WrapperModel

_RESPONSES: Final = _messages.ModelMessagesTypeAdapter
_RETURNS: Final = _pydantic.TypeAdapter(_messages.ToolReturn)
_CONTENT: Final = _pydantic.TypeAdapter(_messages.ToolReturnContent)
_MARK: Final = "__legation__"
_SHOWN: Final = ("image/", "audio/", "video/", "application/pdf")
_DENIED: Final = "Function call was rejected by the user"


def hosted(
    agent: Any,
    *,
    id: str | None = None,  # noqa: A002 (as that of `Agent`)
    name: str | None = None,
    deps: Callable[[Run], Any] | None = None,
    stream: bool = True,
    run_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Agent:
    """Return an agent of Pydantic AI as an agent of a platform.

    Args:
        agent: The agent, as it is.
        id: Its id here; by default the name of the agent.
        name: Its name here; by default that of the agent.
        deps: Returns the dependencies of a run.
        stream: Ask the model for its answer piece by piece.
        run_options: More arguments of `agent.run`, such as `usage_limits`.
        options: All else that an `Agent` has, such as `database` and `in_doubt`.
    """
    given = dict(run_options or {})

    async def run(recorder: Recorder) -> Any:
        made = {} if deps is None else {"deps": deps(recorder.run)}
        more = given.get("capabilities", ())
        capabilities = [*more, _capabilities.ReinjectSystemPrompt(), _Recording(recorder, stream)]
        result = await agent.run(
            _prompt(recorder),
            message_history=_list_history(recorder.history),
            **{**given, **made, "capabilities": capabilities},
        )
        output = result.output
        return output if isinstance(output, str) else _core.to_jsonable_python(output)

    own: str = agent.name or "agent"
    options.setdefault("again", "safe")
    return Agent(id=id or own, name=name or own, run=host(run), **options)


def _prompt(recorder: Recorder) -> Any:
    """Return the message, with the pictures and recordings that came with it."""
    files = [file for file in recorder.run.files if file.media_type.startswith(_SHOWN)]
    if not files:
        return recorder.message
    shown = [_messages.BinaryContent(f.content, media_type=f.media_type) for f in files]
    return [recorder.message, *shown]


def _list_history(history: list[dict[str, str]]) -> list[Any]:
    """Return the conversation so far in messages of the framework."""
    return [
        _messages.ModelResponse([_messages.TextPart(one["content"])])
        if one["role"] == "assistant"
        else _messages.ModelRequest([_messages.UserPromptPart(one["content"])])
        for one in history
    ]


class _Recording(_Capability):  # type: ignore[misc]
    """Records what one run does."""

    def __init__(self, recorder: Recorder, stream: bool) -> None:
        self.recorder, self.stream = recorder, stream

    def get_wrapper_model(self, model: Any) -> Any:
        return _RecordedModel(model, self.recorder, self.stream)

    async def wrap_tool_execute(
        self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        async def execute() -> Any:
            return await _mark_outcome(handler(args))

        arguments = _core.to_jsonable_python(args, fallback=str)
        metadata: Mapping[str, Any] = tool_def.metadata or {}
        again = bool(metadata.get("idempotent"))
        outcome = await self.recorder.tool(
            call.tool_call_id, call.tool_name, arguments, execute, idempotent=again
        )
        return _read_outcome(outcome)

    async def handle_deferred_tool_calls(self, ctx: Any, *, requests: Any) -> Any:
        calls = [*requests.approvals, *requests.calls]
        approvals = len(requests.approvals)
        asked = [
            Asked(call.tool_call_id, call.tool_name, call.args_as_dict(), external=n >= approvals)
            for n, call in enumerate(calls)
        ]
        answers = await self.recorder.approve_all(asked)
        said: dict[str, Any] = {}
        made: dict[str, Any] = {}
        for one, answer in zip(asked, answers, strict=True):
            if not answer.confirmed:
                sentence = _DENIED + (f": {answer.note}" if answer.note else "")
                denied = _tools.ToolDenied(sentence)
                if one.external:
                    made[one.call_id] = _exceptions.ToolFailed(sentence)
                else:
                    said[one.call_id] = denied
            elif one.external:
                made[one.call_id] = answer.result
            else:
                said[one.call_id] = True
        return requests.build_results(approvals=said, calls=made)


class _RecordedModel(_WrapperModel):  # type: ignore[misc]
    """A model whose answers are recorded; of each the text is heard as it comes."""

    def __init__(self, wrapped: Any, recorder: Recorder, stream: bool) -> None:
        super().__init__(wrapped)  # pyright: ignore[reportUnknownMemberType]
        self._recorder, self._streams = recorder, stream

    async def request(self, messages: Any, model_settings: Any, parameters: Any) -> Any:
        return await self._answer(messages, model_settings, parameters, None)

    @asynccontextmanager
    async def request_stream(
        self, messages: Any, model_settings: Any, parameters: Any, run_context: Any = None
    ) -> AsyncGenerator[Any]:
        response = await self._answer(messages, model_settings, parameters, run_context)
        yield _models.CompletedStreamedResponse(
            response, model_request_parameters=parameters, replay_events=True
        )

    async def _answer(self, messages: Any, settings: Any, parameters: Any, context: Any) -> Any:
        async def ask() -> Any:
            response = await self._ask(messages, settings, parameters, context)
            return _RESPONSES.dump_python([response], mode="json")

        answer = await self._recorder.model(
            self.wrapped.model_name, ask, usage=_count_usage, provider=self.wrapped.system
        )
        return _RESPONSES.validate_python(answer)[0]

    async def _ask(self, messages: Any, settings: Any, parameters: Any, context: Any) -> Any:
        """Ask the model, piece by piece where it can be."""
        if self._streams:
            try:
                return await self._listen(messages, settings, parameters, context)
            except (NotImplementedError, AssertionError):  # of a model that is a function
                self._streams = False
        response = await self.wrapped.request(messages, settings, parameters)
        self._recorder.hear(response.text or "")
        return response

    async def _listen(self, messages: Any, settings: Any, parameters: Any, context: Any) -> Any:
        async with self.wrapped.request_stream(messages, settings, parameters, context) as stream:
            async for event in stream:
                self._recorder.hear(_find_text(event))
        return stream.get()


def _find_text(event: Any) -> str:
    """Return the text that an event of a stream brings."""
    if isinstance(event, _messages.PartStartEvent):
        part = event.part
        return part.content if isinstance(part, _messages.TextPart) else ""
    if isinstance(event, _messages.PartDeltaEvent):
        delta = event.delta
        return delta.content_delta if isinstance(delta, _messages.TextPartDelta) else ""
    return ""


def _count_usage(answer: Any) -> Usage:
    usage: Mapping[str, Any] = answer[0].get("usage") or {}
    details: Mapping[str, Any] = usage.get("details") or {}
    return Usage(
        usage.get("input_tokens") or 0,
        usage.get("output_tokens") or 0,
        details.get("reasoning_tokens") or 0,
        usage.get("cache_read_tokens") or 0,
        usage.get("cache_write_tokens") or 0,
    )


# --- Outcomes of tools -------------------------------------------------------------------------


async def _mark_outcome(working: Any) -> Any:
    """Return what came of a tool as JSON, with a mark where it is no plain value."""
    try:
        result = await working
    except (_exceptions.ModelRetry, _exceptions.ToolRetryError) as retry:
        return {_MARK: "retry", "message": _find_message(retry)}
    except (_exceptions.ToolFailed, _exceptions.ToolFailedError) as failed:
        return {_MARK: "failed", "message": _find_message(failed)}
    except _exceptions.SkipToolExecution as skipped:
        result = skipped.result
    except _exceptions.ApprovalRequired as required:
        return {_MARK: "approval", "metadata": _core.to_jsonable_python(required.metadata)}
    except _exceptions.CallDeferred as deferred:
        return {_MARK: "deferred", "metadata": _core.to_jsonable_python(deferred.metadata)}
    if isinstance(result, _messages.ToolReturn):
        return {_MARK: "return", "value": _RETURNS.dump_python(result, mode="json")}
    plain: Any = _core.to_jsonable_python(result, fallback=str)
    content = _dump_content(result)
    if content != plain or _find_mark(plain) is not None:
        return {_MARK: "content", "value": content}
    return plain


def _find_message(error: Any) -> str:
    """Return what the model is told by an error, which has it itself or in a part."""
    part = getattr(error, "tool_retry", None) or getattr(error, "tool_failed", None)
    message = getattr(error, "message", None) if part is None else part.content
    return message if isinstance(message, str) else str(error)


def _dump_content(result: Any) -> Any:
    try:
        return _CONTENT.dump_python(result, mode="json", warnings=False)
    except _core.PydanticSerializationError:
        return _core.to_jsonable_python(result, fallback=str)


def _find_mark(outcome: Any) -> Any:
    """Return what marks an outcome; None where it is a plain value."""
    if not is_object(outcome):
        return None
    return outcome.get(_MARK)


def _read_outcome(outcome: Any) -> Any:
    """Return what a tool returned, or raise what it raised for the framework to see."""
    match _find_mark(outcome):
        case None:
            return outcome
        case "retry":
            raise _exceptions.ModelRetry(outcome["message"])
        case "failed":
            raise _exceptions.ToolFailed(outcome["message"])
        case "approval":
            raise _exceptions.ApprovalRequired(metadata=outcome["metadata"])
        case "deferred":
            raise _exceptions.CallDeferred(metadata=outcome["metadata"])
        case "return":
            return _RETURNS.validate_python(outcome["value"])
        case _:
            return _CONTENT.validate_python(outcome["value"])
