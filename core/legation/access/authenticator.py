"""The authenticator of a platform: it names the caller of a request by its bearer token."""

from __future__ import annotations

from typing import Any, Final, cast

from attrs import Factory, evolve, field

from ..config import AuthorizationConfig, ConfigurationError
from ..effects import Log
from ..http.messages import Request
from ..http.refusals import Fault, Unauthenticated
from ..values import define, frozen
from .claims import ClaimRules, Claims, Expired, claim_rules, read_claims
from .claims_cache import ClaimsCache
from .decide import Principal, principal_of
from .jose import Malformed
from .key_values import KeySet
from .keys import build_keys
from .revocations import NONE_REVOKED, Revocations, read_revocations
from .tokens import BadToken, NoToken, bearer_token
from .trust_files import NEVER, FileState, TrustFile, log_changes

__all__ = [
    "CANNOT_BE_READ",
    "TRUSTED",
    "Authenticator",
    "KeysTrouble",
    "TokenRefused",
    "describe_files",
    "make_authenticator",
    "open_authenticator",
]

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


_JWKS: Final = "authorization_config.jwks_file"
_REVOCATIONS: Final = "authorization_config.revocations_file"
_KEYS: Final = "authorization_config.verification_keys"
_FILES: Final = ("authorization_config.jwks", _REVOCATIONS)
"""The beginnings of the paths of faults that are those of files."""

CANNOT_BE_READ: Final = "cannot be read"

_BEARER: Final = b"Bearer "


def _empty_cache(authenticator: Authenticator) -> ClaimsCache:
    return ClaimsCache(authenticator.rules, admin_scope=authenticator.config.admin_scope)


def _first_keys(authenticator: Authenticator) -> KeySet:
    return authenticator.loaded


def _files_of(authenticator: Authenticator) -> tuple[TrustFile, TrustFile]:
    return authenticator.key_file, authenticator.revocation_file


@frozen
class KeysTrouble:
    """The reasons why keys that were offered were not taken, and when, if that is known."""

    faults: tuple[Fault, ...]
    at_us: int | None


@define(eq=False)
class Authenticator:
    """Knows callers by their tokens.

    The keys may be replaced at any moment, as a whole, and so may the revocations.  Each stands in
    a file that may be stale for `keys_stale_seconds`: then nothing is accepted on its word.

    Attributes:
        loaded: The keys that were read last.
        keys: Those in force.
        key_file: The file with the keys.
        revocation_file: The file with the revocations.
    """

    config: AuthorizationConfig
    rules: ClaimRules
    loaded: KeySet
    key_file: TrustFile
    revocation_file: TrustFile
    keys: KeySet = field(default=Factory(_first_keys, takes_self=True), init=False)
    _cache: ClaimsCache = field(default=Factory(_empty_cache, takes_self=True), init=False)
    _due_us: int = field(default=NEVER, init=False)
    _logged: tuple[TrustFile, TrustFile] = field(
        default=Factory(_files_of, takes_self=True), init=False
    )

    @property
    def loaded_us(self) -> int | None:
        """Since when the keys are in force; None where nobody said."""
        return self.key_file.loaded_us

    @property
    def trouble(self) -> KeysTrouble | None:
        """Of the last keys that were offered, where they were not taken."""
        file = self.key_file
        return None if file.current else KeysTrouble(file.faults, file.failed_us)

    @property
    def files(self) -> tuple[tuple[str, TrustFile], ...]:
        """The files that are configured, by what they hold."""
        named = (self.config.jwks_file, self.config.revocations_file)
        files = zip(("keys", "revocations"), _files_of(self), named, strict=True)
        return tuple((name, file) for name, file, path in files if path is not None)

    def begin(self, now_us: int) -> None:
        """Note when the keys and revocations came into force that were there from the start.

        A file that could not be read before is reported again: this process has not said so.
        """
        keys, revocations = (
            evolve(file, loaded_us=file.loaded_us or now_us) for file in _files_of(self)
        )
        self.key_file, self.revocation_file = keys, revocations
        self._logged = (
            keys.take(keys.generation, now_us),
            revocations.take(revocations.generation, now_us),
        )

    def caller(self, request: Request, now_us: int) -> Principal | TokenRefused:
        """Return who sent `request`, as its one bearer token says."""
        if now_us >= self._due_us:
            self.settle(now_us)
        values = request.values(b"authorization")
        # What follows `Bearer ` is a token, if it is one that was verified: it needs no parsing.
        if len(values) == 1 and values[0].startswith(_BEARER):
            known = self._cache.find(values[0][len(_BEARER) :], self.keys, now_us)
            if known is not None:
                return known.caller
        token = bearer_token(values)
        if isinstance(token, NoToken):
            return TokenRefused(Unauthenticated(), token.reason)
        if isinstance(token, BadToken):
            return _refuse(token)
        claims = self._cache.verify(token, self.keys, now_us)
        if isinstance(claims, BadToken):
            return _refuse(claims)
        return principal_of(claims, self.config.admin_scope)

    def read_token(self, request: Request, now_us: int) -> Claims | BadToken | NoToken:
        """Return the claims of the one bearer token of `request`."""
        token = bearer_token(request.values(b"authorization"))
        return self._cache.verify(token, self.keys, now_us) if isinstance(token, bytes) else token

    def load_jwks(
        self, jwks: bytes | None, now_us: int | None = None, reason: str = CANNOT_BE_READ
    ) -> tuple[Fault, ...]:
        """Take the keys of a new JWKS file; with faults, the old keys stay in force for a while.

        What is no longer in the file is void, whatever else stands there: a member that is not
        safe is passed over with a note.

        Args:
            jwks: The content of the file; None where it cannot be read.
            now_us: When that is; unless given, the file is stale since the next request.
            reason: Why it cannot be read.
        """
        keys: KeySet | tuple[Fault, ...] = (Fault(_JWKS, reason),)
        if jwks is not None:
            keys = _keys(self.config, self.config.verification_keys, jwks, lenient=True)
        if not isinstance(keys, KeySet):
            self.key_file = self.key_file.fail(keys, now_us)
        else:
            self.loaded = keys
            self.key_file = self.key_file.take(keys.generation, now_us)
        self._settle_files(now_us)
        return self.key_file.faults

    def load_revocations(
        self, content: bytes | None, now_us: int | None = None, reason: str = CANNOT_BE_READ
    ) -> tuple[Fault, ...]:
        """Take the revocations of a changed file; with faults, the old ones stay for a while.

        The arguments are those of `load_jwks`.
        """
        revocations = reason if content is None else read_revocations(content)
        if not isinstance(revocations, Revocations):
            faults = (Fault(_REVOCATIONS, revocations),)
            self.revocation_file = self.revocation_file.fail(faults, now_us)
        else:
            if revocations.generation != self.revocation_file.generation:
                self.rules = evolve(self.rules, revocations=revocations)
                self._cache = _empty_cache(self)
            self.revocation_file = self.revocation_file.take(revocations.generation, now_us)
        self._settle_files(now_us)
        return self.revocation_file.faults

    def _settle_files(self, now_us: int | None) -> None:
        """Decide what is in force, now or when the time is known."""
        if now_us is None:
            self._due_us = 0
        else:
            self.settle(now_us)

    def settle(self, now_us: int) -> None:
        """Let nothing count that has been stale for too long, and what can be read again."""
        self.key_file = keys = self.key_file.at(now_us)
        self.revocation_file = revocations = self.revocation_file.at(now_us)
        self._due_us = min(keys.next_us, revocations.next_us)
        if revocations.state is FileState.VOID:
            self.keys = _without_file(self.config, ())
        elif keys.state is FileState.VOID:
            self.keys = _without_file(self.config, self.config.verification_keys)
        else:
            self.keys = self.loaded

    def fingerprint(self, now_us: int) -> bytes:
        """Return what differs whenever tokens are judged by other keys or revocations."""
        if now_us >= self._due_us:
            self.settle(now_us)
        return self.keys.generation + self.rules.revocations.generation

    def report(self, now_us: int) -> tuple[Log, ...]:
        """Return a line of the log for each thing that has become of the files since it asked."""
        self.settle(now_us)
        before, self._logged = self._logged, _files_of(self)
        paths = (self.config.jwks_file or "", self.config.revocations_file or "")
        changes = zip(paths, before, self._logged, (True, False), strict=True)
        return tuple(
            line
            for path, was, now, keys in changes
            if was is not now
            for line in log_changes(path, was, now, keys=keys)
        )

    def identify(self, claims: dict[str, Any], now_us: int) -> Principal | TokenRefused:
        """Return who a token with these `claims` would name, were it signed by one of the keys."""
        try:
            said = read_claims(claims, "", now_us, self.rules)
        except Malformed as problem:
            return _refuse(BadToken(str(problem), expired=isinstance(problem, Expired)))
        return evolve(principal_of(said, self.config.admin_scope), key_id=None)


def describe_files(authenticator: Authenticator | None, now_us: int) -> dict[str, FileState]:
    """Return the state of each file that is configured, as `keys` and `revocations`."""
    if authenticator is None:
        return {}
    authenticator.settle(now_us)
    return {name: file.state for name, file in authenticator.files}


_NO_MEMBERS: Final = b'{"keys": []}'


def _without_file(config: AuthorizationConfig, texts: tuple[str, ...]) -> KeySet:
    """Return the keys in `texts` alone; they were checked at the start."""
    return cast(KeySet, build_keys(config.algorithm, texts, _NO_MEMBERS, lenient=True))


def _refuse(token: BadToken) -> TokenRefused:
    """One sentence for every reason but expiry, so that a forger learns nothing."""
    detail = "Token has expired" if token.expired else "Invalid token"
    return TokenRefused(Unauthenticated(detail, sent=True), token.reason)


def _keys(
    config: AuthorizationConfig,
    verification_keys: tuple[str, ...],
    jwks: bytes | None,
    *,
    lenient: bool = False,
) -> KeySet | tuple[Fault, ...]:
    keys = build_keys(config.algorithm, verification_keys, jwks, lenient=lenient)
    if isinstance(keys, KeySet):
        return keys
    where = "authorization_config"
    return tuple(Fault(f"{where}.{problem.path}", problem.message) for problem in keys)


def make_authenticator(
    config: AuthorizationConfig,
    platform_id: str,
    jwks: bytes | None,
    revocations: bytes | None = None,
) -> Authenticator:
    """Make the authenticator of a platform.

    Args:
        config: With every verification key, those of the environment included.
        platform_id: The audience to ask for, where audiences are verified and none is named.
        jwks: What the JWKS file holds, if there is one.
        revocations: What the file with revocations holds, if there is one.

    Raises:
        ConfigurationError: With everything that makes the keys unsafe or useless.
    """
    keys = _keys(config, config.verification_keys, jwks)
    faults = [] if isinstance(keys, KeySet) else list(keys)
    revoked: Revocations | str = NONE_REVOKED
    for path, named, content in (
        (_JWKS, config.jwks_file, jwks),
        (_REVOCATIONS, config.revocations_file, revocations),
    ):
        if named is not None and content is None:
            faults.append(Fault(path, "is named and was not read"))
    if revocations is not None:
        revoked = read_revocations(revocations)
    if not isinstance(revoked, Revocations):
        faults.append(Fault(_REVOCATIONS, revoked))
        revoked = NONE_REVOKED
    if faults or not isinstance(keys, KeySet):
        raise ConfigurationError(tuple(faults))
    return _make(config, platform_id, keys, revoked)


def open_authenticator(
    config: AuthorizationConfig,
    platform_id: str,
    jwks: bytes | None,
    revocations: bytes | None = None,
    *,
    needed: bool,
) -> tuple[Authenticator, tuple[Fault, ...]]:
    """Make the authenticator, and return what is missing; without a key it refuses every token.

    A file that cannot be used is missing, too, where it is not `needed`.

    Raises:
        ConfigurationError: There are keys that are unsafe or useless; or none, where one is
            `needed`.
    """
    missing: tuple[Fault, ...]
    if needed or config.verification_keys or config.jwks_file is not None:
        try:
            return make_authenticator(config, platform_id, jwks, revocations), ()
        except ConfigurationError as error:
            missing = tuple(one for one in error.faults if one.path.startswith(_FILES))
            # Without the file there is no key at all, perhaps: that is no other fault.
            if needed or {one.path for one in error.faults} - {_KEYS, *(m.path for m in missing)}:
                raise
    else:
        problems = _keys(config, (), None)
        missing = () if isinstance(problems, KeySet) else problems
    nobody = KeySet(config.algorithm, {}, (), (), (), b"")
    return _make(config, platform_id, nobody, NONE_REVOKED), missing


def _make(
    config: AuthorizationConfig, platform_id: str, keys: KeySet, revoked: Revocations
) -> Authenticator:
    limit_us = round(config.keys_stale_seconds * 1_000_000)
    return Authenticator(
        config,
        evolve(claim_rules(config, platform_id), revocations=revoked),
        keys,
        TrustFile(limit_us, keys.generation),
        TrustFile(limit_us, revoked.generation),
    )
