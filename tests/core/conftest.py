"""Every test of the core runs under a watch that fails it when the core touches the world.

The watch is a profile function: the interpreter reports each call of a function in Python and of
a builtin.  Nothing is patched, so `from time import time`, a call through a library and a call
through a variable are seen like any other.  An audit hook (PEP 578) is beside it, for files,
sockets, processes, threads and imports also where code in C asks for them, as `map(open, names)`.
A call is the core's doing when, going up the stack from it, a frame of the core comes before a
frame of the import system or of the test tools: those are entered behind the core's back (a codec
loaded on first use, a callback of the collector).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Final

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
    late = frame.f_code.co_name == "__getattr__" and _module(frame) == "legation"
    return late or frame.f_code.co_name == "<module>"


Listener = Callable[[str, FrameType], None]
_listeners: Final[list[Listener]] = []


def _hear(event: str, _: object) -> None:
    if _listeners and event.partition(".")[0] not in INSIDE:
        _listeners[-1](event, sys._getframe(1))


sys.addaudithook(_hear)  # for good: there is no way to take one back


@contextmanager
def watched() -> Generator[list[str]]:
    """Yield the list of what the core did to the world while the block runs."""
    touched: list[str] = []
    kinds: dict[str, str] = {}  # by file name: a look-up, as this runs on every call

    def judge(frame: FrameType) -> str:
        filename = frame.f_code.co_filename
        kind = kinds.get(filename)
        if kind is None:
            kind = kinds[filename] = _judge(frame)
        return kind

    def watch(frame: FrameType, event: str, arg: object) -> None:
        if event == "c_call":
            if _acts(arg) and (culprit := _culprit(frame, judge)):
                touched.append(f"{culprit}: {getattr(arg, '__qualname__', arg)}")
        elif event == "call" and judge(frame) == "acting" and (culprit := _culprit(frame, judge)):
            touched.append(f"{culprit}: {_module(frame)}.{frame.f_code.co_qualname}")

    def listen(event: str, frame: FrameType) -> None:
        if (culprit := _culprit(frame, judge)) and not _is_expected(event, frame):
            touched.append(f"{culprit}: {event}")

    before = sys.getprofile()
    _listeners.append(listen)
    sys.setprofile(watch)
    try:
        yield touched
    finally:
        sys.setprofile(before)
        _listeners.remove(listen)


@pytest.fixture(autouse=True)
def hermetic(request: pytest.FixtureRequest) -> Generator[None]:
    """Fail the test when a frame of the core, or what it called, acted.

    The watch takes half of the time of a test.  So `nox -s quick` does without it, and so does an
    enumeration, which goes over the lines of other tests very often.
    """
    if UNWATCHED or request.node.get_closest_marker("enumeration"):
        yield
        return
    with watched() as touched:
        yield
    assert not touched, f"the core acted: {'; '.join(sorted(set(touched)))}"
