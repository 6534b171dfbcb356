"""A route: one operation as it is declared, from its path to what is read of a request.

What a row of the table names is read before its handler runs, and a handler is given values:

    Route("GET", "/channels/{channel}/messages", …, find=find_channel, query=MessagesQuery)

    def list_messages(call: Call, channel: HostedChannel, query: MessagesQuery) -> …

First comes what the path names (`find`): where it is absent, nothing else is looked at.  Then come
the fields of the query and of the body; all their faults are told at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from attrs import Factory, field, validators

from ..access.scopes import AnyToken, Need, Open, Public, Scoped, Signed
from ..effects import Program
from ..http.refusals import Fault, Invalid, Refusal
from ..values import frozen
from .call import BODY_LIMIT, Call, Handled
from .fields import read_json, read_query

__all__ = ["Finder", "Handler", "Route"]

Handler: TypeAlias = Callable[..., Handled]
"""Answers a call: `(call)`, and behind it what was found, the query and the body, as declared."""

Finder: TypeAlias = Callable[[Call, Any], Any]
"""Finds what a call and its query name, or refuses; a `Fault` is told with the others."""


def _takes_key(route: Route) -> bool:
    changes = route.method == "POST" and not isinstance(route.need, Signed)
    return changes and not route.repeatable


@frozen
class Route:
    """One row of the table.

    Attributes:
        method: As in a request line; HEAD is where GET is.
        template: The path.
        need: What a caller has to hold.
        handler: Answers.
        operation: The id of the operation, in the document and in the audit trail.
        tag: The section of the document.
        find: Finds what the path names.
        query: The class of the fields of the query; without one, no query is looked at.
        body: The class of the members of the JSON body; without one, no body is read.
        body_limit: Bytes of the body.
        success: The status of its usual answer.
        described: Whether the document says that there is a body.
        repeatable: It may be asked for twice as it is, and takes no `Idempotency-Key`.
        takes_key: Whether an `Idempotency-Key` makes sure that it is done once.
    """

    method: str
    template: str
    need: Need = field(validator=validators.instance_of((Public, Open, Signed, AnyToken, Scoped)))
    handler: Handler = field(validator=validators.is_callable())
    operation: str = field(validator=validators.min_len(1))
    tag: str
    find: Finder | None = field(default=None, kw_only=True)
    query: type[Any] | None = field(default=None, kw_only=True)
    body: type[Any] | None = field(default=None, kw_only=True)
    body_limit: int = field(default=BODY_LIMIT, kw_only=True)
    success: int = field(default=200, kw_only=True)
    described: bool = field(default=True, kw_only=True)
    repeatable: bool = field(default=False, kw_only=True)
    takes_key: bool = field(init=False, default=Factory(_takes_key, takes_self=True))

    @property
    def parameter(self) -> str | None:
        """The path parameter that holds the id which scopes may name."""
        return self.need.parameter if isinstance(self.need, Scoped) else None

    def answer(self, call: Call) -> Handled:
        """Read what the row declares, and hand it to the handler."""
        given: list[Any] = []
        faults: tuple[Fault, ...] = ()
        query: Any = None
        if self.query is not None:
            query, faults = read_query(self.query, call.query)
            given.append(query)
        if self.find is not None:
            found = self.find(call, query)
            if isinstance(found, Refusal):
                return found
            if isinstance(found, Fault):
                faults = (found, *faults)
            given.insert(0, found)
        if self.body is not None:
            return self._read_body(self.body, call, given, faults)
        return Invalid(faults) if faults else self.handler(call, *given)

    def _read_body(
        self, shape: type[Any], call: Call, given: list[Any], faults: tuple[Fault, ...]
    ) -> Program[Handled]:
        sent = yield from call.json_object(self.body_limit)
        if isinstance(sent, Refusal):
            return sent
        body, more = read_json(shape, sent)
        faults = (*faults, *more)
        return Invalid(faults) if faults else self.handler(call, *given, body)
