"""Every test of the core runs under a watch that fails it when the core touches the world.

The interpreter reports each call of a function in Python and of a builtin: to callbacks (PEP 669),
or before Python 3.12 to a profile function.  Callbacks cost less: the start of a function in Python
is reported once where its module cannot act.  Every call of a builtin is looked at.  Nothing is
patched, so a name that was imported (`from time import time`), a call through a library and a call
through a variable are seen like any other.  An audit hook (PEP 578) is beside it, for files,
sockets, processes, threads and imports also where code in C asks for them, as `map(open, names)`.

A call is the core's doing when, going up the stack from it, a frame of the core comes before a
frame of the import system or of the test tools: those are entered behind the core's back (a codec
loaded on first use, a callback of the collector).
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FrameType, MethodDescriptorType, ModuleType
from typing import Any, Final

import pytest

__all__ = ["hermetic", "watched"]

_SPEC: Final = find_spec("legation")  # found, not imported: `test_purity` watches the import
assert _SPEC is not None
assert _SPEC.origin is not None
CORE: Final = f"{Path(_SPEC.origin).parent}{os.sep}"

# Modules in C whose functions and methods act ...
ACTING_C: Final = frozenset(
    """_asyncio _io _locale _posixsubprocess _random _signal _socket _sqlite3 _ssl _thread _uuid
    fcntl io mmap nt posix random resource select signal sqlite3 time""".split()
)
# ... buffers in memory aside; builtins and class methods that act though their module does not;
IN_MEMORY: Final = frozenset({"BytesIO", "StringIO"})
ACTING_BUILTINS: Final = frozenset({"breakpoint", "input", "print"})
ACTING_METHODS: Final = frozenset(
    {"date.today", "datetime.now", "datetime.today", "datetime.utcnow"}
)
# ... and modules in Python that act.
ACTING_PYTHON: Final = frozenset(
    """anyio asyncio concurrent ctypes importlib logging multiprocessing os pathlib queue random
    secrets select selectors shutil signal socket sqlite3 ssl subprocess tempfile threading
    trio""".split()
)
# Code that runs on the core's stack without having been called by it; and pydantic, by which a
# class of the author's describes itself: it reads settings of its own from the environment; and
# markdown_it, which asks at each block whether anybody wants its lines for debugging.
BYSTANDERS: Final = frozenset(
    """_frozen_importlib _frozen_importlib_external _pytest coverage encodings hypothesis
    markdown_it pydantic""".split()
)
# The first parts of the names of audit events that tell of nothing outside of the interpreter.
INSIDE: Final = frozenset(
    """array builtins code compile cpython exec function gc marshal object pickle sys""".split()
)

UNWATCHED: Final = "LEGATION_UNWATCHED" in os.environ

Judge = Callable[[FrameType], str]

LATE: Final = frozenset(
    {
        "legation",
        "legation.access",
        "legation.api",
        "legation.api.handlers",
        "legation.channels",
        "legation.models",
    }
)
"""The packages that import a module of theirs when a name of it is asked for first."""


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _judge(frame: FrameType) -> str:
    """Say what the file of `frame` is: `core`, `bystander`, `acting`, or `other`."""
    filename = frame.f_code.co_filename
    if filename.startswith(CORE):
        return "core"
    if filename == "<string>":  # written by a library; it acts only through functions with a name
        return "other"
    module = _module(frame)
    top = module.partition(".")[0]
    if top in BYSTANDERS or module.startswith("importlib._bootstrap"):
        return "bystander"
    return "acting" if top in ACTING_PYTHON else "other"


def _culprit(frame: FrameType | None, judge: Judge) -> str | None:
    """Return where in the core the call is that `frame` runs for, or None."""
    while frame is not None:
        kind = judge(frame)
        if kind == "core":
            where = frame.f_code.co_filename.removeprefix(CORE)
            return f"{where}:{frame.f_lineno} {frame.f_code.co_qualname}"
        if kind == "bystander" or frame.f_code.co_name == "__del__":  # the collector's doing
            return None
        frame = frame.f_back
    return None


def _acts(function: object) -> bool:
    """Tell whether a builtin function, or a method of a type in C, acts."""
    module: str | None = getattr(function, "__module__", None)
    if module == "builtins":
        return getattr(function, "__name__", "") in ACTING_BUILTINS
    if module is not None:
        return module in ACTING_C
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type):
        return getattr(function, "__qualname__", "") in ACTING_METHODS
    return type(owner).__module__ in ACTING_C and type(owner).__name__ not in IN_MEMORY


def _is_expected(event: str, frame: FrameType | None) -> bool:
    """Tell whether `event` is an import that a module of the core begins with, or is found by."""
    while frame is not None and not frame.f_code.co_filename.startswith(CORE):
        frame = frame.f_back
    return event == "import" and frame is not None and _imports(frame)


def _imports(frame: FrameType) -> bool:
    late = frame.f_code.co_name == "__getattr__" and _module(frame) in LATE
    return late or frame.f_code.co_name == "<module>"


Listener = Callable[[str, FrameType], None]
_listeners: Final[list[Listener]] = []


def _hear(event: str, _: object) -> None:
    if _listeners and event.partition(".")[0] not in INSIDE:
        _listeners[-1](event, sys._getframe(1))


sys.addaudithook(_hear)  # for good: there is no way to take one back


_kinds: Final[dict[str, str]] = {}  # by file name: a look-up, as this runs on every call


def _kind(frame: FrameType) -> str:
    filename = frame.f_code.co_filename
    kind = _kinds.get(filename)
    if kind is None:
        kind = _kinds[filename] = _judge(frame)
    return kind


def _find_call(function: object, frame: FrameType) -> str | None:
    """Return what the core did by a call of an acting builtin from `frame`, if it was the core."""
    if culprit := _culprit(frame, _kind):
        return f"{culprit}: {getattr(function, '__qualname__', function)}"
    return None


def _find_start(frame: FrameType) -> str | None:
    """Return what the core did by the function in Python that `frame` is of, if that acts."""
    if _kind(frame) == "acting" and (culprit := _culprit(frame, _kind)):
        return f"{culprit}: {_module(frame)}.{frame.f_code.co_qualname}"
    return None


@contextmanager
def _profile(touched: list[str]) -> Generator[None]:
    """Add to `touched` what a profile function sees."""

    def watch(frame: FrameType, event: str, arg: object) -> None:
        found = None
        if event == "c_call" and _acts(arg):
            found = _find_call(arg, frame)
        elif event == "call":
            found = _find_start(frame)
        if found:
            touched.append(found)

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(before)


_MONITORING: Final[Any] = getattr(sys, "monitoring", None)  # since Python 3.12
_TOOL: Final = 2  # the number of profilers
_seen: Final[list[list[str]]] = []


@contextmanager
def _monitor(touched: list[str]) -> Generator[None]:
    """Add to `touched` what callbacks see; they stay: to begin again costs more than they do."""
    if _MONITORING.get_tool(_TOOL) is None:
        _begin()
    _seen.append(touched)
    try:
        yield
    finally:
        _seen.pop()


def _begin() -> None:
    """Ask the interpreter to report calls to `_called` and `_started`."""
    call, start = _MONITORING.events.CALL, _MONITORING.events.PY_START
    _MONITORING.use_tool_id(_TOOL, "the watch over the core")
    _MONITORING.register_callback(_TOOL, call, _called)
    _MONITORING.register_callback(_TOOL, start, _started)
    _MONITORING.set_events(_TOOL, call | start)
    atexit.register(_MONITORING.set_events, _TOOL, 0)  # what ends the interpreter is nobody's test


_types: Final[dict[type, bool]] = {}  # whether their methods act
_builtins: Final[dict[object, bool]] = {}  # of modules, and class methods: they live as long


def _called(_: CodeType, __: int, function: Any, first: object) -> None:
    """Note a call of a builtin that acts; a place is looked at each time, as it may call others."""
    if isinstance(function, MethodDescriptorType):
        acts = _types.get(type(first))
        if acts is None:
            acts = _types[type(first)] = _acts(function.__get__(first, type(first)))
    elif isinstance(function, BuiltinFunctionType):
        acts = _builtins.get(function)
        if acts is None:
            acts = _acts(function)
            if isinstance(function.__self__, (type, ModuleType)):
                _builtins[function] = acts
    else:
        return
    if acts and _seen and (found := _find_call(function, sys._getframe(1))):
        _seen[-1].append(found)


def _started(_: CodeType, __: int) -> object:
    """Note the start of a function that acts; one that cannot is not reported again."""
    frame = sys._getframe(1)
    if _kind(frame) != "acting":
        return _MONITORING.DISABLE
    if _seen and (found := _find_start(frame)):
        _seen[-1].append(found)
    return None


report: Final = _monitor if _MONITORING else _profile


@contextmanager
def watched() -> Generator[list[str]]:
    """Yield the list of what the core did to the world while the block runs."""
    touched: list[str] = []

    def listen(event: str, frame: FrameType) -> None:
        if (culprit := _culprit(frame, _kind)) and not _is_expected(event, frame):
            touched.append(f"{culprit}: {event}")

    _listeners.append(listen)
    try:
        with report(touched):
            yield touched
    finally:
        _listeners.remove(listen)


@pytest.fixture(autouse=True)
def hermetic(request: pytest.FixtureRequest) -> Generator[None]:
    """Fail the test when a frame of the core, or what it called, acted.

    The watch takes a third of the time of a test.  So `nox -s quick` does without it, and so
    does an enumeration, which goes over the lines of other tests very often.
    """
    if UNWATCHED or request.node.get_closest_marker("enumeration"):
        yield
        return
    with watched() as touched:
        yield
    assert not touched, f"the core acted: {'; '.join(sorted(set(touched)))}"
