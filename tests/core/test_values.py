from __future__ import annotations

from functools import total_ordering
from typing import Any

import attrs
import pytest
from attrs import field
from attrs.exceptions import FrozenInstanceError

from legation.runs.turn_state import CallState, TurnState
from legation.values import copy_with, define, frozen


@frozen
class Point:
    x: int
    y: int = field(default=0, kw_only=True)


@frozen
class Nothing:
    pass


@frozen
class Nobody:
    pass


@frozen
class Login:
    name: str
    secret: str = field(default="", repr=False)
    seen_us: int = field(default=0, eq=False)


@frozen(kw_only=True)
class Named:
    name: str


@attrs.frozen
class ByAttrs:
    name: str
    _inner: tuple[int, ...] = ()


@frozen
class ByUs:
    name: str
    _inner: tuple[int, ...] = ()


def test_equal_are_two_of_a_kind_whose_compared_fields_are() -> None:
    assert Point(1, y=2) == Point(1, y=2)
    assert Point(1, y=2) != Point(1, y=3)
    assert Point(1) != Point(2)
    assert Login("eve", seen_us=1) == Login("eve", seen_us=2)
    assert Login("eve", "a") != Login("eve", "b")


def test_without_fields_there_is_one_value() -> None:
    assert Nothing() == Nothing()
    assert hash(Nothing()) == hash(Nothing())


@pytest.mark.parametrize("other", [Nobody(), None, (), "Nothing()"])
def test_another_kind_is_never_equal(other: object) -> None:
    assert Nothing() != other
    assert other != Nothing()


def test_neither_is_a_derived_kind() -> None:
    @frozen
    class Pixel(Point):
        pass

    assert Pixel(1) == Pixel(1)
    assert Pixel(1) != Point(1)
    assert Point(1) != Pixel(1)


def test_what_is_equal_has_one_hash() -> None:
    assert hash(Login("eve", seen_us=1)) == hash(Login("eve", seen_us=2))
    assert {Point(1), Point(1), Point(2)} == {Point(2), Point(1)}
    assert len({Nothing(), Nobody()}) == 2


def test_a_value_of_what_has_no_hash_has_none() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(ByUs("a", [1]))  # type: ignore[arg-type]


def test_the_text_shows_the_fields_that_are_to_be_shown() -> None:
    assert repr(Nothing()) == "Nothing()"
    assert repr(Login("eve", "hunter2")) == "Login(name='eve', seen_us=0)"
    assert repr(Point(1, y=Named(name="n"))) == "Point(x=1, y=Named(name='n'))"  # type: ignore[arg-type]


def test_a_class_within_a_function_is_called_as_it_is_there() -> None:
    @frozen
    class Local:
        @frozen
        class Inner:
            a: int

    assert repr(Local()) == "Local()"
    assert repr(Local.Inner(1)) == "Local.Inner(a=1)"


@pytest.mark.parametrize(("name", "inner"), [("", ()), ("a", (1, 2)), ("'", ())])
def test_all_is_as_attrs_has_it(name: str, inner: tuple[int, ...]) -> None:
    ours, theirs = ByUs(name, inner), ByAttrs(name, inner)

    assert repr(ours) == repr(theirs).replace("ByAttrs", "ByUs")
    assert attrs.asdict(ours) == attrs.asdict(theirs)
    assert attrs.evolve(ours, name="b") == ByUs("b", inner)
    assert [each.name for each in attrs.fields(ByUs)] == ["name", "_inner"]
    assert ByUs.__match_args__ == ByAttrs.__match_args__
    assert not hasattr(ours, "__dict__")


def lower(text: str) -> str:
    return text.lower()


def is_short(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if len(str(value)) > 3:
        raise ValueError(f"{attribute.name} is long: {value}")


class Checked:
    name: str = field(converter=lower, validator=is_short)
    size: int = field(default=1, validator=is_short)
    words: Any = field(factory=list[str], converter=tuple, kw_only=True)
    _mark: str = field(init=False, default="M", converter=lower)
    made: str = field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "made", f"{self.name}{self.size}")


class Derived(Checked):
    more: int = 0


def make_checked(decorate: Any) -> tuple[Any, Any]:
    """Return both classes as `decorate` makes them."""
    base = decorate(type("Checked", (), dict(vars(Checked))))
    return base, decorate(type("Derived", (base,), dict(vars(Derived))))


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("AB",), {}),
        (("AB", 2), {"words": "ab"}),
        (("ABCD",), {}),
        (("a", 12345), {}),
        ((), {"name": "A"}),
        ((), {}),
        ((None,), {}),
    ],
)
def test_converters_and_validators_do_as_those_of_attrs(
    place: int, arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    def made_by(decorate: Any) -> tuple[Any, ...]:
        cls = make_checked(decorate)[place]
        try:
            made = cls(*arguments, **named)
        except (TypeError, ValueError, AttributeError) as error:
            return type(error), str(error)
        return repr(made), hash(made) == hash(cls(*arguments, **named)), attrs.asdict(made)

    ours, theirs = make_checked(frozen)[place], make_checked(attrs.frozen)[place]

    assert made_by(frozen) == made_by(attrs.frozen)
    assert [*map(str, attrs.fields(ours))] == [*map(str, attrs.fields(theirs))]
    assert ours.__init__.__annotations__.items() <= theirs.__init__.__annotations__.items()
    assert "words" not in ours.__init__.__annotations__  # nobody knows what `tuple` takes


def test_what_is_set_later_goes_through_the_converters_of_attrs() -> None:
    @define
    class Open:
        name: str = field(converter=lower)

    one = Open("A")
    one.name = "B"

    assert one.name == "b"


def test_a_field_that_is_not_there_yet_is_shown_as_that() -> None:
    @frozen
    class Late:
        a: int = field(init=False)

    late = Late()

    assert repr(late) == "Late(a=NOTHING)"
    with pytest.raises(AttributeError):
        _ = late.a


def test_it_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Point(1).x = 2  # type: ignore[misc]


def test_methods_of_the_class_itself_stay() -> None:
    @frozen
    class Folded:
        text: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Folded) and self.text.lower() == other.text.lower()

        def __hash__(self) -> int:
            return hash(self.text.lower())

        def __repr__(self) -> str:
            return self.text

    assert Folded("A") == Folded("a")
    assert {Folded("A"), Folded("a")} == {Folded("a")}
    assert repr(Folded("A")) == "A"


def test_a_class_may_be_compared_by_identity() -> None:
    @frozen(eq=False)
    class Door:
        name: str

    door = Door("a")
    assert door == door  # noqa: PLR0124
    assert door != Door("a")
    assert repr(door) == "Door(name='a')"


def test_a_class_may_be_ordered() -> None:
    @frozen(order=True)
    class Size:
        bytes: int

    assert sorted([Size(2), Size(1)]) == [Size(1), Size(2)]


def test_an_order_of_its_own_goes_with_it() -> None:
    @total_ordering
    @frozen
    class Reversed:
        value: int

        def __lt__(self, other: Any) -> bool:
            return bool(self.value > other.value)

    assert max(Reversed(1), Reversed(2)) == Reversed(1)


@frozen(kw_only=True, slots=False)
class Open:
    a: int
    b: str = "b"
    c: tuple[int, ...] = ()


def test_a_copy_with_changes_is_what_evolve_returns() -> None:
    value = Open(a=1, c=(1, 2))
    copy = copy_with(value, b="else", c=())

    assert copy == attrs.evolve(value, b="else", c=()) == Open(a=1, b="else")
    assert (hash(copy), repr(copy)) == (hash(Open(a=1, b="else")), repr(Open(a=1, b="else")))
    assert value == Open(a=1, c=(1, 2))
    with pytest.raises(FrozenInstanceError):
        copy.a = 2  # type: ignore[misc]


@pytest.mark.parametrize("cls", [TurnState, CallState])
def test_what_is_copied_on_the_way_of_a_run_is_made_for_it(cls: type[Any]) -> None:
    looked_at = [one.name for one in attrs.fields(cls) if one.validator or one.converter]

    assert looked_at == []
    assert not hasattr(cls, "__attrs_post_init__")
    assert "__slots__" not in vars(cls)
