"""A route: one operation as it is declared, from its path to what is read of a request.

A handler declares in its signature what it takes: the class of its `query`, and of its `body` or
its `form`.  These are read before it runs, and it is given values:

    Route("GET", "/channels/{channel}/messages", …, list_messages, …, find=find_channel)

    def list_messages(call: Call, channel: HostedChannel, query: MessagesQuery) -> …

First comes what the path names (`find`): where it is absent, nothing else is looked at.  Then come
the fields of the query and of the body; all their faults are reported at once.

What a row has as a `LateFunction` is imported when a field of the row needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeAlias, TypeVar

from attrs import Factory, field, validators

from ..access.decide import Principal
from ..access.scopes import AnyToken, Need, Open, Public, Scoped, Signed
from ..effects import Program, ReadBody, Sleep
from ..http.bodies.forms import Form, is_json, parse_form, parse_members
from ..http.bodies.json_meter import LARGE, measure_json
from ..http.refusals import Fault, Invalid, Refusal, TooLarge
from ..shares.shares import Shares
from ..values import frozen
from .call import BODY_LIMIT, Call, Handled
from .fields import NoQuery, read_json, read_query
from .late_functions import LateFunction

__all__ = ["Finder", "FormShape", "Handler", "MissingFinder", "Route", "parse_alone"]

R = TypeVar("R")

Handler: TypeAlias = Callable[..., Handled]
"""Answers a call: `(call)`, and behind it what was found, the query and the body, as declared."""


class FormShape(Protocol):
    """The class of the fields of a form, whichever of the three encodings it has."""

    @classmethod
    def read(cls, form: Form) -> Self | Refusal:
        """Return what `form` says, or what is wrong with it."""
        ...


Finder: TypeAlias = Callable[[Call, Any], Any]
"""Finds what a call and its query name, or refuses; a `Fault` is reported with the others."""

MissingFinder: TypeAlias = Callable[[Principal, Mapping[str, str]], str | None]
"""Takes a caller and what the path names; returns the scope that the caller lacks, or None."""


def _of_handler(name: str) -> Any:
    """Make a field: the class of the handler's parameter `name`, unless the row has another."""

    def find(route: Route) -> Any:
        return _LATE if isinstance(route.handler, LateFunction) else _find_class(route, name)

    return field(default=Factory(find, takes_self=True), kw_only=True)


def _find_class(route: Route, name: str) -> Any:
    """Return the class of the parameter `name` of the handler; None where it has none."""
    function = getattr(route.handler, "func", route.handler)
    hints: dict[str, str] = getattr(function, "__annotations__", {})
    return function.__globals__[hints[name]] if name in hints else None


_LATE: Final[Any] = object()
"""Stands for a class that its handler's module has."""

_MAYBE_LATE: Final = ("handler", "find", "find_missing", "query", "body", "form")


def _takes_key(route: Route) -> bool:
    changes = route.method == "POST" and not isinstance(route.need, Signed)
    return changes and not route.repeatable


def _is_rated(route: Route) -> bool:
    return not (route.probe or isinstance(route.need, Signed))


def _find_parameter(route: Route) -> str | None:
    return route.need.parameter if isinstance(route.need, Scoped) else None


def _reads_nothing(route: Route) -> bool:
    return route.query is route.find is route.form is route.body is None


def _ask_for_body(route: Route) -> ReadBody:
    return ReadBody(route.body_limit)


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
        find_missing: Finds the scope that a caller lacks for what the path names, where `need`
            alone does not know it.
        query: The class of the fields of the query; without one, no query is looked at.
        body: The class of the members of the JSON body; without one, no body is read.
        body_limit: The longest body, in bytes.
        form: The class of the fields of the body, where that is a form.  What belongs into it has
            no effect in the query, and is refused there before the body is read.
        success: The status of its usual answer.
        described: Whether the document says that there is a body.
        repeatable: It may be asked for twice as it is, and takes no `Idempotency-Key`.
        custom: Whether it is a route of the application.
        probe: Whether machines ask it again and again: then the trail has refusals of it alone.
        takes_key: Whether an `Idempotency-Key` makes sure that it is done once.
        rated: Whether it counts among the requests of a caller.  Probes do not, nor does what a
            provider sends, all of it from a few addresses.
        parameter: The path parameter that holds the id which scopes may name.
        reads_nothing: Whether its handler takes the call alone, so that it needs no `answer`.
        asks: The effect that asks for its body.
    """

    method: str
    template: str
    need: Need = field(validator=validators.instance_of((Public, Open, Signed, AnyToken, Scoped)))
    handler: Handler = field(validator=validators.is_callable())
    operation: str = field(validator=validators.min_len(1))
    tag: str
    find: Finder | None = field(default=None, kw_only=True)
    find_missing: MissingFinder | None = field(default=None, kw_only=True)
    query: type[Any] | None = _of_handler("query")
    body: type[Any] | None = _of_handler("body")
    form: type[FormShape] | None = _of_handler("form")
    body_limit: int = field(default=BODY_LIMIT, kw_only=True)
    success: int = field(default=200, kw_only=True)
    described: bool = field(default=True, kw_only=True)
    repeatable: bool = field(default=False, kw_only=True)
    custom: bool = field(default=False, kw_only=True)
    probe: bool = field(default=False, kw_only=True)
    takes_key: bool = field(init=False, default=Factory(_takes_key, takes_self=True))
    rated: bool = field(init=False, default=Factory(_is_rated, takes_self=True))
    parameter: str | None = field(init=False, default=Factory(_find_parameter, takes_self=True))
    reads_nothing: bool = field(init=False, default=Factory(_reads_nothing, takes_self=True))
    asks: ReadBody = field(init=False, default=Factory(_ask_for_body, takes_self=True))
    _late: Mapping[str, Callable[[], Any]] = field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        late: dict[str, Callable[[], Any]] = {}
        for name in _MAYBE_LATE:
            value = getattr(self, name)
            if value is _LATE:
                late[name] = partial(_find_class, self, name)
            elif isinstance(value, LateFunction):
                late[name] = value
        for name in late:
            object.__delattr__(self, name)
        object.__setattr__(self, "_late", late)

    if TYPE_CHECKING:
        pass  # a checker knows the fields
    else:

        def __getattr__(self, name: str) -> Any:
            """Return the field `name`, which is imported now.

            Raises:
                AttributeError: There is none of that name.
            """
            if name not in _MAYBE_LATE:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            value = self._late[name]()
            object.__setattr__(self, name, value)
            return value

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
        if self.form is not None:
            if self.query is None and call.query:
                _, faults = read_query(NoQuery, call.query)
            return Invalid(faults) if faults else self._read_form(self.form, call, given)
        if self.body is not None:
            return self._read_body(self.body, call, given, faults)
        return Invalid(faults) if faults else self.handler(call, *given)

    def _read_form(self, shape: type[FormShape], call: Call, given: list[Any]) -> Program[Handled]:
        if refused := call.begin_body():
            return refused
        sent: bytes | None = yield self.asks
        if sent is None:
            return TooLarge(self.body_limit)
        if (held := call.audit.arrival.reading) is not None:
            held.keep(len(sent))
        content_type = call.request.header(b"content-type")
        if len(sent) > LARGE:
            if is_json(content_type):
                refusal = yield from measure_json(sent)
                if refusal is not None:
                    return refusal
            form = yield from parse_alone(
                call.context.shares, partial(parse_form, content_type, sent)
            )
        else:
            form = parse_form(content_type, sent)
        read = form if isinstance(form, Refusal) else shape.read(form)
        return read if isinstance(read, Refusal) else self.handler(call, *given, read)

    def _read_body(
        self, shape: type[Any], call: Call, given: list[Any], faults: tuple[Fault, ...]
    ) -> Program[Handled]:
        if refused := call.begin_body():
            return refused
        sent: bytes | None = yield self.asks
        if sent is None:
            return TooLarge(self.body_limit)
        if (held := call.audit.arrival.reading) is not None:
            held.keep(len(sent))
        if len(sent) > LARGE:
            refusal = yield from measure_json(sent)
            if refusal is not None:
                return refusal
            members = yield from parse_alone(call.context.shares, partial(parse_members, sent))
        else:
            members = parse_members(sent) if sent else {}
        if isinstance(members, Refusal):
            return members
        body, more = read_json(shape, members)
        faults = (*faults, *more)
        return Invalid(faults) if faults else self.handler(call, *given, body)


def parse_alone(shares: Shares, parse: Callable[[], R]) -> Program[R]:
    """Parse a long body while no other one is parsed; behind it others have their turn.

    Several that came at once would keep the event loop one after the other.
    """
    while shares.parsing:
        yield from Sleep(0.0)
    shares.parsing = True
    try:
        parsed = parse()
        yield from Sleep(0.0)
    finally:
        shares.parsing = False
    return parsed
