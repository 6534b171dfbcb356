from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any, TypedDict

import jsonschema_rs
import pytest
from attrs import frozen

from legation.tools import Unfit
from legation.tools.accepted import check_schema
from legation.tools.answer_class import AnswerMismatch, as_answer_class, read_answer


@frozen
class Booking:
    """A booking of one guest.

    Attributes:
        guest: The full name.
    """

    guest: str
    night: date
    nights: int = 1


@dataclass
class Offer:
    bookings: list[Booking]


class Room(TypedDict):
    number: int
    free_from: date


def test_class_gives_the_schema_with_its_name_and_its_description() -> None:
    answer = as_answer_class(Booking)

    assert answer.schema == {
        "title": "Booking",
        "description": "A booking of one guest.",
        "type": "object",
        "properties": {
            "guest": {"type": "string", "description": "The full name."},
            "night": {"type": "string", "format": "date"},
            "nights": {"type": "integer"},
        },
        "required": ["guest", "night"],
        "additionalProperties": False,
    }
    assert check_schema(answer.schema) is None
    jsonschema_rs.validator_for(dict(answer.schema))


def test_signature_that_python_writes_is_no_description() -> None:
    assert "description" not in as_answer_class(Offer).schema


def test_answer_becomes_an_instance() -> None:
    content = {"bookings": [{"guest": "Ada", "night": "2026-11-23"}]}
    offer = read_answer(Offer, content)

    assert offer == Offer([Booking("Ada", date(2026, 11, 23))])
    assert read_answer(Room, {"number": 7, "free_from": "2026-11-23"}) == {
        "number": 7,
        "free_from": date(2026, 11, 23),
    }


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("no JSON", "the answer must be an object"),
        ({"night": "x", "n": 1}, "n is an unknown field; guest is missing; night must be a date"),
    ],
)
def test_what_does_not_fit_is_said_with_every_place(content: Any, sentence: str) -> None:
    with pytest.raises(AnswerMismatch) as found:
        read_answer(Booking, content)

    assert str(found.value).startswith(sentence)
    assert len(found.value.problems) == sentence.count(";") + 1


@pytest.mark.parametrize(
    ("cls", "sentence"),
    [(int, "is int, whose values are no objects of JSON"), (object, "is object"), (bytes, "")],
)
def test_class_whose_values_are_no_objects_is_refused(cls: type[Any], sentence: str) -> None:
    with pytest.raises(Unfit, match=f"^{sentence}"):
        as_answer_class(cls)
