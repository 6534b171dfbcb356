"""The caller for whom an outer application vouches: who it is, is the application's word.

The form is ours.  A name, a scope or a session id that could not stand in a token is refused: it
could not be stored, or could be taken for another.  What the platform decides (the admin scope,
who is trusted) no application can say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from attrs import evolve

from ..http.bodies.json_text import BadJson, parse_json
from ..http.refusals import Unauthenticated
from .authenticator import TokenRefused
from .claims import ClaimRules, read_claims
from .decide import Principal
from .jose import Malformed
from .key_values import OUTER_APPLICATION

__all__ = ["admit", "is_nobody"]

_FORM: Final = ClaimRules()


def is_nobody(caller: object) -> bool:
    """Return whether `caller` is a principal with neither a name nor a scope."""
    return isinstance(caller, Principal) and caller.subject is None and not caller.scopes


def admit(caller: object, admin_scope: str) -> Principal | TokenRefused:
    """Return `caller` as decisions are made for it, or why it is none.  Total.

    Args:
        caller: A `Principal` as an outer application makes it; anything else is refused.
        admin_scope: That of the platform.
    """
    if not isinstance(caller, Principal):
        return _refuse(f"it is no Principal, but of the type {type(caller).__name__}")
    if caller.trusted:
        return _refuse("trusted is set by the platform alone")
    if is_nobody(caller):
        return TokenRefused(Unauthenticated("Authentication required"), "nobody", outer=True)
    names = {"sub": caller.subject, "session_id": caller.session_id, "scopes": [*caller.scopes]}
    said = {name: value for name, value in names.items() if value is not None}
    try:
        claims = read_claims(said, OUTER_APPLICATION, 0, _FORM)
        return evolve(
            caller,
            admin_scope=admin_scope if admin_scope in claims.scopes else "",
            key_id=claims.key_id,
            dependencies=_copy(caller.dependencies, "dependencies"),
            session_state=_copy(caller.session_state, "session_state"),
        )
    except Malformed as problem:
        return _refuse(str(problem))


def _refuse(reason: str) -> TokenRefused:
    return TokenRefused(Unauthenticated("Invalid caller", sent=True), reason, outer=True)


def _copy(given: object, name: str) -> Mapping[str, Any]:
    """Return a copy of `given` as a run can be given and a database can hold it."""
    try:
        handed = parse_json(json.dumps(given).encode())
    except (TypeError, ValueError, RecursionError):
        raise Malformed(f"{name} cannot be written as JSON") from None
    if isinstance(handed, BadJson) or not isinstance(handed, dict):
        raise Malformed(f"{name} is no JSON object that can be stored")
    return cast(dict[str, Any], handed)
