"""Every way to say no, with its status and error code in one place.

A refusal is a value, not an exception: a handler returns it, `respond` renders it in the envelope
of the interface: `{"detail": <string>, "error_code": <string>}`, with `errors` beside them when
a request broke several rules at once.
"""

from __future__ import annotations

from typing import ClassVar

from attrs import Factory, field

from ..values import frozen
from .messages import Headers, Response, json_response

__all__ = [
    "BadRequest",
    "BadSignature",
    "Conflict",
    "Fault",
    "Forbidden",
    "ForeignPage",
    "Internal",
    "Invalid",
    "MethodNotAllowed",
    "NotFound",
    "Refusal",
    "TooLarge",
    "TooManyRequests",
    "Unauthenticated",
    "Unavailable",
    "UnsupportedMediaType",
    "UriTooLong",
    "internal_error",
    "respond",
]


@frozen
class Refusal:
    """Base class.  `detail` is one sentence for the caller; it reveals nothing else."""

    status: ClassVar[int]
    error_code: ClassVar[str]

    detail: str

    def headers(self) -> Headers:
        """Return the headers this refusal carries beside the envelope."""
        return ()

    def faults(self) -> tuple[Fault, ...]:
        """Return what was wrong with the request, field by field."""
        return ()


@frozen
class Fault:
    """One broken rule: where, as `body.stream` or `query.limit`, and what was expected."""

    path: str
    message: str


@frozen
class BadRequest(Refusal):
    """The request is well formed and cannot be done as it stands."""

    status = 400
    error_code = "BAD_REQUEST"


@frozen
class Unauthenticated(Refusal):
    """No caller is known: no token (`sent` False), or one that does not verify (RFC 6750)."""

    status = 401
    error_code = "UNAUTHENTICATED"

    detail: str = "Authorization header missing"
    sent: bool = False

    def headers(self) -> Headers:
        """Return the challenge; the error only where a token was sent (RFC 6750 section 3.1)."""
        challenge = b'Bearer error="invalid_token"' if self.sent else b"Bearer"
        return ((b"www-authenticate", challenge), (b"cache-control", b"no-store"))


@frozen
class Forbidden(Refusal):
    """The token is valid but does not grant `scope` (RFC 6750 section 3.1)."""

    status = 403
    error_code = "FORBIDDEN"

    scope: str
    detail: str = field(default="Insufficient permissions", kw_only=True)

    def headers(self) -> Headers:
        """Return the challenge that names the missing scope."""
        challenge = b'Bearer error="insufficient_scope", scope="%s"' % self.scope.encode("ascii")
        return ((b"www-authenticate", challenge), (b"cache-control", b"no-store"))


@frozen
class BadSignature(Refusal):
    """The sender of a message did not prove who it is; a token would not help."""

    status = 403
    error_code = "FORBIDDEN"

    detail: str = "Invalid signature"


@frozen
class ForeignPage(Refusal):
    """The request was made by a web page of another origin, and no token proves its sender."""

    status = 403
    error_code = "FORBIDDEN"

    detail: str = "Authorization is off, and this origin is not among cors_allowed_origins"


@frozen
class NotFound(Refusal):
    """The resource does not exist, or the caller may not know that it does."""

    status = 404
    error_code = "NOT_FOUND"

    detail: str = "Not Found"


@frozen
class MethodNotAllowed(Refusal):
    """The path exists; `allowed` are the methods it takes, sorted."""

    status = 405
    error_code = "METHOD_NOT_ALLOWED"

    allowed: tuple[str, ...]
    detail: str = field(default="Method Not Allowed", kw_only=True)

    def headers(self) -> Headers:
        """Return `Allow` (RFC 9110 section 10.2.1)."""
        return ((b"allow", ", ".join(self.allowed).encode()),)


@frozen
class Conflict(Refusal):
    """The resource is in another state than the request needs."""

    status = 409
    error_code = "CONFLICT"


def _limit_sentence(refusal: TooLarge) -> str:
    return f"The body is longer than {refusal.limit} bytes"


@frozen
class TooLarge(Refusal):
    """The body is longer than `limit` bytes."""

    status = 413
    error_code = "PAYLOAD_TOO_LARGE"

    limit: int
    detail: str = field(default=Factory(_limit_sentence, takes_self=True), kw_only=True)


@frozen
class UriTooLong(Refusal):
    """The request line is longer than the server reads (RFC 9112 section 3)."""

    status = 414
    error_code = "URI_TOO_LONG"

    detail: str = "The request line is too long"


@frozen
class UnsupportedMediaType(Refusal):
    """The body is of a type that this route does not read."""

    status = 415
    error_code = "UNSUPPORTED_MEDIA_TYPE"


def _faults_sentence(refusal: Invalid) -> str:
    return "; ".join(f"{fault.path}: {fault.message}" for fault in refusal.errors)


@frozen
class Invalid(Refusal):
    """The request breaks the rules of its route; `errors` lists every one."""

    status = 422
    error_code = "VALIDATION_ERROR"

    errors: tuple[Fault, ...]
    detail: str = field(default=Factory(_faults_sentence, takes_self=True), kw_only=True)

    def faults(self) -> tuple[Fault, ...]:
        """Return `errors`."""
        return self.errors


@frozen
class TooManyRequests(Refusal):
    """The caller is to wait `retry_after` seconds."""

    status = 429
    error_code = "TOO_MANY_REQUESTS"

    retry_after: int
    detail: str = field(default="Too many requests", kw_only=True)

    def headers(self) -> Headers:
        """Return `Retry-After` in seconds."""
        return ((b"retry-after", b"%d" % self.retry_after),)


@frozen
class Internal(Refusal):
    """It was tried and failed; the log has the reason under the incident id in `detail`."""

    status = 500
    error_code = "INTERNAL_SERVER_ERROR"


def internal_error(incident: str) -> Internal:
    """Return the refusal of what failed under `incident`, in the same words everywhere."""
    return Internal(f"Internal server error (incident {incident})")


@frozen
class Unavailable(Refusal):
    """Not now; the caller may come back in `retry_after` seconds."""

    status = 503
    error_code = "SERVICE_UNAVAILABLE"

    retry_after: int = 1

    def headers(self) -> Headers:
        """Return `Retry-After` in seconds."""
        return ((b"retry-after", b"%d" % self.retry_after),)


def respond(refusal: Refusal) -> Response:
    """Render `refusal` in the envelope of the interface."""
    value: dict[str, object] = {"detail": refusal.detail, "error_code": refusal.error_code}
    if faults := refusal.faults():
        value["errors"] = [{"path": fault.path, "message": fault.message} for fault in faults]
    return json_response(refusal.status, value, refusal.headers())
