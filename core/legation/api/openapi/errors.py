"""Errors of an operation: those that it makes, each as it is sent.

Most follow from the route and from what is read of a request; `Operation.errors` has the others,
and those whose sentence is the operation's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from ...access.scopes import Scoped, Signed
from ...http.refusals import (
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
)
from ...shares.exceeded import Exceeded
from ..call import BODY_LIMIT
from ..fields import Field, fields_of
from ..json_schema import Schema
from ..route import Route
from .operations import CHANNEL_ONLY, Operation
from .schemas import SCHEMAS

__all__ = ["MEANINGS", "SHAPES", "USUAL", "errors_of", "ids_of", "is_usual", "query_of"]

_PARAMETER: Final = re.compile(r"\{(\w+)\}")

SHAPES: Final[Mapping[int, str]] = {
    400: "BadRequestResponse",
    401: "UnauthenticatedResponse",
    404: "NotFoundResponse",
    422: "ValidationErrorResponse",
    500: "InternalServerErrorResponse",
}
"""The names that AgentOS has for the shape of an error."""

MEANINGS: Final[Mapping[int, str]] = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    409: "Conflict",
    413: "Content Too Large",
    414: "URI Too Long",
    415: "Unsupported Media Type",
    422: "Validation Error",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
"""What the status of an error means, where an operation says nothing else."""

_ABSENT: Final[Mapping[str, str]] = {"agent_id": "Agent not found", "team_id": "Team not found"}
USUAL: Final[Mapping[int, Refusal]] = {
    refusal.status: refusal
    for refusal in (
        BadRequest("The body has to be JSON; it is not JSON at line 1, column 2"),
        Unauthenticated(),
        Forbidden("agents:read"),
        Conflict("A request with this Idempotency-Key is under way"),
        TooLarge(BODY_LIMIT),
        UriTooLong(),
        UnsupportedMediaType("The body has no Content-Type"),
        TooManyRequests(Exceeded("requests", 2_000, window=2)),
        Internal("Internal server error (incident 0f6d1c2b3a495867)"),
        Unavailable("The database is not available (incident 0f6d1c2b3a495867)"),
    )
}
"""Errors that many operations make in the same words, by their status."""

# Where no database is asked, the server alone says that it is not now.
_SERVER_BUSY: Final = Unavailable("The server is busy")
_NO_KEY: Final = Fault(
    "header.idempotency-key", "is one value of 1 to 255 visible ASCII characters"
)


def errors_of(
    route: Route, known: Operation, *, needs_token: bool, keyed: bool
) -> dict[int, Refusal]:
    """Return one of each error that the operation makes, by its status.

    Args:
        route: The line of the table of routes.
        known: What is known of it beside.
        needs_token: Whether a caller without a token is refused.
        keyed: Whether it takes an `Idempotency-Key`.
    """
    found = [USUAL[429], USUAL[500], USUAL[503], *_of_caller(route, needs_token=needs_token)]
    found += [*_of_place(route, known), *_of_content(route, known)]
    if not _asks(route.handler):
        found.append(_SERVER_BUSY)
    found += [*known.errors]
    if keyed:
        found = [USUAL[409], TooLarge(route.body_limit), Invalid((_NO_KEY,)), *found]
    errors = {refusal.status: refusal for refusal in found}
    for kind, *example in _find_refusals(route):
        if example or kind.status not in errors:
            errors[kind.status] = kind(*example)
    return errors


def ids_of(route: Route) -> list[str]:
    """Return the names of what the path of `route` leaves open."""
    return _PARAMETER.findall(route.template)


def is_usual(known: Operation, refusal: Refusal) -> bool:
    """Say whether the operation makes `refusal` as others do, and means the same."""
    return USUAL.get(refusal.status) == refusal and refusal.status not in known.meanings


def _open(route: Route) -> list[str]:
    """Return the ids that a request names: the path of a webhook has its channel in it."""
    return [] if route.operation in CHANNEL_ONLY else ids_of(route)


def _of_caller(route: Route, *, needs_token: bool) -> Iterator[Refusal]:
    # An id that no path can have leads nowhere, and that is shown to callers alone.
    if needs_token or _open(route):
        yield USUAL[401]
    named = route.find_missing is not None
    if named or isinstance(route.need, Scoped) or (route.custom and route.method != "GET"):
        yield USUAL[403]


def _of_place(route: Route, known: Operation) -> Iterator[Refusal]:
    if ids := _open(route):
        yield NotFound(_ABSENT.get(ids[-1], "Not Found"))
    if ids or query_of(route, known):
        yield USUAL[414]


def _of_content(route: Route, known: Operation) -> Iterator[Refusal]:
    """Yield what is said of a query and of a body that are not as they should be.

    What a provider has signed is judged by the rules of its channel.
    """
    if isinstance(route.need, Signed):
        return
    if route.query or route.body or known.query or known.body:
        yield Invalid((_fault(route, known),))
    if route.body or known.body:
        yield USUAL[400]
        yield TooLarge(route.body_limit)
    if known.body and len(known.body.content) > 1:
        yield USUAL[415]


# --- What is declared ---------------------------------------------------------------------------


def _find_refusals(route: Route) -> Iterator[tuple[Any, ...]]:
    """Yield the refusals that functions of the row are declared to return, with an example of each.

    They are in the type of what a function returns, as `NotFound`, or with what one is made of, as
    `Annotated[NotFound, "Run not found"]`.
    """
    found = None if route.operation in CHANNEL_ONLY else route.find
    for function in (found, route.form and route.form.read, route.handler):
        if function is not None:
            yield from _refusals(_find_return_type(function))


def _find_return_type(function: Callable[..., object]) -> Any:
    """Return the type of what `function` returns."""
    hints = get_type_hints(getattr(function, "func", function), include_extras=True)
    return hints["return"]


def _asks(handler: Callable[..., object]) -> bool:
    """Whether `handler` is a program: one that is not asks no database."""
    return get_origin(_find_return_type(handler)) is Generator


def _refusals(hint: Any) -> Iterator[tuple[Any, ...]]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Generator:
        yield from _refusals(arguments[-1])
    elif origin in (Union, UnionType):
        for member in arguments:
            yield from _refusals(member)
    else:
        kind = arguments[0] if origin is Annotated else hint
        if isinstance(kind, type) and issubclass(kind, Refusal):
            yield (kind, *arguments[1:])


# --- A rule that a request may break ------------------------------------------------------------


def query_of(route: Route, known: Operation) -> tuple[Field, ...]:
    """Return the fields of the query."""
    return known.query if route.query is None else fields_of(route.query)


def _fault(route: Route, known: Operation) -> Fault:
    """Return a fault of a request: that of a body without what it must have, or of its query."""
    for field in fields_of(route.body) if route.body else ():
        if field.required:
            return Fault(f"body.{field.name}", field.fault or "is required")
    for schema in known.body.content.values() if known.body else ():
        for name in _resolve(schema).get("required", ()):
            return Fault(f"body.{name}", "is required")
    for field in query_of(route, known):
        if field.where == "query" and (rule := _rule(field)):
            return Fault(f"query.{field.name}", rule)
    return Fault("query.colour", "unknown field")


def _rule(field: Field) -> str | None:
    schema = _resolve(field.schema)
    if field.fault:
        return field.fault
    if "enum" in schema:
        return f"must be one of {', '.join(schema['enum'])}"
    if "minimum" in schema:
        return f"must be at least {schema['minimum']}"
    return None


def _resolve(schema: Schema) -> Schema:
    """Return what `schema` refers to, and of one that may be null what else it is."""
    if "$ref" in schema:
        return _resolve(SCHEMAS[schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema:
        return _resolve(schema["anyOf"][0])
    return schema
