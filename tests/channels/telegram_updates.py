"""Updates of the Bot API, built from what aiogram knows of its types.

Each member that an update may have, and each that a message may, is in one update of its own.  What
a type requires is there, and its discriminator; so a newer aiogram brings newer updates.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import count
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest

pydantic: Any = pytest.importorskip("pydantic")
types: Any = pytest.importorskip("aiogram.types", reason="nox -s channels installs it")

__all__ = ["build_updates"]

_ADA = {"id": 7, "is_bot": False, "first_name": "Ada"}
_SCALARS: dict[type, Any] = {bool: True, int: 1, float: 1.5, str: "text", datetime: 1}


def build_updates() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield updates under the name of what is in them; each has its own ids."""
    ids = count(1000)
    for name, given in types.Update.model_fields.items():
        if name != "update_id":
            yield name, {"update_id": next(ids), name: build_value(given.annotation)}
    for name, given in types.Message.model_fields.items():
        if given.is_required() or name == "rich_message":  # which is written by bots alone
            continue
        number = next(ids)
        message = {"message_id": number, "date": 1, "chat": {"id": 7, "type": "private"}}
        member = given.alias or name
        written = {**message, "from": _ADA, member: build_value(given.annotation)}
        yield f"message.{member}", {"update_id": number, "message": written}


def build_value(annotation: Any) -> Any:
    """Return a value of this type as JSON has it: of a union the first, of a list one item."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return build_value(arguments[0])
    if origin in (Union, UnionType):
        return build_value(next(each for each in arguments if each is not type(None)))
    if origin is Literal:
        return arguments[0]
    if origin is list:
        return [build_value(arguments[0])]
    if issubclass(annotation, pydantic.BaseModel):
        return build_object(annotation)
    return next(value for kind, value in _SCALARS.items() if issubclass(annotation, kind))


def build_object(model: Any) -> dict[str, Any]:
    """Return what `model` requires, and the members that have one value only."""
    return {
        given.alias or name: build_value(given.annotation)
        for name, given in model.model_fields.items()
        if given.is_required() or get_origin(given.annotation) is Literal
    }
