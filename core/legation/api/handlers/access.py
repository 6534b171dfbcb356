"""The keys in force, and the reasons for a decision, for whoever looks after access.

Nothing of a key is shown but its names; of a token that is to be explained, nothing is kept.
"""

from __future__ import annotations

from typing import Any, Final

from ...access.authenticator import TRUSTED, Authenticator, TokenRefused
from ...access.decide import Principal
from ...http.bodies.json_text import JsonObject
from ...http.messages import Request, Response, json_response
from ...http.refusals import Fault, Invalid
from ...runs.output import iso_time
from ...values import frozen
from ..call import Call
from ..fields import json_object, text

__all__ = ["ExplainAccessRequest", "explain_access", "list_keys"]

_LONGEST: Final = 8192


def list_keys(call: Call) -> Response:
    """Return the keys that tokens are verified with, since when, and why newer ones were not taken.

    `notes` say which members of the JWKS are passed over.
    """
    authenticator = call.surface.authenticator
    if authenticator is None:
        nothing: dict[str, Any] = {
            "algorithm": None,
            "loaded_at": None,
            "notes": [],
            "trouble": None,
        }
        return json_response(200, {"data": [], "meta": {"authorization": False, **nothing}})
    keys = authenticator.keys
    brought = call.surface.settings.from_environment
    data: list[dict[str, Any]] = []
    for key in keys.listed:
        source = "configuration"
        if key.path == "jwks":
            source = "jwks"
        elif f"authorization_config.{key.path}" in brought:
            source = "environment"
        data.append({"key_id": key.key_id, "kid": key.kid, "source": source})
    meta: dict[str, Any] = {
        "authorization": True,
        "algorithm": keys.algorithm,
        "loaded_at": _time(authenticator.loaded_us),
        "notes": list(keys.notes),
        "trouble": _describe_trouble(authenticator),
    }
    return json_response(200, {"data": data, "meta": meta})


def _describe_trouble(authenticator: Authenticator) -> dict[str, Any] | None:
    trouble = authenticator.trouble
    if trouble is None:
        return None
    reasons = [{"path": fault.path, "message": fault.message} for fault in trouble.faults]
    return {"at": _time(trouble.at_us), "reasons": reasons}


def _time(at_us: int | None) -> str | None:
    return None if at_us is None else iso_time(at_us)


@frozen
class ExplainAccessRequest:
    """A request that somebody might make: whoever bears `token`, or a token with `claims`."""

    method: str = text(required=True, max_length=16, schema={"examples": ["GET"]})
    path: str = text(required=True, max_length=_LONGEST, schema={"examples": ["/agents"]})
    token: str | None = text("The token, without the word Bearer", max_length=_LONGEST)
    claims: JsonObject | None = json_object(
        "The claims of a token; who may sign it is not asked.  One of token and claims, or neither"
        " for the caller's own"
    )


_ONE: Final = Fault("body.claims", "is one too many beside token")


def explain_access(call: Call, body: ExplainAccessRequest) -> Response | Invalid:
    """Return whether somebody may make a request, and what decides it.

    Where a token is refused, `because` says why.  Nothing of it is stored, and the trail has only
    that somebody asked.
    """
    if body.token is not None and body.claims is not None:
        return Invalid((_ONE,))
    caller = _find_caller(call, body)
    explained = call.surface.explain(caller, body.method.upper(), body.path)
    return json_response(200, {**explained, "caller": _describe(caller)})


def _find_caller(call: Call, body: ExplainAccessRequest) -> Principal | TokenRefused:
    authenticator = call.surface.authenticator
    if body.token is None and body.claims is None:
        return call.principal
    if authenticator is None:
        return TRUSTED
    if body.claims is not None:
        return authenticator.identify(dict(body.claims), call.now_us)
    sent = f"Bearer {body.token}".encode(errors="replace")
    return authenticator.caller(Request("GET", "/", ((b"authorization", sent),)), call.now_us)


def _describe(caller: Principal | TokenRefused) -> dict[str, Any] | None:
    if isinstance(caller, TokenRefused):
        return None
    return {
        "sub": caller.subject,
        "scopes": sorted(caller.scopes),
        "session_id": caller.session_id,
        "admin": caller.admin,
        "key_id": caller.key_id,
    }
