from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.http import refusals
from legation.http.messages import Headers
from legation.http.refusals import (
    BadRequest,
    BadSignature,
    Conflict,
    Fault,
    Forbidden,
    ForeignPage,
    HeadTooLarge,
    Internal,
    Invalid,
    MethodNotAllowed,
    NotFound,
    NotImplementedHere,
    Refusal,
    RequestTimeout,
    StateTooLarge,
    StorageFull,
    TooLarge,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
    UnsupportedMediaType,
    UriTooLong,
    VersionNotSupported,
    respond,
)
from legation.shares.exceeded import Exceeded

NO_STORE = (b"cache-control", b"no-store")
# Refusal, status, code, detail, headers of its own: the table of the interface.
TABLE: tuple[tuple[Refusal, int, str, str, Headers], ...] = (
    (BadRequest("x"), 400, "BAD_REQUEST", "x", ()),
    (
        Unauthenticated(),
        401,
        "UNAUTHENTICATED",
        "Authorization header missing",
        ((b"www-authenticate", b"Bearer"), NO_STORE),
    ),
    (
        Unauthenticated("Token has expired", sent=True),
        401,
        "UNAUTHENTICATED",
        "Token has expired",
        ((b"www-authenticate", b'Bearer error="invalid_token"'), NO_STORE),
    ),
    (
        Forbidden("agents:a:run"),
        403,
        "FORBIDDEN",
        "Insufficient permissions",
        (
            (b"www-authenticate", b'Bearer error="insufficient_scope", scope="agents:a:run"'),
            NO_STORE,
        ),
    ),
    (BadSignature(), 403, "FORBIDDEN", "Invalid signature", ()),
    (
        ForeignPage(),
        403,
        "FORBIDDEN",
        "Authorization is off, and this origin is not among cors_allowed_origins",
        (),
    ),
    (NotFound(), 404, "NOT_FOUND", "Not Found", ()),
    (
        MethodNotAllowed(("GET", "HEAD")),
        405,
        "METHOD_NOT_ALLOWED",
        "Method Not Allowed",
        ((b"allow", b"GET, HEAD"),),
    ),
    (RequestTimeout(), 408, "REQUEST_TIMEOUT", "The request did not arrive in time", ()),
    (Conflict("x"), 409, "CONFLICT", "x", ()),
    (TooLarge(10), 413, "PAYLOAD_TOO_LARGE", "The body is longer than 10 bytes", ()),
    (
        StateTooLarge(10),
        413,
        "STATE_TOO_LARGE",
        "The state of the session would have more than 10 bytes of JSON; delete what is not needed",
        (),
    ),
    (
        StorageFull(Exceeded("stored_bytes", 10)),
        413,
        "STORAGE_FULL",
        Exceeded("stored_bytes", 10).sentence,
        (),
    ),
    (UriTooLong(), 414, "URI_TOO_LONG", "The request line is too long", ()),
    (UnsupportedMediaType("x"), 415, "UNSUPPORTED_MEDIA_TYPE", "x", ()),
    (
        Invalid((Fault("body.a", "missing"), Fault("query.b", "unknown"))),
        422,
        "VALIDATION_ERROR",
        "body.a: missing; query.b: unknown",
        (),
    ),
    (
        TooManyRequests(Exceeded("requests", 20, 7, window=10)),
        429,
        "TOO_MANY_REQUESTS",
        "Too many requests: the share is 20 in 10 s; try again in 7 s",
        (
            (b"retry-after", b"7"),
            (b"ratelimit-policy", b'"requests";q=20;w=10'),
            (b"ratelimit", b'"requests";r=0;t=7'),
        ),
    ),
    (
        TooManyRequests(Exceeded("streams", 3)),
        429,
        "TOO_MANY_REQUESTS",
        "Too many streams: the share is 3 at once; close one, or try again in 1 s",
        (
            (b"retry-after", b"1"),
            (b"ratelimit-policy", b'"streams";q=3;qu="concurrent-requests"'),
            (b"ratelimit", b'"streams";r=0;t=1'),
        ),
    ),
    (
        HeadTooLarge(),
        431,
        "REQUEST_HEADER_FIELDS_TOO_LARGE",
        "The header fields are too large",
        (),
    ),
    (Internal("x"), 500, "INTERNAL_SERVER_ERROR", "x", ()),
    (NotImplementedHere("x"), 501, "NOT_IMPLEMENTED", "x", ()),
    (Unavailable("x"), 503, "SERVICE_UNAVAILABLE", "x", ((b"retry-after", b"1"),)),
    (VersionNotSupported(), 505, "HTTP_VERSION_NOT_SUPPORTED", "This server speaks HTTP/1.1", ()),
)


def kinds(of: type[Refusal] = Refusal) -> Iterator[type[Refusal]]:
    for kind in of.__subclasses__():
        yield kind
        yield from kinds(kind)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: repr(row[0])[:50])
def test_a_refusal_is_rendered_in_the_envelope(
    row: tuple[Refusal, int, str, str, Headers],
) -> None:
    refusal, status, code, detail, headers = row
    answer = respond(refusal)
    told = json.loads(answer.body)

    assert answer.status == refusal.status == status
    assert answer.headers[2:] == headers
    assert (told["detail"], told["error_code"]) == (detail, code)
    assert list(told) == ["detail", "error_code", *(["errors"] if status == 422 else [])]


def test_every_refusal_of_the_core_stands_in_the_table() -> None:
    # attrs makes each class a second time; the first lives until garbage is collected.
    core = {kind for kind in kinds() if getattr(refusals, kind.__name__, None) is kind}

    assert core == {type(row[0]) for row in TABLE}


def test_every_fault_is_in_the_envelope() -> None:
    answer = respond(Invalid((Fault("body.a", "missing"), Fault("query.b", "unknown"))))

    assert json.loads(answer.body)["errors"] == [
        {"path": "body.a", "message": "missing"},
        {"path": "query.b", "message": "unknown"},
    ]


def test_a_sentence_may_be_chosen() -> None:
    assert Invalid((), detail="No").detail == "No"
    assert TooLarge(1, detail="No").detail == "No"
    assert Forbidden("a:b", detail="No").detail == "No"
    assert dict(Unavailable("No", retry_after=5).headers())[b"retry-after"] == b"5"


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_detail_is_one_line_of_json(path: str, message: str) -> None:
    answer = respond(Invalid((Fault(path, message),)))

    assert json.loads(answer.body)["errors"] == [{"path": path, "message": message}]
    assert b"\n" not in answer.body
