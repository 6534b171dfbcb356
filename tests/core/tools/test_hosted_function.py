from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from legation.tools import OFFERED, ToolFault, host_function


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
        (asks, "parameter 'question' is none of: message, session_id, user_id, "),
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
