"""The OpenAPI document: the route table, for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from attrs import evolve

from ...access.rights import scopes_enough
from ...access.scopes import Open, Scoped, Signed
from ...config import PlatformConfig
from ...hosted.registry import Registry
from ...http.refusals import Refusal, respond
from ...version import INTERFACE_VERSION
from ..fields import Field, fields_of, shape_name
from ..json_schema import Schema, integer, ref, text
from ..route import Route
from ..route_table import TABLE, RouteTable
from .custom import operation_of
from .errors import MEANINGS, SHAPES, USUAL, errors_of, ids_of, is_usual, query_of
from .operations import CHANNEL_ONLY, FORM_ONLY, JSON, LINKED, OPERATIONS, Body, Operation, Reply
from .request_examples import BODIES, example_of, find_ids
from .schemas import SCHEMAS

__all__ = ["document"]

SCHEME: Final = "HTTPBearer"
_DESCRIPTION: Final = "Agents, teams, their sessions and databases."

# What an id is that can be registered, as `access.scopes.well_formed_id` says.
_REGISTERED: Final = text(pattern=r"^[A-Za-z0-9._~-]{1,128}$")
_GIVEN: Final = text(minLength=1)
_IDS: Final[Mapping[str, Schema]] = {
    "agent_id": _REGISTERED,
    "team_id": _REGISTERED,
    "db_id": _REGISTERED,
    "channel": _REGISTERED,
    "name": text(pattern=r"^[A-Za-z0-9._-]{1,64}$"),
    "digest": text(pattern=r"^[0-9a-f]{1,64}$"),
    "part": text(pattern=r"^[A-Za-z0-9._-]{1,64}$"),
    "message_index": integer(minimum=0, maximum=999_999_999),
}

_KEY: Final = Field(
    "Idempotency-Key",
    text(pattern=r"^[\x21-\x7e]{1,255}$"),
    "The same request under the same key is done once",
    where="header",
)
_HEADERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "x-request-id": {
        "description": "The name of this exchange in logs and in the audit trail",
        "required": True,
        "schema": text(minLength=1, maxLength=64),
    },
    "www-authenticate": {
        "description": "What is missing (RFC 6750 section 3)",
        "schema": text(),
    },
    "retry-after": {"description": "Seconds to wait", "schema": integer(minimum=0)},
    "link": {
        "description": 'Where the list goes on, if it does: `<?…>; rel="next"` (RFC 8288)',
        "schema": text(),
    },
    "ratelimit-policy": {
        "description": "The share that is used up: its quota `q`, in `w` seconds or, without `w`,"
        " at once; and the unit `qu`, where that is not requests"
        " (draft-ietf-httpapi-ratelimit-headers-10)",
        "schema": text(examples=['"requests";q=2000;w=2']),
    },
    "ratelimit": {
        "description": "What is left of it (`r`), and in how many seconds there may be more (`t`)",
        "schema": text(examples=['"requests";r=0;t=1']),
    },
}


def document(registry: Registry, table: RouteTable = TABLE) -> dict[str, Any]:
    """Return the OpenAPI 3.1.0 description of what `registry` hosts and `table` routes."""
    config = registry.config
    return {
        "openapi": "3.1.0",
        "info": {
            "title": config.name,
            "description": config.description or _DESCRIPTION,
            "version": INTERFACE_VERSION,
        },
        "servers": [{"url": ".", "description": "Where this document is"}],
        "paths": _paths(registry, table),
        "components": {
            "schemas": dict(SCHEMAS),
            "responses": {_name(s): _error(r, MEANINGS[s]) for s, r in USUAL.items()},
            "headers": {_title(name): header for name, header in _HEADERS.items()},
            "securitySchemes": {
                SCHEME: {
                    "type": "http",
                    "scheme": "bearer",
                    "bearerFormat": "JWT",
                    "description": "A JSON Web Token whose `scopes` say what its bearer may do",
                }
            },
        },
        "tags": [{"name": tag} for tag in dict.fromkeys(route.tag for route in table.routes)],
    }


def _paths(registry: Registry, table: RouteTable) -> dict[str, dict[str, Any]]:
    paths: dict[str, dict[str, Any]] = {}
    operations = {**OPERATIONS, **{key: operation_of(one) for key, one in table.custom.items()}}
    ids = find_ids(registry)
    for route in table.routes:
        for path, operation_id in _places(route, registry):
            entry = _operation(route, operations[route.operation], registry.config, ids)
            entry["operationId"] = operation_id
            if path != route.template:
                entry["parameters"] = [p for p in entry["parameters"] if p["in"] != "path"]
            paths.setdefault(path, {})[route.method.lower()] = entry
    return paths


def _places(route: Route, registry: Registry) -> Iterator[tuple[str, str]]:
    """Yield where an operation is and what it is called there: a webhook once for each channel."""
    if route.operation not in CHANNEL_ONLY:
        yield route.template, route.operation
        return
    for channel in registry.channels.values():
        if channel.codec.interacts if route.operation == FORM_ONLY else channel.codec.receives:
            place = route.template.replace("{channel}", channel.id)
            yield place, f"{route.operation}_{channel.id}"


def _operation(
    route: Route, known: Operation, config: PlatformConfig, ids: Mapping[str, str]
) -> dict[str, Any]:
    security = _security(route, config)
    fields = (*_path_fields(route, known), *_fields(route, known))
    entry: dict[str, Any] = {
        "tags": [route.tag],
        "summary": known.summary,
        **({"description": known.description} if known.description else {}),
        "parameters": [_parameter(route, field, ids) for field in fields],
        **_body(route, known.body or _find_body(route)),
        "responses": {str(status): _reply(reply) for status, reply in known.replies.items()},
        "security": security,
    }
    if route.operation in LINKED:
        entry["responses"]["200"]["headers"] |= _header("link")
    errors = errors_of(route, known, needs_token=bool(security), keyed=route.takes_key)
    for status, refusal in sorted(errors.items()):
        entry["responses"].setdefault(str(status), _describe_refusal(known, refusal))
    return entry


def _fields(route: Route, known: Operation) -> tuple[Field, ...]:
    about = known.parameters
    fields = [
        evolve(f, description=about.get(f.name, f.description)) for f in query_of(route, known)
    ]
    return (*fields, _KEY) if route.takes_key else tuple(fields)


def _path_fields(route: Route, known: Operation) -> Iterator[Field]:
    for name in ids_of(route):
        schema = _IDS.get(name, _GIVEN)
        about = known.parameters.get(name, "")
        yield Field(name, schema, about, required=True, where="path")


def _parameter(route: Route, field: Field, ids: Mapping[str, str]) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": field.name, "in": field.where, "required": field.required}
    if field.description:
        entry["description"] = field.description
    example = example_of(route.operation, field.name, ids, required=field.required)
    if example is not None:
        entry["example"] = example
    return {**entry, "schema": field.schema}


def _find_body(route: Route) -> Body | None:
    """Return the body that is declared in the table of routes: its class has the shape's name."""
    if route.body is None or not route.described:
        return None
    required = any(field.required for field in fields_of(route.body))
    return Body({JSON: ref(shape_name(route.body))}, required=required)


def _body(route: Route, body: Body | None) -> dict[str, Any]:
    if body is None:
        return {}
    content: dict[str, Any] = {m: {"schema": schema} for m, schema in body.content.items()}
    if route.operation in BODIES:
        content[JSON]["example"] = BODIES[route.operation]
    for media, encoding in body.encoding.items():
        content[media]["encoding"] = encoding
    return {"requestBody": {"required": body.required, "content": content}}


def _reply(reply: Reply) -> dict[str, Any]:
    entry: dict[str, Any] = {"description": reply.description, "headers": _header("x-request-id")}
    if reply.content:
        entry["content"] = {media: {"schema": schema} for media, schema in reply.content.items()}
        for media, example in reply.examples.items():
            entry["content"][media]["example"] = example
    return entry


def _header(name: str) -> dict[str, Any]:
    return {_title(name): {"$ref": f"#/components/headers/{_title(name)}"}}


def _title(name: str) -> str:
    return name.title().replace("Ratelimit", "RateLimit")


# --- Who may ------------------------------------------------------------------------------------


def _security(route: Route, config: PlatformConfig) -> list[dict[str, list[str]]]:
    """Return what is enough, each alone: scopes of a list would be needed together."""
    need = route.need
    if isinstance(need, Signed) or config.authorization_config.excludes(route.template):
        return []
    scopes: list[list[str]] = _enough(need, config) if isinstance(need, Scoped) else [[]]
    alternatives = [{SCHEME: scope} for scope in scopes]
    open_to_all = isinstance(need, Open) or not config.authorization
    return [{}, *alternatives] if open_to_all else alternatives


def _enough(need: Scoped, config: PlatformConfig) -> list[list[str]]:
    admin = config.authorization_config.admin_scope
    return [[scope] for scope in (*scopes_enough(need), admin)]


# --- What may go wrong --------------------------------------------------------------------------


def _describe_refusal(known: Operation, refusal: Refusal) -> dict[str, Any]:
    if is_usual(known, refusal):
        return {"$ref": f"#/components/responses/{_name(refusal.status)}"}
    return _error(refusal, known.meanings.get(refusal.status, MEANINGS[refusal.status]))


def _name(status: int) -> str:
    return MEANINGS[status].replace(" ", "")


def _error(refusal: Refusal, meaning: str) -> dict[str, Any]:
    """Describe an error by one as it is sent: its envelope, and the headers it carries."""
    response = respond(refusal)
    headers = _header("x-request-id")
    for name, _ in response.headers:
        if (known := name.decode("ascii")) in _HEADERS:
            headers |= _header(known)
    schema = ref(SHAPES.get(refusal.status, "Error"))
    return {
        "description": meaning,
        "headers": headers,
        "content": {"application/json": {"schema": schema, "example": json.loads(response.body)}},
    }
