"""Exceptions of the code under test come out of the client, with their tracebacks."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from legation import Agent, CustomRoute, Platform, Team, ToolError
from legation.access.scopes import AnyToken
from legation.api.call import Call
from legation.effects import CallFunction, Program, Raised, Transact
from legation.http.messages import Response
from legation.store.failures import Busy
from legation_testing import Client, ScriptedModel, call
from legation_testing.surprises import find_surprises, note_on


def burst(item: str) -> str:
    """Look an item up."""
    return {"a": "b"}[item]


async def burst_later(item: str) -> str:
    """Look an item up."""
    return burst(item)


def refuse(item: str) -> str:
    """Look an item up."""
    raise ToolError("There is none")


def leave(item: str) -> str:
    """Look an item up."""
    raise SystemExit(7)


TOOLS = [burst, burst_later, refuse, leave]


def platform(*script: Any, routes: Iterable[CustomRoute] = ()) -> Platform:
    model = ScriptedModel(list(script))
    return Platform(agents=[Agent(id="clerk", model=model, tools=TOOLS)], routes=routes)


def failing(name: str = "burst") -> Platform:
    return platform(call(name, item="x"), "Sorry.")


@pytest.mark.parametrize("name", ["burst", "burst_later"])
def test_exception_of_a_tool_is_raised_at_the_end(name: str) -> None:
    with (
        pytest.raises(ExceptionGroup) as caught,
        Client(failing(name)) as client,
    ):
        assert client.run("clerk", "hi")["status"] == "COMPLETED"

    (error,) = caught.value.exceptions
    assert isinstance(error, KeyError)
    assert "raise_errors=False" in str(caught.value)
    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert frames == [*(["burst_later"] if name == "burst_later" else []), "burst"]


def test_exception_that_is_no_exception_is_the_cause() -> None:
    with (
        pytest.raises(ExceptionGroup) as caught,
        Client(failing("leave")) as client,
    ):
        client.run("clerk", "hi")

    assert isinstance(caught.value.exceptions[0].__cause__, SystemExit)


def test_refusal_of_a_tool_is_none() -> None:
    with Client(platform(call("refuse", item="x"), "Sorry.")) as client:
        client.run("clerk", "hi")
        assert client.take_errors() == ()


def broken(message: str) -> str:
    raise ValueError(message)


async def broken_stream(message: str) -> Any:
    yield "one"
    raise ValueError(message)


def broken_step(_: object) -> str:
    raise ValueError("in the script")


MEMBER = call("delegate_task_to_member", member_id="f", task="Look.")


@pytest.mark.parametrize("run", [broken, broken_stream])
@pytest.mark.parametrize("team", [False, True])
def test_exception_of_a_function_agent_is_raised_once(run: Any, *, team: bool) -> None:
    desk = Team(id="desk", model=ScriptedModel([MEMBER, "Sorry."]), members=["f"])
    made = Platform(agents=[Agent(id="f", run=run)], teams=[desk])
    with Client(made, raise_errors=False) as client:
        (client.run_team if team else client.run)("desk" if team else "f", "hi")
        errors = client.take_errors()

    assert [type(error) for error in errors] == [ValueError]


def test_exception_of_the_tests_own_script_is_not_lost() -> None:
    with pytest.raises(ExceptionGroup, match="ValueError"), Client(platform(broken_step)) as client:
        client.run("clerk", "hi")


def handler(request: Call) -> Program[Response]:
    yield from ()
    raise LookupError(request.request_id)


def test_exception_of_a_handler_is_raised() -> None:
    route = CustomRoute("GET", "/broken", AnyToken(), handler, operation="fail", summary="Fail.")
    with Client(platform(routes=[route]), raise_errors=False) as client:
        assert client.get("/broken").status == 500
        assert [type(error) for error in client.take_errors()] == [LookupError]


# --- Not those that a test wanted ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("which", "outcome"),
    [
        (CallFunction, Raised(OSError("disk on fire"))),
        (Transact, RuntimeError("planned")),
        (Transact, Busy("locked")),
    ],
)
def test_failure_that_is_planned_is_none(which: Any, outcome: Any) -> None:
    with Client(platform(call("refuse", item="x"), "Sorry.")) as client:
        client.fail_at(which, outcome, skip=3 if which is Transact else 0)
        client.post("/agents/clerk/runs", form={"message": "hi", "stream": False})


def test_errors_are_taken_once() -> None:
    with Client(platform(call("burst", item="x"), call("burst", item="y"), "Sorry.")) as client:
        client.run("clerk", "hi")

        assert [str(error) for error in client.take_errors()] == ["'x'", "'y'"]
        assert client.take_errors() == ()


def test_peer_is_asked_for_what_it_was_made_with() -> None:
    def make() -> Platform:
        return failing()

    with Client(make, raise_errors=False) as client, client.peer() as peer:
        peer.run("clerk", "hi")


def test_a_test_that_fails_by_itself_has_it_as_a_note() -> None:
    with (
        pytest.raises(AssertionError) as caught,
        Client(failing()) as client,
    ):
        assert client.run("clerk", "hi")["content"] == "b"

    (note,) = caught.value.__notes__
    assert "in burst" in note
    assert note.endswith("KeyError: 'x'")


def test_a_test_that_wants_none_has_no_note() -> None:
    with (
        pytest.raises(AssertionError) as caught,
        Client(failing(), raise_errors=False) as client,
    ):
        assert client.run("clerk", "hi")["content"] == "b"

    assert not hasattr(caught.value, "__notes__")


def test_programs_that_failed_are_in_the_same_group() -> None:
    def program() -> Program[None]:
        yield from ()
        raise ZeroDivisionError

    with (
        pytest.raises(ExceptionGroup) as caught,
        Client(failing()) as client,
    ):
        client.simulation.start(program())
        client.run("clerk", "hi")

    assert [type(each) for each in caught.value.exceptions] == [KeyError, ZeroDivisionError]


# --- Hostile ones --------------------------------------------------------------------------------


class Broken(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


def chain() -> Iterator[Exception]:
    """Yield a chain of a thousand causes, a circle, a long text and one without a text."""
    last: Exception = ValueError("the first")
    for number in range(1_000):
        error = ValueError(str(number))
        error.__cause__, last = last, error
    yield last
    circle = ValueError("a")
    circle.__cause__ = other = ValueError("b")
    other.__cause__ = circle
    yield circle
    yield ValueError("x" * 10_000_000)
    yield ValueError("x\n" * 1_000_000)
    yield Broken()
    yield ExceptionGroup("g", [Broken(), ValueError("x")])


@pytest.mark.parametrize("hostile", list(chain()))
def test_notes_are_short_whatever_was_raised(hostile: Exception) -> None:
    with pytest.raises(type(hostile)) as caught:
        raise hostile
    error, failure = caught.value, AssertionError()
    note_on(failure, [error])

    assert len(failure.__notes__[0]) < 61 * 501
    assert find_surprises([error, error], []) == (error,)
