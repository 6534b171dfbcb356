"""The fields of a query and of a body, declared once: what is read, its limits, its description.

    @frozen
    class ListMessagesQuery:
        state: str = choice(STATES, default="dead")
        limit: int = integer("How many on a page", default=20, minimum=1, maximum=200)

A route names such a class (`route.Route`).  Requests are read by it, and the OpenAPI document
describes it: there is no second place.  The fields are read in their order, all of them, and every
fault is reported at once; `http.bodies.Reader` knows the rules of each type and its sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final, TypeAlias, TypeVar

import attrs

from ..http.bodies.forms import parse_query
from ..http.bodies.json_text import JsonObject
from ..http.bodies.reader import Reader
from ..http.refusals import Fault
from ..values import frozen
from .json_schema import BOOLEAN, OBJECT, TEXT, Schema, nullable, object_of

__all__ = [
    "MOST",
    "PAGES",
    "Field",
    "NoQuery",
    "boolean",
    "choice",
    "declare",
    "describe_body",
    "fields_of",
    "header",
    "integer",
    "json_object",
    "line",
    "no_op",
    "read_json",
    "read_query",
    "several_texts",
    "shape_name",
    "take",
    "text",
]

T = TypeVar("T")

MOST: Final = 10**18 - 1
"""The largest integer that is taken: what a column of 64 bits surely holds."""

Reading: TypeAlias = Callable[[Reader, str], Any]
"""Takes the field of a name; `Reader` hears of what is wrong with it."""

_DECLARED: Final = "field"


PAGES: Final[Mapping[str, int]] = {"minimum": 1, "maximum": 1_000_000}
"""The bounds of the number of a page."""


def _leave(_read: Reader, _name: str) -> None:
    """Read nothing: it is no field of the query."""


@frozen
class Field:
    """One field of a request.

    Attributes:
        name: As it is sent.
        schema: What it may be.
        description: For the document.
        required: It has to be sent.
        where: `query`, `header`, `path` or `body`.
        fault: What may be wrong with it, for the document, where the schema does not say.
        read: Takes it.
        default: Its value where there is none.
    """

    name: str
    schema: Schema
    description: str = ""
    required: bool = False
    where: str = "query"
    fault: str = ""
    read: Reading = Reader.ignore
    default: Any = None


@frozen
class NoQuery:
    """A query without fields: every one that is sent is unknown."""


# --- Declarations -------------------------------------------------------------------------------


def declare(
    schema: Schema,
    read: Reading,
    about: str = "",
    *,
    default: Any = None,
    required: bool = False,
    nullable: bool = False,
    name: str = "",
    fault: str = "",
) -> Any:
    """Declare a field of a class, for which no other function of this module is made.

    Args:
        schema: What it may be, as the document has it.
        read: Takes it.
        about: Its description in the document.
        default: Its value where `read` returns none.
        required: It has to be sent; `read` sees to it.
        nullable: The document lets a parameter be null, as clients made for AgentOS have it.
        name: As it is sent, where that is not the name of the attribute.
        fault: What may be wrong with it, as the document shows it.
    """
    if nullable:
        schema = _with_null(schema)
    field = Field(name, schema, about, required, fault=fault, read=read, default=default)
    return attrs.field(default=default, metadata={_DECLARED: field})


def _with_null(schema: Schema) -> Schema:
    default = {"default": schema["default"]} if "default" in schema else {}
    plain = {key: value for key, value in schema.items() if key != "default"}
    return {**nullable(plain), **default}


def text(
    about: str = "",
    *,
    max_length: int | None = None,
    required: bool = False,
    or_none: bool = False,
    schema: Mapping[str, Any] | None = None,
    **more: Any,
) -> Any:
    """Declare a string; `or_none`: one that is empty was not sent."""
    limits: dict[str, Any] = {"minLength": 1} if required else {}
    if max_length is not None:
        limits["maxLength"] = max_length
    read = partial(Reader.text, required=required, or_none=or_none, max_length=max_length)
    return declare({**TEXT, **limits, **(schema or {})}, read, about, required=required, **more)


def several_texts(about: str, *, most: int, max_length: int, fault: str) -> Any:
    """Declare a string of a query that may be sent `most` times; `fault` is what one may have."""
    schema: Schema = {
        "type": "array",
        "items": {**TEXT, "minLength": 1, "maxLength": max_length},
        "maxItems": most,
    }
    read = partial(Reader.several_texts, most=most, max_length=max_length)
    return declare(schema, read, about, default=(), fault=fault)


def line(schema: Schema, about: str = "", *, required: bool = False, **more: Any) -> Any:
    """Declare a string without control characters; `schema` has its `maxLength`."""
    read = partial(Reader.line, max_length=schema["maxLength"], required=required)
    return declare(schema, read, about, required=required, **more)


def integer(
    about: str = "",
    *,
    default: int | None = None,
    minimum: int,
    maximum: int = MOST,
    **more: Any,
) -> Any:
    """Declare an integer between two bounds, both included."""
    schema: dict[str, Any] = {"type": "integer", "minimum": minimum, "maximum": maximum}
    if default is not None:
        schema["default"] = default
    read = partial(Reader.integer, minimum=minimum, maximum=maximum)
    return declare(schema, read, about, default=default, **more)


def boolean(about: str = "", *, default: bool, **more: Any) -> Any:
    """Declare a truth value."""
    schema = {**BOOLEAN, "default": default}
    return declare(schema, Reader.boolean, about, default=default, **more)


def choice(
    choices: Sequence[str],
    about: str = "",
    *,
    default: str | None = None,
    schema: Schema | None = None,
    **more: Any,
) -> Any:
    """Declare one of `choices`; `schema` where they have a name in the document."""
    words: Schema = schema or {**TEXT, "enum": list(choices)}
    if default is not None:
        words = {**words, "default": default}
    read: Reading = partial(Reader.choice, choices=choices)
    return declare(words, read, about, default=default, **more)


def json_object(about: str = "", **more: Any) -> Any:
    """Declare a JSON object."""
    return declare(OBJECT, Reader.json_object, about, **more)


def no_op(about: str = "Accepted, without effect", **more: Any) -> Any:
    """Declare a field that clients send and that changes nothing."""
    return declare(TEXT, Reader.ignore, about, **more)


def header(name: str, schema: Schema, about: str = "") -> Any:
    """Declare a header, which the handler reads by itself: the query has no field for it."""
    field = Field(name, schema, about, where="header", read=_leave)
    return attrs.field(default=None, metadata={_DECLARED: field})


# --- Reading ------------------------------------------------------------------------------------


def fields_of(shape: type[Any]) -> tuple[Field, ...]:
    """Return the fields that `shape` declares."""
    found: list[Field] = []
    for attribute in attrs.fields(shape):
        field: Field = attribute.metadata[_DECLARED]
        found.append(attrs.evolve(field, name=field.name or attribute.name))
    return tuple(found)


_fields: Final = cache(fields_of)


def take(read: Reader, shape: type[T]) -> T:
    """Return the fields of `shape`; where `read` has faults, the value means nothing."""
    one: Any = shape  # a class can be hashed, which mypy does not see
    values: list[Any] = []
    for field in _fields(one):
        value = field.read(read, field.name)
        values.append(field.default if value is None else value)
    return shape(*values)


def read_query(shape: type[T], query: str) -> tuple[T, tuple[Fault, ...]]:
    """Return what `query` says, and what is wrong with it."""
    sent = parse_query(query)
    if isinstance(sent, Fault):
        return take(Reader("query", {}), shape), (sent,)
    read = Reader("query", sent)
    return take(read, shape), read.faults()


def read_json(shape: type[T], body: JsonObject) -> tuple[T, tuple[Fault, ...]]:
    """Return what `body` says, and what is wrong with it."""
    read = Reader("body", {name: (value,) for name, value in body.items()})
    return take(read, shape), read.faults()


# --- Describing ---------------------------------------------------------------------------------


def describe_body(shape: type[Any]) -> Schema:
    """Return the schema of a JSON body; of a field that may be left out, null says the same.

    `about` of the class is its description.
    """
    fields = fields_of(shape)
    required = {field.name: _describe(field) for field in fields if field.required}
    optional = {field.name: nullable(_describe(field)) for field in fields if not field.required}
    about = {"description": shape.about} if hasattr(shape, "about") else {}
    return object_of(required, optional, **about, additionalProperties=False)


def shape_name(shape: type[Any]) -> str:
    """Return the name of a body in the document: that of its class, unless AgentOS has another."""
    name: str = getattr(shape, "shape", shape.__name__)
    return name


def _describe(field: Field) -> Schema:
    return {**field.schema, "description": field.description} if field.description else field.schema
