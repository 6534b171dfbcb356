from __future__ import annotations

import pytest

from legation.http.cors import Cors, respond_instead
from legation.http.messages import Headers, Request, Response, Streamed, empty_response
from legation.http.refusals import internal_error

PAGE = b"https://app.test"
CORS = Cors.from_origins(("https://app.test",))
UNSAID: Headers = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


def asked(method: str, **headers: bytes) -> Request:
    named = tuple((k.replace("_", "-").encode(), v) for k, v in headers.items())
    return Request(method, "/agents", named)


@pytest.mark.parametrize("origin", [PAGE, b"http://localhost:3000"])
def test_an_allowed_origin_is_named_back(origin: bytes) -> None:
    assert CORS.headers(asked("GET", origin=origin)) == (
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-credentials", b"true"),
        (b"access-control-expose-headers", b"x-request-id"),
        (b"vary", b"origin"),
    )


@pytest.mark.parametrize(
    "origin",
    [b"null", b"*", b"", b"https://APP.test", b"https://app.test:443", b"https://app.test.evil",
     b"http://app.test", b"https://app.test/", b"https://x.app.test", b"\xff"],
)  # fmt: skip
def test_another_origin_is_told_nothing(origin: bytes) -> None:
    assert CORS.headers(asked("GET", origin=origin)) == ((b"vary", b"origin"),)


def test_neither_null_nor_everybody_can_be_allowed() -> None:
    assert Cors.from_origins(("null", "*")) == Cors.from_origins(())


def test_without_an_origin_nothing_is_said() -> None:
    assert CORS.headers(asked("GET")) == ()


def test_a_preflight_is_answered() -> None:
    request = asked("OPTIONS", origin=PAGE, access_control_request_method=b"POST")

    assert CORS.preflight(request, ("GET", "POST")) == empty_response(
        204,
        (
            (b"access-control-allow-methods", b"GET, POST"),
            (b"access-control-allow-headers", b"authorization, content-type"),
            (b"access-control-max-age", b"600"),
        ),
    )


def test_a_preflight_may_name_its_headers() -> None:
    request = asked(
        "OPTIONS",
        origin=PAGE,
        access_control_request_method=b"POST",
        access_control_request_headers=b"x-a, x-b",
    )
    answer = CORS.preflight(request, ("POST",))

    assert answer is not None
    assert dict(answer.headers)[b"access-control-allow-headers"] == b"x-a, x-b"


@pytest.mark.parametrize(
    "request_",
    [
        asked("OPTIONS", origin=PAGE),
        asked("GET", origin=PAGE, access_control_request_method=b"GET"),
    ],
)
def test_what_is_no_preflight_is_not_answered(request_: Request) -> None:
    assert CORS.preflight(request_, ("GET",)) is None


def test_a_preflight_of_another_origin_allows_nothing() -> None:
    request = asked("OPTIONS", origin=b"https://evil.test", access_control_request_method=b"GET")
    answer = CORS.preflight(request, ("GET",))

    assert answer is not None
    assert answer.status == 204
    assert not [name for name, _ in answer.headers if name.startswith(b"access-control")]


def test_an_answer_keeps_what_it_has() -> None:
    more: Headers = ((b"x-request-id", b"r"),)
    request = asked("GET", origin=PAGE)
    whole = Response(200, ((b"a", b"b"),), b"body")
    stream = Streamed(200, (), iter(()))  # type: ignore[arg-type]

    added = (*UNSAID, *more, *CORS.headers(request))
    dressed = CORS.add_headers(whole, request, more)
    assert dressed == Response(200, ((b"a", b"b"), *added), b"body")
    assert CORS.add_headers(stream, request, more).headers == added


@pytest.mark.parametrize("field", [(b"cache-control", b"no-cache"), UNSAID[1]])
def test_what_an_answer_says_of_itself_stands_alone(field: tuple[bytes, bytes]) -> None:
    dressed = CORS.add_headers(Response(200, (field,)), asked("GET"), ())

    assert [value for name, value in dressed.headers if name == field[0]] == [field[1]]
    assert len(dressed.headers) == 2


@pytest.mark.parametrize(
    ("origin", "host", "welcome"),
    [
        (None, b"a.test", True),
        (PAGE, b"127.0.0.1:7777", True),
        (b"http://localhost:3000", b"127.0.0.1:7777", True),
        (b"http://127.0.0.1:7777", b"127.0.0.1:7777", True),
        (b"http://[::1]:7777", b"[::1]:7777", True),
        (b"http://localhost", b"localhost", True),
        (b"https://app.localhost:7777", b"app.localhost:7777", True),
        (b"http://legation_1:7777", b"legation_1:7777", True),
        # Whoever owns a name can make it lead here, and then Host and Origin agree.
        (b"http://evil.test:7777", b"evil.test:7777", False),
        (b"http://evil.test", b"127.0.0.1:7777", False),
        (b"http://localhost:8080", b"localhost:7777", False),
        (b"http://127.0.0.1:7777/", b"127.0.0.1:7777", False),
        (b"http://127.0.0.1.evil.test", b"127.0.0.1.evil.test", False),
        (b"null", b"127.0.0.1:7777", False),
        (b"", b"", False),
        (b"http://", b"", False),
        (b"http://localhost", None, False),
    ],
)
def test_a_page_is_welcome_that_is_allowed_or_of_this_host(
    origin: bytes | None, host: bytes | None, welcome: bool
) -> None:
    sent = {b"host": host, b"origin": origin}
    fields = tuple((name, value) for name, value in sent.items() if value is not None)

    assert CORS.welcomes(Request("POST", "/", fields)) == welcome
    assert not CORS.welcomes(Request("POST", "/", (*fields, (b"origin", b"http://evil.test"))))


def test_an_answer_in_the_place_of_a_platform_is_kept_by_nobody_and_has_its_id() -> None:
    answer = respond_instead(internal_error("0f6d"), "mine")

    assert (answer.status, answer.headers) == (
        500,
        (
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(answer.body)),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            (b"x-request-id", b"mine"),
        ),
    )
    assert b'"Internal server error (incident 0f6d)"' in answer.body


def test_the_default_origin_can_be_left_out() -> None:
    alone = Cors.from_origins(("https://app.test",), default=False)

    assert alone.origins == {b"https://app.test"}
