from __future__ import annotations

import builtins
from collections.abc import Callable
from types import CodeType
from typing import Any

import pytest

from legation.incidents import find_authors_frames, hint_at, trace, where


def test_nothing_is_none() -> None:
    assert where(None) == "none"


def test_an_error_that_was_never_raised_is_its_kind() -> None:
    assert where(ValueError("a secret")) == "ValueError"
    assert trace(ValueError("a secret")) == "ValueError"


def test_an_error_is_its_kind_and_the_innermost_place() -> None:
    def inner() -> None:
        raise ZeroDivisionError("a secret")

    with pytest.raises(ZeroDivisionError) as caught:
        inner()
    told = where(caught.value)

    assert told.startswith("ZeroDivisionError in ")
    assert ".<locals>.inner:" in told
    assert "secret" not in told


# --- The chain of frames -------------------------------------------------------------------------


def raised(act: Callable[[], object]) -> BaseException:
    """Return what `act` raises, without the frame of this function."""
    try:
        act()
    except BaseException as error:  # noqa: BLE001  it is what is looked at
        here = error.__traceback__
        return error.with_traceback(None if here is None else here.tb_next)
    raise AssertionError


def module(
    name: str, source: str, file: str = "/app/shop.py", **given: Any
) -> Callable[[], object]:
    """Return the function `act` of a module of this name."""
    code: CodeType = compile(source, file, "exec")
    space: dict[str, Any] = {"__name__": name, **given}
    builtins.exec(code, space)
    act: Callable[[], object] = space["act"]
    return act


LIB = "/venv/lib/python3.13/site-packages/psycopg/cursor.py"
FETCH = "def act():\n    raise OSError('a secret')"
CALLS = "def act():\n    return call()"


def test_frames_of_the_author_stand_with_module_function_and_line() -> None:
    fetch = module("shop.db", FETCH)
    pay = module("shop.tools", CALLS, call=fetch)

    assert trace(raised(pay)) == "OSError shop.tools:act:2 > shop.db:act:2"


def test_frames_of_a_library_are_left_out_but_for_the_last() -> None:
    deep = module("psycopg.raw", FETCH, LIB)
    library = module("psycopg.cursor", CALLS, LIB, call=deep)
    pay = module("shop.tools", CALLS, call=library)

    assert trace(raised(pay)) == "OSError shop.tools:act:2 > psycopg.raw:act:2"


def test_frames_of_ours_are_left_out_even_between_the_authors() -> None:
    fetch = module("shop.db", FETCH)
    ours = module("legation_host.functions", CALLS, call=fetch)
    pay = module("shop.tools", CALLS, call=ours)

    assert trace(raised(module("legation.runs", CALLS, call=pay))) == (
        "OSError shop.tools:act:2 > shop.db:act:2"
    )


def test_package_that_is_installed_beside_its_libraries_is_the_authors() -> None:
    library = module("psycopg.cursor", FETCH, LIB)
    inner = module("shop.db", CALLS, LIB, call=library)
    between = module("anyio.run", CALLS, LIB, call=inner)
    pay = module("shop.tools", CALLS, LIB, call=between)

    assert trace(raised(pay)) == ("OSError shop.tools:act:2 > shop.db:act:2 > psycopg.cursor:act:2")


def test_bug_of_ours_has_its_last_frames() -> None:
    act = module("legation.a", FETCH)
    for name in ("legation.b", "legation.c", "legation.d"):
        act = module(name, CALLS, call=act)

    assert trace(raised(act)) == "OSError legation.c:act:2 > legation.b:act:2 > legation.a:act:2"


def test_module_without_a_name_is_a_question_mark() -> None:
    assert trace(raised(module("shop", "__name__ = 7\n" + FETCH))) == "OSError ?:act:3"


def test_causes_follow_and_a_suppressed_context_does_not() -> None:
    source = """
def act():
    try:
        {}["a"]
    except KeyError as error:
        raise ValueError("a secret") from error
"""
    quiet = source.replace("from error", "from None")
    context = source.replace(" from error", "")

    assert (
        trace(raised(module("shop", source))) == "ValueError shop:act:6; from KeyError shop:act:4"
    )
    assert trace(raised(module("shop", context))) == trace(raised(module("shop", source)))
    assert trace(raised(module("shop", quiet))) == "ValueError shop:act:6"


def test_errors_of_a_group_are_named() -> None:
    source = "def act():\n    raise ExceptionGroup('a secret', [KeyError('b'), OSError('c')])"

    assert trace(raised(module("shop", source))) == (
        "ExceptionGroup shop:act:2; in it KeyError; in it OSError"
    )


# --- Hostile ones --------------------------------------------------------------------------------


def test_a_thousand_causes_and_a_circle_are_bounded() -> None:
    first: BaseException = ValueError("a secret")
    last = first
    for _ in range(1_000):
        last.__cause__ = last = KeyError("a secret")
    circle = ValueError("a secret")
    circle.__cause__ = other = OSError("a secret")
    other.__cause__ = circle

    assert trace(first) == "ValueError; " + "from KeyError; " * 7 + "and more"
    assert trace(circle) == "ValueError; from OSError"


def test_a_recursion_without_an_end_is_short() -> None:
    found = trace(raised(module("shop", "def act():\n    return act()")))

    assert found.startswith("RecursionError shop:act:2 > shop:act:2 > shop:act:2 > shop:act:2 > (")
    assert found.count(" > ") == 12


def test_group_of_a_thousand_in_a_thousand_is_short() -> None:
    group: Any = ValueError("x")
    for _ in range(200):
        group = ExceptionGroup("x" * 1_000, [group] * 1_000)

    assert trace(group) == "ExceptionGroup; " + "in it ExceptionGroup; " * 7 + "and more"


def test_names_and_texts_without_an_end_are_cut() -> None:
    kind = type("E" * 10_000, (Exception,), {"__str__": lambda _: 1 / 0})
    name = "f" * 50_000
    source = f"def {name}():\n    raise kind('x' * 10_000_000)\nact = {name}"

    found = trace(raised(module("m" * 50_000, source, kind=kind)))

    assert len(found) < 300
    assert found.endswith("f:2")


def test_traceback_of_the_author_begins_in_his_code() -> None:
    pay = module("shop.tools", FETCH)
    error = raised(module("legation_host.functions", CALLS, call=pay))
    found = find_authors_frames(error)

    assert found is not None
    assert found.tb_frame.f_globals["__name__"] == "shop.tools"
    assert found.tb_next is None


@pytest.mark.parametrize("name", ["legation", "legation.runs.turn", "legation_host.drive"])
def test_bug_of_ours_has_no_frames_of_the_author(name: str) -> None:
    assert find_authors_frames(raised(module(name, FETCH))) is None


@pytest.mark.parametrize("name", ["legations", "shop.legation", "legate"])
def test_other_packages_are_not_ours(name: str) -> None:
    assert find_authors_frames(raised(module(name, FETCH))) is not None


# --- Asyncio where it does not run ---------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("no running event loop"),
        RuntimeError("Timeout should be used inside a task"),
        RuntimeError("TaskGroup <x> cannot determine the parent task"),
        TypeError("trio.run received unrecognized yield message a secret. Are you trying to"),
    ],
)
def test_asyncio_without_its_loop_has_a_hint_without_text_of_the_error(error: Exception) -> None:
    ((name, hint),) = hint_at(error)

    assert name == "hint"
    assert "use anyio in place of asyncio" in hint
    assert "secret" not in hint


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(),
        RuntimeError(5),
        RuntimeError("no rooms"),
        ValueError("no running event loop"),
    ],
)
def test_any_other_error_has_no_hint(error: Exception) -> None:
    assert hint_at(error) == ()
