"""Every way to say no, with its status and error code in one place.

A refusal is a value, not an exception: a handler returns it, `respond` renders it in the envelope
of the interface: `{"detail": <string>, "error_code": <string>}`, with `errors` beside them when
a request broke several rules at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from attrs import Factory, field

from ..values import frozen
from .messages import Headers, Response, json_response

if TYPE_CHECKING:  # a refusal needs no share
    from ..shares.exceeded import Exceeded

__all__ = [
    "BadRequest",
    "BadSignature",
    "Conflict",
    "Fault",
    "Forbidden",
    "ForeignPage",
    "HeadTooLarge",
    "Internal",
    "Invalid",
    "MethodNotAllowed",
    "NotFound",
    "NotImplementedHere",
    "Refusal",
    "RequestTimeout",
    "StateTooLarge",
    "StorageFull",
    "TooLarge",
    "TooManyRequests",
    "Unauthenticated",
    "Unavailable",
    "UnsupportedMediaType",
    "UriTooLong",
    "VersionNotSupported",
    "internal_error",
    "respond",
]


@frozen
class Refusal:
    """Base class.  `detail` is one sentence for the caller; it reveals nothing else."""

    status: ClassVar[int]
    error_code: ClassVar[str]

    detail: str

    def __init_subclass__(cls, *, status: int = 0, code: str = "") -> None:
        # Without arguments it is a class that attrs made again, with slots.
        if status:
            cls.status, cls.error_code = status, code

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
class BadRequest(Refusal, status=400, code="BAD_REQUEST"):
    """The request is well formed and cannot be done as it stands."""


@frozen
class Unauthenticated(Refusal, status=401, code="UNAUTHENTICATED"):
    """No caller is known: no token (`sent` False), or one that does not verify (RFC 6750)."""

    detail: str = "Authorization header missing"
    sent: bool = False

    def headers(self) -> Headers:
        """Return the challenge; the error only where a token was sent (RFC 6750 section 3.1)."""
        challenge = b'Bearer error="invalid_token"' if self.sent else b"Bearer"
        return ((b"www-authenticate", challenge), (b"cache-control", b"no-store"))


@frozen
class Forbidden(Refusal, status=403, code="FORBIDDEN"):
    """The token is valid but does not grant `scope` (RFC 6750 section 3.1)."""

    scope: str
    detail: str = field(default="Insufficient permissions", kw_only=True)

    def headers(self) -> Headers:
        """Return the challenge that names the missing scope."""
        challenge = b'Bearer error="insufficient_scope", scope="%s"' % self.scope.encode("ascii")
        return ((b"www-authenticate", challenge), (b"cache-control", b"no-store"))


@frozen
class BadSignature(Refusal, status=403, code="FORBIDDEN"):
    """The sender of a message did not prove who it is; a token would not help."""

    detail: str = "Invalid signature"


@frozen
class ForeignPage(Refusal, status=403, code="FORBIDDEN"):
    """The request was made by a web page of another origin, and no token proves its sender."""

    detail: str = "Authorization is off, and this origin is not among cors_allowed_origins"


@frozen
class NotFound(Refusal, status=404, code="NOT_FOUND"):
    """The resource does not exist, or the caller may not know that it does."""

    detail: str = "Not Found"


@frozen
class MethodNotAllowed(Refusal, status=405, code="METHOD_NOT_ALLOWED"):
    """The path exists; `allowed` are the methods it takes, sorted."""

    allowed: tuple[str, ...]
    detail: str = field(default="Method Not Allowed", kw_only=True)

    def headers(self) -> Headers:
        """Return `Allow` (RFC 9110 section 10.2.1)."""
        return ((b"allow", ", ".join(self.allowed).encode()),)


@frozen
class RequestTimeout(Refusal, status=408, code="REQUEST_TIMEOUT"):
    """The client was too slow to send its request (RFC 9110 section 15.5.9)."""

    detail: str = "The request did not arrive in time"


@frozen
class Conflict(Refusal, status=409, code="CONFLICT"):
    """The resource is in another state than the request needs."""


_STATE: Final = (
    "The state of the session would have more than {} bytes of JSON; delete what is not needed"
)


def _state_sentence(refusal: StateTooLarge) -> str:
    return _STATE.format(refusal.limit)


def _full_sentence(refusal: StorageFull) -> str:
    return refusal.exceeded.sentence


def _limit_sentence(refusal: TooLarge) -> str:
    return f"The body is longer than {refusal.limit} bytes"


@frozen
class TooLarge(Refusal, status=413, code="PAYLOAD_TOO_LARGE"):
    """The body is longer than `limit` bytes."""

    limit: int
    detail: str = field(default=Factory(_limit_sentence, takes_self=True), kw_only=True)


@frozen
class StateTooLarge(Refusal, status=413, code="STATE_TOO_LARGE"):
    """The state of a session would have more than `limit` bytes of JSON."""

    limit: int
    detail: str = field(default=Factory(_state_sentence, takes_self=True), kw_only=True)


@frozen
class StorageFull(Refusal, status=413, code="STORAGE_FULL"):
    """The owner keeps as many bytes as it may; to wait does not help, to delete does.

    It is not 429, after which clients wait and try again, nor 5xx, which is for trouble of ours.
    """

    exceeded: Exceeded
    detail: str = field(default=Factory(_full_sentence, takes_self=True), kw_only=True)


@frozen
class UriTooLong(Refusal, status=414, code="URI_TOO_LONG"):
    """The request line is longer than the server reads (RFC 9112 section 3)."""

    detail: str = "The request line is too long"


@frozen
class UnsupportedMediaType(Refusal, status=415, code="UNSUPPORTED_MEDIA_TYPE"):
    """The body is of a type that this route does not read."""


def _faults_sentence(refusal: Invalid) -> str:
    return "; ".join(f"{fault.path}: {fault.message}" for fault in refusal.errors)


@frozen
class Invalid(Refusal, status=422, code="VALIDATION_ERROR"):
    """The request breaks the rules of its route; `errors` lists every one."""

    errors: tuple[Fault, ...]
    detail: str = field(default=Factory(_faults_sentence, takes_self=True), kw_only=True)

    def faults(self) -> tuple[Fault, ...]:
        """Return `errors`."""
        return self.errors


def _share_sentence(refusal: TooManyRequests) -> str:
    return refusal.exceeded.sentence


@frozen
class TooManyRequests(Refusal, status=429, code="TOO_MANY_REQUESTS"):
    """The caller has used up its share of something."""

    exceeded: Exceeded
    detail: str = field(default=Factory(_share_sentence, takes_self=True), kw_only=True)

    def headers(self) -> Headers:
        """Return `Retry-After`, the policy that was exceeded and what is left: nothing.

        The fields are those of draft-ietf-httpapi-ratelimit-headers-10, sections 3 and 4.
        """
        found = self.exceeded
        policy = f'"{found.share}";q={found.limit}'
        if found.unit != "requests":
            policy += f';qu="{found.unit}"'
        if found.window is not None:
            policy += f";w={found.window}"
        return (
            (b"retry-after", b"%d" % found.retry_after),
            (b"ratelimit-policy", policy.encode()),
            (b"ratelimit", f'"{found.share}";r=0;t={found.retry_after}'.encode()),
        )


@frozen
class HeadTooLarge(Refusal, status=431, code="REQUEST_HEADER_FIELDS_TOO_LARGE"):
    """A header line, the header block or the number of fields is too large (RFC 6585)."""

    detail: str = "The header fields are too large"


@frozen
class Internal(Refusal, status=500, code="INTERNAL_SERVER_ERROR"):
    """It was tried and failed; the log has the reason under the incident id in `detail`."""


def internal_error(incident: str) -> Internal:
    """Return the refusal of what failed under `incident`, in the same words everywhere."""
    return Internal(f"Internal server error (incident {incident})")


@frozen
class NotImplementedHere(Refusal, status=501, code="NOT_IMPLEMENTED"):
    """The server has no such transfer coding or method (RFC 9110 section 15.6.2)."""


@frozen
class Unavailable(Refusal, status=503, code="SERVICE_UNAVAILABLE"):
    """Not now; the caller may come back in `retry_after` seconds."""

    retry_after: int = 1

    def headers(self) -> Headers:
        """Return `Retry-After` in seconds."""
        return ((b"retry-after", b"%d" % self.retry_after),)


@frozen
class VersionNotSupported(Refusal, status=505, code="HTTP_VERSION_NOT_SUPPORTED"):
    """The major version of HTTP is not 1 (RFC 9110 section 15.6.6)."""

    detail: str = "This server speaks HTTP/1.1"


def respond(refusal: Refusal) -> Response:
    """Render `refusal` in the envelope of the interface."""
    value: dict[str, object] = {"detail": refusal.detail, "error_code": refusal.error_code}
    if faults := refusal.faults():
        value["errors"] = [{"path": fault.path, "message": fault.message} for fault in faults]
    return json_response(refusal.status, value, refusal.headers())
