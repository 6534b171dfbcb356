"""Custom routes: operations of an application, declared and served as our own are.

    @frozen
    class ListOrders:
        state: str = choice(("open", "sent"), default="open")

    def list_orders(call: Call, query: ListOrders) -> Program[Orders | NotFound]: ...

    CustomRoute(
        "GET", "/orders", Scoped("orders", ("read",)), list_orders,
        operation="list_orders", summary="List orders", query=ListOrders, result=Orders,
    )

The route becomes a row of the platform's table (`route_table`), so that authorization, audit, CORS,
HEAD, OPTIONS and 405 are those of every other row.  Its programs may ask for the effects in
`PUBLIC_EFFECTS` alone; what else they yield is thrown into them as `NotPublic`, and is not
performed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, TypeAlias, TypeVar, cast, is_typeddict

from attrs import evolve, field

from .. import effects
from ..access.scopes import AnyToken, Open, Scoped
from ..effects import Program
from ..http.messages import Response, Streamed, json_bytes_response
from ..http.refusals import Refusal
from ..programs import Handlers, intercept
from ..tools.results import to_json
from ..values import frozen
from .call import BODY_LIMIT, Call, Handled
from .route import Route

__all__ = ["PUBLIC_EFFECTS", "CustomRoute", "NotPublic", "restrict", "row_of"]

R = TypeVar("R")

CustomNeed: TypeAlias = Scoped | AnyToken | Open

PUBLIC_EFFECTS: Final[frozenset[type[Any]]] = frozenset(
    {
        effects.CallFunction,
        effects.CloseStream,
        effects.Concurrently,
        effects.Fetch,
        effects.Interruptible,
        effects.Log,
        effects.NextChunk,
        effects.NextPiece,
        effects.Now,
        effects.OpenStream,
        effects.RandomBytes,
        effects.ReadBody,
        effects.Sleep,
        effects.ThisNode,
        effects.Transact,
    }
)
"""The effects of a custom route.  The others belong to runs, to jobs and to the audit trail."""

_WHILE_STREAMING: Final = PUBLIC_EFFECTS - {effects.ReadBody} | {effects.Emit}


class NotPublic(Exception):
    """The program of a custom route yields what only our own programs may ask for."""


@frozen(eq=False)
class CustomRoute:
    """A route of an application.

    Attributes:
        method: GET, POST, PUT, PATCH or DELETE; HEAD is where GET is.
        template: The path, as `/orders/{order_id}`.  Its first segment is a name of its own.
        need: `Scoped`, `AnyToken` or `Open`.
        handler: Answers `(call)`, and behind it the query and the body where they are declared.  It
            returns a `Response`, a `Streamed`, a refusal, a value of `result`, or a program of
            one of these; its return type names the refusals, for the document.
        operation: The id of the operation, in the document and in the audit trail.
        summary: For the document, in a few words.
        description: For the document, in more words.
        tag: The section of the document.
        query: The class of the fields of the query; without one, no query is looked at.
        body: The class of the members of the JSON body; without one, no body is read.
        result: The type of the JSON that it answers with: a class of attrs, a dataclass, a
            TypedDict, or what a tool may take.
        body_limit: The longest body, in bytes.
        success: The status of its usual answer.
        repeatable: A POST may be asked for twice as it is, and takes no `Idempotency-Key`.
    """

    method: str
    template: str
    need: CustomNeed
    handler: Callable[..., Any]
    operation: str = field(kw_only=True)
    summary: str = field(kw_only=True)
    description: str = field(default="", kw_only=True)
    tag: str = field(default="Custom", kw_only=True)
    query: type[Any] | None = field(default=None, kw_only=True)
    body: type[Any] | None = field(default=None, kw_only=True)
    result: Any = field(default=None, kw_only=True)
    body_limit: int = field(default=BODY_LIMIT, kw_only=True)
    success: int = field(default=200, kw_only=True)
    repeatable: bool = field(default=False, kw_only=True)


def row_of(custom: CustomRoute) -> Route:
    """Return the row of `custom` in the table of routes."""
    return Route(
        custom.method,
        custom.template,
        custom.need,
        _Handler(custom.handler, custom.operation, custom.result, custom.success),
        custom.operation,
        custom.tag,
        query=custom.query,
        body=custom.body,
        form=None,
        body_limit=custom.body_limit,
        success=custom.success,
        repeatable=custom.repeatable,
        custom=True,
    )


@frozen(eq=False)
class _Handler:
    """A handler of a custom route: its programs are restricted, its result is encoded.

    `func` is the function itself, whose return type the document reads.
    """

    func: Callable[..., Any]
    operation: str
    result: Any
    success: int

    def __call__(self, call: Call, *given: Any) -> Handled:
        return self._answer(self.func(call, *given))

    def _answer(self, outcome: Any) -> Handled:
        return (
            self._run(cast(Any, outcome))
            if isinstance(outcome, Generator)
            else self._finish(outcome)
        )

    def _run(self, program: Program[Any]) -> Program[Handled]:
        return self._answer((yield from restrict(program)))

    def _finish(self, outcome: Any) -> Handled:
        if isinstance(outcome, Response | Refusal):
            return outcome
        if isinstance(outcome, Streamed):
            return evolve(outcome, body=restrict(outcome.body, _WHILE_STREAMING))
        if self.result is None or not _is_value_of(self.result, outcome):
            wanted = "a Response" if self.result is None else f"a Response or {self.result}"
            kind = type(outcome).__qualname__
            raise TypeError(f"the handler of {self.operation} returned {kind}, not {wanted}")
        return json_bytes_response(self.success, to_json(outcome).encode())


def _is_value_of(kind: Any, value: object) -> bool:
    """Return whether `value` may be a `kind`; of what is no plain class, checkers alone know."""
    return not isinstance(kind, type) or is_typeddict(kind) or isinstance(value, kind)


def restrict(program: Program[R], allowed: frozenset[type[Any]] = PUBLIC_EFFECTS) -> Program[R]:
    """Run `program`, and the programs in its effects; an effect not `allowed` is thrown back."""

    def interruptible(effect: effects.Interruptible[Any]) -> Program[Any]:
        return (yield evolve(effect, program=restrict(effect.program, allowed)))

    def concurrently(effect: effects.Concurrently[Any]) -> Program[Any]:
        programs = tuple(restrict(one, allowed) for one in effect.programs)
        return (yield evolve(effect, programs=programs))

    handlers: Handlers = {
        **dict.fromkeys(allowed, _ask),
        effects.Interruptible: interruptible,
        effects.Concurrently: concurrently,
    }
    return intercept(program, handlers, _refuse)


def _ask(effect: Any) -> Program[Any]:
    return (yield effect)


def _refuse(effect: object) -> Program[Any]:
    raise NotPublic(f"a custom route may not yield {type(effect).__qualname__}")
