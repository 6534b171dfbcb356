"""The authenticator of a platform: it names the caller of a request by its bearer token."""

from __future__ import annotations

from typing import Any, Final

from attrs import Factory, define, evolve, field

from ..config import AuthorizationConfig, ConfigurationError
from ..http.messages import Request
from ..http.refusals import Fault, Unauthenticated
from ..values import frozen
from .claims import ClaimRules, Expired, claim_rules, read_claims
from .claims_cache import ClaimsCache
from .decide import Principal, principal_of
from .jose import Malformed
from .keys import KeySet, build_keys
from .tokens import BadToken, NoToken, bearer_token

__all__ = ["TRUSTED", "Authenticator", "KeysTrouble", "TokenRefused", "make_authenticator"]

TRUSTED: Final = Principal(trusted=True)
"""The caller where authorization is off."""


@frozen
class TokenRefused:
    """The refusal of a token; `reason` is for the log, `refusal` for the caller.

    `outer`: no token was refused, but a caller for whom an outer application vouches.
    """

    refusal: Unauthenticated
    reason: str
    outer: bool = False


def _empty_cache(authenticator: Authenticator) -> ClaimsCache:
    return ClaimsCache(authenticator.rules)


@frozen
class KeysTrouble:
    """The reasons why keys that were offered were not taken, and when, if that is known."""

    faults: tuple[Fault, ...]
    at_us: int | None


@define(eq=False)
class Authenticator:
    """Knows callers by their tokens.  `keys` may be replaced at any moment, as a whole.

    Attributes:
        loaded_us: Since when the keys are in force; None where nobody said.
        trouble: Of the last keys that were offered, where they were not taken.
    """

    config: AuthorizationConfig
    rules: ClaimRules
    keys: KeySet
    loaded_us: int | None = None
    trouble: KeysTrouble | None = None
    _cache: ClaimsCache = field(default=Factory(_empty_cache, takes_self=True), init=False)

    def caller(self, request: Request, now_us: int) -> Principal | TokenRefused:
        """Return who sent `request`, as its one bearer token says."""
        token = bearer_token(request.values(b"authorization"))
        if isinstance(token, NoToken):
            return TokenRefused(Unauthenticated(), token.reason)
        if isinstance(token, BadToken):
            return _refuse(token)
        claims = self._cache.verify(token, self.keys, now_us)
        if isinstance(claims, BadToken):
            return _refuse(claims)
        return principal_of(claims, self.config.admin_scope)

    def load_jwks(self, jwks: bytes | None, now_us: int | None = None) -> tuple[Fault, ...]:
        """Take the keys of a new JWKS file; with faults, the old keys stay in force.

        Args:
            jwks: The content of the file; None where it cannot be read.
            now_us: When that is, if it is to be shown.
        """
        keys: KeySet | tuple[Fault, ...] = _UNREAD
        if jwks is not None:
            keys = _keys(self.config, self.config.verification_keys, jwks)
        if not isinstance(keys, KeySet):
            self.trouble = KeysTrouble(keys, now_us)
            return keys
        if keys.generation != self.keys.generation:
            self.loaded_us = now_us
        self.keys, self.trouble = keys, None
        return ()

    def identify(self, claims: dict[str, Any], now_us: int) -> Principal | TokenRefused:
        """Return who a token with these `claims` would name, were it signed by one of the keys."""
        try:
            said = read_claims(claims, "", now_us, self.rules)
        except Malformed as problem:
            return _refuse(BadToken(str(problem), expired=isinstance(problem, Expired)))
        return evolve(principal_of(said, self.config.admin_scope), key_id=None)


_UNREAD: Final = (Fault("authorization_config.jwks_file", "cannot be read"),)


def _refuse(token: BadToken) -> TokenRefused:
    """One sentence for every reason but expiry, so that a forger learns nothing."""
    detail = "Token has expired" if token.expired else "Invalid token"
    return TokenRefused(Unauthenticated(detail, sent=True), token.reason)


def _keys(
    config: AuthorizationConfig, verification_keys: tuple[str, ...], jwks: bytes | None
) -> KeySet | tuple[Fault, ...]:
    keys = build_keys(config.algorithm, verification_keys, jwks)
    if isinstance(keys, KeySet):
        return keys
    where = "authorization_config"
    return tuple(Fault(f"{where}.{problem.path}", problem.message) for problem in keys)


def make_authenticator(
    config: AuthorizationConfig, platform_id: str, jwks: bytes | None
) -> Authenticator:
    """Make the authenticator of a platform.

    Args:
        config: With every verification key, those of the environment included.
        platform_id: The audience to ask for, where audiences are verified and none is named.
        jwks: What the JWKS file holds, if there is one.

    Raises:
        ConfigurationError: With everything that makes the keys unsafe or useless.
    """
    keys = _keys(config, config.verification_keys, jwks)
    faults = [] if isinstance(keys, KeySet) else list(keys)
    if config.jwks_file is not None and jwks is None:
        faults.append(Fault("authorization_config.jwks_file", "is named and was not read"))
    if faults or not isinstance(keys, KeySet):
        raise ConfigurationError(tuple(faults))
    return Authenticator(config, claim_rules(config, platform_id), keys)
