"""Classes that `values` makes are those that attrs makes, for each class of ours."""

from __future__ import annotations

import copy
import gc
import importlib
import inspect
import pickle
import pkgutil
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from threading import Thread
from typing import Any, Final, Generic, TypeVar

import attrs
import pytest
from attrs import NOTHING, field
from attrs.exceptions import FrozenInstanceError

import legation
from legation import values
from legation.values import define, frozen

T = TypeVar("T")
FIELDS: Final = "__fields_made__"
"""Where a class that attrs did not make has its fields."""


def all_classes() -> Iterator[Any]:
    """Yield each class of the core that attrs did not make."""
    for found in pkgutil.walk_packages(legation.__path__, "legation."):
        module = importlib.import_module(found.name)
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__ == found.name and FIELDS in vars(value):
                yield value


def by_attrs(made: Any) -> Any:
    """Return the class that attrs makes of the same fields, on the same bases."""
    values_of: dict[str, Any] = made.__dict__
    fields: dict[str, Any] = {each.name: each for each in values_of[FIELDS]}
    own: dict[str, Any] = values_of.get("__annotations__", {})
    left_out = {*fields, "__slots__", "__weakref__", "__dict__", FIELDS, "__init__", "__replace__"}
    left_out |= {"__attrs_attrs__", "__match_args__", "__eq__", "__hash__", "__repr__"}
    left_out |= {"__getstate__", "__setstate__", "__setattr__", "__delattr__"}
    body = {name: value for name, value in values_of.items() if name not in left_out}
    mine = [fields[name] for name in own if name in fields]
    body |= {each.name: given_for(each) for each in mine}
    is_frozen = made.__setattr__ is not object.__setattr__
    decorate = attrs.frozen if is_frozen else attrs.define
    again = type(made)(made.__name__, made.__bases__, body)
    return decorate(eq="__eq__" in vars(made))(again)


def given_for(made: Any) -> Any:
    """Return what attrs makes the field `made` of."""
    options = made.options
    is_factory = made.kind.strip("()cv") in ("f", "F")
    make: Any = attrs.Factory
    default = make(made.default, "F" in made.kind) if is_factory else made.default
    return attrs.field(
        default=default,
        converter=options.converter,
        validator=options._validator,
        repr=options.repr,
        eq=options.eq,
        order=options.order,
        init="(" not in made.kind,
        metadata=options.metadata,
        kw_only=made.kw_only,
        alias=None if made.alias == made.name.lstrip("_") else made.alias,
    )


def form_of(cls: Any) -> dict[str, object]:
    """Return what tells two classes apart that are made of the same fields."""
    parameters = inspect.signature(cls.__init__).parameters.values()
    return {
        # Types may have been resolved meanwhile; they stand below.
        "fields": [each.evolve(type=None) for each in attrs.fields(cls)],
        "parameters": [(p.name, p.kind, p.default, p.annotation) for p in parameters],
        "slots": sorted({*cls.__slots__} - {"__weakref__"}),
        "weak": hasattr(cls, "__weakref__"),
        "match": cls.__match_args__,
        "frozen": cls.__setattr__ is not object.__setattr__,
        "hash": cls.__hash__ is None,
        "name": (cls.__qualname__, cls.__module__, cls.__init__.__qualname__),
        "order": "__lt__" in vars(cls),
        "abstract": getattr(cls, "__abstractmethods__", None),
    }


def test_every_class_of_the_core_is_as_attrs_makes_it() -> None:
    made = list(all_classes())
    assert len(made) > 500

    differing = [cls for cls in made if form_of(cls) != form_of(by_attrs(cls))]

    assert differing == []
    gc.collect()  # the copies are subclasses until then


# --- one of each kind ----------------------------------------------------------------------------

LISTED: Final = attrs.Factory(lambda self: [self.plain, self.given], takes_self=True)
SHAPES: Final = """
    class Every:
        plain: int
        _private: str
        given: int = 3
        made: list[int] = field(factory=list)
        seen: list[Any] = field(default=LISTED)
        named: str = field(default="n", kw_only=True)
        needed: bytes = field(kw_only=True)
        fresh: dict[str, int] = field(factory=dict, kw_only=True)
        fixed: int = field(default=7, init=False)
        own: list[int] = field(factory=list, init=False, eq=False, repr=False)
        told: Any = field(default=LISTED, init=False)
        other: int = field(default=0, alias="another", metadata={"unit": "s"})
        size: ClassVar[int] = 9
        count: "ClassVar[int]" = 8
"""


def shapes(decorate: Any) -> Any:
    """Return the class `Every`, made by `decorate`."""
    space: dict[str, Any] = {**globals()}
    exec(
        inspect.cleandoc("from __future__ import annotations\n\n" + inspect.cleandoc(SHAPES)), space
    )
    return decorate(space["Every"])


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (frozen, attrs.frozen),
        (frozen(eq=False), attrs.frozen(eq=False)),
        (define, attrs.define),
        (define(eq=False), attrs.define(eq=False)),
    ],
)
def test_a_class_with_every_kind_of_field_is_as_that_of_attrs(ours: Any, theirs: Any) -> None:
    mine, other = shapes(ours), shapes(theirs)
    assert FIELDS in vars(mine)
    for given in (
        ((1, "p"), {"needed": b""}),
        ((1, "p", 4, [1], [2]), {"named": "m", "needed": b"x", "fresh": {"a": 1}, "another": 5}),
    ):
        one, two = mine(*given[0], **given[1]), other(*given[0], **given[1])
        assert attrs.asdict(one) == attrs.asdict(two)
        assert repr(one) == repr(two)
        assert attrs.evolve(one, plain=2) == attrs.evolve(one, plain=2) or not is_compared(mine)
        assert (one.size, one.count, one.seen) == (9, 8, two.seen)
    wrong: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {}),
        ((1, "p"), {}),
        ((1,) * 9, {"needed": b""}),
        ((1, "p"), {"x": 1}),
    ]
    for values_of, by_name in wrong:
        with pytest.raises(TypeError):
            mine(*values_of, **by_name)
    assert mine(1, "p", needed=b"").made is not mine(1, "p", needed=b"").made
    assert form_of(mine) == form_of(other)


def is_compared(cls: Any) -> bool:
    """Tell whether two of `cls` are compared by value."""
    return "__eq__" in vars(cls)


@frozen
class Base(Generic[T]):
    """Fields to inherit."""

    first: T
    second: int = 2

    def name(self) -> str:
        return "base"

    @property
    def kind(self) -> type[Any]:
        return __class__  # type: ignore[name-defined,no-any-return]


@frozen
class Derived(Base[str]):
    """Inherits a field, has another in the place of one, and one more."""

    second: int = 4
    third: int = 5
    seen: list[int] = field(factory=list[int], init=False, eq=False)

    def __attrs_post_init__(self) -> None:
        self.seen.append(self.third)

    def name(self) -> str:
        return f"derived of {super().name()}"

    def __repr__(self) -> str:
        return f"Derived({self.first!r})"

    @classmethod
    def make(cls) -> Derived:
        return cls("made")

    @property
    def kind(self) -> type[Any]:
        return super().kind


@define
class Counter:
    """May be changed, and is compared."""

    count: int = 0


@attrs.frozen
class ByAttrs(Derived):
    """A class of attrs on one of ours."""

    fourth: int = attrs.field(default=6, validator=attrs.validators.ge(0))


@frozen
class OnAttrs(ByAttrs):
    """One of ours on a class of attrs."""

    fifth: int = 7


def test_a_derived_class_has_the_fields_and_the_methods_of_its_base() -> None:
    one = Derived("a", third=6)

    assert (one.first, one.second, one.third, one.seen) == ("a", 4, 6, [6])
    described: Any = attrs.fields(Derived)
    assert [(each.name, each.inherited) for each in described] == [
        ("first", True),
        ("second", False),
        ("third", False),
        ("seen", False),
    ]
    assert one.name() == "derived of base"
    assert (one.kind, Derived.make()) == (Base, Derived("made"))
    assert attrs.evolve(one, first="b") == Derived("b", 4, 6)


def test_classes_of_attrs_may_stand_above_and_below() -> None:
    assert attrs.astuple(OnAttrs("a")) == ("a", 4, 5, [5], 6, 7)
    assert repr(Derived("a")) == "Derived('a')"
    assert FIELDS not in vars(OnAttrs)
    with pytest.raises(ValueError, match="fourth"):
        ByAttrs("a", fourth=-1)
    with pytest.raises(FrozenInstanceError):
        OnAttrs("a").fifth = 8  # type: ignore[misc]


@pytest.mark.parametrize("value", [Derived("a"), Counter(3), OnAttrs("b"), Base([1])])
def test_a_value_is_copied_pickled_and_referred_to(value: Any) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.copy(value) == value
    assert weakref.ref(value)() is value
    assert not hasattr(value, "__dict__")


def test_a_state_of_a_release_before_lacks_a_field() -> None:
    value = Derived.__new__(Derived)
    value.__setstate__({"first": "a", "gone": 1})  # type: ignore[attr-defined]

    assert value.first == "a"
    assert not hasattr(value, "second")


def test_what_may_be_changed_is_compared_and_has_no_hash() -> None:
    one = Counter()
    one.count += 1

    assert one == Counter(1)
    assert one != Counter(2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)
    assert hash(Derived("a")) == hash(Derived("a"))


def test_the_first_comparisons_may_come_from_several_threads() -> None:
    @frozen
    class Seen:
        number: int

    compare, take_hash = Seen.__eq__, Seen.__hash__
    threads = [Thread(target=lambda: hash(Seen(1)) == hash(Seen(1))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert Seen(1) == Seen(1)
    # Who had looked the method up before gets the same from it.
    assert compare(Seen(1), Seen(1))
    assert take_hash(Seen(1)) == hash(Seen(1))


def test_a_method_may_refer_to_what_is_not_there_yet() -> None:
    @frozen
    class Early:
        def late(self) -> int:
            return later

    later = 3

    assert Early().late() == later


def test_an_abstract_class_stays_one() -> None:
    @frozen
    class Shape(ABC):
        sides: int

        @abstractmethod
        def area(self) -> float: ...

    with pytest.raises(TypeError, match="abstract"):
        Shape(3)  # type: ignore[abstract]


# --- what attrs is asked to make -----------------------------------------------------------------


def declared(called: str = "Declared", **fields: Any) -> type[Any]:
    """Return a class with these fields, each an `int`."""
    body = {"__annotations__": dict.fromkeys(fields, "int"), "__module__": __name__}
    given = {name: value for name, value in fields.items() if value is not NOTHING}
    return type(called, (), {**body, **given})


def ordered_by(_: object) -> int:
    return 0


class OwnSetattr:
    """Has something to say about assignments."""

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


@pytest.mark.parametrize(
    "cls",
    [
        declared("Converted", a=field(converter=attrs.Converter(int))),
        declared("Late", a=field(init=False, converter=int)),
        declared("Keyed", a=field(eq=ordered_by)),
        declared("Shown", a=field(repr=str)),
        type("Cached", (), {"a": cached_property(ordered_by)}),
        type("Raised", (Exception,), {}),
        type("Hooked", (), {"__attrs_pre_init__": lambda self: None}),
        type("Later", (), {"__annotate__": None}),
        type("WithInit", (), {"__init__": lambda self: None}),
    ],
    ids=lambda cls: str(cls.__name__),
)
def test_what_needs_more_is_made_by_attrs(cls: Any) -> None:
    made = frozen(cls)

    assert FIELDS not in vars(made)
    assert attrs.has(made)


def test_options_that_are_not_ours_are_those_of_attrs() -> None:
    assert FIELDS not in vars(frozen(slots=False)(declared(a=1)))
    assert FIELDS not in vars(define(on_setattr=attrs.setters.frozen)(declared(a=1)))
    assert FIELDS not in vars(define(type("Own", (OwnSetattr,), {"__annotations__": {"a": "int"}})))
    assert FIELDS not in vars(define(declared(a=field(converter=int))))
    assert FIELDS not in vars(define(declared(a=field(validator=attrs.validators.ge(0)))))
    hooked = declared(a=field(on_setattr=attrs.setters.NO_OP))
    assert FIELDS not in vars(define(hooked))
    mixed = type("Mixed", (Counter,), {"__annotations__": {"a": "int"}, "a": 1})
    assert FIELDS not in vars(frozen(mixed))
    unannotated: Any = type("Unannotated", (), {"a": field(default=1)})
    assert frozen(unannotated)().a == 1


@pytest.mark.parametrize("make", [frozen, define])
@pytest.mark.parametrize("more", [{}, {"c": field(default=0, converter=int)}])
def test_a_factory_that_is_an_alias_makes_plain_containers(make: Any, more: dict[str, Any]) -> None:
    fields: dict[str, Any] = {
        "a": field(factory=dict[str, int]),
        "b": field(factory=str),
        "d": list[int],
    }
    made = make(declared(**fields, **more))

    assert attrs.fields(made).a.default == attrs.Factory(dict)
    assert (made().a, made().b, made().d) == ({}, "", list[int])
    assert made().a is not made().a


def test_fields_in_a_wrong_order_are_refused_by_attrs() -> None:
    with pytest.raises(ValueError, match="No mandatory attributes allowed after"):
        frozen(declared(a=1, b=NOTHING))


def test_attrs_makes_all_where_its_fields_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "_READABLE", False)

    assert FIELDS not in vars(frozen(declared(a=1)))


def test_a_module_compiles_one_text_for_classes_of_one_form() -> None:
    frozen(declared(a=1, b=field(factory=int)))
    before = values._compile_init.cache_info()

    made = frozen(declared(x=2, y=field(factory=str)))

    after = values._compile_init.cache_info()
    assert (after.misses, after.hits) == (before.misses, before.hits + 1)
    assert (made().x, made().y) == (2, "")
