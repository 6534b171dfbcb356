from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import field as data_field
from typing import Annotated, Any, TypedDict

import pydantic
import pytest
from attrs import define, frozen

from legation import Run
from legation.tools import ContextParameter, Misfit, read_given
from legation.tools.context_parameter import find_context, read_context, read_signature
from legation.tools.shapes import Mapped, ModelShape, ObjectShape, Plain, Unfit

OBJECT = Mapped(Plain("any"))


@frozen
class Shop:
    """The shop of a request.

    Attributes:
        tenant: Whose.
    """

    tenant: str
    vip: bool = False


@dataclass
class Cart:
    """The cart of a session."""

    items: list[str] = data_field(default_factory=list[str])


class Step(TypedDict, total=False):
    """Where a conversation stands."""

    step: int


class Tenant(pydantic.BaseModel):
    """A model of pydantic."""

    tenant: str = ""


class Opaque:
    """A class that JSON does not have."""


def shape_in(hint: Any, name: str) -> Any:
    found = read_context("run", hint)
    assert found is not None
    return getattr(found, name)


def test_run_is_found_by_its_annotation() -> None:
    assert read_context("ctx", Run) == ContextParameter("ctx", OBJECT, OBJECT)
    assert read_context("ctx", Annotated[Run, "the run"]) == ContextParameter("ctx")
    assert read_context("ctx", Run[dict[str, Any], Any]) == ContextParameter(
        "ctx", OBJECT, Plain("any")
    )
    assert isinstance(shape_in(Run[Shop], "dependencies"), ObjectShape)
    assert shape_in(Run[Shop], "state") == OBJECT
    assert isinstance(shape_in(Run[None, Cart], "state"), ObjectShape)
    assert isinstance(shape_in(Run[Tenant], "dependencies"), ModelShape)
    assert isinstance(shape_in(Run[Mapping[str, int], Step], "state"), ObjectShape)
    assert read_context("a", str) is None
    assert read_context("a", str | None) is None
    assert read_context("a", "str") is None
    assert read_context("a", inspect.Parameter.empty) is None


@pytest.mark.parametrize(
    ("hint", "sentence"),
    [
        (Run | None, "is a `Run` among others"),
        (Run[Shop] | str, "is a `Run` among others"),
        (Run[Opaque], "is a `Run` whose dependencies contains Opaque, which has no form in JSON"),
        (Run[Any, int], "is a `Run` whose state has no members"),
        (Run[list[str], Any], "is a `Run` whose dependencies has no members"),
        ("Run[Gone]", "has an annotation that has no meaning where the function is defined"),
    ],
)
def test_run_of_what_cannot_be_read_is_refused(hint: Any, sentence: str) -> None:
    with pytest.raises(Unfit) as caught:
        read_context("run", hint)

    assert str(caught.value).startswith(sentence)


def two(first: Run, second: Run[Shop]) -> None: ...


def one(message: str, context: Run[Shop, Cart], *runs: Run, **more: Run) -> None: ...


def none(message: str) -> None: ...


def wrong(run: Run | None) -> None: ...


def parameters(function: Callable[..., Any]) -> Any:
    return read_signature(function).parameters.values()


def test_one_parameter_is_given_the_run() -> None:
    found = find_context(parameters(one))

    assert found is not None
    assert found.name == "context"
    assert find_context(parameters(none)) is None
    for function, name in ((two, "second"), (wrong, "run")):
        with pytest.raises(Unfit, match=f"parameter '{name}' is a "):
            find_context(parameters(function))


def test_annotation_without_a_meaning_is_left_as_it_stands() -> None:
    def function(message: str) -> None: ...

    function.__annotations__["message"] = "Gone"

    assert read_signature(function).parameters["message"].annotation == "Gone"


# --- What is given -------------------------------------------------------------------------------


def test_a_class_reads_its_own_members_and_leaves_the_others_alone() -> None:
    shop = shape_in(Run[Shop], "dependencies")

    assert read_given(shop, "dependencies", {"tenant": "acme", "other": 1}) == Shop("acme")
    assert read_given(shop, "dependencies", {"tenant": "a", "vip": True}) == Shop("a", vip=True)
    assert read_given(shape_in(Run[None, Step], "state"), "state", {"x": 1}) == {}
    assert read_given(shape_in(Run[None, Cart], "state"), "state", {}) == Cart()
    assert read_given(Plain("null"), "dependencies", {"tenant": "acme"}) is None


@pytest.mark.parametrize("shape", [OBJECT, Plain("any")])
def test_what_is_given_is_a_copy(shape: Any) -> None:
    given = {"cart": ["tea"]}
    copy = read_given(shape, "state", given)
    copy["cart"].append("milk")

    assert given == {"cart": ["tea"]}


def test_reason_names_the_place_and_quotes_nothing() -> None:
    @define
    class Checked:
        code: str

        def __attrs_post_init__(self) -> None:
            raise ValueError(f"{self.code} is bad")

    shop = shape_in(Run[Shop], "dependencies")
    given = {"tenant": 17, "vip": "a secret"}

    assert read_given(shop, "dependencies", given) == Misfit(
        "dependencies.tenant must be a string; dependencies.vip must be true or false"
    )
    assert read_given(shop, "dependencies", {}) == Misfit("dependencies.tenant is missing")
    checked = shape_in(Run[Checked], "dependencies")
    assert read_given(checked, "state", {"code": "s3cret"}) == Misfit("state is refused")
