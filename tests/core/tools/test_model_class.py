from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

import jsonschema_rs
import pydantic
import pytest
from attrs import frozen

from legation.tools import tool
from legation.tools.answer_class import as_answer_class, read_answer
from legation.tools.arguments import read_arguments
from legation.tools.constraints import Unfit
from legation.tools.model_class import describe_model, is_model, read_model
from legation.tools.shapes import ModelShape, shape_of

Field: Any = pydantic.Field


class Item(pydantic.BaseModel):
    """Something to buy."""

    sku: str = Field(pattern="^[A-Z]{3}$")
    price: Decimal = Field(ge=0, decimal_places=2)


class Order(pydantic.BaseModel):
    items: list[Item] = Field(min_length=1)
    day: date
    note: str | None = None

    @pydantic.model_validator(mode="after")
    def check_note(self) -> Order:
        if self.note == "bad":
            raise ValueError("a bad note")
        if self.note == "worse":
            raise RuntimeError("not for the model")
        return self


class Closed(pydantic.BaseModel, extra="forbid"):
    user: Annotated[int, Field(alias="userId")]


class Node(pydantic.BaseModel):
    children: list[Node] = []


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]


class Owner(pydantic.BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    first: Item = Field(description="the first")


class Opaque(pydantic.BaseModel):
    found: Callable[[], int]


class Numbers(pydantic.RootModel[list[int]]):
    pass


@frozen
class Box:
    order: Order


class Rude:
    """Looks like a model of pydantic, and fails in ways that those do not."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return {"type": "object"}

    @classmethod
    def model_validate_json(cls, text: str, *, strict: bool) -> Any:
        raise ValueError("no") if text == "{}" else KeyError(text)


ORDER: dict[str, Any] = {"items": [{"sku": "ABC", "price": "1.50"}], "day": "2026-11-23"}


def test_model_is_recognized_by_its_methods() -> None:
    assert is_model(Order)
    assert not is_model(Box)
    assert shape_of(Order) == ModelShape(Order, {})


def test_schema_has_its_definitions_in_place() -> None:
    schema = describe_model(Order)

    assert "$defs" not in schema
    item = schema["properties"]["items"]["items"]
    assert item["title"] == "Item"
    assert item["properties"]["sku"]["pattern"] == "^[A-Z]{3}$"
    assert jsonschema_rs.is_valid(dict(schema), ORDER)
    assert not jsonschema_rs.is_valid(dict(schema), {**ORDER, "items": []})


def test_words_beside_a_reference_are_kept_and_a_discriminator_names_nothing_that_is_gone() -> None:
    schema = describe_model(Owner)

    assert schema["properties"]["first"]["description"] == "the first"
    assert "#/$defs" not in str(schema)
    assert [one["title"] for one in schema["properties"]["pet"]["oneOf"]] == ["Cat", "Dog"]


@pytest.mark.parametrize(
    ("cls", "sentence"),
    [
        (Node, "contains Node, which contains itself"),
        (Opaque, "contains Opaque, which has no schema: Cannot generate a JsonSchema"),
    ],
)
def test_model_without_a_schema_of_an_end_is_refused(cls: type[Any], sentence: str) -> None:
    with pytest.raises(Unfit, match=f"^{sentence}"):
        shape_of(cls)


def test_value_becomes_an_instance() -> None:
    assert read_model(Order, dict(ORDER)) == (
        Order(items=[Item(sku="ABC", price=Decimal("1.50"))], day=date(2026, 11, 23)),
        [],
    )


@pytest.mark.parametrize(
    ("cls", "value", "problems"),
    [
        (Order, 1, [("", "must be an object")]),
        (
            Order,
            {"items": [{"sku": "abc", "price": -1}, {"sku": 1, "price": "1"}]},
            [
                (".items[0].sku", "is refused: String should match pattern '^[A-Z]{3}$'"),
                (".items[0].price", "must be greater than or equal to 0"),
                (".items[1].sku", "must be a valid string"),
                (".day", "is missing"),
            ],
        ),
        (Order, {**ORDER, "note": "bad"}, [("", "is refused: a bad note")]),
        (Order, {**ORDER, "note": "worse"}, [("", "is refused")]),
        (Closed, {"userId": 1, "other": 2}, [(".other", "is an unknown field")]),
        (Closed, {"userId": "1"}, [(".userId", "must be a valid integer")]),
        (Rude, {}, [("", "is refused: no")]),
        (Rude, {"a": 1}, [("", "is refused")]),
    ],
)
def test_what_does_not_fit_is_said_with_every_place(
    cls: type[Any], value: Any, problems: list[tuple[str, str]]
) -> None:
    found, wrong = read_model(cls, value)

    assert found is None
    assert len(wrong) == len(problems)
    for (place, sentence), (expected, start) in zip(wrong, problems, strict=True):
        assert (place, sentence[: len(start)]) == (expected, start)


def test_tool_takes_models_and_the_model_reads_what_is_wrong_with_every_place() -> None:
    @tool
    def buy(order: Order, box: Box | None = None) -> None: ...

    given = '{"order": {"items": [], "day": "soon"}, "box": {"order": {"items": 1}}}'
    arguments = read_arguments(
        buy, '{"order": {"items": [{"sku": "ABC", "price": 1}], "day": "2026-11-23"}}'
    )

    assert not isinstance(arguments, str)
    assert isinstance(arguments["order"], Order)
    sentence = read_arguments(buy, given)
    assert isinstance(sentence, str)
    assert "order.items is refused: List should have at least 1 item" in sentence
    assert "order.day must be a valid date" in sentence
    assert "box.order.items must be a valid array" in sentence


def test_answer_is_a_model() -> None:
    answer = as_answer_class(Order)

    assert answer.schema["title"] == "Order"
    assert read_answer(Order, ORDER).day == date(2026, 11, 23)
    with pytest.raises(Unfit, match="is Numbers, whose values are no objects of JSON"):
        as_answer_class(Numbers)
