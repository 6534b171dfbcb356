"""Cross-origin requests (WHATWG Fetch section 3.2): an allow list of exact origins."""

from __future__ import annotations

import re
from typing import Final

from ..values import frozen
from .messages import Answer, Headers, Request, Response, empty_response, with_headers
from .refusals import Refusal, respond

__all__ = ["DEFAULT_ORIGIN", "Cors", "respond_instead"]

DEFAULT_ORIGIN: Final = "http://localhost:3000"
# What every page in a sandbox sends, and what would mean any page at all.
_NO_ORIGINS: Final = frozenset({b"null", b"*"})
# A page of a host whose name no stranger can own: an address, or a name without a dot.  Whoever
# owns a name with one may make it lead here (DNS rebinding), and be of the same origin.
_NEAR: Final = re.compile(
    rb"https?://((?:\[[0-9a-f:.]+\]|[0-9.]+|[a-z0-9_-]+(?:\.localhost)?)(?::[0-9]{1,5})?)"
)
_MAX_AGE: Final = b"600"
_EXPOSED: Final = b"x-request-id"
_UNLESS_SAID: Final[Headers] = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)
_MAY_SAY: Final = frozenset(name for name, _ in _UNLESS_SAID)
_DEFAULT_REQUEST_HEADERS: Final = b"authorization, content-type"


@frozen
class Cors:
    """The origins whose pages may call the platform; `null` is never one of them."""

    origins: frozenset[bytes]

    @classmethod
    def from_origins(cls, origins: tuple[str, ...], *, default: bool = True) -> Cors:
        """Allow `origins`, by default beside the one that the usual web page is developed on."""
        allowed = {origin.encode() for origin in ((DEFAULT_ORIGIN,) * default + origins)}
        return cls(frozenset(allowed - _NO_ORIGINS))

    def preflight(self, request: Request, methods: tuple[str, ...]) -> Response | None:
        """Return the answer to a preflight, or None when `request` is not one."""
        asked = request.header(b"access-control-request-method")
        if request.method != "OPTIONS" or asked is None:
            return None
        if request.header(b"origin") not in self.origins:
            return empty_response(204, ((b"vary", b"origin"),))
        wanted = request.header(b"access-control-request-headers") or _DEFAULT_REQUEST_HEADERS
        allowed: Headers = (
            (b"access-control-allow-methods", ", ".join(methods).encode()),
            (b"access-control-allow-headers", wanted),
            (b"access-control-max-age", _MAX_AGE),
        )
        return empty_response(204, allowed)

    def welcomes(self, request: Request) -> bool:
        """Return whether `request` comes from no page, an allowed one, or one of this host.

        Browsers send what a form holds to every address that they reach, without a preflight, and
        name the page in `Origin` (WHATWG Fetch section 3.2).
        """
        return all(self._welcome(origin, request) for origin in request.values(b"origin"))

    def _welcome(self, origin: bytes, request: Request) -> bool:
        near = _NEAR.fullmatch(origin)
        own = near is not None and near[1] == request.header(b"host")
        return own or origin in self.origins

    def knows(self, request: Request) -> bool:
        """Return whether `request` comes from no page, an allowed one, or one of this host.

        Here a host of any name has its own pages: a browser sends them its cookies alone.
        """
        host = request.header(b"host")
        return all(
            origin in self.origins or origin.partition(b"://")[2] == host
            for origin in request.values(b"origin")
        )

    def headers(self, request: Request) -> Headers:
        """Return what the answer to `request` says to a browser; nothing without an origin."""
        origin = request.header(b"origin")
        if origin is None:
            return ()
        if origin not in self.origins:
            return ((b"vary", b"origin"),)
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-allow-credentials", b"true"),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"origin"),
        )

    def add_headers(self, answer: Answer, request: Request, more: Headers) -> Answer:
        """Return `answer` with `more` and what a browser has to know.

        Whatever does not say otherwise is kept by nobody, and is what its type says (ASVS 5.0,
        14.3.2 and 3.4.4).
        """
        unsaid = _UNLESS_SAID
        for name, _ in answer.headers:
            if name in _MAY_SAY:
                unsaid = tuple([field for field in unsaid if field[0] != name])
        if request.header(b"origin") is not None:
            more = (*more, *self.headers(request))
        return with_headers(answer, (*unsaid, *more))


def respond_instead(refusal: Refusal, request_id: str) -> Response:
    """Render `refusal` as a platform does, for a host that answers in its place.

    A page of another origin is not shown it: which may be is the platform's to say.
    """
    response = respond(refusal)
    headers = (*response.headers, *_UNLESS_SAID, (b"x-request-id", request_id.encode("ascii")))
    return Response(response.status, headers, response.body)
