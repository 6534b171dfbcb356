"""The place of an unexpected error: all that the log may know of it.

The text of an exception may quote what a user sent or what a database said, so none of it is here.
Whatever an author's code raises is described within a bound: a chain of causes or of frames without
an end, or one that runs in a circle, makes one line like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import Final, cast

from .values import frozen

__all__ = ["find_authors_frames", "hint_at", "trace", "where"]

_PACKAGE: Final = "legation"
_LIBRARIES: Final = ("/site-packages/", "/dist-packages/", "/lib/python3.", "<frozen ")
_ERRORS: Final = 8
_FIRST_FRAMES: Final = 4
_LAST_FRAMES: Final = 8
_OUR_FRAMES: Final = 3
_NAME: Final = 80  # characters
_LENGTH: Final = 4_000  # characters

# How asyncio fails where its event loop does not run, and how trio refuses its futures.
_FOREIGN_LOOP: Final = (
    "no running event loop",
    "Timeout should be used inside a task",
    "cannot determine the parent task",
    "trio.run received unrecognized yield message",
)
_USE_ANYIO: Final = (
    "no event loop of asyncio runs here, as `legation serve` is on trio: use anyio in place of "
    "asyncio, or serve the platform by an ASGI server on asyncio"
)


def where(error: BaseException | None) -> str:
    """Return the kind of `error` and the line it came from, never its text.

    The text of an exception may quote what a user sent or what a database said.
    """
    if error is None:
        return "none"
    place, trace = "", error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        place, trace = f" in {code.co_qualname}:{trace.tb_lineno}", trace.tb_next
    return type(error).__name__ + place


def trace(error: BaseException) -> str:
    """Return the frames of the author's that `error` passed, and those of its causes; no text.

    A frame is `module:function:line`, the one that raised last.  Frames of this platform are left
    out, and those of libraries, but for the last of all.  Where the author has none, as in a bug of
    ours, the last frames stand there as they are.
    """
    found = list(islice(_errors(error), _ERRORS + 1))
    lines = [f"{lead}{_kind(one)}{_frames(one)}" for lead, one in found[:_ERRORS]]
    if len(found) > _ERRORS:
        lines.append("and more")
    return "; ".join(lines)[:_LENGTH]


def hint_at(error: BaseException) -> tuple[tuple[str, str], ...]:
    """Return the field `hint` of the log where `error` says that asyncio is missing, else nothing.

    The sentence is our own; of the text of `error` nothing is in it.
    """
    if not isinstance(error, RuntimeError | TypeError) or not error.args:
        return ()
    text = error.args[0]
    found = isinstance(text, str) and any(words in text for words in _FOREIGN_LOOP)
    return (("hint", _USE_ANYIO),) if found else ()


def find_authors_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback of `error` from the first frame on that is not ours, if there is one."""
    return next((each for each in _walk(error.__traceback__) if not _is_ours(_module(each))), None)


def _is_ours(module: str) -> bool:
    """Return whether a module of this name is one of this platform."""
    package = module.partition(".")[0]
    return package == _PACKAGE or package.startswith(f"{_PACKAGE}_")


def _errors(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    """Yield `error`, the errors of a group and those that it came from, each once."""
    waiting: list[tuple[str, BaseException]] = [("", error)]
    seen: set[int] = set()
    while waiting:
        lead, one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield lead, one
        if isinstance(one, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", one)
            waiting += [("in it ", each) for each in group.exceptions[: _ERRORS + 1]]
        cause = one.__cause__
        if cause is None and not one.__suppress_context__:
            cause = one.__context__
        if cause is not None:
            waiting.append(("from ", cause))


def _kind(error: BaseException) -> str:
    return type(error).__name__[:_NAME]


@frozen
class _Frame:
    """One frame: the module that it is in, where that came from, and the function and line."""

    module: str
    file: str
    function: str
    line: int

    @property
    def package(self) -> str:
        return self.module.partition(".")[0]

    @property
    def of_library(self) -> bool:
        return any(part in self.file for part in _LIBRARIES)

    def __str__(self) -> str:
        return f"{self.module[-_NAME:]}:{self.function[-_NAME:]}:{self.line}"


def _frames(error: BaseException) -> str:
    frames = [_read(trace) for trace in _walk(error.__traceback__)]
    others = [frame for frame in frames if not _is_ours(frame.module)]
    return _render(_keep(others) if others else frames[-_OUR_FRAMES:])


def _walk(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _read(trace: TracebackType) -> _Frame:
    code = trace.tb_frame.f_code
    file = code.co_filename.replace("\\", "/")
    return _Frame(_module(trace), file, code.co_qualname, trace.tb_lineno)


def _module(trace: TracebackType) -> str:
    name = trace.tb_frame.f_globals.get("__name__")
    return name if isinstance(name, str) else "?"


def _keep(frames: Sequence[_Frame]) -> list[_Frame]:
    """Return the frames of the author's, and the last of all.

    A package that is installed beside its libraries is the author's where it was called first.
    """
    first = next((frame for frame in frames if not frame.of_library), frames[0])
    return [
        frame
        for frame in frames
        if not frame.of_library or frame.package == first.package or frame is frames[-1]
    ]


def _render(frames: Sequence[_Frame]) -> str:
    omitted = len(frames) - _FIRST_FRAMES - _LAST_FRAMES
    shown = [str(frame) for frame in frames]
    if omitted > 0:
        shown[_FIRST_FRAMES:-_LAST_FRAMES] = [f"({omitted} more)"]
    return f" {' > '.join(shown)}" if shown else ""
