from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest

from legation import Run
from legation.tools import (
    OFFERED,
    ContextParameter,
    ToolFault,
    host_function,
    host_instructions,
)


def plain(message: str, history: Any, late: int = 0) -> str:
    return message


async def generator(*, message: str) -> AsyncIterator[str]:
    yield message


def everything(message: str, **rest: Any) -> None: ...


def nothing(*rest: Any) -> None: ...


class Agent:
    def __call__(self, session_id: str) -> None: ...


def test_a_function_is_given_what_it_names() -> None:
    assert host_function(plain).function is plain
    assert host_function(plain).takes == ("message", "history")
    assert host_function(generator).takes == ("message",)
    assert host_function(everything).takes == OFFERED
    assert host_function(nothing).takes == ()
    assert host_function(Agent()).takes == ("session_id",)


def asks(question: str) -> None: ...


def first(message: str, /) -> None: ...


def pieces(message: str) -> Iterator[str]:
    yield message


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (asks, "parameter 'question' is no `Run`, and none of: message, session_id, "),
        (first, "parameter 'message' is positional-only"),
        (3, "is no function"),
        (pieces, "is a generator"),
        (type, "is no function"),
    ],
)
def test_what_cannot_be_called_so_is_refused(function: Any, sentence: str) -> None:
    with pytest.raises(ToolFault) as caught:
        host_function(function)

    assert str(caught.value).startswith(sentence)


def with_run(message: str, context: Run, **rest: Any) -> None: ...


def with_two(one: Run, other: Run) -> None: ...


def test_a_function_is_given_the_run_beside_what_it_names() -> None:
    assert host_function(with_run).takes == OFFERED
    assert host_function(with_run).context == ContextParameter("context")
    assert host_function(plain).context is None
    with pytest.raises(ToolFault, match="parameter 'other' is a second `Run`"):
        host_function(with_two)


# --- Instructions --------------------------------------------------------------------------------


def for_nobody() -> str:
    return "Be brief."


def for_run(context: Run, *rest: Any, late: int = 0, **more: Any) -> str:
    return f"Be brief to {context.user_id}."


async def later(run: Any = None) -> None: ...


INSTRUCTIONS: Final[list[Any]] = [
    (for_nobody, None),
    (for_run, ContextParameter("context")),
    (lambda context: f"For {context}.", ContextParameter("context")),
    (later, None),
]


@pytest.mark.parametrize(
    ("function", "context"),
    INSTRUCTIONS,
)
def test_instructions_are_a_function_of_the_run_or_of_nothing(
    function: Any, context: ContextParameter | None
) -> None:
    assert host_instructions(function).function is function
    assert host_instructions(function).context == context


async def in_pieces() -> AsyncIterator[str]:
    yield "Be brief."


REFUSED: Final[list[Any]] = [
    (3, "is no function"),
    (pieces, "is a generator; it returns the instructions"),
    (in_pieces, "is a generator; it returns the instructions"),
    (first, "parameter 'message' is positional-only"),
    (asks, "parameter 'question' is no `Run`, which is all there is"),
    (lambda run, message: message, "parameter 'message' is no `Run`, which is all there is"),
    (with_two, "parameter 'other' is a second `Run`"),
]


@pytest.mark.parametrize(
    ("function", "sentence"),
    REFUSED,
)
def test_instructions_that_cannot_be_asked_for_are_refused(function: Any, sentence: str) -> None:
    with pytest.raises(ToolFault) as caught:
        host_instructions(function)

    assert str(caught.value).startswith(sentence)
