"""The call of a handler: the request, its caller, and the route with its parameters."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from attrs import field

from ..access.authenticator import Authenticator, TokenRefused
from ..access.decide import Allow, AllowOnly, Decision, Principal, name_of, owner_of
from ..access.token_watch import TokenWatch, watch_token
from ..channels.identity import Identity
from ..effects import THIS_NODE, Program, Transact
from ..hosted.registry import Registry
from ..http.messages import Answer, Request
from ..http.refusals import Refusal, TooManyRequests
from ..migrations.ledger import LedgerReading
from ..observability.request_log import Arrival, Telemetry
from ..programs import give
from ..runs.executor import ExecutorContext
from ..runs.ids import new_id, uuid_text
from ..shares.exceeded import Exceeded
from ..shares.table import Account
from ..store.audit import Audited, Changed
from ..store.audit_entries import AuditEntry
from ..store.health import Condition
from ..store.units import Unit
from ..values import define, frozen
from .console_files import ConsoleFiles
from .documentation import ApiDocumentation
from .settings import Settings

__all__ = [
    "BODY_LIMIT",
    "DELIVERY_BODY",
    "FORM_OF_DELIVERY",
    "SMALL_BODY",
    "AuditContext",
    "Call",
    "Handled",
    "Known",
    "Process",
    "Surface",
    "Whose",
    "resource_of",
    "with_owner",
]

R = TypeVar("R")

BODY_LIMIT: Final = 10 << 20
"""The longest body of a request that starts a run, and of any, in bytes."""

SMALL_BODY: Final = 16 << 10
"""The longest body where a small object is expected, in bytes."""

DELIVERY_BODY: Final = 4 << 20
"""The longest delivery of a provider, in bytes."""

FORM_OF_DELIVERY: Final = 256 << 10
"""The longest that is a form: an escaped letter of the question that was pressed takes eight."""

_LARGE_DIGITS: Final = 5  # of 10,000 bytes; a body of less is not worth the counting

Handled: TypeAlias = "Answer | Refusal | Program[Handled]"
"""An answer; or a program whose result is one, or the program that goes on."""


@frozen
class Whose:
    """The owners whose rows a caller means: those of the first of `owners` that has any.

    `others`: else those of the only owner, whoever that is.  A user whose name begins with `~` may
    have rows from before such names got one more.
    """

    owners: tuple[str, ...]
    others: bool = False


@frozen(eq=False)
class Known:
    """The findings of the last looks at the databases, by id; see `schema_guard.SchemaGuard`.

    Attributes:
        identities: Who each channel is at its provider, as far as that is known.
    """

    readings: Mapping[str, LedgerReading]
    conditions: Mapping[str, Condition]
    identities: Mapping[str, Identity] = field(factory=dict[str, Identity])


@frozen(eq=False)
class Surface(ABC):
    """The routes as a caller may ask about them.

    Attributes:
        documentation: Their description.
        console: The files of the console.
        telemetry: What the process counts.
        known: What is known of the databases without asking them.
        authenticator: Knows callers by their tokens; None where authorization is off.
        settings: Those in force.
    """

    documentation: ApiDocumentation
    console: ConsoleFiles
    telemetry: Telemetry
    known: Known
    authenticator: Authenticator | None
    settings: Settings

    @abstractmethod
    def explain(
        self, principal: Principal | TokenRefused, method: str, target: str
    ) -> dict[str, Any]:
        """Return where a request would lead, and whether `principal` may make it."""

    @abstractmethod
    def rights(self, principal: Principal) -> list[dict[str, Any]]:
        """Return every route with what `principal` may do there."""


@frozen(eq=False)
class Process:
    """The process of a platform as its measurements see it, at the moment `now_us`."""

    context: ExecutorContext
    surface: Surface
    started_us: int
    now_us: int

    @property
    def registry(self) -> Registry:
        """The registry of all that the platform hosts."""
        return self.context.registry


UNREADABLE: Final = "*"
"""Stands for an id that can be none: it is too long, or holds what no id holds."""

_LONGEST_CLIENT: Final = 64
"""Characters of an address; a host may hand on whatever a proxy says that it is."""

# No id is longer, those of channels included.
_PLAIN: Final = re.compile(r"[A-Za-z0-9._~-]{1,1024}")  # most ids, which need no escape
_WELL_FORMED: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]{1,1024}")


def resource_of(ids: Iterable[str]) -> str:
    """Return ids as the resource of an audit entry: unambiguous, and bounded.

    A caller may write what it likes into a path; the trail has what can be an id.
    """
    return "/".join([one if _PLAIN.fullmatch(one) else _describe_id(one) for one in ids])


def _describe_id(one: str) -> str:
    return _escape(one) if _WELL_FORMED.fullmatch(one) else UNREADABLE


_OF_USER: Final = "user_id="


def _escape(one: str) -> str:
    text = one.replace("%", "%25").replace("/", "%2F")
    return text.replace("=", "%3D", 1) if text.startswith(_OF_USER) else text


def with_owner(resource: str, name: str) -> str:
    """Return `resource` with the user whose it is, which no id looks like."""
    return f"{resource}/{_OF_USER}{_escape(name)}"


# Made for every request, as is a call: `frozen` would triple what making it costs.
@define(eq=False)
class AuditContext:
    """The entry of one request for the audit trail: who asked for what, never what was sent.

    It is written once: where the request changes data, with the change and in its transaction,
    under the status that is going to be answered; else when it is answered.  It is written twice
    where one row would not be the truth: the change was kept and what came after it failed, or the
    answer to its commit was lost.  `owner` is whose the session or run is that the path names, once
    known.  `detail` is what else the resource names, behind the ids of the path.
    """

    arrival: Arrival
    principal: Principal
    decision: Decision
    params: Mapping[str, str]
    recorded: bool = True
    stored: int | None = None
    owner: str | None = None
    detail: tuple[str, ...] = ()

    def of(self, resource: str, owner: str | None) -> str:
        """Return `resource` with its owner, where that is another than who asks."""
        if owner is None or owner == self.principal.own:
            return resource
        return with_owner(resource, name_of(owner))

    def entry(self, status: int, resource: str = "") -> AuditEntry:
        """Return the entry for an answer of `status`; `resource` is the path's, unless given."""
        arrival, principal, decision = self.arrival, self.principal, self.decision
        client = arrival.request.client
        if not resource and (self.params or self.detail):
            resource = self.of(resource_of((*self.params.values(), *self.detail)), self.owner)
        return AuditEntry(
            arrival.now_us,
            arrival.request_id,
            principal.subject,
            principal.key_id,
            arrival.operation,
            resource,
            "open" if principal.trusted else decision.verdict,
            decision.scope,
            status,
            client if len(client) <= _LONGEST_CLIENT else UNREADABLE,
        )


@define(eq=False)
class Call:
    """One authorized request.

    `success` is the status of its usual answer, and `body_limit` the longest body in bytes, as the
    row of its route says.  `registry` is what the platform hosts.
    """

    request: Request
    context: ExecutorContext
    registry: Registry
    surface: Surface
    principal: Principal
    decision: Allow | AllowOnly
    params: Mapping[str, str]
    query: str
    success: int
    body_limit: int
    request_id: str
    now_us: int
    started_us: int
    audit: AuditContext
    seed: bytes | None = None

    def watch_token(self) -> TokenWatch | None:
        """Watch the token of the caller, as long as a stream goes on; None without a token."""
        authenticator, arrival = self.surface.authenticator, self.audit.arrival
        if authenticator is None or arrival.caller is not None or not arrival.known:
            return None
        return watch_token(authenticator, self.request, self.now_us)

    def begin_body(self) -> TooManyRequests | None:
        """Take the bytes of the body that is going to be read, or refuse it.

        One that is not small is read within the bytes that all bodies share, which are held until
        the request is answered.  A body that was read under an `Idempotency-Key` is held already.
        """
        declared = self.request.header(b"content-length")
        if declared is not None and len(declared) < _LARGE_DIGITS:
            return None
        limit = self.body_limit
        if limit <= SMALL_BODY or self.seed is not None:
            return None
        amount = limit if declared is None else int(declared)
        if amount > limit:  # nothing of it is read
            return None
        held = self.context.shares.hold_bytes(self.account(), amount)
        if isinstance(held, Exceeded):
            return TooManyRequests(held)
        self.audit.arrival.reading = held
        return None

    def hold_place(
        self, component: tuple[str, str] | None = None, *, stream: bool, follows: bool
    ) -> TooManyRequests | None:
        """Take the place of a request that is going to last until it is over, or refuse it."""
        # As `account` returns it; one that is known is found without a call.
        who, client, shares = self.principal, self.request.client, self.context.shares
        owner, table = who.owner, shares.table
        own = component if component in table.components else None
        known = table.known.get((owner or client, bool(owner), who.scopes, own))
        held = shares.hold_places(
            known or self.account(component=component), client, stream=stream, follows=follows
        )
        if isinstance(held, Exceeded):
            return TooManyRequests(held)
        self.audit.arrival.place = held
        return None

    def change(
        self, database: str, unit: Unit[R], *, status: int = 0, resource: str = ""
    ) -> Program[R]:
        """Return the result of `unit`, which changes data and is audited in its own transaction.

        Args:
            database: Where both are kept.
            unit: Returns `Undo` where it finds nothing to change: then nothing is recorded yet.
            status: What will be answered when the change is kept; that of the route, unless given.
            resource: What is changed, as the trail names it; what the path names, unless given.
        """
        node: str = yield THIS_NODE
        status = status or self.success
        entry = self.audit.entry(status, resource)
        cluster = self.context.cluster
        known = cluster.chain_ends[database]
        audited = Audited(unit, node, entry, cluster.trail_keys.signing, known)
        changed: Changed[R] = yield Transact(database, audited)
        if changed.kept:
            self.audit.stored = status
        return changed.result

    def new_id(self, what: str) -> Program[str]:
        """Return the id of a new thing of the kind `what`: random, or from the seed."""
        if self.seed is None:
            return new_id(self.now_us)
        return give(uuid_text(hashlib.sha256(self.seed + what.encode()).digest()[:16]))

    def account(
        self, owner: str | None = None, component: tuple[str, str] | None = None
    ) -> Account:
        """Return the account of the caller, or of the owner of a run.

        Args:
            owner: That of the run; the caller's, unless given.  The scopes of who acts for somebody
                else are not that one's.
            component: Kind and id of what the run is of.
        """
        principal = self.principal
        own = principal.owner
        scopes = principal.scopes if owner is None or owner == own else frozenset[str]()
        owner = own if owner is None else owner
        return self.context.shares.table.account(owner, scopes, self.request.client, component)

    def whose(self, user_id: str | None) -> Whose:
        """Return whose rows this caller means.

        `user_id` is what the request says; it counts for those alone who see every owner.
        """
        principal = self.principal
        if not principal.sees_all:
            return Whose(() if principal.owner is None else (principal.owner,))
        if user_id is None:
            return Whose((principal.own,), others=True)
        return Whose(tuple(dict.fromkeys((owner_of(user_id), user_id))))

    def describe_resource(self, *ids: str) -> str:
        """Return `ids` as the resource of an audit entry, with the owner where that is another."""
        return self.audit.of(resource_of(ids), self.audit.owner)
