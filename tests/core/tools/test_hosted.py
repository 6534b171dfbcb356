from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from legation.tools import OFFERED, ToolFault, hosted


def plain(message: str, history: Any, late: int = 0) -> str:
    return message


async def generator(*, message: str) -> AsyncIterator[str]:
    yield message


def everything(message: str, **rest: Any) -> None: ...


def nothing(*rest: Any) -> None: ...


class Agent:
    def __call__(self, session_id: str) -> None: ...


def test_a_function_is_given_what_it_names() -> None:
    assert hosted(plain).function is plain
    assert hosted(plain).takes == ("message", "history")
    assert hosted(generator).takes == ("message",)
    assert hosted(everything).takes == OFFERED
    assert hosted(nothing).takes == ()
    assert hosted(Agent()).takes == ("session_id",)


def asks(question: str) -> None: ...


def first(message: str, /) -> None: ...


def pieces(message: str) -> Iterator[str]:
    yield message


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (asks, "parameter 'question' is none of: message, session_id, user_id, "),
        (first, "parameter 'message' is positional-only"),
        (3, "is no function"),
        (pieces, "is a generator"),
        (type, "is no function"),
    ],
)
def test_what_cannot_be_called_so_is_refused(function: Any, told: str) -> None:
    with pytest.raises(ToolFault) as caught:
        hosted(function)

    assert str(caught.value).startswith(told)
