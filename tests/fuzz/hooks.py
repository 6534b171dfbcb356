"""What a schema cannot tell a fuzzer.  Loaded by schemathesis, see `schemathesis.toml`."""

from __future__ import annotations

import json
import re
from typing import Any, Final, cast
from uuid import uuid4

import schemathesis
from hypothesis import strategies as st

__all__: list[str] = []

_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
_EVENT_ID: Final = re.compile(r"[A-Za-z0-9._~-]{1,128}:(0|[1-9][0-9]{0,17})", re.ASCII)
_NAMES: Final = st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8
)
_VALUES: Final = st.none() | st.booleans() | st.integers(-1000, 1000) | _NAMES
_OBJECTS: Final = st.dictionaries(_NAMES, _VALUES, max_size=3)

_FORMS: Final = ("multipart/form-data", "application/x-www-form-urlencoded")
_EMPTY: Final[tuple[Any, ...]] = (None, [], {})
_UNREAD: Final = "without effect"
_SCALARS: Final = ("boolean", "integer", "number", "null")

# A form holds JSON as text.
schemathesis.openapi.format("json-object", _OBJECTS.map(json.dumps))
schemathesis.openapi.format("json-schema", st.just('{"type": "object"}'))
schemathesis.openapi.format("json-array", st.lists(_OBJECTS, max_size=2).map(json.dumps))


def _answer(call_id: str, more: dict[str, Any]) -> dict[str, Any]:
    """Return what answers a call, and as well a requirement."""
    call = {"tool_call_id": call_id}
    return {**more, **call, "tool_execution": call}


_ANSWERS: Final = st.builds(_answer, _NAMES, _OBJECTS)
schemathesis.openapi.format("json-answers", st.lists(_ANSWERS, max_size=2).map(json.dumps))


def _members(body: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", body) if isinstance(body, dict) else {}


def _plain_schema(schema: Any) -> bool:
    return schema in ({"type": "object"}, '{"type": "object"}')


def _is_harmless(case: Any, mutation: Any) -> bool:
    """Tell whether what was made wrong is right once it is sent.

    A scalar where a form asks for text is text, an empty field of a form is an absent one, an empty
    value in a query is not sent, and a filter of an empty collection is not looked at.
    """
    if case.media_type in _FORMS and "additionalProperties" in mutation.keywords:
        body = _members(case.body)
        unknown = [body[name] for name in body if name not in _find_fields(case)]
        return all(value in ("", *_EMPTY) for value in unknown)
    if case.media_type in _FORMS:
        return (
            mutation.operator == "change_type"
            and "string" in str(mutation.original_value).split(" | ")
            and mutation.new_value in _SCALARS
        )
    name = mutation.parameter
    if mutation.parameter_location != "query" or name is None:
        return False
    unread = {each.name for each in case.operation.query if _UNREAD in _about(each)}
    return name in unread or _members(case.query).get(name) in _EMPTY


def _find_fields(case: Any) -> frozenset[str]:
    """Return the names of the fields that the form of `case` has in the document."""
    content = case.operation.definition.raw["requestBody"]["content"]
    schema = content[case.media_type]["schema"]
    name = schema.get("$ref", "").rpartition("/")[2]
    if name:
        schema = case.operation.schema.raw_schema["components"]["schemas"][name]
    return frozenset(schema["properties"])


def _about(parameter: Any) -> str:
    return str(parameter.definition.get("description", ""))


@schemathesis.hook  # pyright: ignore[reportUnknownMemberType]
def filter_case(_: Any, case: Any) -> bool:
    """Leave out what is not what it looks like."""
    mutations: tuple[Any, ...] = getattr(case.meta.phase.data, "mutations", ())
    if mutations and all(_is_harmless(case, mutation) for mutation in mutations):
        return False
    # A link may hand on an id that is empty: then the path is another one.
    path: dict[str, Any] = case.path_parameters or {}
    query: dict[str, Any] = case.query or {}
    if "" in path.values() or query.get("session_id") == "":
        return False
    body = _members(case.body)
    # A schema of JSON Schema for the answer is in a language of its own.
    schema = body.get("output_schema")
    if case.meta.generation.mode.is_positive and schema and not _plain_schema(schema):
        return False
    # A part without a file's name is text, and null as JSON in text is nothing.
    return case.media_type != "multipart/form-data" or "files" not in body or bool(body["files"])


@schemathesis.hook  # pyright: ignore[reportUnknownMemberType]
def before_call(_: Any, case: Any, __: Any) -> None:
    """Use no key twice, and give a linked id that is empty, and came too late, a name.

    A Last-Event-ID is of the run that the path names.  In a sequence no file is sent: a body that a
    link has changed is judged anew, and schemathesis then takes one that holds bytes for wrong.
    Nor is a session beside a run: in another one than its own the run that was just made is not
    found.
    """
    if case.meta is not None and case.meta.phase.name == "stateful":
        _members(case.body).pop("files", None)
        if "{run_id}" in case.operation.path:
            _members(case.body).pop("session_id", None)
    headers: dict[str, Any] = case.headers or {}
    key = headers.get("Idempotency-Key")
    if isinstance(key, str) and _KEY.fullmatch(key):
        case.headers["Idempotency-Key"] = uuid4().hex
    path: dict[str, Any] = case.path_parameters or {}
    last = str(headers.get("Last-Event-ID", ""))
    named = f"{path.get('run_id', '')}:{last.rpartition(':')[2]}"
    if _EVENT_ID.fullmatch(last) and _EVENT_ID.fullmatch(named):
        case.headers["Last-Event-ID"] = named
    for place in (case.path_parameters, case.query):
        if place and place.get("session_id") == "":
            place["session_id"] = "none"
