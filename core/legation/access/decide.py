"""The one decision: may this caller do this here?

`decide` is total: every need, caller and id has an answer, and what is unknown is denied.  It
looks at the need of the matched route and at verified claims, never at the text of a path.  Whose
data may be seen is the second half (`Principal.sees_all` and `Principal.owner`), asked by
everything that reads or changes rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from attrs import Factory, field

from ..values import frozen
from .scopes import Need, Scoped, well_formed_id

if TYPE_CHECKING:  # a decision needs no token
    from .claims import Claims

__all__ = [
    "ANONYMOUS",
    "Allow",
    "AllowOnly",
    "Decision",
    "Deny",
    "Principal",
    "decide",
    "find_ids",
    "name_of",
    "owner_of",
    "principal_of",
]

# Names of owners that are no user's: a run without a subject, a person on a channel.
_RESERVED: Final = ("nobody:", "channel:")


def _is_reserved(name: str) -> bool:
    return name.startswith("~") and name.lstrip("~").startswith(_RESERVED)


def owner_of(name: str) -> str:
    """Return the owner under which the rows of the user `name` are kept.

    A name that begins with `~` gets one more, as a subject does.  One that is reserved, with
    however many `~`, is an owner as it stands.
    """
    return f"~{name}" if name.startswith("~") and not _is_reserved(name) else name


def name_of(owner: str) -> str:
    """Return the name of an owner, as tools and clients are shown it; `owner_of` leads back."""
    return owner[1:] if owner.startswith("~~") and not _is_reserved(owner) else owner


def _as_set(scopes: Iterable[str]) -> frozenset[str]:
    """Return `scopes` as a set; one text is a set of letters to Python, and a mistake here."""
    if isinstance(scopes, str):
        raise TypeError(f"scopes is one text: write [{scopes!r}]")
    return frozenset(scopes)


def _owner(principal: Principal) -> str | None:
    subject = principal.subject  # of any type, where an outer application is wrong
    return f"~{subject}" if isinstance(subject, str) and subject.startswith("~") else subject


def _own(principal: Principal) -> str:
    return principal.owner or ""


def _is_admin(principal: Principal) -> bool:
    return bool(principal.admin_scope)


def _sees_all(principal: Principal) -> bool:
    return principal.trusted or principal.admin


@frozen
class Principal:
    """The caller of a request, as a verified token says, or an outer application.

    An outer application names its user and the scopes: `Principal("ann", ["agents:read"])`.  One
    with neither is nobody, and is refused like a request without a token.

    Attributes:
        subject: The user, whose data the caller's are; without one it owns nothing.
        scopes: What is granted, in the forms of a token's.
        admin_scope: The admin scope where `scopes` hold it, else empty; set by the platform.
        trusted: Set by the platform where authorization is off: everybody may do everything, and
            the caller's word is taken for whose data it is.
        session_id: The one session that the caller is let into: every other, and what is in it, is
            as if absent, whatever the scopes.
        key_id: What verified the caller; set by the platform.
        dependencies: Given to its runs, whatever the caller sends.
        session_state: As `dependencies`, in the state of the session.
        owner: Under what name the caller's rows are kept; None owns nothing.  Names that begin
            with `~` are the platform's own (`~nobody:…`, `~channel:…`): a subject that begins so
            gets one more, and can never be one of them.
        own: The owner of what a caller who sees all keeps for itself; it may have no name.
        admin: Whether the caller holds the admin scope.
        sees_all: Whether the rows of every owner are visible.
    """

    subject: str | None = None
    scopes: frozenset[str] = field(default=frozenset(), converter=_as_set)
    admin_scope: str = ""
    trusted: bool = False
    session_id: str | None = None
    key_id: str | None = None
    dependencies: Mapping[str, Any] = field(factory=dict[str, Any])
    session_state: Mapping[str, Any] = field(factory=dict[str, Any])
    owner: str | None = field(
        default=Factory(_owner, takes_self=True), init=False, eq=False, repr=False
    )
    own: str = field(default=Factory(_own, takes_self=True), init=False, eq=False, repr=False)
    admin: bool = field(
        default=Factory(_is_admin, takes_self=True), init=False, eq=False, repr=False
    )
    sees_all: bool = field(
        default=Factory(_sees_all, takes_self=True), init=False, eq=False, repr=False
    )

    def enters(self, session_id: str) -> bool:
        """Return whether the caller is for this session, as one that names none is for each."""
        return self.session_id is None or self.session_id == session_id


ANONYMOUS: Final = Principal()
"""Nobody: who has neither a name nor a scope."""


def principal_of(claims: Claims, admin_scope: str = "platform:admin") -> Principal:
    """Return the caller of whom verified claims speak; `admin_scope` is the one that opens all."""
    return Principal(
        subject=claims.subject,
        scopes=claims.scopes,
        admin_scope=admin_scope if admin_scope in claims.scopes else "",
        session_id=claims.session_id,
        key_id=claims.key_id,
        dependencies=claims.dependencies,
        session_state=claims.session_state,
    )


@frozen
class Allow:
    """Yes; `scope` is what allowed it, empty where none was needed."""

    verdict: ClassVar[str] = "allow"

    scope: str = ""


@frozen
class AllowOnly:
    """Yes, for these ids alone."""

    verdict: ClassVar[str] = "allow"

    ids: frozenset[str]
    scope: str


@frozen
class Deny:
    """No; `scope` would have been enough."""

    verdict: ClassVar[str] = "deny"

    scope: str


Decision: TypeAlias = Allow | AllowOnly | Deny
"""The `verdict` is for the audit trail."""

_allow: Final = lru_cache(maxsize=256)(Allow)  # nearly every decision: most scopes come again


def decide(need: Need, principal: Principal, resource_id: str | None = None) -> Decision:
    """Decide on a need; `resource_id` is the id in the path, where the route has one.  Total."""
    if not isinstance(need, Scoped):
        return _allow()
    if principal.trusted:
        return _allow()
    if principal.admin:
        return _allow(principal.admin_scope)
    held = principal.scopes
    for scope in need.general:
        if scope in held:
            return _allow(scope)
    for scope in _for_one(need, resource_id):
        if scope in held:
            return _allow(scope)
    if need.listing and (ids := find_ids(need, principal)):
        return AllowOnly(ids, need.scope)
    return Deny(_narrowest_scope(need, resource_id))


def _for_one(need: Scoped, resource_id: str | None) -> tuple[str, ...]:
    """Return the scopes that are enough for the id in the path alone.

    An id outside the grammar cannot be registered, and a colon in it could make a scope that was
    granted for something else fit.
    """
    if not need.parameter or resource_id is None or not well_formed_id(resource_id):
        return ()
    return tuple(f"{need.resource}:{resource_id}:{action}" for action in need.actions)


def find_ids(need: Need, principal: Principal) -> frozenset[str]:
    """Return the ids on which `principal` holds one of the actions of `need`."""
    if not isinstance(need, Scoped) or not (need.listing or need.parameter):
        return frozenset()
    parts = (scope.split(":") for scope in principal.scopes)
    return frozenset(
        part[1]
        for part in parts
        if len(part) == 3
        and part[0] == need.resource
        and part[2] in need.actions
        and well_formed_id(part[1])
    )


def _narrowest_scope(need: Scoped, resource_id: str | None) -> str:
    """Return the narrowest scope that would be enough."""
    return next(iter(_for_one(need, resource_id)), need.scope)
