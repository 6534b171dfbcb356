"""The bounds of numbers and sizes (JSON Schema 2020-12, sections 6.2 to 6.5), checked.

One check for both readers: of answers by a schema, and of values by the shape of a type hint.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

__all__ = ["unmet_bounds"]


def unmet_bounds(keywords: Mapping[str, Any], value: Any) -> Iterator[str]:
    """Say which of `keywords` the value does not meet, each after the place of the value.

    Args:
        keywords: A schema, of which other keywords are not looked at.
        value: A value of JSON; or a decimal, whose bounds are compared as they are written.
    """
    kind = cast(Any, type(value))
    if kind in _SIZES:
        yield from _size_bounds(keywords, len(value), _SIZES[kind])
    elif kind in (int, float):
        yield from _number_bounds(keywords, value)
    elif kind.__name__ == "Decimal":
        exact = {key: kind(repr(keywords[key])) for key in _OF_NUMBERS if key in keywords}
        yield from _number_bounds(exact, value)


_OF_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")


def _number_bounds(schema: Mapping[str, Any], value: Any) -> Iterator[str]:
    if "minimum" in schema and value < schema["minimum"]:
        yield f"must be at least {schema['minimum']}"
    if "maximum" in schema and value > schema["maximum"]:
        yield f"must be at most {schema['maximum']}"
    if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        yield f"must be more than {schema['exclusiveMinimum']}"
    if "exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"]:
        yield f"must be less than {schema['exclusiveMaximum']}"
    if "multipleOf" in schema and not _is_multiple(value, schema["multipleOf"]):
        yield f"must be a multiple of {schema['multipleOf']}"


def _is_multiple(value: Any, step: Any) -> bool:
    """Say whether `step` goes into `value`; of two doubles, nearly so: 0.1 goes into 0.3."""
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    if not isinstance(value, int | float):  # two decimals
        (above, below), (times, parts) = value.as_integer_ratio(), step.as_integer_ratio()
        return bool(above * parts % (below * times) == 0)
    try:
        times = value / step
    except OverflowError:
        return False
    return math.isfinite(times) and math.isclose(times, round(times), rel_tol=1e-14, abs_tol=1e-9)


_SIZES: Final[Mapping[type[Any], tuple[str, str, str]]] = {
    str: ("minLength", "maxLength", "characters"),
    list: ("minItems", "maxItems", "items"),
    dict: ("minProperties", "maxProperties", "members"),
}


def _size_bounds(
    schema: Mapping[str, Any], size: int, words: tuple[str, str, str]
) -> Iterator[str]:
    least, most, what = words
    if least in schema and size < schema[least]:
        yield f"must have at least {schema[least]} {what}"
    if most in schema and size > schema[most]:
        yield f"must have at most {schema[most]} {what}"
