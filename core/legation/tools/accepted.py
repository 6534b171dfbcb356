"""The JSON schemas that an answer can be asked to satisfy.

They come from callers, so of JSON Schema 2020-12 those keywords are supported that can be checked
at a bounded cost and without a request.  A schema with any other keyword is refused, and none is
skipped; a `$ref` to another document is refused too, and so is a regular expression, because its
author can make it as slow as they like.  `format` is for the model and is not checked, as the
standard has it (section 7.2.1).

A library that reads all of JSON Schema would have to be tamed in just these ways, and costs every
start: `jsonschema-rs` 60 ms and 8 MB, `jsonschema` 170 ms and 12 MB.  The first of them judges in
the tests whether what is read here is read right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeGuard

from ..http.messages import compact_json

__all__ = ["MAX_SCHEMA", "TYPES", "check_schema", "is_array", "is_number", "is_object", "resolve"]

MAX_SCHEMA: Final = 1 << 16
"""How long a schema may be, in characters of compact JSON."""

_MAX_DEPTH: Final = 32  # of subschemas in one another, as written
_MAX_DEFINITIONS: Final = 256  # looking for circles costs the square of it
_SHOWN: Final = 80  # characters of a name

_Check: TypeAlias = Callable[[Any], bool]


def is_object(value: Any) -> TypeGuard[Mapping[str, Any]]:
    """Return whether `value` is an object of JSON."""
    return isinstance(value, Mapping)


def is_array(value: Any) -> TypeGuard[Sequence[Any]]:
    """Return whether `value` is an array of JSON, or a tuple in its place."""
    return isinstance(value, list | tuple)


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether `value` is a number of JSON: true is none."""
    return type(value) in (int, float)


def _is_schema(value: Any) -> bool:
    return isinstance(value, bool) or is_object(value)


def _is_schemas(value: Any) -> bool:
    return is_array(value) and bool(value) and all(map(_is_schema, value))


def _is_named_schemas(value: Any) -> bool:
    return is_object(value) and all(map(_is_schema, value.values()))


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_anything(_: Any) -> bool:
    return True


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def _is_names(value: Any) -> bool:
    if not is_array(value) or not all(isinstance(name, str) for name in value):
        return False
    return len(set(value)) == len(value)


def _is_type(value: Any) -> bool:
    names = [value] if isinstance(value, str) else value
    return _is_names(names) and bool(names) and all(name in TYPES for name in names)


TYPES: Final[Mapping[str, _Check]] = {
    "null": lambda value: value is None,
    "boolean": _is_truth,
    "integer": lambda value: is_number(value) and value == math.floor(value),
    "number": is_number,
    "string": _is_text,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}

# Where a schema has others in it: one, an array of them, or one under each name.
_ONE: Final = ("items", "additionalProperties", "propertyNames", "not", "if", "then", "else")
_SEVERAL: Final = ("prefixItems", "anyOf", "allOf", "oneOf")
_NAMED: Final = ("properties", "$defs", "definitions")

# Those among them that are asked about the very value that the outer one is asked about.
_IN_PLACE_ONE: Final = ("not", "if", "then", "else")
_IN_PLACE_SEVERAL: Final = ("anyOf", "allOf", "oneOf")

_TEXTS: Final = (
    "title",
    "description",
    "format",
    "contentEncoding",
    "contentMediaType",
    "$comment",
)
_SCHEMA_OF_SCHEMAS: Final = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-07/schema",
)

_WELL_FORMED: Final[Mapping[str, _Check]] = {
    **dict.fromkeys(_ONE, _is_schema),
    **dict.fromkeys(_SEVERAL, _is_schemas),
    **dict.fromkeys(_NAMED, _is_named_schemas),
    **dict.fromkeys(
        ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"),
        _is_count,
    ),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), is_number),
    # For the model to read; these assert nothing:
    **dict.fromkeys(_TEXTS, _is_text),
    **dict.fromkeys(("deprecated", "readOnly", "writeOnly"), _is_truth),
    "default": _is_anything,
    "examples": is_array,
    # What is asserted, or leads on:
    "type": _is_type,
    "enum": lambda value: is_array(value) and bool(value),
    "const": _is_anything,
    "required": _is_names,
    "uniqueItems": _is_truth,
    "multipleOf": lambda value: is_number(value) and value > 0,
    "$ref": _is_text,
    "$schema": lambda value: value in _SCHEMA_OF_SCHEMAS,
}


def check_schema(schema: Mapping[str, Any]) -> str | None:
    """Return what is wrong with `schema`, in a sentence, or None.

    It has to describe objects (`"type": "object"`), as the answers of an agent are.
    """
    if schema.get("type") != "object":
        return 'must be of "type": "object"'
    try:
        if len(compact_json(schema)) > MAX_SCHEMA:
            return f"must be shorter than {MAX_SCHEMA} characters"
    except (TypeError, ValueError, RecursionError):
        return "must be JSON"
    return _find_fault(schema, schema, "", 0) or _circular(schema)


def _find_fault(root: Mapping[str, Any], schema: Any, where: str, depth: int) -> str | None:
    if not is_object(schema):
        return None
    if depth > _MAX_DEPTH:
        return f"must be nested at most {_MAX_DEPTH} levels deep"
    for key, value in schema.items():
        if key not in _WELL_FORMED:
            return f"unsupported keyword {str(key)[:_SHOWN]!r}{where}"
        if not _WELL_FORMED[key](value):
            return f"invalid value of the keyword {key!r}{where}"
    if "$ref" in schema and resolve(root, schema["$ref"]) is None:
        return f"unsupported $ref {schema['$ref'][:_SHOWN]!r}{where}: it must lead into the schema"
    for key, inner in _inside(schema):
        if said := _find_fault(root, inner, f" of {str(key)[:_SHOWN]!r}", depth + 1):
            return said
    return None


def _inside(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each schema in `schema`, with the word that leads to it."""
    for key in _ONE:
        if key in schema:
            yield key, schema[key]
    for key in _SEVERAL:
        for inner in schema.get(key, ()):
            yield key, inner
    for key in _NAMED:
        yield from schema.get(key, {}).items()


def resolve(root: Mapping[str, Any], reference: str) -> Any:
    """Return the schema that a JSON pointer (RFC 6901) in a fragment leads to, or None."""
    if not reference.startswith("#") or "%" in reference:
        return None
    steps = reference[1:].split("/")
    found: Any = root
    # Only names of definitions: whatever else a pointer meets may be no schema.
    if steps[0] or (
        len(steps) > 1 and (len(steps) != 3 or steps[1] not in ("$defs", "definitions"))
    ):
        return None
    for step in steps[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if is_object(found) else None
    return found if _is_schema(found) else None


def _circular(root: Mapping[str, Any]) -> str | None:
    """Say which definition is asked about a value while it is being asked about that value."""
    definitions: dict[str, Any] = {"#": root}
    for key in ("$defs", "definitions"):
        for name, inner in root.get(key, {}).items():
            definitions[f"#/{key}/{name.replace('~', '~0').replace('/', '~1')}"] = inner
    if len(definitions) > _MAX_DEFINITIONS:
        return f"must have at most {_MAX_DEFINITIONS} definitions"
    leads = {name: _in_place_references(schema) for name, schema in definitions.items()}
    # What leads nowhere is taken away until nothing is left; what stays leads in a circle.
    while free := [name for name, onward in leads.items() if not onward & leads.keys()]:
        for name in free:
            del leads[name]
    return f"cannot use $ref {min(leads)!r}: it leads back to itself" if leads else None


def _in_place_references(schema: Any) -> frozenset[str]:
    """Return the references that are followed without going into the value."""
    if not is_object(schema):
        return frozenset()
    inner = [schema[key] for key in _IN_PLACE_ONE if key in schema]
    inner += [each for key in _IN_PLACE_SEVERAL for each in schema.get(key, ())]
    found = frozenset({schema["$ref"]} if "$ref" in schema else ())
    return found.union(*map(_in_place_references, inner))
