"""A catalogue of what models do wrong, each by its name: an answer, and what becomes of it.

A fault takes the answer that the model gave and returns another, or the failure to give one.  It
returns None where it does not apply, as a lost argument of an answer without a call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from attrs import evolve, frozen

from legation.http.messages import compact_json
from legation.models.conversation import ModelFailed, Prompt, Reply, ToolCall
from legation.tools.accepted import is_object

from ..misuse import Misuse

__all__ = ["MODEL_FAULTS", "ModelFault", "choose_faults"]

Change: TypeAlias = Callable[[Prompt, Reply], Reply | ModelFailed | None]

_MANY_CALLS: Final = 20
_LONG: Final = 200_000  # characters
_SILENT_SECONDS: Final = 120.0
_STRANGE: Final = "\0\ud800\u202e\x1b[31m\ufffe"  # NUL, half of a pair, bidi, ANSI, no character


@frozen
class ModelFault:
    """One thing that models do wrong.

    Attributes:
        name: By which `models=` of `storm` names it.
        summary: In a few words.
        change: What becomes of an answer.
        wants_more: It asks for calls that the model did not ask for.
        lasts: It comes again with each further answer of the test.
        hears_half: Half of the text is heard before the failure.
        seconds: How long the model is silent before.
    """

    name: str
    summary: str
    change: Change
    wants_more: bool = False
    lasts: bool = False
    hears_half: bool = False
    seconds: float = 0.0


def choose_faults(names: Iterable[str]) -> tuple[ModelFault, ...]:
    """Return the faults of these names: `all`, or each one's own.

    Raises:
        Misuse: There is none of such a name.
    """
    named = (names,) if isinstance(names, str) else tuple(names)
    if named == ("all",):
        return tuple(MODEL_FAULTS.values())
    for name in named:
        if name not in MODEL_FAULTS:
            known = ", ".join(MODEL_FAULTS)
            raise Misuse(f"storm: models do nothing wrong by the name {name!r}; there are: {known}")
    return tuple(MODEL_FAULTS[name] for name in named)


# Calls


def _find_call(prompt: Prompt, reply: Reply) -> ToolCall | None:
    """Return a call of the answer, else one from before, else one of the first tool."""
    said = (call for message in reversed(prompt.messages) for call in reversed(message.calls))
    earlier = next(said, None)
    offered = next((ToolCall("", tool.name, "{}") for tool in prompt.tools), None)
    return reply.calls[-1] if reply.calls else earlier or offered


def _change_calls(change: Callable[[Prompt, ToolCall], ToolCall | None]) -> Change:
    """Return a change of the last call of an answer."""

    def apply(prompt: Prompt, reply: Reply) -> Reply | None:
        changed = change(prompt, reply.calls[-1]) if reply.calls else None
        if changed is None:
            return None
        return evolve(reply, calls=(*reply.calls[:-1], changed))

    return apply


def _change_arguments(change: Callable[[Prompt, str, dict[str, Any]], Any]) -> Change:
    """Return a change of the arguments of the last call; None of them applies to no other."""

    def apply(prompt: Prompt, call: ToolCall) -> ToolCall | None:
        arguments = json.loads(call.arguments)
        changed = change(prompt, call.name, dict(arguments)) if is_object(arguments) else None
        return None if changed is None else evolve(call, arguments=compact_json(changed))

    return _change_calls(apply)


def _call_unknown(prompt: Prompt, reply: Reply) -> Reply:
    return evolve(reply, calls=(ToolCall("", "no_such_tool", "{}"),))


def _cut_arguments(_: Prompt, call: ToolCall) -> ToolCall:
    return evolve(call, arguments=call.arguments[: len(call.arguments) // 2])


def _lose_argument(prompt: Prompt, name: str, arguments: dict[str, Any]) -> Any:
    schemas = (tool.parameters for tool in prompt.tools if tool.name == name)
    required: Any = next(schemas, dict[str, Any]()).get("required", ())
    lost = next((one for one in required if one in arguments), None)
    return None if lost is None else {n: v for n, v in arguments.items() if n != lost}


def _break_types(_: Prompt, __: str, arguments: dict[str, Any]) -> Any:
    return {name: {"value": [None]} for name in arguments} or None


def _repeat(times: int, **changes: str) -> Change:
    """Return a change that has the last call of an answer made `times` more."""

    def apply(prompt: Prompt, reply: Reply) -> Reply | None:
        if not reply.calls:
            return None
        again = (evolve(reply.calls[-1], **changes),) * times
        return evolve(reply, calls=(*reply.calls, *again))

    return apply


def _never_stop(prompt: Prompt, reply: Reply) -> Reply | None:
    call = _find_call(prompt, reply)
    return None if call is None else evolve(reply, calls=(evolve(call, id=""),))


def _call_behind_answer(prompt: Prompt, reply: Reply) -> Reply | None:
    call = _find_call(prompt, reply)
    if reply.calls or call is None:
        return None
    return evolve(reply, calls=(evolve(call, id=""),))


# Texts


def _empty(_: Prompt, reply: Reply) -> Reply:
    return evolve(reply, content="", calls=(), reasoning="")


def _grow(_: Prompt, reply: Reply) -> Reply | None:
    return None if reply.calls else evolve(reply, content="and on " * (_LONG // 7))


def _write_strangely(_: Prompt, reply: Reply) -> Reply | None:
    return None if reply.calls else evolve(reply, content=_STRANGE + reply.content + _STRANGE)


def _shape(text: str) -> Change:
    """Return a change of the text where the answer has a shape."""

    def apply(prompt: Prompt, reply: Reply) -> Reply | None:
        shaped = prompt.output_schema is not None and not reply.calls
        return evolve(reply, content=text) if shaped else None

    return apply


def _fail(reason: str, sentence: str) -> Change:
    return lambda _, __: ModelFailed(reason, sentence)


MODEL_FAULTS: Final[Mapping[str, ModelFault]] = {
    fault.name: fault
    for fault in (
        ModelFault("unknown_tool", "calls a tool that there is not", _call_unknown),
        ModelFault("arguments_cut", "gives arguments that are no JSON",
                   _change_calls(_cut_arguments)),
        ModelFault("arguments_list", "gives a list of arguments",
                   _change_calls(lambda _, call: evolve(call, arguments="[1, 2]"))),
        ModelFault("argument_missing", "leaves out a required argument",
                   _change_arguments(_lose_argument)),
        ModelFault("argument_unknown", "adds an argument that there is not",
                   _change_arguments(lambda _, __, given: {**given, "unexpected": True})),
        ModelFault("argument_types", "gives arguments of another type",
                   _change_arguments(_break_types)),
        ModelFault("no_call_id", "gives a call no id",
                   _change_calls(lambda _, call: evolve(call, id=""))),
        ModelFault("same_call_twice", "wants the same call twice in one answer",
                   _repeat(1, id=""), wants_more=True),
        ModelFault("same_id_twice", "gives two calls the same id", _repeat(1), wants_more=True),
        ModelFault("many_calls", f"wants the same call {_MANY_CALLS} times more",
                   _repeat(_MANY_CALLS, id=""), wants_more=True),
        ModelFault("call_after_answer", "answers, and calls a tool once more",
                   _call_behind_answer, wants_more=True),
        ModelFault("never_stops", "calls a tool with each further answer",
                   _never_stop, wants_more=True, lasts=True),
        ModelFault("empty_answer", "answers with nothing", _empty),
        ModelFault("long_answer", f"answers with {_LONG:,} characters", _grow),
        ModelFault("strange_text", "answers with characters that no text should have",
                   _write_strangely),
        ModelFault("wrong_shape", "answers with JSON of another shape",
                   _shape('{"unexpected": [true]}')),
        ModelFault("no_json", "answers with plain text in place of JSON",
                   _shape("Here you are: it is all done.")),
        ModelFault("cut_stream", "breaks off in the middle of its answer",
                   _fail("broken", "The answer of the model broke off"), hears_half=True),
        ModelFault("truncated", "comes to its limit of tokens",
                   _fail("truncated", "The model came to its limit"), hears_half=True),
        ModelFault("silent", f"says nothing for {_SILENT_SECONDS:.0f} seconds, and no more then",
                   _fail("timeout", "The model did not answer in time"), seconds=_SILENT_SECONDS),
        ModelFault("refused", "refuses to answer", _fail("refused", "The model refused to answer")),
        ModelFault("rate_limited", "is asked too often",
                   _fail("rate_limited", "The model is asked too often at the moment")),
        ModelFault("unreachable", "cannot be reached",
                   _fail("unreachable", "The model cannot be reached at the moment")),
    )
}  # fmt: skip
"""All of them, by name, in the order in which `all` tries them."""
