"""Calls of tools as agno makes them, as recorded steps of a run.

What a tool returned is recorded as agno would give it to the model, with what it changed in the
state of the session and what it said of how the run goes on.  A call that is recorded is not made
again.

The delegation of a task to a member of a team is a call as well, but what it calls are steps
themselves: it is always made, so that agno learns what the member did.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from copy import copy
from typing import Any, Final, get_args

from .agno_steps import PATH, Flow, Steps, plain
from .frameworks import load
from .recorder import Asked, ToolFailed

__all__ = ["call_tool", "find_unhosted", "take_gate"]

_exceptions: Any = load("agno.exceptions", "agno")
_functions: Any = load("agno.tools.function", "agno")
_messages: Any = load("agno.models.message", "agno")
_runs: Any = load("agno.run.agent", "agno")
_team_runs: Any = load("agno.run.team", "agno")
_timers: Any = load("agno.utils.timer", "agno")

_DELEGATES: Final = ("delegate_task_to_member", "delegate_task_to_members")
_MEDIA: Final = ("images", "videos", "audios", "files")
_CONTENT: Final = (_runs.RunContentEvent, _team_runs.RunContentEvent)
_EVENTS: Final = (*get_args(_runs.RunOutputEvent), *get_args(_team_runs.TeamRunOutputEvent))
_ASKS: Final = ("get_user_input", "ask_user")
"""Tools of agno that a model calls to ask the user something."""
_UNHOSTED: Final = "{} waits for input of the user, which a hosted agent cannot have"
_REJECTED: Final = "Function call was rejected by the user"


def find_unhosted(tools: Iterable[Any]) -> str | None:
    """Return the first of `tools` that waits for what no client can bring, or None."""
    for tool in tools:
        own: dict[str, Any] = getattr(tool, "functions", {})
        others: dict[str, Any] = getattr(tool, "async_functions", {})
        for function in (*own.values(), *others.values()) or (tool,):
            if getattr(function, "requires_user_input", None):
                return str(getattr(function, "name", function))
    return None


def take_gate(call: Any) -> str | None:
    """Return what a call waits for: `answer`, `execute` or `confirm`; or None.

    The function of the call no longer says it, so that agno goes on to the call.
    """
    function = call.function
    needs = {
        "answer": function.requires_user_input or function.name in _ASKS,
        "execute": function.external_execution,
        "confirm": function.requires_confirmation,
    }
    gate = next((name for name, needed in needs.items() if needed), None)
    if gate is not None:
        call.function = copy(function)
        for flag in ("external_execution", "requires_user_input", "requires_confirmation"):
            setattr(call.function, flag, None)
    return gate


async def call_tool(steps: Steps, call: Any, run: Callable[[Any], Awaitable[Any]]) -> Any:
    """Make a call by `run`, unless it is recorded; return what `arun_function_call` returns."""
    timer = _timers.Timer()
    timer.start()
    try:
        return await _call_tool(steps, timer, call, run)
    except ToolFailed as error:
        call.error = str(error)
        failed = _functions.FunctionExecutionResult(status="failure", error=call.error)
        return False, timer, call, failed
    finally:
        timer.stop()


async def _call_tool(
    steps: Steps, timer: Any, call: Any, run: Callable[[Any], Awaitable[Any]]
) -> Any:
    name, arguments = call.function.name, plain(call.arguments or {})
    member = call.function._agent or call.function._team  # agno's only names
    call_id = steps.name_call(getattr(member, "id", None) or "", call.call_id)
    gate = steps.gates.pop(id(call), None)
    if gate == "answer":
        raise ToolFailed(_UNHOSTED.format(name))
    if gate is not None:
        asked = Asked(call_id, name, arguments, external=gate == "execute")
        (approval,) = await steps.recorder.approve_all([asked])
        if not approval.confirmed:
            raise ToolFailed(approval.note or _REJECTED)
        if asked.external:
            return _restore(approval.result, timer, call)
    if _delegates(call):
        _, _, _, result = await run(call)
        call.result = _delegate(steps, call_id, call, call.result)
        return True, timer, call, result
    made = await steps.recorder.tool(call_id, name, arguments, lambda: _run(call, run))
    return _restore(made, timer, call)


def _delegates(call: Any) -> bool:
    entrypoint = call.function.entrypoint
    module = getattr(entrypoint, "__module__", None)
    return module == "agno.team._default_tools" and call.function.name in _DELEGATES


async def _delegate(steps: Steps, call_id: str, call: Any, source: Any) -> AsyncGenerator[Any]:
    """Yield what a member says, while the delegation is a step that is under way."""
    flow, made = Flow(steps), False

    async def follow() -> Any:
        nonlocal made
        made = True
        texts: list[str] = []
        async with aclosing(source) as items:
            async for item in items:
                texts.append(_read_text(item))
                await flow.put(item)
        return "".join(texts)

    async def step() -> Any:
        PATH.set((*PATH.get(), call_id))
        name, arguments = call.function.name, plain(call.arguments or {})
        await steps.recorder.tool(call_id, name, arguments, follow, idempotent=True)
        if not made:
            await follow()

    async with aclosing(flow.take(step)) as items:
        async for item in items:
            yield item


async def _run(call: Any, run: Callable[[Any], Awaitable[Any]]) -> Any:
    """Make a call; return its outcome as it is recorded: its text, and what else it did."""
    state = _state_of(call)
    before = {name: json.dumps(plain(value)) for name, value in state.items()}
    success, _, made, result = await run(call)
    outcome: dict[str, Any] = {}
    if isinstance(success, _exceptions.AgentRunException):
        outcome["control"] = _encode_control(success)
    elif not success:
        raise ToolFailed(made.error or result.error or "")
    else:
        outcome["output"] = await _read_result(made.result)
        if isinstance(made.result, _functions.ToolResult):
            media = {name: plain(getattr(made.result, name)) for name in _MEDIA}
            outcome["media"] = {name: items for name, items in media.items() if items}
    after = {name: json.dumps(plain(value)) for name, value in state.items()}
    if after != before:
        outcome["state"] = {
            name: json.loads(text) for name, text in after.items() if before.get(name) != text
        }
        outcome["removed"] = [name for name in before if name not in after]
    return outcome["output"] if list(outcome) == ["output"] else outcome


def _restore(made: Any, timer: Any, call: Any) -> Any:
    """Return a recorded outcome as agno's; what it changed in the state is changed.

    A person may have said what came of a call in doubt: that is its text.
    """
    members: Any = made
    ours = isinstance(made, dict) and ("output" in members or "control" in members)
    outcome: dict[str, Any] = members if ours else {"output": _read_text(made)}
    state = _state_of(call)
    state.update(outcome.get("state", {}))
    for name in outcome.get("removed", ()):
        state.pop(name, None)
    if "control" in outcome:
        error = _decode_control(outcome["control"])
        call.error = str(error)
        return (
            error,
            timer,
            call,
            _functions.FunctionExecutionResult(status="failure", error=call.error),
        )
    call.result = outcome["output"]
    if media := outcome.get("media"):
        call.result = _functions.ToolResult(content=outcome["output"], **media)
    context = call.function._run_context  # agno's only name
    result = _functions.FunctionExecutionResult(
        status="success",
        result=call.result,
        updated_session_state=context.session_state if context else None,
    )
    return True, timer, call, result


def _state_of(call: Any) -> dict[str, Any]:
    context = call.function._run_context  # agno's only name
    return {} if context is None or context.session_state is None else context.session_state


async def _read_result(result: Any) -> str:
    """Return what a tool returned as the text that agno gives to the model."""
    if isinstance(result, _functions.ToolResult):
        return str(result.content)
    if inspect.isasyncgen(result):
        return "".join([_read_text(item) async for item in result])
    if inspect.isgenerator(result):
        return "".join([_read_text(item) for item in result])
    return str(result)


def _read_text(item: Any) -> str:
    """Return what an item of a generator adds to the result of its tool."""
    if isinstance(item, _CONTENT):
        content = item.content
        made = getattr(content, "model_dump_json", None)
        return str(content or "") if made is None else str(made())
    if isinstance(item, _runs.CustomEvent) or not isinstance(item, _EVENTS):
        return str(item)
    return ""


def _encode_control(error: Any) -> Any:
    """Return as JSON what a tool raised to say how the run goes on."""
    return {
        "text": str(error),
        "stop": error.stop_execution,
        "user_message": plain(error.user_message),
        "agent_message": plain(error.agent_message),
        "messages": plain(error.messages),
    }


def _decode_control(made: Any) -> Any:
    return _exceptions.AgentRunException(
        made["text"],
        user_message=_decode_message(made["user_message"]),
        agent_message=_decode_message(made["agent_message"]),
        messages=[_decode_message(one) for one in made["messages"] or ()],
        stop_execution=made["stop"],
    )


def _decode_message(made: Any) -> Any:
    members: Any = made
    return _messages.Message.from_dict(dict(members)) if isinstance(made, dict) else made
