from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from legation.tools import MAX_RESULT, render


class Colour(Enum):
    RED = "red"
    ONE = 1


class Word(StrEnum):
    YES = "yes"


@frozen
class Place:
    name: str
    _zip: int = 1


@dataclass
class Trip:
    to: Place
    when: date


class Spot(NamedTuple):
    x: int


class Seat(NamedTuple):
    row: str
    at: Spot


@dataclass
class Unfilled:
    name: str = field(init=False)


class Modelled:
    """What pydantic makes of a class."""

    def model_dump(self, *, mode: str, by_alias: bool) -> dict[str, Any]:
        return {"name": "B"} if mode == "json" and by_alias else {"name": object()}


class Few(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        return {"a": 1}[key]

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


TEXTS: list[tuple[Any, str]] = [
    ("plain text", "plain text"),
    ("", ""),
    (None, "null"),
    (True, "true"),
    (1.5, "1.5"),
    ({"a": [1, "ä"]}, '{"a":[1,"ä"]}'),
    ((1, 2), "[1,2]"),
    (OrderedDict(a=1), '{"a":1}'),
    (Few(), '{"a":1}'),
    (Colour.RED, "red"),
    (Colour.ONE, "1"),
    (Word.YES, "yes"),
    ([Colour.RED, Word.YES], '["red","yes"]'),
    (date(2026, 11, 20), '"2026-11-20"'),
    ([datetime(2026, 11, 20, tzinfo=UTC)], '["2026-11-20T00:00:00+00:00"]'),
    (
        Trip(Place("B"), date(2026, 1, 1)),
        '{"to":{"name":"B","zip":1},"when":"2026-01-01"}',
    ),
    ("a\0b\ud800", "a\ufffdb\ufffd"),
    (
        {
            "id": UUID(int=1),
            "price": Decimal("9.90"),
            "at": time(9, 30),
            "long": timedelta(0, 90),
        },
        '{"id":"00000000-0000-0000-0000-000000000001","price":"9.90","at":"09:30:00","long":"P0DT90S"}',
    ),
    (Decimal("9.90"), '"9.90"'),
    ({3, 1, 2}, "[1,2,3]"),
    (frozenset({"b", "a"}), '["a","b"]'),
    ([deque([1]), range(2), {"a": 1}.values(), {"a": 1}.keys()], '[[1],[0,1],[1],["a"]]'),
    ([Modelled()], '[{"name":"B"}]'),
    (b"hi", '"aGk="'),
    ([bytearray(b"hi"), memoryview(b"hi"), {b"hi"}], '["aGk=","aGk=",["aGk="]]'),
    (Seat("A", Spot(1)), '{"row":"A","at":{"x":1}}'),
    ({"a": [(Seat("A", Spot(1)),)]}, '{"a":[[{"row":"A","at":{"x":1}}]]}'),
    ({Seat("A", Spot(1))}, '[{"row":"A","at":{"x":1}}]'),
    (deque([Spot(1)]), '[{"x":1}]'),
    (Trip(Place("B"), Spot(1)), '{"to":{"name":"B","zip":1},"when":{"x":1}}'),  # type: ignore[arg-type]
    (timedelta(-1, 1, 500), '"-P0DT86398.9995S"'),
    (timedelta(days=3), '"P3DT0S"'),
]


@pytest.mark.parametrize(("value", "text"), TEXTS, ids=range(len(TEXTS)))
def test_a_result_is_text(value: Any, text: str) -> None:
    assert render(value) == text


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


def nested(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


NONE: list[Any] = [
    *(object(), [object()], {object()}),
    *(float("nan"), [float("inf")], {(1, 2): 3}),
    *(CIRCLE, nested(100_000), Place, Trip, len, Unfilled()),
]


@pytest.mark.parametrize("index", range(len(NONE)))
def test_what_json_does_not_have_is_none(index: int) -> None:
    assert render(NONE[index]) is None


def test_a_long_result_is_cut_with_a_note() -> None:
    assert render("abcdef", 6) == "abcdef"
    assert render("abcdef", 5) == "abcde\n[cut: only the first 5 characters are shown]"
    assert render(["x" * MAX_RESULT]) is not None
    assert len(render("x" * 50_000_000) or "") < MAX_RESULT + 100


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(JSON)
def test_any_result_is_storable_text_or_none(value: Any) -> None:
    text = render(value)

    assert text is None or (text.encode() and "\0" not in text) or text == ""
