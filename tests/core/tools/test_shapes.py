from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, MutableSet
from collections.abc import Set as AbstractSet
from dataclasses import InitVar, dataclass
from decimal import Decimal
from enum import Enum
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Required,
    TypedDict,
    TypeVar,
)
from uuid import UUID

import attrs
import pytest
from annotated_types import Ge
from attrs import field, frozen
from hypothesis import given
from hypothesis import strategies as st

from legation.tools.shapes import (
    Choice,
    Either,
    Fixed,
    Listed,
    Mapped,
    Member,
    Noted,
    ObjectShape,
    Plain,
    Shape,
    Unfit,
    member_name,
    peel,
    shape_of,
)

T = TypeVar("T")
City = NewType("City", str)
TEXT, NUMBER, NULL, ANY = Plain("string"), Plain("integer"), Plain("null"), Plain("any")


class Odd(Enum):
    OBJECT = Decimal(1)


@frozen
class Address:
    """Where somebody lives.

    Attributes:
        street: With the number.
        city: Not told, as the annotation says more.
    """

    kind: ClassVar[str] = "address"
    street: str
    city: Annotated[str, "In full."]
    _zip: int | None = None
    _seen: int = field(default=0, init=False)
    tags: list[str] = field(factory=list[str])


@dataclass
class Point:
    x: int
    y: int = 0
    tags: list[str] | None = None
    where: str = ""


class Pair(NamedTuple):
    """Two numbers.

    Attributes:
        y: Upwards.
    """

    x: int
    y: int = 0


class Version(tuple[int, ...]):
    """A tuple without names."""

    __slots__ = ()


class Options(TypedDict):
    fast: bool
    note: Annotated[NotRequired[str], "For people."]


class Partial(Options, total=False):
    late: bool
    sure: Required[bool]


@frozen
class Node:
    children: list[Node]


@dataclass
class Fresh:
    seed: InitVar[int]


@frozen
class Lost:
    where: Nowhere  # type: ignore[name-defined]  # noqa: F821 - that is the case


@frozen
class Holder:
    price: complex


Bare = attrs.make_class("Bare", ["price"], frozen=True)


Said = TypedDict("Said", {"two words": int})


@frozen
class Box(Generic[T]):
    content: T


SHAPES: list[tuple[Any, Shape]] = [
    (str, TEXT),
    (City, TEXT),
    (Decimal, Plain("decimal", make=Decimal)),
    (UUID, Plain("uuid", make=UUID)),
    (set[Annotated[str, "a tag"]], Listed(Noted(TEXT, (("description", "a tag"),)), set, (), True)),
    (MutableSet[Literal[1]], Listed(Choice(((1, 1),)), set, (), True)),
    (AbstractSet[str | None], Listed(Either((NULL, TEXT)), frozenset, (), True)),
    (frozenset[tuple[int, str]], Listed(Fixed((NUMBER, TEXT)), frozenset, (), True)),
    (set[frozenset[int]], Listed(Listed(NUMBER, frozenset, (), True), set, (), True)),
    (
        Pair,
        ObjectShape((Member("x", NUMBER), Member("y", NUMBER, False, "Upwards.")), Pair),
    ),
    (dict[Annotated[str, "a name"], int], Mapped(NUMBER)),
    (Annotated[int, "five"], Noted(NUMBER, (("description", "five"),))),
    (None, NULL),
    (list[int], Listed(NUMBER, list)),
    (Iterable[int], Listed(NUMBER, list)),
    (tuple[int, ...], Listed(NUMBER, tuple)),
    (tuple, Listed(ANY, tuple)),
    (tuple[int, str], Fixed((NUMBER, TEXT))),
    (dict[str, int], Mapped(NUMBER)),
    (dict[City, int], Mapped(NUMBER)),
    (Literal["a", 1], Choice((("a", "a"), (1, 1)))),
    (str | None, Either((NULL, TEXT))),
    (float | int | None, Either((NULL, NUMBER, Plain("number")))),
    (
        Any | dict[str, int] | list[int] | Point | Literal["a"],
        Either(
            (
                Choice((("a", "a"),)),
                shape_of(Point),
                Listed(NUMBER, list),
                Mapped(NUMBER),
                ANY,
            )
        ),
    ),
    (
        Address,
        ObjectShape(
            (
                Member("street", TEXT, description="With the number."),
                Member("city", TEXT, description="In full."),
                Member("zip", Either((NULL, NUMBER)), required=False),
                Member("tags", Listed(TEXT, list), required=False),
            ),
            Address,
        ),
    ),
    (
        Point,
        ObjectShape(
            (
                Member("x", NUMBER),
                Member("y", NUMBER, required=False),
                Member("tags", Either((NULL, Listed(TEXT, list))), required=False),
                Member("where", TEXT, required=False),
            ),
            Point,
        ),
    ),
    (
        Partial,
        ObjectShape(
            (
                Member("fast", Plain("boolean")),
                Member("note", TEXT, required=False, description="For people."),
                Member("late", Plain("boolean"), required=False),
                Member("sure", Plain("boolean")),
            ),
            dict,
        ),
    ),
]


@pytest.mark.parametrize(("hint", "shape"), SHAPES, ids=[str(hint) for hint, _ in SHAPES])
def test_a_hint_has_its_shape(hint: Any, shape: Shape) -> None:
    assert shape_of(hint) == shape


def test_an_alternative_in_an_alternative_is_one_of_it() -> None:
    maybe = NewType("maybe", str | None)  # type: ignore[valid-newtype]  # Python allows it

    assert shape_of(maybe | int) == Either((NULL, NUMBER, TEXT))


UNFIT: list[tuple[Any, str]] = [
    (Version, "contains Version, which has no form in JSON"),
    (complex, "contains complex, which has no form in JSON"),
    (set, "contains set; the items of a set must be hashable"),
    (set[dict[str, int]], "contains set[dict[str, int]]; the items of a set must be hashable"),
    (frozenset[list[int]], "contains frozenset[list[int]]; the items of a set must be hashable"),
    (set[Point], "contains set[tests.core.tools.test_shapes.Point]; the items of a set must be"),
    (Callable[[], int], "which has no form in JSON"),
    (T, "contains ~T, which has no form in JSON"),
    (Box[int], "Box[int], which has no form in JSON"),
    (3, "contains 3, which has no form in JSON"),
    ("str", "contains 'str', which has no form in JSON"),
    (type[int], "contains type[int], which has no form in JSON"),
    (list[complex], "contains complex, which has no form in JSON"),
    (int | complex, "contains complex, which has no form in JSON"),
    (tuple[()], "contains tuple[()], which has one value only"),
    (dict[int, str], "contains dict[int, str]; the keys of an object are strings"),
    (Literal[b"a"], "has the choice b'a', which has no form in JSON"),
    (Odd, "has the choice Decimal('1'), which has no form in JSON"),
    (Node, "contains Node, whose children contains Node, which contains itself"),
    (Fresh, "contains Fresh, whose seed is made with and not kept"),
    (Lost, "contains Lost, whose annotations have no meaning: name 'Nowhere' is not defined"),
    (Holder, "contains Holder, whose price contains complex, which has no form in JSON"),
    (Bare, "contains Bare, whose price is not annotated"),
    (
        Said,
        "contains Said, whose two words has a name that no provider takes",
    ),
]


@pytest.mark.parametrize(("hint", "sentence"), UNFIT, ids=[str(hint) for hint, _ in UNFIT])
def test_a_hint_that_json_has_no_values_for_is_refused(hint: Any, sentence: str) -> None:
    with pytest.raises(Unfit) as caught:
        shape_of(hint)

    assert sentence in str(caught.value)


def test_numbers_that_json_lacks_are_no_choices() -> None:
    endless = Enum("endless", {"MOST": float("inf")})
    half = Enum("half", {"HALF": 0.5})

    with pytest.raises(Unfit, match="the choice inf"):
        shape_of(endless)
    assert shape_of(half) == Choice(((0.5, half["HALF"]),))


class Alias:
    """Looks as `type X = …` does, which Python 3.11 cannot say."""

    __name__ = "X"

    def __init__(self, value: Any) -> None:
        self.value = value

    @property
    def __value__(self) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


Alias.__name__ = "TypeAliasType"


def test_an_alias_is_what_it_stands_for() -> None:
    itself = Alias(None)
    itself.value = list[itself]  # type: ignore[valid-type]  # an object, here

    assert shape_of(Alias(int)) == NUMBER
    with pytest.raises(Unfit, match="which contains itself"):
        shape_of(itself)
    with pytest.raises(Unfit, match="whose definition has no meaning: lost"):
        shape_of(Alias(NameError("lost")))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the statement is of Python 3.12")
def test_the_statement_makes_such_an_alias() -> None:
    scope: dict[str, Any] = {}
    exec("type Ids = list[int]\ntype Tree = list[Tree]", scope)

    assert shape_of(scope["Ids"]) == Listed(NUMBER, list)
    with pytest.raises(Unfit, match="which contains itself"):
        shape_of(scope["Tree"])


def test_a_hint_is_peeled() -> None:
    assert peel(Annotated[Annotated[City, "inner"], "outer"]) == (str, "inner", None)
    assert peel(Annotated[City, Ge(1), "a"]) == (Annotated[str, Ge(1)], "a", None)
    assert peel(Required[Annotated[int, "a"]]) == (int, "a", True)
    assert peel(NotRequired[int]) == (int, "", False)


@given(st.text(max_size=70))
def test_a_name_is_told_or_refused(name: str) -> None:
    try:
        assert member_name(name) == name
    except Unfit:
        assert not name.isidentifier() or not name.isascii() or len(name) > 64


def test_an_option_may_be_a_union_with_a_note_of_its_own() -> None:
    noted = shape_of(Annotated[str | None, "a name"] | int)

    assert isinstance(noted, Either)
    assert [type(option) for option in noted.options] == [Plain, Noted]
