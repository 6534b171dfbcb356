"""The refusals of the server itself, given before the platform is asked, in its envelope."""

from __future__ import annotations

import os

from attrs import frozen

from legation.http.refusals import Refusal, UriTooLong

__all__ = [
    "HeadTooLarge",
    "NotImplementedHere",
    "RequestTimeout",
    "UriTooLong",
    "VersionNotSupported",
    "new_incident",
]


@frozen
class RequestTimeout(Refusal):
    """The client was too slow to send its request (RFC 9110 section 15.5.9)."""

    status = 408
    error_code = "REQUEST_TIMEOUT"

    detail: str = "The request did not arrive in time"


@frozen
class HeadTooLarge(Refusal):
    """A header line, the header block or the number of fields is too large (RFC 6585)."""

    status = 431
    error_code = "REQUEST_HEADER_FIELDS_TOO_LARGE"

    detail: str = "The header fields are too large"


@frozen
class NotImplementedHere(Refusal):
    """The server has no such transfer coding or method (RFC 9110 section 15.6.2)."""

    status = 501
    error_code = "NOT_IMPLEMENTED"


@frozen
class VersionNotSupported(Refusal):
    """The major version of HTTP is not 1 (RFC 9110 section 15.6.6)."""

    status = 505
    error_code = "HTTP_VERSION_NOT_SUPPORTED"

    detail: str = "This server speaks HTTP/1.1"


def new_incident() -> str:
    """Return an id that ties an answer to its line in the log."""
    return os.urandom(8).hex()
