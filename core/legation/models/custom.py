"""A model that is a function of the author's: a coroutine function, or an async generator.

It is given the prompt.  A coroutine function returns a text, or a `Reply` with calls and usage; an
async generator yields the text piece by piece, and a `Reply` at last where it has more to say.  In
all else it is a model as any other: the turn calls the tools, asks people and counts the tokens.
What the function raises is for the log; the run fails, or the next model of its order is asked.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn, TypeAlias, cast

from attrs import evolve, field

from ..effects import (
    CallFunction,
    CloseStream,
    Log,
    NextPiece,
    Piece,
    Program,
    Raised,
    Returned,
    Yielding,
)
from ..incidents import hint_at, trace, where
from ..values import define, frozen
from .conversation import Listener, ModelFailed, Prompt, Reply, ToolCall, Usage
from .trouble import SENTENCES

__all__ = ["MAX_ANSWER", "CustomModel", "FunctionFailed", "Mistake"]

MAX_ANSWER: Final = 1 << 22
"""How long an answer may be, in characters."""

_FAILED: Final = "The model failed"
_PARAMETER: Final = "must take one argument, the prompt"
_GENERATOR: Final = "is a generator; only an async one is heard piece by piece"
_KIND: Final = "gave {}; a model gives a text or a Reply"
_BEHIND: Final = "gave something behind its Reply, which is the end"
_OTHER: Final = "gave a Reply whose content is not the text that it gave piece by piece"
_CALLS: Final = "gave a Reply with calls that are no ToolCall of three texts"
_USAGE: Final = "gave a Reply whose usage is no Usage"
_NOTHING: Final = "gave nothing: neither a text nor a call"

Answering: TypeAlias = Callable[..., Any]
"""An async function of a `Prompt`: it returns or yields texts, and a `Reply` at last."""


class Mistake(TypeError):
    """A function gave what no model gives; the sentence says what."""


class FunctionFailed(ModelFailed):
    """The function of a model raised; `error` is what, and for the log alone."""

    def __init__(self, error: Exception) -> None:
        super().__init__("failed", _FAILED)
        self.error = error

    def describe(self) -> tuple[tuple[str, str | int], ...]:
        """Return where it raised, as fields of the log."""
        said = str(self.error) if isinstance(self.error, Mistake) else where(self.error)
        return (("error", said), ("trace", trace(self.error)), *hint_at(self.error))


def _find_parameter(function: Any) -> str:
    """Return the name under which `function` is given the prompt.

    Raises:
        ValueError: It is no such function.
    """
    name = getattr(function, "__name__", type(function).__name__)
    if not callable(function):
        raise ValueError(f"{name} is no function")
    if inspect.isgeneratorfunction(function):
        raise ValueError(f"{name} {_GENERATOR}")
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    named = [one.name for one in parameters if one.kind in by_name]
    needed = [one for one in parameters if one.default is one.empty and one.kind in by_name]
    if not named or len(needed) > 1:
        raise ValueError(f"{name} {_PARAMETER}")
    return needed[0].name if needed else named[0]


def _types(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


@frozen
class CustomModel:
    """A model that is an async function of the prompt.

    Attributes:
        id: Its name for people and programs.
        answer: `async def answer(prompt)`, which returns a text or a `Reply`; or yields texts, and
            a `Reply` at last.
        provider: Who runs it, as clients are shown.
        timeout_seconds: How long it may be silent.
        accepts: The media types of the files that it is sent; of others it reads the text.
        takes_tools: Whether it calls tools: an agent with tools is refused otherwise.
        takes_schema: Whether it answers in a shape.

    Raises:
        ValueError: `answer` cannot be given a prompt, or a time is none.
    """

    name = "Custom"

    id: str
    answer: Answering = field(repr=False)
    provider: str = field(default="Custom", kw_only=True)
    timeout_seconds: float = field(default=120.0, kw_only=True)
    accepts: tuple[str, ...] = field(default=("image/*",), kw_only=True, converter=_types)
    takes_tools: bool = field(default=True, kw_only=True)
    takes_schema: bool = field(default=True, kw_only=True)
    _parameter: str = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Look at the function once."""
        if not 0 < self.timeout_seconds < float("inf"):
            raise ValueError("timeout_seconds must be a finite number of more than 0")
        object.__setattr__(self, "_parameter", _find_parameter(self.answer))

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        """Call the function, and tell what it gives.

        Raises:
            ModelFailed: It raised that, or anything else; it was silent for too long, or gave what
                no model gives.
        """
        yield from listener.settle()
        heard = _Heard(listener)
        given = yield from CallFunction(
            self.answer, {self._parameter: prompt}, self.timeout_seconds
        )
        failure: Exception | None
        match given:
            case Returned(value):
                failure = heard.take(value)
            case Yielding(stream):
                failure = yield from self._follow(stream, heard)
            case Raised(error):
                failure = error
            case _:
                failure = _late()
        reply = heard.make_reply() if failure is None else failure
        if isinstance(reply, Reply):
            return reply
        return (yield from self._fail(reply))

    def _follow(self, stream: int, heard: _Heard) -> Program[Exception | None]:
        """Take piece after piece; each is shown before the next is asked for."""
        while True:
            match (yield from NextPiece(stream, self.timeout_seconds)):
                case Piece(value):
                    if (wrong := heard.take(value)) is not None:
                        yield from CloseStream(stream)
                        return wrong
                    yield from heard.listener.settle()
                case Raised(error):
                    return error
                case None:
                    return None
                case _:
                    return _late()

    def _fail(self, error: Exception) -> Program[NoReturn]:
        """Log `error`, and raise it as that of a model."""
        failed = error if isinstance(error, ModelFailed) else FunctionFailed(error)
        fields = (("model", self.id), ("reason", failed.reason), *failed.describe())
        if isinstance(failed, FunctionFailed):
            yield from Log("error", "model_failed", fields, error)
            raise failed from error
        yield from Log("warning", "model_failed", fields)
        raise failed


def _late() -> ModelFailed:
    return ModelFailed("timeout", SENTENCES["timeout"])


@define(eq=False)
class _Heard:
    """The answer of a function until now."""

    listener: Listener
    pieces: list[str] = field(factory=list[str])
    length: int = 0
    reply: Reply | None = None

    def take(self, value: object) -> Exception | None:
        """Take a text or the reply; return what is wrong with it, as it was raised."""
        try:
            self._take(value)
        except (Mistake, ModelFailed) as error:
            return error
        return None

    def _take(self, value: object) -> None:
        if self.reply is not None:
            raise Mistake(_BEHIND)
        if isinstance(value, str):
            self._hear(value)
            return
        if not isinstance(value, Reply):
            raise Mistake(_KIND.format("None" if value is None else type(value).__name__))
        self.reply = value
        if (wrong := _find_mistake(value)) is not None:
            raise Mistake(wrong)
        self.listener.think(value.reasoning)
        if not self.pieces:
            self._hear(value.content)
        elif value.content not in ("", "".join(self.pieces)):
            raise Mistake(_OTHER)

    def _hear(self, piece: str) -> None:
        self.length += len(piece)
        if self.length > MAX_ANSWER:
            raise ModelFailed("too_large", SENTENCES["too_large"])
        if piece:
            self.pieces.append(piece)
            self.listener.hear(piece)

    def make_reply(self) -> Reply | Mistake:
        """Return the whole answer; a mistake where there is none."""
        text = "".join(self.pieces)
        if self.reply is not None:
            return evolve(self.reply, content=text)
        try:
            if not text:
                raise Mistake(_NOTHING)  # noqa: TRY301 (it needs a traceback, as what is raised has)
        except Mistake as mistake:
            return mistake
        return Reply(text)


def _find_mistake(reply: Any) -> str | None:
    """Return what is wrong with a reply that no type checker looked at."""
    calls: object = reply.calls
    if not isinstance(calls, tuple) or not all(map(_is_call, cast("tuple[object, ...]", calls))):
        return _CALLS
    if not isinstance(reply.content, str):
        return _KIND.format(f"a Reply with {type(reply.content).__name__} as content")
    return None if isinstance(reply.usage, Usage) else _USAGE


def _is_call(call: Any) -> bool:
    if not isinstance(call, ToolCall):
        return False
    texts: tuple[Any, ...] = (call.id, call.name, call.arguments)
    return all(isinstance(one, str) for one in texts)
