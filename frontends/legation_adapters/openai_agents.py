"""Agents of the OpenAI Agents SDK, hosted as they are.

A copy of the agent, and of every agent that it hands off to, is made for each run.  In the copy the
model and the function tools are wrapped: an answer of the model and an outcome of a tool are
recorded before the SDK goes on.  After a crash, or after a person decided, the SDK runs again from
the first message and is given what is recorded, so that no model is asked again and no tool is
called again.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final

from attrs import define, field

from legation import Agent, ToolError
from legation.tools.accepted import is_array, is_object

from .frameworks import load
from .ids import make_id
from .recorder import Asked, Recorder, ToolFailed, Usage, host

__all__ = ["hosted"]

_EXTRA: Final = "openai-agents"
_sdk: Any = load("agents", _EXTRA)
_items: Any = load("agents.items", _EXTRA)
_tool: Any = load("agents.tool", _EXTRA)
_usages: Any = load("agents.usage", _EXTRA)
_responses: Any = load("openai.types.responses", _EXTRA)
_pydantic: Any = load("pydantic", _EXTRA)

_ITEMS: Final = _pydantic.TypeAdapter(list[_items.TResponseOutputItem])
_SHOWN: Final = (_sdk.ToolOutputText, _sdk.ToolOutputImage, _sdk.ToolOutputFileContent)
"""What a tool may return that is no text."""

_PROVIDER: Final = (
    _sdk.WebSearchTool,
    _sdk.FileSearchTool,
    _sdk.CodeInterpreterTool,
    _sdk.ImageGenerationTool,
    _sdk.HostedMCPTool,
)
"""Tools that the provider of the model runs: what they did is part of the model's answer."""

_BROKEN: Final = frozenset({"response.incomplete", "response.failed", "response.error", "error"})
"""Events of a stream that end it without an answer."""

_within: ContextVar[bool] = ContextVar("legation_within_a_tool", default=False)
"""Whether the code runs within a recorded call, so that what it asks for is part of that call."""

_NOT_HOSTED: Final = (
    "the tool {tool} of the agent {agent!r} is executed by the SDK itself, where its calls cannot"
    " be recorded: make it a function tool"
)
_MCP: Final = (
    "the agent {agent!r} has MCP servers, whose connections belong to an event loop of their own:"
    " make their tools function tools"
)
_ASKS_WITHIN: Final = (
    "the agent {agent!r} is a tool of the agent {owner!r}, and its tool {tool!r} needs an approval,"
    " which would be lost with a crash: hand off to the agent instead"
)
_REJECTED: Final = "A person rejected the call"


def hosted(  # noqa: PLR0913  every one but the agent is named at the call
    agent: Any,
    *,
    id: str | None = None,  # noqa: A002 - the name it has in `legation.Agent`
    name: str | None = None,
    context: Callable[[Recorder], Any] | None = None,
    run_config: Any = None,
    max_turns: int = 10,
    stream: bool = True,
    tracing: bool = False,
    idempotent: Collection[str] = (),
    **settings: Any,
) -> Agent:
    """Return an agent that a platform can serve.

    Args:
        agent: As the SDK runs it, with its handoffs.
        id: Of the served agent; made from the name if it is not given.
        name: Of the served agent; that of `agent` if it is not given.
        context: Makes the context that the SDK gives to tools, from the run.
        run_config: As for `Runner.run`.
        max_turns: As for `Runner.run`.
        stream: Whether models are asked for a stream; a model class that cannot is asked without.
        tracing: Whether the SDK may send traces to its provider.
        idempotent: Names of tools that may be called again where a crash left it open whether they
            were.
        settings: Further arguments of `legation.Agent`, such as `database`.

    Raises:
        ValueError: Something of the agent cannot be hosted; says everything at once.
    """
    if faults := sorted(set(_find_faults(agent))):
        raise ValueError("The agent cannot be hosted: " + "; ".join(faults))
    hosting = _Hosting(
        agent, context, run_config, max_turns, stream, tracing, frozenset(idempotent)
    )
    return Agent(
        id=id or make_id(agent.name),
        name=name or agent.name,
        run=host(hosting.run),
        again="safe",
        **settings,
    )


def _find_faults(root: Any) -> Iterator[str]:
    """Yield what is not hosted, of `root` and of all agents that it hands off to."""
    for agent in _reach(root):
        if agent.mcp_servers:
            yield _MCP.format(agent=agent.name)
        for tool in agent.tools:
            if isinstance(tool, _sdk.FunctionTool):
                yield from _find_lost_approvals(agent, tool)
            elif not isinstance(tool, _PROVIDER):
                yield _NOT_HOSTED.format(tool=type(tool).__name__, agent=agent.name)


def _find_lost_approvals(owner: Any, tool: Any) -> Iterator[str]:
    within = getattr(tool, "_agent_instance", None)
    if not isinstance(within, _sdk.Agent):
        return
    for agent in _reach(within, tools=True):
        for one in agent.tools:
            if isinstance(one, _sdk.FunctionTool) and one.needs_approval:
                yield _ASKS_WITHIN.format(agent=agent.name, owner=owner.name, tool=one.name)


def _reach(root: Any, *, tools: bool = False) -> list[Any]:
    """Return `root` and all agents that it can hand off to; with `tools` also those it calls."""
    found: dict[int, Any] = {}
    waiting: list[Any] = [root]
    while waiting:
        agent = waiting.pop()
        if not isinstance(agent, _sdk.Agent) or id(agent) in found:
            continue
        found[id(agent)] = agent
        waiting += [_target(one) for one in agent.handoffs]
        if tools:
            waiting += [getattr(tool, "_agent_instance", None) for tool in agent.tools]
    return list(found.values())


def _target(handoff: Any) -> Any:
    """Return the agent that a handoff leads to; None where only its function knows."""
    if not isinstance(handoff, _sdk.Handoff):
        return handoff
    reference = getattr(handoff, "_agent_ref", None)
    return None if reference is None else reference()


@define(eq=False)
class _Hosting:
    """An agent of the SDK, and the settings of its runs."""

    agent: Any
    context: Callable[[Recorder], Any] | None
    run_config: Any
    max_turns: int
    stream: bool
    tracing: bool
    idempotent: frozenset[str]

    async def run(self, recorder: Recorder) -> Any:
        """Run the agent for one message, to its answer.

        Raises:
            ToolError: A guardrail of the agent stopped the run.
        """
        copies = _Copies(recorder, self)
        agent = copies.copy(self.agent)
        config = copies.configure(self.run_config or _sdk.RunConfig())
        given: Any = [*recorder.history, {"role": "user", "content": recorder.message}]
        context = None if self.context is None else self.context(recorder)
        options: dict[str, Any] = {"max_turns": self.max_turns, "run_config": config}
        try:
            result = await _sdk.Runner.run(agent, given, context=context, **options)
            while result.interruptions:
                state = result.to_state()
                await _decide(recorder, state, result.interruptions)
                result = await _sdk.Runner.run(agent, state, **options)
        except _sdk.InputGuardrailTripwireTriggered as error:
            guard = error.guardrail_result.guardrail.get_name()
            raise ToolError(f"The guardrail {guard} refused the message") from None
        except _sdk.OutputGuardrailTripwireTriggered as error:
            guard = error.guardrail_result.guardrail.get_name()
            raise ToolError(f"The guardrail {guard} refused the answer") from None
        return _plain(result.final_output)


async def _decide(recorder: Recorder, state: Any, waiting: list[Any]) -> None:
    """Let people decide on the calls that wait."""
    asked = [
        Asked(item.call_id or item.name, item.name or "tool", _arguments(item.arguments or ""))
        for item in waiting
    ]
    approvals = await recorder.approve_all(asked)
    for item, approval in zip(waiting, approvals, strict=True):
        if approval.confirmed:
            state.approve(item)
        else:
            state.reject(item, rejection_message=approval.note or _REJECTED)


@define(eq=False)
class _Copies:
    """The copies of a run: agents whose models, tools and handoffs are recorded."""

    recorder: Recorder
    hosting: _Hosting
    failed: dict[str, str] = field(factory=dict[str, str])
    calls: dict[str, str] = field(factory=dict[str, str])
    _made: dict[int, Any] = field(factory=dict[int, Any])
    _kept: list[Any] = field(factory=list[Any])

    def configure(self, config: Any) -> Any:
        """Return the configuration of the run."""
        model = config.model
        return replace(
            config,
            model=_RecordedModel(model, self) if isinstance(model, _sdk.Model) else model,
            model_provider=_RecordedProvider(config.model_provider, self),
            tracing_disabled=config.tracing_disabled or not self.hosting.tracing,
            tool_error_formatter=self._note_failure,
        )

    def copy(self, agent: Any) -> Any:
        """Return the copy of `agent`, always the same."""
        made = self._made.get(id(agent))
        if made is None:
            model = agent.model
            made = agent.clone(
                model=_RecordedModel(model, self) if isinstance(model, _sdk.Model) else model,
                tools=[self._record_tool(tool) for tool in agent.tools],
                handoffs=[],
            )
            self._made[id(agent)] = made
            made.handoffs = [self._record_handoff(one) for one in agent.handoffs]
        return made

    def _record_tool(self, tool: Any) -> Any:
        if not isinstance(tool, _sdk.FunctionTool):
            return tool

        async def invoke(context: Any, arguments: str) -> Any:
            return await self._call_tool(tool, context, arguments)

        made = replace_invoker(tool, invoke)
        made.timeout_seconds = None  # It is kept within the recorded call.
        return made

    async def _call_tool(self, tool: Any, context: Any, arguments: str) -> Any:
        call_id = context.tool_call_id
        raised: list[Exception] = []

        async def call() -> Any:
            token = _within.set(True)
            try:
                result = await _tool.invoke_function_tool(
                    function_tool=tool, context=context, arguments=arguments
                )
            except Exception as error:
                raised.append(error)
                raise ToolFailed(str(error) or type(error).__name__) from error
            finally:
                _within.reset(token)
            if call_id in self.failed:
                raise ToolFailed(str(result))
            return _output(result)

        try:
            return await self.recorder.tool(
                call_id,
                tool.name,
                _arguments(arguments),
                call,
                idempotent=tool.name in self.hosting.idempotent,
            )
        except ToolFailed as error:
            if raised:
                raise raised[0] from None
            if _raises(tool):
                raise
            return str(error)

    def _record_handoff(self, one: Any) -> Any:
        plain = not isinstance(one, _sdk.Handoff)
        target = _target(one)
        original = _sdk.handoff(one) if plain else one

        async def invoke(context: Any, arguments: str) -> Any:
            reached: list[Any] = [] if target is None else [target]

            async def call() -> Any:
                reached[:] = [await original.on_invoke_handoff(context, arguments)]
                return reached[0].name

            name: str = original.tool_name
            call_id = self.calls.get(name, name)
            given = _arguments(arguments)
            await self.recorder.tool(call_id, name, given, call, idempotent=plain)
            if not reached:  # Recorded, and only the function knows the agent.
                await call()
            return self.copy(reached[0])

        made = replace(original, on_invoke_handoff=invoke)
        if target is not None:
            copied = self.copy(target)
            self._kept.append(copied)
            made._agent_ref = weakref.ref(copied)
        return made

    def _note_failure(self, args: Any) -> Any:
        if args.kind == "tool_exception":
            self.failed[args.call_id] = args.default_message
        config = self.hosting.run_config
        formatter = None if config is None else config.tool_error_formatter
        return None if formatter is None else formatter(args)

    def note_calls(self, response: Any) -> None:
        """Remember the ids of the calls that the model asks for: a handoff is not told its own."""
        for item in response.output:
            if isinstance(item, _responses.ResponseFunctionToolCall):
                self.calls[item.name] = item.call_id


def replace_invoker(tool: Any, invoke: Any) -> Any:
    """Return a copy of `tool` that is called by `invoke`."""
    made = tool.__copy__()
    made.on_invoke_tool = invoke
    return made


def _raises(tool: Any) -> bool:
    """Return whether a failure of `tool` ends the run, instead of being told to the model."""
    default = getattr(tool, "_use_default_failure_error_function", True)
    return not default and getattr(tool, "_failure_error_function", None) is None


@define(eq=False)
class _Provider:
    """Looks models up as `provider` does."""

    provider: Any
    copies: _Copies

    def get_model(self, model_name: str | None) -> Any:
        return _RecordedModel(self.provider.get_model(model_name), self.copies)

    async def aclose(self) -> None:
        """Leave the provider open: it is that of all runs."""


@define(eq=False)
class _Model:
    """Asks `model`, unless the answer is recorded."""

    model: Any
    copies: _Copies

    async def get_response(
        self,
        system_instructions: str | None,
        input: Any,  # noqa: A002 - the name of the SDK
        model_settings: Any,
        tools: Any,
        output_schema: Any,
        *rest: Any,
        **named: Any,
    ) -> Any:
        head = (system_instructions, input, model_settings, tools, output_schema)
        if _within.get():
            return await self.model.get_response(*head, *rest, **named)
        plain = output_schema is None or output_schema.is_plain_text()

        async def ask() -> Any:
            if not self.copies.hosting.stream:
                return _dump(await self.model.get_response(*head, *rest, **named))
            settings = model_settings
            if settings.include_usage is None:
                settings = replace(settings, include_usage=True)
            streamed = (system_instructions, input, settings, tools, output_schema)
            events = self.model.stream_response(*streamed, *rest, **named)
            return _dump(await self._listen(events, plain))

        name = getattr(self.model, "model", None)
        name = name if isinstance(name, str) else type(self.model).__name__
        recorder = self.copies.recorder
        response = _load(await recorder.model(name, ask, usage=_usage))
        self.copies.note_calls(response)
        return response

    async def _listen(self, events: AsyncIterator[Any], plain: bool) -> Any:
        """Return the answer at the end of a stream, and let its text be heard.

        Raises:
            ModelBehaviorError: The stream ended without an answer.
        """
        items: list[Any] = []
        answer = None
        async for event in events:
            kind = getattr(event, "type", "")
            if kind == "response.output_text.delta" and plain:
                self.copies.recorder.hear(event.delta)
            elif kind == "response.output_item.done":
                items.append(event.item)
            elif isinstance(event, _responses.ResponseCompletedEvent):
                answer = event.response
            elif kind in _BROKEN:
                raise _sdk.ModelBehaviorError(f"The stream of the model ended with {kind}")
        if answer is None:
            raise _sdk.ModelBehaviorError("The stream of the model ended without an answer")
        return _sdk.ModelResponse(
            output=list(answer.output) or items,
            usage=_read_usage(answer.usage),
            response_id=answer.id,
        )

    def stream_response(self, *head: Any, **named: Any) -> AsyncIterator[Any]:
        """Stream as the model does: only code within a tool asks for that."""
        events: AsyncIterator[Any] = self.model.stream_response(*head, **named)
        return events

    def get_retry_advice(self, request: Any) -> Any:
        return self.model.get_retry_advice(request)


_RecordedProvider: Any = type("_RecordedProvider", (_Provider, _sdk.ModelProvider), {})
_RecordedModel: Any = type("_RecordedModel", (_Model, _sdk.Model), {})


def _read_usage(given: Any) -> Any:
    """Return the usage of a streamed answer; nothing where the provider did not say it."""
    if given is None:
        return _sdk.Usage(requests=1)
    return _sdk.Usage(
        requests=1,
        input_tokens=given.input_tokens,
        output_tokens=given.output_tokens,
        total_tokens=given.total_tokens,
        input_tokens_details=given.input_tokens_details,
        output_tokens_details=given.output_tokens_details,
    )


def _dump(response: Any) -> dict[str, Any]:
    return {
        "output": [item.model_dump(mode="json", exclude_unset=True) for item in response.output],
        "usage": _usages.serialize_usage(response.usage),
        "response_id": response.response_id,
    }


def _load(recorded: Mapping[str, Any]) -> Any:
    return _sdk.ModelResponse(
        output=_ITEMS.validate_python(recorded["output"]),
        usage=_usages.deserialize_usage(recorded["usage"]),
        response_id=recorded["response_id"],
    )


def _usage(recorded: Mapping[str, Any]) -> Usage:
    usage = _usages.deserialize_usage(recorded["usage"])
    read = usage.input_tokens_details
    return Usage(
        usage.input_tokens,
        usage.output_tokens,
        usage.output_tokens_details.reasoning_tokens or 0,
        read.cached_tokens or 0,
        getattr(read, "cache_write_tokens", 0) or 0,
    )


def _arguments(text: str) -> dict[str, Any]:
    """Return the arguments as an object; text that is none becomes the member `input`."""
    try:
        read: Any = json.loads(text) if text else {}
    except ValueError:
        read = text
    return {**read} if is_object(read) else {"input": read}


def _output(result: Any) -> Any:
    """Return what a tool gave as JSON that the SDK shows to the model as it would show `result`."""
    if is_array(result):
        shown = [_shown(one) for one in result]
        if shown and all(one is not None for one in shown):
            return shown
    elif (one := _shown(result)) is not None:
        return one
    return result if _is_json(result) else str(result)


def _shown(one: Any) -> Any:
    if isinstance(one, _SHOWN):
        return one.model_dump(mode="json", exclude_none=True)
    return None


def _is_json(value: Any) -> bool:
    """Return whether `value` is the same after it was written as JSON and read again."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return bool(json.loads(text) == value) and str(json.loads(text)) == str(value)


def _plain(answer: Any) -> Any:
    """Return the answer of the agent as JSON."""
    if answer is None or isinstance(answer, str):
        return answer or ""
    try:
        return _pydantic.TypeAdapter(type(answer)).dump_python(answer, mode="json")
    except (ValueError, TypeError):
        return str(answer)
