"""Claims of a verified token (RFC 7519 section 4), read by the names that the operator gives.

Identity providers agree on `iss`, `aud` and the times.  Where the scopes stand, and who the caller
is, each of them says in another claim.  A claim is named by its name as it stands, dots and slashes
included (`permissions`, `https://example.com/roles`).  A name that begins with `/` is a JSON
Pointer (RFC 6901) into the members of objects: `/realm_access/roles`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, cast

from attrs import Factory, field

from ..http.bodies.json_text import BadJson, parse_json
from ..http.refusals import Fault
from ..values import frozen
from .jose import Malformed, is_clean
from .revocations import NONE_REVOKED, Revocations

if TYPE_CHECKING:  # tokens are verified without a configuration, too
    from ..config import AuthorizationConfig

__all__ = [
    "LEEWAY_US",
    "ClaimName",
    "ClaimRules",
    "Claims",
    "Expired",
    "claim_faults",
    "claim_rules",
    "claims_in_use",
    "overlay",
    "read_claims",
]

LEEWAY_US: Final = 10_000_000  # for clocks that differ (RFC 7519 section 4.1.4)
MAX_IDENTIFIER: Final = 256  # characters of the user id, session_id, iss and jti

_MAX_SECONDS: Final = 1 << 53  # beyond, a double no longer counts seconds (RFC 7493 section 2.2)
_LONGEST_SECONDS: Final = 10 * 366 * 86_400  # of a lifetime; ten years are for ever
_ABSENT: Final = object()
_NONE: Final[list[str]] = []

# The claim that the interface itself names is an array there; its providers' may be a string.
_ARRAY_ONLY: Final = "scopes"

_BAD_ESCAPE: Final = re.compile(r"~(?![01])")
# A URL without a fragment (RFC 8414 section 2), so that `#` can stand behind it.
_ISSUER: Final = re.compile(rf"[\x21\x22\x24-\x7e]{{1,{MAX_IDENTIFIER}}}")


def _members(name: ClaimName) -> tuple[str, ...]:
    """Return the members to follow, from the outermost object on."""
    if not name.text.startswith("/"):
        return (name.text,)
    parts = name.text[1:].split("/")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)


@frozen
class ClaimName:
    """A claim by its name, or by a JSON Pointer that begins with `/`."""

    text: str
    members: tuple[str, ...] = field(
        default=Factory(_members, takes_self=True), init=False, eq=False, repr=False
    )

    def find(self, claims: Mapping[str, Any]) -> object:
        """Return the value of the claim, or `_ABSENT`.

        Raises:
            Malformed: What the pointer leads into is no object.
        """
        value: object = claims
        for member in self.members:
            if type(value) is not dict:
                raise Malformed(f"{self.text} leads into something else than an object")
            value = cast(dict[str, object], value).get(member, _ABSENT)
            if value is _ABSENT:
                break
        return value

    def place(self, claims: dict[str, Any], value: object) -> None:
        """Put `value` where `find` finds it; `claims` has no other value on the way there."""
        *way, last = self.members
        for member in way:
            claims = claims.setdefault(member, {})
        claims[last] = value


@frozen
class ClaimRules:
    """The rules for the claims of a token: their names, and the values that are accepted.

    Without `audiences` the audience is not verified, and without `issuers` the issuer is not.
    `dependencies` and `session_state` are claims that a run is given.  A token has the claims of
    `require`, and a `max_lifetime_us` at most where that is given.

    Where there are several issuers, users of the first keep their names and all others are
    `<issuer>#<user id>`; with `prefix_all` those of the first are, too.
    """

    audiences: tuple[str, ...] = ()
    issuers: tuple[str, ...] = ()
    scopes: tuple[ClaimName, ...] = (ClaimName("scopes"),)
    user_id: ClaimName = ClaimName("sub")
    dependencies: tuple[ClaimName, ...] = ()
    session_state: tuple[ClaimName, ...] = ()
    prefix_all: bool = False
    require: tuple[ClaimName, ...] = ()
    max_lifetime_us: int | None = None
    revocations: Revocations = NONE_REVOKED


@frozen
class Claims:
    """The claims of a verified token (RFC 7519 section 4.1), and the id of its key.

    Times are in microseconds since the epoch, as the token states them, without leeway.  Where
    several issuers are accepted, `subject` says whose it is, as the rules have it.
    """

    subject: str | None
    session_id: str | None
    scopes: frozenset[str]
    key_id: str
    expires_us: int | None = None
    not_before_us: int | None = None
    issued_us: int | None = None
    audience: tuple[str, ...] = ()
    issuer: str | None = None
    token_id: str | None = None
    dependencies: Mapping[str, Any] = field(factory=dict[str, Any])
    session_state: Mapping[str, Any] = field(factory=dict[str, Any])


class Expired(Malformed):
    """The token has expired: the one reason that a caller learns."""


# --- Configuration -------------------------------------------------------------------------------


def claim_rules(config: AuthorizationConfig, platform_id: str) -> ClaimRules:
    """Return the rules of `config`; the audience is the platform unless another is named."""
    audiences, longest = config.audience or (platform_id,), config.max_lifetime_seconds
    return ClaimRules(
        audiences=audiences if config.verify_audience else (),
        issuers=config.issuer or (),
        scopes=_names(config.scopes_claim),
        user_id=ClaimName(config.user_id_claim),
        dependencies=_names(config.dependencies_claims),
        session_state=_names(config.session_state_claims),
        prefix_all=config.prefix_issuers == "all",
        require=_names(config.require),
        max_lifetime_us=None if longest is None else round(longest * 1_000_000),
    )


def _names(texts: Iterable[str]) -> tuple[ClaimName, ...]:
    return tuple(ClaimName(text) for text in texts)


def claims_in_use(config: AuthorizationConfig, platform_id: str) -> tuple[tuple[str, str], ...]:
    """Return which claims are read for what, in words for people."""
    rules = claim_rules(config, platform_id)
    aud = f"aud: {' or '.join(rules.audiences)}" if rules.audiences else "not verified"
    iss = f"iss: {' or '.join(rules.issuers)}" if rules.issuers else "not verified"
    user_id = rules.user_id.text
    if len(rules.issuers) > 1:
        plain = "" if rules.prefix_all else f"{user_id} of {rules.issuers[0]}, else "
        user_id = f"{plain}iss#{user_id}"
    return (
        ("scopes", ", ".join(config.scopes_claim)),
        ("user_id", user_id),
        ("audience", aud),
        ("issuer", iss),
        ("dependencies", ", ".join(config.dependencies_claims) or "none"),
        ("session_state", ", ".join(config.session_state_claims) or "none"),
        ("required", ", ".join(config.require) or "none"),
    )


def claim_faults(config: AuthorizationConfig) -> Iterator[Fault]:
    """Yield every fault of what `config` says of claims."""
    yield from _faults("scopes_claim", config.scopes_claim, _claim_fault)
    yield from _faults("user_id_claim", (config.user_id_claim,), _claim_fault)
    if config.audience is not None:
        yield from _faults("audience", config.audience, _audience_fault)
        if not config.verify_audience:
            sentence = "needs verify_audience = true: set that, or leave this out"
            yield Fault("authorization_config.audience", sentence)
    if config.issuer is not None:
        yield from _faults("issuer", config.issuer, _issuer_fault)
    for key in ("dependencies_claims", "session_state_claims", "require"):
        if texts := getattr(config, key):
            yield from _faults(key, texts, _claim_fault)
    yield from _time_faults(config)


def _time_faults(config: AuthorizationConfig) -> Iterator[Fault]:
    where, longest = "authorization_config", config.max_lifetime_seconds
    if longest is not None and not 0 < longest <= _LONGEST_SECONDS:
        yield Fault(f"{where}.max_lifetime_seconds", f"must be above 0, {_LONGEST_SECONDS} at most")
    if not 0 <= config.keys_stale_seconds <= _LONGEST_SECONDS:
        yield Fault(f"{where}.keys_stale_seconds", f"must be from 0 to {_LONGEST_SECONDS}")


def _faults(
    key: str, texts: tuple[str, ...], check: Callable[[str], str | None]
) -> Iterator[Fault]:
    path = f"authorization_config.{key}"
    if not texts:
        yield Fault(path, "is empty: name one, or leave it out")
    for index, text in enumerate(texts):
        where = f"{path}[{index}]" if len(texts) > 1 else path
        if (wrong := check(text)) is not None:
            yield Fault(where, wrong)
        if text in texts[:index]:
            yield Fault(where, f"{text!r} is named twice")


def _claim_fault(text: str) -> str | None:
    if not 0 < len(text) <= MAX_IDENTIFIER or not is_clean(text):
        return f"is not the name of a claim: 1 to {MAX_IDENTIFIER} characters"
    if text.startswith("/") and (_BAD_ESCAPE.search(text) or "" in text[1:].split("/")):
        return f"{text!r} begins with / and is no JSON Pointer such as /realm_access/roles"
    return None


def _audience_fault(text: str) -> str | None:
    if 0 < len(text) <= MAX_IDENTIFIER:
        return None
    return f"is not an audience: 1 to {MAX_IDENTIFIER} characters"


def _issuer_fault(text: str) -> str | None:
    if _ISSUER.fullmatch(text):
        return None
    return f"is not an issuer: 1 to {MAX_IDENTIFIER} visible ASCII characters, without #"


# --- Reading -------------------------------------------------------------------------------------


def read_claims(claims: dict[str, Any], key_id: str, now_us: int, rules: ClaimRules) -> Claims:
    """Return what `claims` say under `rules`.

    Args:
        claims: The payload of a token whose signature was verified.
        key_id: The key that it was verified with.
        now_us: Microseconds since the epoch; `exp`, `nbf` and `iat` get 10 s of leeway.
        rules: Those of the platform.

    Raises:
        Malformed: The token is not to be accepted; the reason is for the log.
    """
    expires_us = _instant(claims, "exp")
    not_before_us = _instant(claims, "nbf")
    issued_us = _instant(claims, "iat")
    if expires_us is not None and now_us >= expires_us + LEEWAY_US:
        raise Expired("expired")
    if not_before_us is not None and now_us + LEEWAY_US < not_before_us:
        raise Malformed("not valid yet (nbf)")
    if issued_us is not None and now_us + LEEWAY_US < issued_us:
        raise Malformed("issued in the future (iat)")
    _check_lifetime(expires_us, issued_us, now_us, rules)
    _check_required(claims, rules)
    issuer = _issuer(claims, rules.issuers)
    read = Claims(
        subject=_subject(claims, rules, issuer),
        session_id=_identifier(claims.get("session_id", _ABSENT), "session_id"),
        scopes=frozenset(chain.from_iterable(_scopes(claims, name) for name in rules.scopes)),
        key_id=key_id,
        expires_us=expires_us,
        not_before_us=not_before_us,
        issued_us=issued_us,
        audience=_audience(claims, rules.audiences),
        issuer=issuer,
        token_id=_identifier(claims.get("jti", _ABSENT), "jti"),
        dependencies=_copy_claims(claims, rules.dependencies),
        session_state=_copy_claims(claims, rules.session_state),
    )
    reason = rules.revocations.find_reason(key_id, read.token_id, read.subject, issued_us)
    if reason is not None:
        raise Malformed(reason)
    return read


def _check_lifetime(
    expires_us: int | None, issued_us: int | None, now_us: int, rules: ClaimRules
) -> None:
    """Refuse a token that lives too long: from `iat`, or from now on where it has none."""
    longest_us = rules.max_lifetime_us
    if longest_us is None:
        return
    if expires_us is None:
        raise Malformed("has no exp, and lives for ever")
    since_us = now_us + LEEWAY_US if issued_us is None else issued_us
    if expires_us - since_us > longest_us:
        raise Malformed("lives longer than max_lifetime_seconds")


def _check_required(claims: dict[str, Any], rules: ClaimRules) -> None:
    for name in rules.require:
        if name.find(claims) in (_ABSENT, None):
            raise Malformed(f"has no {name.text}, which is required")


def overlay(
    sent: Mapping[str, Any], names: Iterable[str], said: Mapping[str, Any]
) -> dict[str, Any]:
    """Return `sent` with what a token says under `names`; what it does not say is left out."""
    kept = {name: value for name, value in sent.items() if name not in names}
    return {**kept, **said}


def _instant(claims: dict[str, Any], name: str) -> int | None:
    """Return a NumericDate (RFC 7519 section 2) in microseconds; True is not the number 1."""
    seconds = claims.get(name, _ABSENT)
    if seconds is _ABSENT:
        return None
    if type(seconds) is not int and type(seconds) is not float:
        raise Malformed(f"{name} is not a number")
    if not -_MAX_SECONDS < seconds < _MAX_SECONDS:
        raise Malformed(f"{name} is out of range")
    return round(seconds * 1_000_000)


def _issuer(claims: dict[str, Any], issuers: tuple[str, ...]) -> str | None:
    """Return `iss`, which must be one of `issuers` where there are any (RFC 8725 section 3.8)."""
    issuer = _identifier(claims.get("iss", _ABSENT), "iss")
    if issuers and issuer not in issuers:
        raise Malformed("iss is not an issuer of the configuration")
    return issuer


def _subject(claims: dict[str, Any], rules: ClaimRules, issuer: str | None) -> str | None:
    """Return the user; two issuers may mean two people by one name (RFC 7519 section 4.1.2).

    Users of the first issuer keep their names, so that a second one changes nobody's.  One whose
    name looks like that of another issuer's user gets the prefix, too: no name is that of two.
    """
    name = rules.user_id
    subject = _identifier(name.find(claims), name.text)
    if subject is None or len(rules.issuers) < 2:
        return subject
    foreign = subject.startswith(tuple(f"{one}#" for one in rules.issuers))
    if issuer == rules.issuers[0] and not rules.prefix_all and not foreign:
        return subject
    return f"{issuer}#{subject}"


def _identifier(text: object, name: str) -> str | None:
    """Return a claim that names something: text that is not empty and that a database can hold."""
    if text is _ABSENT:
        return None
    if type(text) is not str or not 0 < len(text) <= MAX_IDENTIFIER:
        raise Malformed(f"{name} is not a text of 1 to {MAX_IDENTIFIER} characters")
    if "\0" in text or not is_clean(text):
        raise Malformed(f"{name} has a character that is not accepted")
    return text


def _scopes(claims: dict[str, Any], name: ClaimName) -> Iterable[str]:
    """Return the scopes of one claim: an array, or a string with spaces (RFC 6749 section 3.3)."""
    value = name.find(claims)
    if value is _ABSENT:
        return ()
    if type(value) is str and name.text != _ARRAY_ONLY:
        value = [scope for scope in value.split(" ") if scope]
    return _texts(value, name.text)


def _texts(value: object, name: str) -> tuple[str, ...]:
    if type(value) is not list:
        raise Malformed(f"{name} is not an array")
    texts = cast(list[str], value)
    try:
        together = "".join(texts)
    except TypeError:
        raise Malformed(f"{name} holds something else than texts") from None
    if not is_clean(together):
        raise Malformed(f"{name} has a character that is not accepted")
    return tuple(texts)


def _audience(claims: dict[str, Any], audiences: tuple[str, ...]) -> tuple[str, ...]:
    """Return `aud`, a text or an array of them; one is of `audiences` where there are any."""
    value = claims.get("aud", _NONE)
    members = _texts([value] if type(value) is str else value, "aud")
    if audiences and not any(audience in members for audience in audiences):
        raise Malformed("aud does not contain " + " or ".join(map(repr, audiences)))
    return members


def _copy_claims(claims: dict[str, Any], names: tuple[ClaimName, ...]) -> Mapping[str, Any]:
    """Return what the token says under `names`, as a run can be given and a database can hold."""
    if not names:
        return {}
    found = {name.text: value for name in names if (value := name.find(claims)) is not _ABSENT}
    handed = parse_json(json.dumps(found).encode())
    if isinstance(handed, BadJson):
        raise Malformed("a claim that runs are given cannot be stored")
    return cast(dict[str, Any], handed)
