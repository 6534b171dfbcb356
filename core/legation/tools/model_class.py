"""Classes that describe and read themselves, as the models of pydantic do.

They are recognized by their methods, and the package that they come from is not imported.  Such a
class gives its own schema, and reads the JSON text of a value strictly: no text is taken for a
number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from ..http.bodies.json_text import JsonValue
from ..http.messages import compact_json
from .constraints import Unfit

__all__ = ["describe_model", "is_model", "read_model"]

_DEFINITIONS: Final = "#/$defs/"
_SHOWN: Final = 80  # characters of what a class says of a value


def is_model(cls: type[Any]) -> bool:
    """Return whether `cls` describes and reads itself."""
    return hasattr(cls, "model_json_schema") and hasattr(cls, "model_validate_json")


def describe_model(cls: type[Any]) -> Mapping[str, Any]:
    """Return the schema of `cls`, with its definitions put where they are referred to.

    Raises:
        Unfit: It has none, or contains itself.
    """
    try:
        schema: dict[str, Any] = cls.model_json_schema()
    except Exception as error:  # noqa: BLE001 - the author's code, and any of its types
        text = str(error).partition("\n")[0]
        raise Unfit(f"contains {cls.__name__}, which has no schema: {text}") from None
    definitions = schema.pop("$defs", {})
    described: Mapping[str, Any] = _insert(schema, definitions, ())
    return described


def _insert(schema: Any, definitions: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    if isinstance(schema, list):
        return [_insert(inner, definitions, inside) for inner in cast(Iterable[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    members = cast(Mapping[str, Any], schema)
    reference = members.get("$ref")
    if isinstance(reference, str) and reference.startswith(_DEFINITIONS):
        name = reference.removeprefix(_DEFINITIONS)
        if name in inside:
            raise Unfit(f"contains {name}, which contains itself")
        found = _insert(definitions[name], definitions, (*inside, name))
        beside = {key: value for key, value in members.items() if key != "$ref"}
        return {**found, **_insert(beside, definitions, inside)}
    # The mapping of a discriminator, OpenAPI's, names definitions that are no more.
    return {
        key: _insert(inner, definitions, inside)
        for key, inner in members.items()
        if not (key == "discriminator" and isinstance(inner, dict) and "mapping" in inner)
    }


def read_model(cls: type[Any], value: JsonValue) -> tuple[Any, list[tuple[str, str]]]:
    """Return the instance that `value` is, and no problems; or None, and each with its place.

    A place begins with a dot or a bracket, or is empty.
    """
    try:
        return cls.model_validate_json(compact_json(value), strict=True), []
    except ValueError as error:
        listed = getattr(error, "errors", None)
        if listed is None:
            return None, [("", f"is refused: {str(error)[:_SHOWN]}")]
        found = listed(include_url=False, include_context=False, include_input=False)
        return None, [(_place(item["loc"]), _sentence(item)) for item in found]
    except Exception:  # noqa: BLE001 - the author's code: its text is not for the model
        return None, [("", "is refused")]


def _place(steps: tuple[str | int, ...]) -> str:
    return "".join(f"[{s}]" if isinstance(s, int) else f".{s[:_SHOWN]}" for s in steps)


def _sentence(item: Mapping[str, Any]) -> str:
    """Return what is wrong, in the form of the sentences that the reader has."""
    if item["type"] == "missing":
        return "is missing"
    if item["type"] == "extra_forbidden":
        return "is an unknown field"
    text = str(item["msg"]).removeprefix("Value error, ")
    if text.startswith("Input should "):
        return f"must {text.removeprefix('Input should ')}"
    return f"is refused: {text[:_SHOWN]}"
