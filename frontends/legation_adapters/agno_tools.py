"""Calls of tools as agno makes them, as recorded steps of a run.

What a tool returned is recorded as agno would give it to the model, with what it changed in the state of
the session and what it said of how the run goes on.  A call that is recorded is not made again.

The delegation of a task to a member of a team is a call as well, but what it calls are steps themselves: it
is always made, so that agno learns what the member did.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from copy import copy
from typing import Any, Final, get_args

from agno.exceptions import AgentRunException
from agno.models.message import Message
from agno.run.agent import CustomEvent, RunContentEvent, RunOutputEvent
from agno.run.team import RunContentEvent as TeamRunContentEvent
from agno.run.team import TeamRunOutputEvent
from agno.tools.function import FunctionExecutionResult, ToolResult
from agno.utils.timer import Timer
from pydantic import BaseModel

from .agno_steps import PATH, Flow, Steps, plain
from .recorder import ToolFailed

__all__ = ["call_tool", "take_gate"]

_DELEGATES: Final = ("delegate_task_to_member", "delegate_task_to_members")
_MEDIA: Final = ("images", "videos", "audios", "files")
_EVENTS: Final = (*get_args(RunOutputEvent), *get_args(TeamRunOutputEvent))
_ASKS: Final = ("get_user_input", "ask_user")
"""Tools of agno that a model calls to ask the user something."""
_REJECTED: Final = "Function call was rejected by the user"


def take_gate(call: Any) -> str | None:
    """Return what a person has to do before `call`: confirm, answer or execute; or None.

    The function of the call no longer says it, so that agno goes on to the call.
    """
    function = call.function
    gates = {
        "execute": function.external_execution,
        "answer": function.requires_user_input or function.name in _ASKS,
        "confirm": function.requires_confirmation,
    }
    gate = next((name for name, needed in gates.items() if needed), None)
    if gate is not None:
        call.function = copy(function)
        for flag in ("external_execution", "requires_user_input", "requires_confirmation"):
            setattr(call.function, flag, None)
    return gate


async def call_tool(steps: Steps, call: Any, run: Callable[[Any], Awaitable[Any]]) -> Any:
    """Make a call by `run`, unless it is recorded; return what `arun_function_call` of agno does."""
    timer = Timer()
    timer.start()
    name, arguments = call.function.name, plain(call.arguments or {})
    member = call.function._agent or call.function._team  # noqa: SLF001  agno's only name for it
    call_id = steps.name_call(getattr(member, "id", None) or "", call.call_id)
    try:
        if (gate := steps.gates.pop(id(call), None)) is not None:
            approval = await steps.take(lambda: steps.recorder.approve(call_id, name, arguments))
            if not approval.confirmed:
                raise ToolFailed(approval.note or _REJECTED)
        if _delegates(call):
            _, _, _, result = await run(call)
            call.result = _delegate(steps, call_id, call, call.result)
            return True, timer, call, result
        outcome = await steps.take(
            lambda: steps.recorder.tool(call_id, name, arguments, lambda: _run(call, run))
        )
    except ToolFailed as error:
        call.error = str(error)
        return False, timer, call, FunctionExecutionResult(status="failure", error=call.error)
    finally:
        timer.stop()
    return _restore(outcome, timer, call)


def _delegates(call: Any) -> bool:
    entrypoint = call.function.entrypoint
    module = getattr(entrypoint, "__module__", None)
    return module == "agno.team._default_tools" and call.function.name in _DELEGATES


async def _delegate(steps: Steps, call_id: str, call: Any, source: Any) -> AsyncIterator[Any]:
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
        return {"output": "".join(texts)}

    async def step() -> Any:
        PATH.set((*PATH.get(), call_id))
        name, arguments = call.function.name, plain(call.arguments or {})
        await steps.recorder.tool(call_id, name, arguments, follow, idempotent=True)
        if not made:
            await follow()

    async with aclosing(flow.take(lambda: steps.take(step, whole=False))) as items:
        async for item in items:
            yield item


async def _run(call: Any, run: Callable[[Any], Awaitable[Any]]) -> Any:
    """Make a call of agno's; return its outcome as it is recorded."""
    state = _state_of(call)
    before = {name: json.dumps(plain(value)) for name, value in state.items()}
    success, _, made, result = await run(call)
    outcome: dict[str, Any] = {}
    if isinstance(success, AgentRunException):
        outcome["control"] = _encode_control(success)
    elif not success:
        raise ToolFailed(made.error or result.error or "")
    else:
        outcome["output"] = await _read_result(made.result)
        if isinstance(made.result, ToolResult):
            media = {name: plain(getattr(made.result, name)) for name in _MEDIA}
            outcome["media"] = {name: items for name, items in media.items() if items}
    after = {name: json.dumps(plain(value)) for name, value in state.items()}
    if after != before:
        outcome["state"] = {
            name: json.loads(text) for name, text in after.items() if before.get(name) != text
        }
        outcome["removed"] = [name for name in before if name not in after]
    return outcome


def _restore(outcome: Any, timer: Any, call: Any) -> Any:
    """Return a recorded outcome as agno's; what it changed in the state is changed."""
    state = _state_of(call)
    state.update(outcome.get("state", {}))
    for name in outcome.get("removed", ()):
        state.pop(name, None)
    if "control" in outcome:
        error = _decode_control(outcome["control"])
        call.error = str(error)
        return error, timer, call, FunctionExecutionResult(status="failure", error=call.error)
    call.result = outcome["output"]
    if media := outcome.get("media"):
        call.result = ToolResult(content=outcome["output"], **media)
    context = call.function._run_context  # noqa: SLF001  agno has no other name for it
    result = FunctionExecutionResult(
        status="success",
        result=call.result,
        updated_session_state=context.session_state if context else None,
    )
    return True, timer, call, result


def _state_of(call: Any) -> dict[str, Any]:
    context = call.function._run_context  # noqa: SLF001  agno has no other name for it
    return {} if context is None or context.session_state is None else context.session_state


async def _read_result(result: Any) -> str:
    """Return what a tool returned as the text that agno gives to the model."""
    if isinstance(result, ToolResult):
        return result.content
    if inspect.isasyncgen(result):
        return "".join([_read_text(item) async for item in result])
    if inspect.isgenerator(result):
        return "".join([_read_text(item) for item in result])
    return str(result)


def _read_text(item: Any) -> str:
    """Return what an item of a generator adds to the result of its tool."""
    if isinstance(item, RunContentEvent | TeamRunContentEvent):
        content = item.content
        return content.model_dump_json() if isinstance(content, BaseModel) else str(content or "")
    if isinstance(item, CustomEvent) or not isinstance(item, _EVENTS):
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
    return AgentRunException(
        made["text"],
        user_message=_decode_message(made["user_message"]),
        agent_message=_decode_message(made["agent_message"]),
        messages=[_decode_message(one) for one in made["messages"] or ()],
        stop_execution=made["stop"],
    )


def _decode_message(made: Any) -> Any:
    return Message.from_dict(dict(made)) if isinstance(made, dict) else made
