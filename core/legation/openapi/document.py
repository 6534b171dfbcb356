"""The document: the route table, told to programs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..access.rights import scopes_enough
from ..access.scopes import Scoped, Signed
from ..config import PlatformConfig
from ..refusals import (
    BadRequest,
    Conflict,
    Fault,
    Forbidden,
    Internal,
    Invalid,
    NotFound,
    Refusal,
    TooLarge,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
    UnsupportedMediaType,
    UriTooLong,
    respond,
)
from ..registry import Registry
from ..resources.idempotency import REPEATABLE
from ..routes import ROUTES, Route
from ..version import INTERFACE_VERSION
from .operations import CHANNEL_ONLY, OPERATIONS, Body, Field, Operation, Reply
from .schemas import SCHEMAS
from .shapes import Schema, integer, ref, text

__all__ = ["document"]

SCHEME: Final = "HTTPBearer"
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
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
}

# One of each refusal that an operation may answer; `respond` says what it looks like.
_REFUSALS: Final[Mapping[int, Refusal]] = {
    refusal.status: refusal
    for refusal in (
        BadRequest("The body has to be JSON; it is not JSON at line 1, column 1"),
        Unauthenticated(),
        Forbidden("agents:read"),
        NotFound(),
        Conflict("The session has an active run"),
        TooLarge(10 << 20),
        UriTooLong(),
        UnsupportedMediaType("The body has no Content-Type"),
        Invalid((Fault("query.limit", "must be at most 100"),)),
        TooManyRequests(1),
        Internal("Internal server error (incident 0f6d1c2b3a495867)"),
        Unavailable("The database is not available (incident 0f6d1c2b3a495867)"),
    )
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
}


def document(registry: Registry) -> dict[str, Any]:
    """Return the OpenAPI 3.1.0 description of what `registry` hosts."""
    config = registry.config
    return {
        "openapi": "3.1.0",
        "info": {
            "title": config.name,
            "description": config.description or _DESCRIPTION,
            "version": INTERFACE_VERSION,
        },
        "servers": [{"url": ".", "description": "Where this document is"}],
        "paths": _paths(registry),
        "components": {
            "schemas": dict(SCHEMAS),
            "responses": {_name(r): _error(r) for r in _REFUSALS.values()},
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
        "tags": [{"name": tag} for tag in dict.fromkeys(route.tag for route in ROUTES)],
    }


def _paths(registry: Registry) -> dict[str, dict[str, Any]]:
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        for path, operation_id in _places(route, registry):
            told = _operation(route, registry.config)
            told["operationId"] = operation_id
            if path != route.template:
                told["parameters"] = [p for p in told["parameters"] if p["in"] != "path"]
            paths.setdefault(path, {})[route.method.lower()] = told
    return paths


def _places(route: Route, registry: Registry) -> Iterator[tuple[str, str]]:
    """Yield where an operation is and what it is called there: a webhook once for each channel."""
    if route.operation not in CHANNEL_ONLY:
        yield route.template, route.operation
        return
    for channel in registry.channels:
        yield route.template.replace("{channel}", channel), f"{route.operation}_{channel}"


def _operation(route: Route, config: PlatformConfig) -> dict[str, Any]:
    known = OPERATIONS[route.operation]
    security = _security(route, config)
    told: dict[str, Any] = {
        "tags": [route.tag],
        "summary": known.summary,
        **({"description": known.description} if known.description else {}),
        "parameters": [*map(_path_parameter, _ids(route)), *map(_parameter, _fields(route))],
        **({"requestBody": _body(known.body)} if known.body else {}),
        "responses": {str(status): _reply(reply) for status, reply in known.replies.items()},
        "security": security,
    }
    for status in sorted(_errors(route, known, needs_token=bool(security))):
        told["responses"].setdefault(str(status), _refused(status))
    return told


def _once(route: Route) -> bool:
    """Whether a key makes sure that the operation is done once."""
    changes = route.method == "POST" and not isinstance(route.need, Signed)
    return changes and route.operation not in REPEATABLE


def _fields(route: Route) -> tuple[Field, ...]:
    known = OPERATIONS[route.operation].query
    return (*known, _KEY) if _once(route) else known


def _ids(route: Route) -> list[str]:
    return _PARAMETER.findall(route.template)


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": _IDS.get(name, _GIVEN)}


def _parameter(field: Field) -> dict[str, Any]:
    told: dict[str, Any] = {"name": field.name, "in": field.where, "required": field.required}
    if field.description:
        told["description"] = field.description
    return {**told, "schema": field.schema}


def _body(body: Body) -> dict[str, Any]:
    content: dict[str, Any] = {m: {"schema": schema} for m, schema in body.content.items()}
    for media, encoding in body.encoding.items():
        content[media]["encoding"] = encoding
    return {"required": body.required, "content": content}


def _reply(reply: Reply) -> dict[str, Any]:
    told: dict[str, Any] = {"description": reply.description, "headers": _header("x-request-id")}
    if reply.content:
        told["content"] = {media: {"schema": schema} for media, schema in reply.content.items()}
        for media, example in reply.examples.items():
            told["content"][media]["example"] = example
    return told


def _header(name: str) -> dict[str, Any]:
    return {_title(name): {"$ref": f"#/components/headers/{_title(name)}"}}


def _title(name: str) -> str:
    return name.title()


# --- Who may ------------------------------------------------------------------------------------


def _security(route: Route, config: PlatformConfig) -> list[dict[str, list[str]]]:
    """Return what is enough, each alone: scopes of a list would be needed together."""
    need = route.need
    if isinstance(need, Signed) or config.authorization_config.excludes(route.template):
        return []
    scopes: list[list[str]] = _enough(need, config) if isinstance(need, Scoped) else [[]]
    alternatives = [{SCHEME: scope} for scope in scopes]
    return alternatives if config.authorization else [{}, *alternatives]


def _enough(need: Scoped, config: PlatformConfig) -> list[list[str]]:
    admin = config.authorization_config.admin_scope
    return [[scope] for scope in (*scopes_enough(need), admin)]


# --- What may go wrong --------------------------------------------------------------------------


def _errors(route: Route, known: Operation, *, needs_token: bool) -> set[int]:
    """Return the statuses of errors that follow from what the operation takes and needs."""
    errors = {500, 503, *known.errors}
    # An id that no path can have leads nowhere, and what leads nowhere is told to callers alone.
    if needs_token or (_ids(route) and route.operation not in CHANNEL_ONLY):
        errors.add(401)
    if isinstance(route.need, Scoped):
        errors.add(403)
    if _ids(route):
        errors |= {404, 414}
    if known.query:
        errors |= {414, 422}
    if _once(route):
        errors |= {409, 413, 422}
    if known.body or known.reads:
        errors |= {400, 413, 422}
    if known.body and len(known.body.content) > 1:
        errors.add(415)
    return errors


def _name(refusal: Refusal) -> str:
    return type(refusal).__name__


def _refused(status: int) -> dict[str, Any]:
    return {"$ref": f"#/components/responses/{_name(_REFUSALS[status])}"}


def _error(refusal: Refusal) -> dict[str, Any]:
    """Describe an error by one that was made: its envelope, and the headers it carries."""
    response = respond(refusal)
    headers = _header("x-request-id")
    for name, _ in response.headers:
        if (known := name.decode("ascii")) in _HEADERS:
            headers |= _header(known)
    summary, _, _ = (type(refusal).__doc__ or "").partition("\n")
    example = json.loads(response.body)
    return {
        "description": summary,
        "headers": headers,
        "content": {"application/json": {"schema": ref("Error"), "example": example}},
    }
