"""Structured answers: values that satisfy a JSON schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import field

from ..http.bodies.json_text import BadJson, JsonObject, JsonValue, parse_json
from ..http.messages import compact_json
from ..values import define
from .accepted import TYPES, check_schema, is_array, is_object, resolve
from .bounds import unmet_bounds
from .shape_reader import Problems, read
from .shapes import Shape

__all__ = ["MAX_OUTPUT", "check_output", "check_schema"]

MAX_OUTPUT: Final = 1 << 20
"""How long an answer may be, in characters."""

_MAX_STEPS: Final = 50_000  # pairs of a value and a schema, or of two values: 0.2 s at worst
_MAX_NESTED: Final = 150  # such pairs in one another; each takes a few frames of Python's stack
_MOST_PROBLEMS: Final = 8
_SHOWN: Final = 80  # characters of a name or a constant
_PLACE_SHOWN: Final = 300  # characters
_CHOICES_SHOWN: Final = 12


class _TooMuch(Exception):
    """Checking costs more than it may; never leaves this module."""


def check_output(
    schema: Mapping[str, Any], text: str, shape: Shape | None = None
) -> JsonObject | str:
    """Return the object that `text` is, or a sentence for the model that says why it does not fit.

    Args:
        schema: One that `check_schema` has nothing against, or that of `shape`.
        text: The answer of a model: JSON, also within a fence of Markdown.
        shape: The answer is read by it instead, where it is to be an instance of a class.
    """
    if len(text) > MAX_OUTPUT:
        return f"The answer is too long: at most {MAX_OUTPUT} characters are read."
    value = parse_json(_strip_fence(text).encode("utf-8", "surrogatepass"))
    if isinstance(value, BadJson):
        return f"The answer must be JSON and nothing else; this is {value.reason}."
    if not isinstance(value, dict):
        return "The answer must be a JSON object."
    if shape is not None:
        problems = _misfits(shape, value)
        return _sentence(problems) if problems else value
    checking = _Checking(schema)
    try:
        problems = checking.problems(schema, value, "", 0)
    except _TooMuch:
        return "The answer is too large to be checked."
    return _sentence(problems) if problems else value


def _misfits(shape: Shape, value: JsonObject) -> list[str]:
    found: Problems = []
    read(shape, value, "", found)
    return [f"{where or 'the answer'} {what}" for where, what in found]


def _strip_fence(text: str) -> str:
    """Return what stands in a fence of Markdown, where the whole text is one."""
    text = text.strip()
    if not (text.startswith("```") and text.endswith("```") and "\n" in text):
        return text
    return text.partition("\n")[2].removesuffix("```")


def _sentence(problems: list[str]) -> str:
    more = len(problems) - _MOST_PROBLEMS
    tail = f"; and {more} more" if more > 0 else ""
    return f"The answer does not fit the schema: {'; '.join(problems[:_MOST_PROBLEMS])}{tail}."


def _render(values: Sequence[Any]) -> str:
    """Return the constants as JSON, the first of them, and short."""
    cut = [v[:_SHOWN] if isinstance(v, str) else v for v in values[:_CHOICES_SHOWN]]
    texts = [compact_json(v) for v in cut if not is_object(v) and not is_array(v)]
    return ", ".join(texts if len(texts) == len(values) else [*texts, "…"])


@define
class _Checking:
    """One answer being checked, and what that has cost."""

    root: Mapping[str, Any]
    steps: int = field(default=0, init=False)

    def problems(self, schema: Any, value: JsonValue, where: str, depth: int) -> list[str]:
        """Return what is wrong with `value`; without anything it fits."""
        self._step()
        if depth > _MAX_NESTED:
            raise _TooMuch
        if isinstance(schema, bool):
            return [] if schema else [f"{where or 'the answer'} is not allowed"]
        found = [f"{where or 'the answer'} {said}" for said in self._bounds(schema, value)]
        found += self._applicators(schema, value, where, depth + 1)
        match value:
            case dict():
                found += self._object(schema, value, where, depth + 1)
            case list():
                found += self._array(schema, value, where, depth + 1)
            case _:
                pass
        return found

    def _bounds(self, schema: Mapping[str, Any], value: JsonValue) -> Iterator[str]:
        """Say which assertions (section 6) the value does not meet."""
        if "type" in schema:
            named = schema["type"]
            names = [named] if isinstance(named, str) else named
            if not any(TYPES[name](value) for name in names):
                yield f"must be of type {' or '.join(names)}"
        if "enum" in schema and not any(self._same(value, choice) for choice in schema["enum"]):
            yield f"must be one of {_render(schema['enum'])}"
        if "const" in schema and not self._same(value, schema["const"]):
            yield f"must be {_render((schema['const'],))}"
        yield from unmet_bounds(schema, value)

    def _same(self, one: JsonValue, other: Any) -> bool:
        """Compare as JSON does (section 4.2.2): true is not 1, and 1 is 1.0."""
        self._step()
        if isinstance(one, bool) or isinstance(other, bool):
            return one is other
        if isinstance(one, list) and is_array(other):
            return len(one) == len(other) and all(map(self._same, one, other))
        if isinstance(one, dict) and is_object(other):
            return one.keys() == other.keys() and all(self._same(one[k], other[k]) for k in one)
        return bool(one == other)

    def _step(self, steps: int = 1) -> None:
        self.steps += steps
        if self.steps > _MAX_STEPS:
            raise _TooMuch

    def _fits(self, schema: Any, value: JsonValue, depth: int) -> bool:
        return not self.problems(schema, value, "", depth)

    def _applicators(
        self, schema: Mapping[str, Any], value: JsonValue, where: str, depth: int
    ) -> list[str]:
        """Ask the schemas that are about the same value (section 10.2)."""
        found: list[str] = []
        place = where or "the answer"
        if "$ref" in schema:
            found += self.problems(resolve(self.root, schema["$ref"]), value, where, depth)
        for inner in schema.get("allOf", ()):
            found += self.problems(inner, value, where, depth)
        if "anyOf" in schema:
            found += self._any(schema["anyOf"], value, where, depth)
        if "oneOf" in schema:
            fitting = sum(self._fits(inner, value, depth) for inner in schema["oneOf"])
            if fitting != 1:
                found.append(f"{place} fits {fitting} of the schemas of which it must fit one")
        if "not" in schema and self._fits(schema["not"], value, depth):
            found.append(f"{place} is what it must not be")
        if "if" in schema:
            branch = "then" if self._fits(schema["if"], value, depth) else "else"
            found += self.problems(schema.get(branch, True), value, where, depth)
        return found

    def _any(self, options: Any, value: JsonValue, where: str, depth: int) -> list[str]:
        place = where or "the answer"
        tried: list[list[str]] = []
        for inner in options:
            tried.append(self.problems(inner, value, where, depth))
            if not tried[-1]:
                return []
        # What is wrong with the one option of the right kind is what helps.
        deeper = [said for said in tried if not any(p.startswith(f"{place} must be") for p in said)]
        return deeper[0] if len(deeper) == 1 else [f"{place} fits none of the schemas it may fit"]

    def _object(
        self, schema: Mapping[str, Any], value: JsonObject, where: str, depth: int
    ) -> list[str]:
        properties, required = schema.get("properties", {}), schema.get("required", ())
        self._step(len(required))
        found = [f"{_below(where, name)} is missing" for name in required if name not in value]
        for name, part in value.items():
            if not self._fits(schema.get("propertyNames", True), name, depth):
                found.append(f"{_below(where, name)} has a name that is not allowed")
            inner = properties.get(name, schema.get("additionalProperties", True))
            found += self.problems(inner, part, _below(where, name), depth)
        return found

    def _array(
        self, schema: Mapping[str, Any], value: list[JsonValue], where: str, depth: int
    ) -> list[str]:
        found: list[str] = []
        first = schema.get("prefixItems", ())
        for index, part in enumerate(value):
            inner = first[index] if index < len(first) else schema.get("items", True)
            found += self.problems(inner, part, f"{where}[{index}]", depth)
        if schema.get("uniqueItems", False) and self._repeats(value):
            found.append(f"{where or 'the answer'} must not have an item twice")
        return found

    def _repeats(self, value: list[JsonValue]) -> bool:
        return any(self._same(one, other) for i, one in enumerate(value) for other in value[:i])


def _below(where: str, name: str) -> str:
    return (f"{where}.{name[:_SHOWN]}" if where else name[:_SHOWN])[:_PLACE_SHOWN]
