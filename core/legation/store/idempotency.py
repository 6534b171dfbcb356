"""Units of work on idempotency keys: what was asked under each, and what was answered.

A key belongs to its owner and to one operation.  It is claimed before the work and settled after
it; a claim that nobody settles is open again when `busy_us` has passed.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from attrs import asdict

from ..values import frozen
from .units import Dialect, Sql, Statements, Unit

__all__ = [
    "Answered",
    "ClaimKey",
    "Claimed",
    "Key",
    "KeyState",
    "Other",
    "ReleaseKey",
    "SettleKey",
    "UnderWay",
]


@frozen
class Key:
    """An idempotency key with its owner and its operation."""

    owner: str
    route: str
    key: str


@frozen
class Claimed:
    """The work is the caller's to do."""


@frozen
class UnderWay:
    """Somebody does it now."""


@frozen
class Other:
    """The key was used for another request."""


@frozen
class Answered:
    """It was done; `headers` is JSON.  Without a body, the work itself gives the answer again."""

    status: int
    headers: str
    body: bytes | None


KeyState: TypeAlias = Claimed | UnderWay | Other | Answered

# An unsettled claim has no status; its `expires_us` is when it is open again.
FORGET: Final = Sql(
    """delete from idempotency where expires_us < :now_us and (owner, route, key) in (
        select owner, route, key from idempotency where expires_us < :now_us limit 100)"""
)
CLAIM: Final = Sql(
    """insert into idempotency (owner, route, key, fingerprint, created_us, expires_us)
    values (:owner, :route, :key, :fingerprint, :now_us, :busy_us)
    on conflict (owner, route, key) do nothing returning key"""
)
LOOK: Final = Sql(
    """select fingerprint, status, headers, body from idempotency
    where owner = :owner and route = :route and key = :key"""
)
SETTLE: Final = Sql(
    """update idempotency set status = :status, headers = :headers, body = :body,
        expires_us = :until_us
    where owner = :owner and route = :route and key = :key and fingerprint = :fingerprint"""
)
RELEASE: Final = Sql(
    """delete from idempotency where owner = :owner and route = :route and key = :key
    and fingerprint = :fingerprint and status is null"""
)


@frozen
class ClaimKey(Unit[KeyState]):
    """Claim `key` for a request with `fingerprint` until `busy_us`, or say what it stands for."""

    key: Key
    fingerprint: str
    now_us: int
    busy_us: int

    def statements(self, dialect: Dialect) -> Statements[KeyState]:
        """Yield the removal of what has expired, the claim, and the look at what is there."""
        yield FORGET.of(self)
        if (yield CLAIM.of(self, **asdict(self.key))):
            return Claimed()
        found = yield LOOK.of(self.key)
        fingerprint, status, headers, body = found[0]
        if fingerprint != self.fingerprint:
            return Other()
        if status is None:
            return UnderWay()
        return Answered(status, headers, None if body is None else bytes(body))


@frozen
class SettleKey(Unit[None]):
    """Keep the answer under `key` until `until_us`."""

    key: Key
    fingerprint: str
    status: int
    headers: str
    body: bytes | None
    until_us: int

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Yield one update."""
        yield SETTLE.of(self, **asdict(self.key))


@frozen
class ReleaseKey(Unit[None]):
    """Give a claim back: the work was not done."""

    key: Key
    fingerprint: str

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Yield one deletion."""
        yield RELEASE.of(self, **asdict(self.key))
