"""The dispatcher: route, caller, decision, handler and record of a request.

Nothing is read of a body, and nothing of a database, before the decision has been made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from ..access.authenticator import TRUSTED, TokenRefused
from ..access.decide import ANONYMOUS, Allow, AllowOnly, Deny, Principal, decide, find_ids
from ..access.outer_caller import admit, is_nobody
from ..access.rights import describe_need
from ..access.scopes import Open, Public, Scoped, Signed
from ..config import AuthorizationConfig
from ..effects import Log, Program, RandomBytes, Record
from ..http.cors import Cors
from ..http.messages import Answer, Request, Response, Streamed, empty_response
from ..http.refusals import (
    Forbidden,
    ForeignPage,
    MethodNotAllowed,
    NotFound,
    Refusal,
    TooManyRequests,
    Unavailable,
    internal_error,
)
from ..http.routing import Match
from ..http.trust_guard import TrustGuard, is_loopback
from ..incidents import trace, where
from ..observability.request_log import Arrival
from ..programs import give
from ..runs.executor import ExecutorContext
from ..store.failures import NotServed, StoreFailure
from ..values import frozen
from .call import AuditContext, Call, Handled, Surface
from .fields import read_query
from .idempotency import answer_once
from .route import Route
from .route_table import RouteTable
from .stream_ends import end_with_token, has_events

__all__ = ["Arrival", "Dispatcher", "Outcome", "report_failure"]

_YES: Final = Allow()
_UNKNOWN_ORIGIN: Final = "This origin is not among cors_allowed_origins"
_UNKNOWN_HOST: Final = "This host is not among allowed_hosts"
_BEYOND: Final = "Authorization is off, and requests from other machines are refused"

Outcome: TypeAlias = Answer | Refusal

_OUTCOMES: Final = (Response, Streamed, Refusal)


@frozen(eq=False)
class Dispatcher(Surface):
    """The dispatcher: every request passes it.

    Without an `authenticator`, all are trusted that the `guard` lets pass.
    """

    context: ExecutorContext
    table: RouteTable
    excluded: frozenset[str]
    cors: Cors
    guard: TrustGuard | None
    started_us: int

    def admit(self, arrival: Arrival) -> Program[Outcome]:
        """Return the program that answers a request, or says why not."""
        request = arrival.request
        match, query = self.table.router.lead(request.target)
        if match is None:
            return self._unknown(arrival, NotFound())
        if request.method == "OPTIONS":
            return give(self._options(request, _methods(match)))
        method = "GET" if request.method == "HEAD" else request.method
        route = match.methods.get(method)
        if route is None:
            refusal = MethodNotAllowed(_methods(match))
            return give(refusal) if self._open(match) else self._unknown(arrival, refusal)
        return self._enter(arrival, route, match, query)

    def _options(self, request: Request, methods: tuple[str, ...]) -> Response:
        """Answer a browser's preflight, or tell what the path takes (RFC 9110 section 9.3.7)."""
        preflight = self.cors.preflight(request, methods)
        return preflight or empty_response(204, ((b"allow", ", ".join(methods).encode()),))

    def _open(self, match: Match[Route]) -> bool:
        """Whether everybody may know what is here: something of it asks for no token."""
        routes = match.methods.values()
        return any(isinstance(r.need, Signed | Open) or r.template in self.excluded for r in routes)

    def _unknown(self, arrival: Arrival, refusal: Refusal) -> Program[Outcome]:
        """Refuse what leads nowhere; without a valid token, say nothing of what leads where."""
        caller = self._identify(arrival)
        if isinstance(caller, TokenRefused):
            exceeded = self._count_request(arrival, ANONYMOUS)
            return exceeded or (yield from self._refuse_caller(arrival, caller))
        return self._count_request(arrival, caller) or refusal

    def _count_request(self, arrival: Arrival, caller: Principal) -> TooManyRequests | None:
        """Count a request of `caller`, or refuse it: it has made too many."""
        exceeded = self.context.shares.count_request(
            caller.owner, caller.scopes, arrival.request.client, arrival.now_us
        )
        return None if exceeded is None else TooManyRequests(exceeded)

    def _identify(self, arrival: Arrival) -> Principal | TokenRefused:
        """Return who asks: whom the outer application names, else whom the token names."""
        if arrival.caller is not None:
            caller = admit(arrival.caller, self._config.admin_scope)
        elif self.authenticator is None:
            return TRUSTED
        else:
            caller = self.authenticator.caller(arrival.request, arrival.now_us)
        arrival.known = isinstance(caller, Principal)
        return caller

    def _enter(
        self, arrival: Arrival, route: Route, match: Match[Route], query: str
    ) -> Program[Outcome]:
        arrival.template, arrival.operation = route.template, route.operation
        params = match.params
        audit = self._caller(arrival, route, params)
        if not isinstance(audit, AuditContext):
            refused = self._count_request(arrival, ANONYMOUS) if route.rated else None
            return refused or (yield from self._refuse_caller(arrival, audit))
        decision, who = audit.decision, audit.principal
        if route.rated and (
            exceeded := self.context.shares.count_request(
                who.owner, who.scopes, arrival.request.client, arrival.now_us
            )
        ):
            return TooManyRequests(exceeded)
        outcome: Outcome
        if isinstance(decision, Deny):
            outcome = Forbidden(scope=decision.scope)
        # Without a guard of hosts, a request that changes nothing may come from any page.
        elif (self.guard is not None or route.method != "GET") and (
            foreign := self._refuse_origin(arrival, route)
        ):
            outcome = foreign
        else:
            # In their order: by name it would take twice as long, as in `AuditContext.entry`.
            call = Call(
                arrival.request,
                self.context,
                self.context.registry,
                self,
                who,
                decision,
                params,
                query,
                route.success,
                route.body_limit,
                arrival.request_id,
                arrival.now_us,
                self.started_us,
                audit,
            )
            try:
                handled: Handled
                if route.takes_key:
                    handled = answer_once(route.operation, route.answer, call)
                else:
                    handled = route.handler(call) if route.reads_nothing else route.answer(call)
                while not isinstance(handled, _OUTCOMES):
                    handled = yield from handled
                if isinstance(handled, Streamed):
                    handled = _begin_stream(handled, call, route)
                outcome = handled
            except Exception as error:  # noqa: BLE001 (the boundary: a bug of ours is recorded, too)
                outcome = yield from report_failure(error, arrival, self.context)
        status = outcome.status
        if audit.recorded and status != audit.stored and (arrival.known or not 400 <= status < 500):
            yield Record(audit.entry(status))
        return outcome

    def _caller(
        self, arrival: Arrival, route: Route, params: Mapping[str, str]
    ) -> AuditContext | TokenRefused:
        """Return who asks and what was decided.

        Not recorded is what asks for nobody's rights, nor a probe that is let in.
        """
        need = route.need
        scoped = isinstance(need, Scoped)  # as nearly all are: then it is of no other kind
        if not scoped and isinstance(need, Signed):
            return AuditContext(arrival, ANONYMOUS, _YES, params, recorded=False)
        if self.authenticator is None and arrival.caller is None:
            recorded = not (route.probe or isinstance(need, Public | Open))
            return AuditContext(arrival, TRUSTED, _YES, params, recorded=recorded)
        if route.template in self.excluded or (
            not scoped and isinstance(need, Open) and _names_none(arrival)
        ):
            return AuditContext(arrival, ANONYMOUS, _YES, params, recorded=False)
        principal = self._identify(arrival)
        if not isinstance(principal, Principal):
            return principal
        named = params.get(route.parameter) if route.parameter else None
        decision = decide(need, principal, named)
        if route.find_missing is not None:
            missing = route.find_missing(principal, params)
            if missing and not isinstance(decision, Deny):
                decision = Deny(missing)
        recorded = not route.probe or isinstance(decision, Deny)
        return AuditContext(arrival, principal, decision, params, recorded)

    def _refuse_caller(self, arrival: Arrival, refused: TokenRefused) -> Program[Outcome]:
        """Return the refusal; what is wrong with a token, or a caller, is for the log alone."""
        if refused.refusal.sent and self.telemetry.refusals.may_log(arrival.now_us):
            fields = (("request_id", arrival.request_id), ("reason", refused.reason))
            yield from Log("info", "caller_refused" if refused.outer else "token_refused", fields)
        return refused.refusal

    @property
    def _config(self) -> AuthorizationConfig:
        return self.context.registry.config.authorization_config

    def _refuse_origin(self, arrival: Arrival, route: Route) -> ForeignPage | None:
        """Refuse who is not to be trusted, and pages of another origin that change something.

        Where all may do everything, a page's reader's machine may be the only one that reaches this
        address.  Where an outer application knows its users by a cookie, a browser sends that
        along with whatever any page makes it send.
        """
        if not (route.custom or isinstance(route.need, Scoped)):
            return None
        guard, request = self.guard, arrival.request
        if guard is not None and arrival.caller is None:
            if guard.local_only and not is_loopback(request.client):
                return ForeignPage(_BEYOND)
            # No call for a host that is known: this is passed by every request.
            for name, value in request.headers:
                if name == b"host" and not (value in guard.accepted or guard.expects(value)):
                    return ForeignPage(_UNKNOWN_HOST)
        if route.method == "GET":
            return None
        if arrival.caller is not None:
            return None if self.cors.knows(arrival.request) else ForeignPage(_UNKNOWN_ORIGIN)
        if self.authenticator is not None or self.cors.welcomes(arrival.request):
            return None
        return ForeignPage()

    # --- Asking about it ------------------------------------------------------------------------

    def explain(
        self, principal: Principal | TokenRefused, method: str, target: str
    ) -> dict[str, Any]:
        """Return where a request would lead, and whether `principal` may make it.

        Refusals have their reasons: the answer is for whoever holds the platform's keys.
        """
        match, query = self.table.router.lead(target)
        if match is None:
            return {"allowed": False, "reason": "no route"}
        if method == "OPTIONS":
            return {"allowed": True, "by": "no token needed", "allow": _methods(match)}
        route = match.methods.get("GET" if method == "HEAD" else method)
        if route is None:
            return {"allowed": False, "reason": "method", "allow": _methods(match)}
        named = match.params.get(route.parameter) if route.parameter else None
        permission = self._permission(principal, route, named)
        missing = _find_flagged(route, principal, named, query)
        if route.find_missing is not None and isinstance(principal, Principal):
            missing = missing or route.find_missing(principal, match.params)
        if permission["allowed"] and missing:
            permission = {"allowed": False, "reason": "scope", "missing": missing}
        return {**self._line(route, principal), **permission}

    def rights(self, principal: Principal) -> list[dict[str, Any]]:
        """Return every route with what `principal` may do there, whatever the id."""
        return [
            {**self._line(r, principal), **self._permission(principal, r, None)}
            for r in self.table.routes
        ]

    def _line(self, route: Route, principal: Principal | TokenRefused) -> dict[str, Any]:
        off = isinstance(principal, Principal) and principal.trusted
        need = describe_need(route.need, route.template, None if off else self._config)
        return {"method": route.method, "route": route.template, "needs": need}

    def _permission(
        self, principal: Principal | TokenRefused, route: Route, named: str | None
    ) -> dict[str, Any]:
        if isinstance(route.need, Signed):
            return {"allowed": False, "reason": "signature"}
        if route.template in self.excluded:
            return {"allowed": True, "by": "excluded route"}
        if isinstance(principal, TokenRefused):
            return {"allowed": False, "reason": "token", "because": principal.reason}
        decision = decide(route.need, principal, named)
        if isinstance(decision, Allow):
            token = "no token needed" if isinstance(route.need, Open) else "any valid token"
            open_to = "authorization is off" if principal.trusted else token
            return {"allowed": True, "by": decision.scope or open_to}
        if isinstance(decision, AllowOnly):
            return {"allowed": True, "by": decision.scope, "only": sorted(decision.ids)}
        if named is None and (ids := find_ids(route.need, principal)):
            return {"allowed": True, "only": sorted(ids)}
        return {"allowed": False, "reason": "scope", "missing": decision.scope}


def _begin_stream(answer: Streamed, call: Call, route: Route) -> Streamed | TooManyRequests:
    """Return `answer`, which has a place, and ends with its token where it has no events."""
    if call.audit.arrival.place is None:
        refusal = call.hold_place(stream=True, follows=False)
        if refusal is not None:
            return refusal
    return _end_with_token(answer, call) if route.custom or not has_events(answer) else answer


def _end_with_token(answer: Streamed, call: Call) -> Streamed:
    """Return `answer`, which ends with the token of its caller if there is one."""
    token = call.watch_token()
    path = call.request.target.partition("?")[0]
    return answer if token is None else end_with_token(answer, token, path)


def _find_flagged(
    route: Route, principal: Principal | TokenRefused, named: str | None, query: str
) -> str | None:
    """Return the scope that is missing for a parameter of `query`, or None."""
    need = route.need
    if not isinstance(need, Scoped) or need.flagged is None or isinstance(principal, TokenRefused):
        return None
    asked = None if route.query is None else read_query(route.query, query)[0]
    decision = decide(need.flagged, principal, named) if getattr(asked, need.flag, False) else None
    return decision.scope if isinstance(decision, Deny) else None


def _names_none(arrival: Arrival) -> bool:
    """Whether no caller is named."""
    if arrival.caller is not None:
        return is_nobody(arrival.caller)
    return arrival.request.header(b"authorization") is None


def _methods(match: Match[Route]) -> tuple[str, ...]:
    """Return the methods a path takes, sorted; HEAD wherever GET is."""
    methods = {*match.methods, "OPTIONS"}
    return tuple(sorted(methods | {"HEAD"} if "GET" in methods else methods))


def report_failure(
    trouble: Exception, arrival: Arrival, context: ExecutorContext
) -> Program[Refusal]:
    """Return one sentence for an exception, with an incident id.

    The log has the id, too, and where the exception came from; so has the list of incidents, but
    for a database that is not served, of which the answer says so.
    """
    incident = (yield from RandomBytes(8)).hex()
    fields = (
        ("incident", incident),
        ("request_id", arrival.request_id),
        ("error", where(trouble)),
        ("trace", trace(trouble)),
    )
    yield from Log("error", "request_failed", fields, trouble)
    if isinstance(trouble, NotServed):
        return Unavailable(str(trouble), retry_after=5)
    context.cluster.incidents.note(
        context.registry.default_database,
        incident,
        arrival.now_us,
        error_type=type(trouble).__name__,
        place=where(trouble),
        operation=arrival.operation or None,
        request_id=arrival.request_id,
    )
    if isinstance(trouble, StoreFailure):
        return Unavailable(f"The database is not available (incident {incident})")
    return internal_error(incident)
