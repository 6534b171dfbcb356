"""The judgement of what a server is trusted by, and trusts: secrets, keys, certificates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from ..access.keys import KeySet, build_keys
from ..access.revocations import read_revocations
from ..config import AuthorizationConfig
from ..findings import Finding, find
from ..http.refusals import Fault
from ..values import frozen

__all__ = [
    "Validity",
    "judge_certificate",
    "judge_jwks",
    "judge_missing",
    "judge_revocations",
]

DAY_SECONDS: Final = 86_400
SOON_DAYS: Final = 14
"""Half of the last third of 90 days, in which certificates are renewed."""

KEYS: Final = "authorization_config.jwks_file"
_JWKS: Final = "authorization_config.jwks"
REVOCATIONS: Final = "authorization_config.revocations_file"


def judge_missing(missing: Iterable[Fault]) -> Iterator[Finding]:
    """Yield each secret that is not here; the files of keys are judged by themselves."""
    for fault in missing:
        if not fault.path.startswith((_JWKS, REVOCATIONS)):
            yield find("secret_missing", fault.path, fault.message)


def judge_jwks(
    config: AuthorizationConfig, content: bytes | None, reason: str
) -> Iterator[Finding]:
    """Yield why the JWKS file cannot be used: its `content`, or the `reason` why there is none."""
    if content is None:
        yield find("keys_unreadable", KEYS, f"cannot be read: {reason}")
        return
    keys = build_keys(config.algorithm, config.verification_keys, content)
    for problem in () if isinstance(keys, KeySet) else keys:
        yield find("keys_unreadable", KEYS, f"cannot be used: {problem.path} {problem.message}")


def judge_revocations(content: bytes | None, reason: str) -> Iterator[Finding]:
    """Yield why the file with revocations cannot be used."""
    read = f"cannot be read: {reason}" if content is None else read_revocations(content)
    if isinstance(read, str):
        yield find("revocations_unreadable", REVOCATIONS, read)


@frozen
class Validity:
    """From when to when a certificate is valid, in seconds since the epoch."""

    begins: float
    ends: float


def judge_certificate(
    path: str, chain: tuple[Validity, ...] | str, now_us: int
) -> Iterator[Finding]:
    """Yield what is wrong with the certificates in the file at `path`, or why there are none."""
    where = "server.certfile"
    if isinstance(chain, str):
        yield find("certificate_unreadable", where, f"{path} cannot be used: {chain}")
        return
    now = now_us / 1_000_000
    ends = min(one.ends for one in chain)
    begins = max(one.begins for one in chain)
    if ends <= now:
        yield find("certificate_expired", where, f"{path} expired {_day(ends)}")
    elif ends - now < SOON_DAYS * DAY_SECONDS:
        days = int((ends - now) // DAY_SECONDS)
        yield find(
            "certificate_expires_soon", where, f"{path} expires {_day(ends)}, in {days} days"
        )
    if begins > now:
        yield find("certificate_not_yet_valid", where, f"{path} is valid from {_day(begins)} on")


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
