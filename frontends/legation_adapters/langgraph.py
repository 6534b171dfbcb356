"""Graphs of LangGraph, hosted as they are.

The nodes of a graph are wrapped once.  The outcome of a node, and in a `ToolNode` that of each
tool, is recorded before the graph goes on.  After a crash, or after a person decided, the graph
runs again from its start and is given what is recorded, so that no node and no tool that came to
its end runs again.  LangGraph's own checkpoints live in memory, for as long as one attempt takes.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from copy import copy
from typing import Any, ClassVar, Final
from uuid import uuid4

from attrs import define, field

from legation import Agent, ToolError
from legation.tools.accepted import is_array, is_object

from .frameworks import load
from .ids import make_id
from .recorder import Approval, Recorder, ToolFailed, Usage, host

__all__ = ["hosted"]

_EXTRA: Final = "langgraph"
_callbacks: Any = load("langchain_core.callbacks", _EXTRA)
_messages: Any = load("langchain_core.messages", _EXTRA)
_configs: Any = load("langchain_core.runnables.config", _EXTRA)
_memory: Any = load("langgraph.checkpoint.memory", _EXTRA)
_serde: Any = load("langgraph.checkpoint.serde.jsonplus", _EXTRA)
_errors: Any = load("langgraph.errors", _EXTRA)
_graphs: Any = load("langgraph.graph", _EXTRA)
_prebuilt: Any = load("langgraph.prebuilt", _EXTRA)
_pregel: Any = load("langgraph.pregel", _EXTRA)
_types: Any = load("langgraph.types", _EXTRA)
_runnables: Any = load("langgraph._internal._runnable", _EXTRA)  # nodes are made of its class
_pydantic: Any = load("pydantic", _EXTRA)

_MODELS_ONLY: Final = ("langgraph.prebuilt.", "langchain.agents.")
"""Modules whose own nodes do nothing but ask models: they may be executed again."""

_UNHEARD: Final = frozenset({"nostream", "langsmith:nostream"})
_REFUSED: Final = "A person did not agree that the graph goes on"
_UNSTORABLE: Final = (
    "The node {} returned what cannot be read again as it was: name its classes in"
    " hosted(types=[...])"
)
_ANY: Final = _pydantic.TypeAdapter(Any)


def hosted(  # noqa: PLR0913  every one but the graph is named at the call
    graph: Any,
    *,
    id: str | None = None,  # noqa: A002 - the name it has in `legation.Agent`
    name: str | None = None,
    given: Callable[[Recorder], Any] | None = None,
    answer: Callable[[Any], Any] | None = None,
    resume: Callable[[Any, Approval], Any] | None = None,
    context: Callable[[Recorder], Any] | None = None,
    config: Any = None,
    again: Collection[str] = (),
    idempotent: Collection[str] = (),
    heard: Collection[str] | None = None,
    types: Sequence[type] = (),
    **settings: Any,
) -> Agent:
    """Return an agent that a platform can serve.

    Args:
        graph: A graph, compiled or not.  Its checkpointer is not used.
        id: Of the served agent; made from the name if it is not given.
        name: Of the served agent; that of the graph if it is not given.
        given: Makes the input of the graph from the run; by default the messages of the session and
            the new one, as `messages`.
        answer: Makes the answer of the run from the output of the graph; by default the text of its
            last message, or its structured response, or all of it.
        resume: Makes what `interrupt` returns, from its value and the person's decision; by default
            the note, or else whether the person agreed.
        context: Makes the context of the graph's runtime from the run.
        config: Is merged into the configuration of every run.
        again: Names of nodes that may be executed again where a crash left it open whether they
            came to their end: those that only ask models and compute.
        idempotent: Names of tools that may be called again, likewise.
        heard: Names of the nodes whose text is streamed; None for all.
        types: Classes of your own that nodes return or that are part of it.
        settings: Further arguments of `legation.Agent`, such as `database`.
    """
    compiled = graph.compile() if isinstance(graph, _graphs.StateGraph) else graph
    title = name or compiled.get_name()
    hosting = _Hosting(
        given or _give,
        answer or _answer,
        resume or _resume,
        context,
        config or {},
        frozenset(again),
        frozenset(idempotent),
        None if heard is None else frozenset(heard),
        _serde.JsonPlusSerializer(allowed_msgpack_modules=[*types] or None),
    )
    hosting.saver = _memory.InMemorySaver()
    hosting.graph = hosting.wrap(compiled).copy({"checkpointer": hosting.saver})
    return Agent(
        id=id or make_id(title), name=title, run=host(hosting.run), again="safe", **settings
    )


def _give(recorder: Recorder) -> dict[str, Any]:
    """Return the messages of the session; their ids are the same in every attempt."""
    said = [*recorder.history, {"role": "user", "content": recorder.message}]
    messages = _messages.convert_to_messages(said)
    for index, message in enumerate(messages):
        message.id = f"{recorder.run_id}-{index}"
    return {"messages": messages}


def _answer(output: Any) -> Any:
    """Return the answer in the output of a graph, as JSON."""
    if is_object(output):
        if output.get("structured_response") is not None:
            return _plain(output["structured_response"])
        messages = output.get("messages")
        if messages and isinstance(messages[-1], _messages.BaseMessage):
            return str(messages[-1].text)
    return _plain(output)


def _plain(value: Any) -> Any:
    return _ANY.dump_python(value, mode="json", fallback=str)


def _resume(value: Any, approval: Approval) -> Any:
    """Return what `interrupt` returns."""
    return approval.confirmed if approval.note is None else approval.note


@define(eq=False)
class _Hosting:
    """A graph whose nodes are wrapped, and the settings of its runs."""

    give: Callable[[Recorder], Any]
    answer: Callable[[Any], Any]
    resume: Callable[[Any, Approval], Any]
    context: Callable[[Recorder], Any] | None
    config: Any
    again: frozenset[str]
    idempotent: frozenset[str]
    heard: frozenset[str] | None
    serializer: Any
    saver: Any = field(init=False)
    graph: Any = field(init=False)

    def wrap(self, graph: Any) -> Any:
        """Return a copy of `graph` whose nodes are recorded."""
        nodes = {
            name: node.copy({"bound": self._wrap_node(name, node.bound)})
            for name, node in graph.nodes.items()
            if name != _graphs.START
        }
        return graph.copy({"nodes": {**graph.nodes, **nodes}})

    def _wrap_node(self, name: str, bound: Any) -> Any:
        if isinstance(bound, _pregel.Pregel):
            return _within(name, self.wrap(bound))
        if isinstance(bound, _prebuilt.ToolNode) and hasattr(bound, "_arun_one"):
            return self._wrap_tools(name, bound)
        safe = name in self.again or _only_asks_models(bound)

        async def run(given: Any, config: Any) -> Any:
            attempt = _attempt.get()
            if attempt is None:
                return await bound.ainvoke(given, config)
            return await attempt.run_node(name, bound, given, config, safe=safe)

        return _node(name, run)

    def _wrap_tools(self, name: str, bound: Any) -> Any:
        made = copy(bound)

        async def run_one(call: Any, input_type: Any, runtime: Any) -> Any:
            attempt = _attempt.get()
            execute = bound._arun_one
            if attempt is None:
                return await execute(call, input_type, runtime)
            return await attempt.run_tool(call, lambda: execute(call, input_type, runtime))

        made._arun_one = run_one
        made.afunc = made._afunc

        async def run(given: Any, config: Any) -> Any:
            attempt = _attempt.get()
            if attempt is None:
                return await made.ainvoke(given, config)
            return await attempt.run_tools(name, made, given, config)

        return _node(name, run)

    async def run(self, recorder: Recorder) -> Any:
        """Run the graph for one message, to its answer."""
        attempt = _Attempt(recorder, self, asyncio.get_running_loop())
        thread = str(uuid4())  # Of the checkpoints in memory, which end with this attempt.
        config = _configs.merge_configs(self.config, {"configurable": {"thread_id": thread}})
        token = _attempt.set(attempt)
        try:
            return self.answer(await self._drive(attempt, config))
        finally:
            _attempt.reset(token)
            await attempt.close()
            self.saver.delete_thread(thread)

    async def _drive(self, attempt: _Attempt, config: Any) -> Any:
        recorder = attempt.recorder
        options = {} if self.context is None else {"context": self.context(recorder)}
        given: Any = self.give(recorder)
        stops = 0
        while True:
            output: Any = None
            modes = ["messages", "values"]  # The former makes models stream.
            async for mode, chunk in self.graph.astream(
                given, config, stream_mode=modes, **options
            ):
                if mode == "values":
                    output = chunk
            state = await self.graph.aget_state(config)
            if state.interrupts:
                given = _types.Command(resume=await attempt.ask_all(state.interrupts))
            elif state.next:
                stops += 1
                asked = ", ".join(state.next)
                approval = await attempt.decide(f"breakpoint {stops}", asked, {})
                if not approval.confirmed:
                    raise ToolError(approval.note or _REFUSED)
                given = None
            else:
                return output


def _within(name: str, graph: Any) -> Any:
    """Return a node that runs the graph `graph`; what it records is apart from other nodes'."""

    async def run(given: Any, config: Any) -> Any:
        token = _prefix.set(_place(name, config) + "/")
        try:
            return await graph.ainvoke(given, config)
        finally:
            _prefix.reset(token)

    return _node(name, run)


async def _invoke(bound: Any, given: Any, config: Any) -> Any:
    """Return the output of a node; models within it find `config` where LangChain looks for it."""
    with _configs.set_config_context(config) as context:
        return await asyncio.create_task(bound.ainvoke(given, config), context=context)


def _node(name: str, run: Callable[[Any, Any], Awaitable[Any]]) -> Any:
    """Return `run` as a node; LangGraph gives `config` to functions that annotate it so."""
    run.__annotations__["config"] = _configs.RunnableConfig
    return _runnables.RunnableCallable(None, run, name=name, trace=False)


def _only_asks_models(bound: Any) -> bool:
    function = getattr(bound, "afunc", None) or getattr(bound, "func", None)
    return str(getattr(function, "__module__", "")).startswith(_MODELS_ONLY)


def _place(name: str, config: Any) -> str:
    """Return where in the graph a node is executed: the same in every attempt."""
    metadata: Mapping[str, Any] = config.get("metadata") or {}
    path = [part for part in metadata.get("langgraph_path", ()) if isinstance(part, int)]
    number = "".join(f".{part}" for part in path if not isinstance(part, bool))
    return f"{_prefix.get()}{name} {metadata.get('langgraph_step', 0)}{number}"


_prefix: ContextVar[str] = ContextVar("legation_langgraph_prefix", default="")
_attempt: ContextVar[_Attempt | None] = ContextVar("legation_langgraph_attempt", default=None)


@define(eq=False)
class _Attempt:
    """An attempt at a run, from the start of the graph to its end or a pause.

    Attributes:
        times: How often what stands at a place was executed.
        asked: What was asked there of a person, in order.
        waiting: The id that an interrupt has for people, by its own.
        calls: The calls of tools, done and under way, by place: a node that is executed again after
            an interrupt finds them.
    """

    recorder: Recorder
    hosting: _Hosting
    loop: asyncio.AbstractEventLoop
    times: dict[str, int] = field(factory=dict[str, int])
    asked: dict[str, list[Any]] = field(factory=dict[str, list[Any]])
    waiting: dict[str, tuple[str, str]] = field(factory=dict[str, tuple[str, str]])
    calls: dict[str, asyncio.Task[Any]] = field(factory=dict[str, "asyncio.Task[Any]"])
    tasks: set[asyncio.Task[Any]] = field(factory=set["asyncio.Task[Any]"])

    async def close(self) -> None:
        """End what a node left behind."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def count(self, place: str) -> str:
        """Return the id of this execution of what stands at `place`."""
        times = self.times[place] = self.times.get(place, 0) + 1
        return place if times == 1 else f"{place}.{times}"

    async def run_node(self, name: str, bound: Any, given: Any, config: Any, *, safe: bool) -> Any:
        """Return the outcome of a node, recorded or new."""
        place = _place(name, config)
        execution = self.count(place)
        heard = self.hosting.heard
        listener = _Listener(self, heard is None or name in heard)
        config = _configs.merge_configs(config, {"callbacks": [listener]})
        live = _Live()

        async def call() -> Any:
            outcome = await self._settle(
                execution, name, live, lambda: _invoke(bound, given, config)
            )
            return {**outcome, "usage": listener.sum()}

        if safe:
            outcome = await self.recorder.model(name, call, usage=_usage, key=execution)
        else:
            try:
                outcome = await self.recorder.tool(execution, name, {}, call)
            except ToolFailed:
                if live.error is not None:
                    raise live.error from None
                raise
            if not _is_outcome(outcome):  # A person said it, of a call in doubt.
                words = {"messages": [_messages.AIMessage(_text(outcome))]}
                return outcome if is_object(outcome) else words
            await self._count_usage(execution, outcome["usage"])
        return self._unpack(place, execution, name, live, outcome)

    async def run_tools(self, name: str, bound: Any, given: Any, config: Any) -> Any:
        """Return the outcome of a `ToolNode`; its calls are recorded one by one."""
        place = _place(name, config)
        listener = _Listener(self, False)
        token = _prefix.set(place + " ")
        try:
            outcome = await bound.ainvoke(
                given, _configs.merge_configs(config, {"callbacks": [listener]})
            )
        finally:
            _prefix.reset(token)
        await self._count_usage(place, listener.sum())
        return outcome

    async def run_tool(self, call: Mapping[str, Any], execute: Callable[[], Awaitable[Any]]) -> Any:
        """Return the outcome of a tool's call, recorded, under way or new."""
        place = f"{_prefix.get()}{call.get('id')}"
        task = self.calls.get(place)
        if task is None or _was_interrupted(task):
            task = asyncio.create_task(self._record_tool(place, call, execute))
            self.calls[place] = task
            self.tasks.add(task)
        return await asyncio.shield(task)

    async def _record_tool(
        self, place: str, call: Mapping[str, Any], execute: Callable[[], Awaitable[Any]]
    ) -> Any:
        live, name = _Live(), call["name"]
        execution = self.count(str(call.get("id") or place))

        async def run() -> Any:
            outcome = await self._settle(execution, name, live, execute)
            return outcome if isinstance(live.value, _types.Command) else _shorten(live, outcome)

        idempotent = name in self.hosting.idempotent
        try:
            outcome = await self.recorder.tool(
                execution, name, dict(call["args"]), run, idempotent=idempotent
            )
        except ToolFailed:
            if live.error is not None:
                raise live.error from None
            raise
        if not live.known and not _is_outcome(outcome):
            known = {"name": name, "tool_call_id": call.get("id"), "id": f"{execution} result"}
            return _messages.ToolMessage(_text(outcome), **known)
        return self._unpack(place, execution, name, live, outcome)

    async def _settle(
        self, execution: str, name: str, live: _Live, execute: Callable[[], Awaitable[Any]]
    ) -> dict[str, Any]:
        """Execute, and return the outcome as JSON; an interrupt is an outcome too."""
        try:
            live.value = await execute()
        except _errors.GraphInterrupt as error:
            live.bubble = error
            asked = [_plain(one.value) for one in error.args[0]]
            return {"interrupts": asked}
        except _errors.ParentCommand as error:
            live.bubble = error
            return {"parent": self._encode(error.args[0], name)}
        except _errors.GraphBubbleUp:
            raise
        except Exception as error:
            live.error = error
            raise ToolFailed(str(error) or type(error).__name__) from error
        _name_messages(live.value, execution)
        try:
            output = self._encode(live.value, name)
        except ToolError as error:
            live.error = error
            raise
        live.known, live.value = True, self._decode(output)  # as it is after a crash
        return {"output": output}

    def _unpack(
        self, place: str, execution: str, name: str, live: _Live, outcome: Mapping[str, Any]
    ) -> Any:
        """Return the output in an outcome, or raise what a node raises that interrupts."""
        if "interrupts" in outcome:
            before = self.asked.setdefault(place, [])
            new = outcome["interrupts"]
            try:
                if live.bubble is not None:
                    raise live.bubble
                for value in [*before, *new]:
                    _types.interrupt(value)  # Gives what was answered, and raises at the last.
            except _errors.GraphInterrupt as error:
                for index, one in enumerate(error.args[0]):
                    self.waiting[one.id] = (f"{execution} asks {index + 1}", name)
                raise
            finally:
                before += new
        if "parent" in outcome:
            raise live.bubble or _errors.ParentCommand(self._decode(outcome["parent"]))
        return live.value if live.known else self._decode(outcome["output"])

    async def ask_all(self, interrupts: Iterable[Any]) -> dict[str, Any]:
        """Return what people decided about interrupts, by their ids."""
        waiting = {one.id: self.ask(one) for one in interrupts}
        return dict(zip(waiting, await asyncio.gather(*waiting.values()), strict=True))

    async def ask(self, one: Any) -> Any:
        """Return what a person decided about an interrupt, as the node is to have it."""
        call_id, name = self.waiting.get(one.id, (one.id, "interrupt"))
        value = _plain(one.value)
        if is_object(value) and is_array(value.get("action_requests")):
            asked = (
                self._decide_action(f"{call_id}.{index + 1}", request)
                for index, request in enumerate(value["action_requests"])
            )
            return {"decisions": await asyncio.gather(*asked)}
        arguments = {**value} if is_object(value) else {"value": value}
        return self.hosting.resume(one.value, await self.decide(call_id, name, arguments))

    async def _decide_action(self, call_id: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return a decision as LangChain's middleware for approvals has it."""
        name, arguments = str(request.get("name")), dict(request.get("args") or {})
        approval = await self.decide(call_id, name, arguments)
        if approval.confirmed:
            return {"type": "approve"}
        return {"type": "reject", "message": approval.note or _REFUSED}

    async def decide(self, call_id: str, name: str, arguments: dict[str, Any]) -> Approval:
        """Return what a person decided; the question is shown as a call, which ends with that."""
        approval = await self.recorder.approve(call_id, name, arguments, idempotent=True)
        if approval.confirmed:

            async def end() -> Any:
                return approval.note or "confirmed"

            await self.recorder.tool(call_id, name, arguments, end, idempotent=True)
        return approval

    async def _count_usage(self, execution: str, usage: Mapping[str, Any]) -> None:
        """Count what a node's models cost, where the node itself is no request to a model."""
        if not usage["model"]:
            return

        async def known() -> Any:
            return {"usage": usage}

        key = f"{execution} usage"
        await self.recorder.model(usage["model"], known, usage=_usage, key=key)

    def _encode(self, value: Any, name: str) -> dict[str, Any]:
        """Return `value` as JSON that `_decode` reads.

        Raises:
            ToolError: It could not be read again.
        """
        if _is_json(value):
            return {"json": value}
        serializer = self.hosting.serializer
        try:
            kind, content = serializer.dumps_typed(value)
        except TypeError:
            raise ToolError(_UNSTORABLE.format(name)) from None
        if not _same(serializer.loads_typed((kind, content)), _list(value)):
            raise ToolError(_UNSTORABLE.format(name))
        return {"type": kind, "content": b64encode(content).decode()}

    def _decode(self, recorded: Mapping[str, Any]) -> Any:
        if "json" in recorded:
            return recorded["json"]
        content = b64decode(recorded["content"])
        return self.hosting.serializer.loads_typed((recorded["type"], content))


@define(eq=False)
class _Live:
    """The outcome of an execution that took place in this attempt."""

    known: bool = False
    value: Any = None
    bubble: Any = None
    error: Exception | None = None


def _is_outcome(recorded: Any) -> bool:
    """Return whether it is what `_settle` gives, and not a text, nor what a person said."""
    kinds = {"interrupts", "parent", "output"}
    return is_object(recorded) and len(kinds & recorded.keys()) == 1


def _text(recorded: Any) -> str:
    return recorded if isinstance(recorded, str) else json.dumps(recorded)


def _was_interrupted(task: asyncio.Task[Any]) -> bool:
    return (
        task.done() and not task.cancelled() and isinstance(task.exception(), _errors.GraphBubbleUp)
    )


def _shorten(live: _Live, outcome: dict[str, Any]) -> Any:
    """Return a message of a tool as its text, where it is nothing else: people read it."""
    said = live.value
    plain = (
        isinstance(said, _messages.ToolMessage)
        and isinstance(said.content, str)
        and said.status == "success"
        and said.artifact is None
        and not said.additional_kwargs
        and not said.response_metadata
    )
    return said.content if plain else outcome


def _name_messages(output: Any, execution: str) -> None:
    """Give messages without an id one that is the same in every attempt."""
    parts: Iterable[Any] = output.values() if is_object(output) else [output]
    index = 0
    for part in parts:
        for one in part if is_array(part) else [part]:
            if isinstance(one, _messages.BaseMessage) and one.id is None:
                one.id = f"{execution} result" if index == 0 else f"{execution} result {index}"
                index += 1


def _is_json(value: Any) -> bool:
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    read = json.loads(text)
    return type(read) is type(value) and repr(read) == repr(value)


def _list(value: Any) -> Any:
    """Return `value` with lists for tuples: as such they are read again."""
    if is_array(value):
        return [_list(one) for one in value]
    return {key: _list(one) for key, one in value.items()} if is_object(value) else value


def _same(read: Any, value: Any) -> bool:
    try:
        return bool(read == value)
    except ValueError:  # Arrays compare by element.
        return type(read) is type(value)


@define(eq=False)
class _Listening:
    """Hears what the models in a node say, and counts what they cost."""

    attempt: _Attempt
    heard: bool
    model: str = ""
    usage: Usage = field(factory=Usage)
    run_inline: ClassVar[bool] = True

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, **named: Any) -> None:
        """Let a piece of text be heard, in the order in which it came."""
        message: Any = getattr(chunk, "message", None)
        text = token if isinstance(token, str) else ""
        text = str(message.text) if isinstance(message, _messages.BaseMessage) else text
        if not text or not self.heard or not _UNHEARD.isdisjoint(named.get("tags") or ()):
            return
        hear = self.attempt.recorder.hear
        try:
            inside = asyncio.get_running_loop() is self.attempt.loop
        except RuntimeError:
            inside = False
        if inside:
            hear(text)
        else:
            self.attempt.loop.call_soon_threadsafe(hear, text)

    def on_llm_end(self, response: Any, **named: Any) -> None:
        """Count the usage of an answer."""
        for one in (one for some in response.generations for one in some):
            message: Any = getattr(one, "message", None)
            if not isinstance(message, _messages.AIMessage):
                continue
            self.model = str(message.response_metadata.get("model_name") or self.model or "model")
            if message.usage_metadata is not None:
                self.usage = self.usage.plus(_read_usage(message.usage_metadata))

    def sum(self) -> dict[str, Any]:
        """Return the usage of all answers as JSON; the model is empty if there was none."""
        usage = self.usage
        return {
            "model": self.model,
            "input": usage.input_tokens,
            "output": usage.output_tokens,
            "reasoning": usage.reasoning_tokens,
            "cache_read": usage.cache_read_tokens,
            "cache_write": usage.cache_write_tokens,
        }


_Listener: Any = type("_Listener", (_Listening, _callbacks.BaseCallbackHandler), {})


def _read_usage(given: Mapping[str, Any]) -> Usage:
    came: Mapping[str, Any] = given.get("input_token_details") or {}
    went: Mapping[str, Any] = given.get("output_token_details") or {}
    return Usage(
        given["input_tokens"],
        given["output_tokens"],
        went.get("reasoning") or 0,
        came.get("cache_read") or 0,
        came.get("cache_creation") or 0,
    )


def _usage(recorded: Mapping[str, Any]) -> Usage:
    kept = recorded["usage"]
    return Usage(
        kept["input"], kept["output"], kept["reasoning"], kept["cache_read"], kept["cache_write"]
    )
