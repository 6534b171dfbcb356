"""What a handler is given: the request, its caller, and where it landed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

from attrs import frozen

from ..access.decide import Allow, AllowOnly, Principal
from ..bodies import Form, JsonObject, Reader, parse_form, parse_json, parse_query
from ..bodies.json_text import BadJson
from ..effects import Program, ReadBody
from ..messages import Answer, Request
from ..refusals import BadRequest, Fault, Invalid, Refusal, TooLarge
from ..registry import Registry
from ..runs.execute import Workshop

__all__ = ["BODY_LIMIT", "Call", "Handler", "Surface", "Whose"]

BODY_LIMIT: Final = 10 << 20
"""The longest body of a request, in bytes; channels have their own."""


@frozen
class Whose:
    """Whose rows a caller asks about; `any_owner` for those who see all, then None means all."""

    owner: str | None
    any_owner: bool


class Surface(Protocol):
    """The routes as a caller may ask about them."""

    def explain(self, principal: Principal, method: str, target: str) -> dict[str, Any]:
        """Return where a request would lead, and whether `principal` may make it."""
        ...

    def rights(self, principal: Principal) -> list[dict[str, Any]]:
        """Return every route with what `principal` may do there."""
        ...


@frozen(eq=False)
class Call:
    """One authorized request."""

    request: Request
    workshop: Workshop
    surface: Surface
    principal: Principal
    decision: Allow | AllowOnly
    params: Mapping[str, str]
    query: str
    request_id: str
    now_us: int
    started_us: int

    @property
    def registry(self) -> Registry:
        """What the platform hosts."""
        return self.workshop.registry

    def reader(self) -> Reader | Invalid:
        """Return the fields of the query, to be taken one by one."""
        fields = parse_query(self.query)
        if isinstance(fields, Fault):
            return Invalid((fields,))
        return Reader("query", fields)

    def form(self) -> Program[Form | Refusal]:
        """Read the body as a form, whichever of the three encodings it has."""
        body = yield from ReadBody(BODY_LIMIT)
        if body is None:
            return TooLarge(BODY_LIMIT)
        return parse_form(self.request.header(b"content-type"), body)

    def json_object(self) -> Program[JsonObject | Refusal]:
        """Read the body as a JSON object; no body is an empty one."""
        body = yield from ReadBody(BODY_LIMIT)
        if body is None:
            return TooLarge(BODY_LIMIT)
        if not body:
            return {}
        value = parse_json(body)
        if isinstance(value, BadJson):
            return BadRequest(f"The body has to be JSON; it is {value.reason}")
        if not isinstance(value, dict):
            return Invalid((Fault("body", "must be a JSON object"),))
        return value

    def whose(self, user_id: str | None) -> Whose:
        """Return whose rows this caller means.

        `user_id` is what the request says; it counts for those alone who see every owner.
        """
        if self.principal.sees_all:
            return Whose(user_id, any_owner=True)
        return Whose(self.principal.owner, any_owner=False)


Handler: TypeAlias = Callable[[Call], Program[Answer | Refusal]]
