"""Routes of an application are served as ours are: need, audit, document, CORS, methods, errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from legation import Agent, CustomRoute, Database, Platform, Response, Streamed
from legation.access.scopes import AnyToken, Scoped
from legation.api.call import Call
from legation.api.custom_routes import PUBLIC_EFFECTS, NotPublic, restrict
from legation.effects import (
    Concurrently,
    Emit,
    Interruptible,
    Log,
    NextEvents,
    Now,
    Nudge,
    Program,
    RandomBytes,
    Sleep,
)
from legation.http.messages import empty_response
from legation.http.refusals import NotFound
from legation_testing import (
    BadResponse,
    Client,
    ClientResponse,
    close_at_every_effect,
    crash_everywhere,
    play,
)

from ...callers import ENVIRON, NOW, Issuer, demo
from ...orders import Order, Shop, routes_of

ISSUER: Final = Issuer()
ALL: Final = ISSUER.token("orders:read", "orders:write", "orders:delete")
BLUE: Final = {"room": "blue", "nights": 2}


def serve(shop: Shop, issuer: Issuer | None = ISSUER, **configuration: Any) -> Platform:
    """Return a platform with the routes of `shop`."""
    return demo(issuer, routes=routes_of(shop), **configuration)


def alone(handler: Callable[..., Any], **more: Any) -> Platform:
    """Return a platform with one route beside ours, for everybody."""
    settings: dict[str, Any] = {"operation": "mine", "summary": "Mine", **more}
    return demo(None, routes=[CustomRoute("GET", "/mine", AnyToken(), handler, **settings)])


def test_routes_answer_as_they_are_declared() -> None:
    shop = Shop()
    with Client(serve(shop), token=ALL) as client:
        made = client.post("/orders", json=BLUE)
        order = made.json()
        listed = client.get("/orders", query={"room": "blue"})
        got = client.get(f"/orders/{order['id']}")
        again = client.post("/orders", json=BLUE)
        exported = client.get("/export")
        gone = client.delete(f"/orders/{order['id']}")

    assert (made.status, order) == (201, {"id": order["id"], **BLUE})
    assert listed.json() == {"orders": [order]}
    assert got.json() == order
    assert (again.status, again.json()["detail"]) == (409, "There is none left")
    assert exported.text == "order 0\norder 1\norder 2\n"
    assert (gone.status, gone.body) == (204, b"")


@pytest.mark.parametrize(
    ("sent", "paths"),
    [
        ({"query": {"colour": "red"}}, ["query.colour"]),
        ({"query": {"room": "red"}}, ["query.room"]),
        ({"json": {}}, ["body.room"]),
        ({"json": {"room": "x" * 21, "nights": 0, "more": 1}}, None),
        ({"body": b"{"}, None),
        ({"json": [1]}, ["body"]),
    ],
    ids=["unknown", "choice", "missing", "several", "cut", "array"],
)
def test_faults_of_a_request_are_told_as_ours(sent: Any, paths: list[str] | None) -> None:
    shop = Shop()
    with Client(serve(shop), token=ALL) as client:
        refused = client.request("GET" if "query" in sent else "POST", "/orders", **sent)

    assert refused.status in (400, 422)
    if paths is not None:
        assert [error["path"] for error in refused.json()["errors"]] == paths
    assert shop.orders == {}


def test_long_body_is_refused_and_not_read() -> None:
    with Client(serve(Shop()), token=ALL) as client:
        assert client.post("/orders", body=b" " * ((10 << 20) + 1)).status == 413


@pytest.mark.parametrize(
    ("scopes", "status"),
    [((), 403), (("orders:read",), 200), (("orders:7:read",), 200), (("orders:8:read",), 403)],
    ids=["none", "all", "this", "another"],
)
def test_scopes_decide(scopes: tuple[str, ...], status: int) -> None:
    shop = Shop()
    shop.orders["7"] = Order("7", "blue", 1)
    with Client(serve(shop)) as client:
        assert client.get("/orders/7", token=ISSUER.token(*scopes)).status == status
        assert client.get("/orders/7").status == 401
        assert client.get("/hours").text == "always"
        assert client.get("/export", token=ISSUER.token(sub="eve")).status == 200


def test_trail_has_the_operation_the_caller_and_the_resource() -> None:
    shop = Shop()
    shop.orders["7"] = Order("7", "blue", 1)
    with Client(serve(shop)) as client:
        client.get("/orders/7", token=ISSUER.token("orders:read", sub="ann"))
        client.get("/orders/7", token=ISSUER.token(sub="bob"))
        entries = [(e.subject, e.operation, e.resource, e.status) for e in client.audit]

    assert entries == [("ann", "get_order", "7", 200), ("bob", "get_order", "7", 403)]


def test_head_options_and_other_methods_are_as_ours() -> None:
    with Client(serve(Shop(), cors_allowed_origins=["https://shop.example"]), token=ALL) as client:
        head = client.request("HEAD", "/orders")
        allowed = client.request("OPTIONS", "/orders")
        wrong = client.request("PUT", "/orders", json={})
        asked = {"origin": "https://shop.example", "access-control-request-method": "POST"}
        preflight = client.request("OPTIONS", "/orders", headers=asked)
        lost = client.get("/orders/a/b")
        unknown = client.request("PUT", "/orders", token="", json={})

    assert (head.status, head.body, head.header("content-length")) == (200, b"", "13")
    assert (allowed.status, allowed.header("allow")) == (204, "GET, HEAD, OPTIONS, POST")
    assert (wrong.status, wrong.header("allow")) == (405, "GET, HEAD, OPTIONS, POST")
    assert preflight.header("access-control-allow-methods") == "GET, HEAD, OPTIONS, POST"
    assert lost.status == 404
    assert unknown.status == 401


def test_post_is_done_once_under_a_key() -> None:
    shop = Shop()
    with Client(serve(shop), token=ALL) as client:
        key = {"idempotency-key": "k"}
        first, second = (client.post("/orders", json=BLUE, headers=key) for _ in range(2))

    assert first.json() == second.json()
    assert len(shop.orders) == 1


def test_page_of_another_origin_changes_nothing_where_authorization_is_off() -> None:
    def change(call: Call) -> Response:
        return empty_response(204)

    route = CustomRoute(
        "POST", "/change", AnyToken(), change, operation="change", summary="Change", success=204
    )
    with Client(demo(None, routes=[route])) as client:
        assert client.post("/change").status == 204
        assert client.post("/change", headers={"origin": "https://evil.example"}).status == 403


def test_callers_are_told_of_them_as_of_ours() -> None:
    with Client(serve(Shop())) as client:
        reader = ISSUER.token("orders:read")
        asked = {"method": "POST", "path": "/orders"}
        explained = client.post("/me/explain", json=asked, token=reader)
        rights = client.get("/me", token=reader)

    assert "orders:write" in explained.text
    assert '"/orders/{order_id}"' in rights.text


def test_excluded_route_may_be_one_of_them() -> None:
    with Client(serve(Shop(), options={"excluded_routes": ["/orders"]})) as client:
        assert client.get("/orders").status == 200
        assert client.get("/orders/1").status == 401


def test_two_platforms_do_not_see_each_others() -> None:
    blue, green = Shop(), Shop()
    blue.orders["7"] = Order("7", "blue", 1)
    with (
        Client(serve(blue), token=ALL) as one,
        Client(serve(green), token=ALL) as two,
        Client(demo(ISSUER), token=ALL) as none,
    ):
        statuses = [client.get("/orders/7").status for client in (one, two, none)]
        paths = [client.get("/openapi.json").json()["paths"] for client in (one, none)]

    assert statuses == [200, 404, 404]
    assert paths[0].keys() - paths[1].keys() == {
        "/orders",
        "/orders/{order_id}",
        "/export",
        "/hours",
    }


def test_same_configuration_makes_another_platform_with_the_same_routes() -> None:
    shop = Shop()
    platform = Platform.from_config(serve(shop).config, routes=routes_of(shop), environ=ENVIRON)
    with Client(platform, token=ALL) as client:
        assert client.get("/orders").json() == {"orders": []}


@pytest.mark.enumeration
def test_route_is_answered_after_a_crash_at_each_effect() -> None:
    def make() -> Client:
        shop = Shop()
        return Client(lambda: serve(shop), token=ALL)

    def act(client: Client) -> None:
        client.post("/orders", json=BLUE, headers={"idempotency-key": "k"})

    def check(client: Client) -> None:
        client.advance(2)
        assert len(client.get("/orders").json()["orders"]) <= 1

    assert crash_everywhere(make, act, check).points > 10


# --- what a handler may not do -------------------------------------------------------------------


def answer_of(handler: Callable[..., Any], **more: Any) -> tuple[ClientResponse, str]:
    """Return the answer of a handler, and the log."""
    with Client(alone(handler, **more), raise_errors=False) as client:
        answer = client.get("/mine")
        return answer, repr(client.logs)


def fail(call: Call) -> Response:
    """Raise."""
    raise ZeroDivisionError("secret")


def return_nothing(call: Call) -> None:
    """Return nothing."""


def return_another(call: Call) -> Program[str]:
    """Return what is no order."""
    yield from Now()
    return "secret"


def nudge(call: Call) -> Program[Response]:
    """Ask for what is ours."""
    yield from Nudge("inbox:main")
    return empty_response(204)


def nudge_within(call: Call) -> Program[Response]:
    """Ask for what is ours, in a program within an effect."""
    yield from Concurrently((sleep(), iter(NextEvents("r", 0, 1.0))))
    return empty_response(204)


def nudge_interruptibly(call: Call) -> Program[Response]:
    """Ask for what is ours, where it may be cut off."""
    yield from Interruptible(iter(Nudge("inbox:main")), "x", 1.0)
    return empty_response(204)


def sleep() -> Program[None]:
    """Sleep."""
    yield from Sleep(1.0)


@pytest.mark.parametrize(
    ("handler", "kind"),
    [
        (fail, "ZeroDivisionError"),
        (return_nothing, "TypeError"),
        (return_another, "TypeError"),
        (nudge, "NotPublic"),
        (nudge_within, "NotPublic"),
        (nudge_interruptibly, "NotPublic"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
@pytest.mark.parametrize("result", [None, Order], ids=["no result", "result"])
def test_error_is_one_sentence_with_an_incident(
    handler: Callable[..., Any], kind: str, result: Any
) -> None:
    answer, logs = answer_of(handler, result=result)

    assert answer.status == 500
    assert answer.json()["detail"].startswith("Internal server error (incident ")
    assert "secret" not in answer.text + logs
    assert kind in logs


def test_program_may_catch_what_it_was_refused() -> None:
    def handler() -> Program[str]:
        try:
            yield from Nudge("x")
        except NotPublic as error:
            return str(error)
        return ""

    assert play(restrict(handler()), []) == "a custom route may not yield Nudge"


def test_errors_and_cancellation_pass_through() -> None:
    def handler() -> Program[str]:
        try:
            yield from Now()
        except OSError:
            yield from RandomBytes(1)
        return "done"

    script = [(Now(), OSError()), (RandomBytes(1), b"x")]
    assert play(restrict(handler()), script) == "done"
    assert close_at_every_effect(lambda: restrict(handler()), script) == 2


def test_effects_within_effects_are_performed() -> None:
    def handler(call: Call) -> Program[Response]:
        yield from Concurrently((sleep(), sleep()))
        yield from Interruptible(sleep(), "topic", 5.0)
        return empty_response(204)

    with Client(alone(handler, success=204)) as client:
        assert client.get("/mine").status == 204
        assert client.clock.elapsed == 2.0


def test_stream_may_emit_and_no_more_than_that() -> None:
    def stream(effect: Any) -> Callable[[Call], Streamed]:
        def body() -> Program[None]:
            yield from Emit(b"a")
            yield from effect

        return lambda _: Streamed(200, (), body())

    assert Emit not in PUBLIC_EFFECTS
    handler: Any = stream(Log("info", "x"))
    handler.__annotations__ = {"return": Streamed}
    assert answer_of(handler)[0].body == b"a"
    refused: Any = stream(Nudge("x"))
    refused.__annotations__ = {"return": Streamed}
    with pytest.raises(Exception, match="may not yield Nudge"):
        answer_of(refused)


def ticking(media_type: bytes) -> Callable[[Call], Streamed]:
    """Return a handler whose stream has no end of its own."""

    def body() -> Program[None]:
        while True:
            yield from Emit(b": tick\n\n")
            yield from Sleep(3600.0)

    def handler(call: Call) -> Streamed:
        return Streamed(200, ((b"content-type", media_type),), body())

    return handler


@pytest.mark.parametrize("media_type", [b"text/event-stream", b"application/x-ndjson"])
def test_a_stream_ends_with_the_token_of_its_caller(media_type: bytes) -> None:
    route = CustomRoute(
        "GET", "/mine", AnyToken(), ticking(media_type), operation="mine", summary="Mine"
    )
    with Client(demo(ISSUER, routes=[route])) as client:
        stream = client.begin("GET", "/mine?a=b", token=ISSUER.token(sub="ann", exp=NOW + 2))
        client.advance(11.9)
        assert not stream.done
        client.advance(1)

        assert stream.done
        events = media_type == b"text/event-stream"
        assert [event.name for event in stream.events()] == ["token_expired"] * events
        assert [event.json()["path"] for event in stream.events()] == ["/mine"] * events
        with pytest.raises(BadResponse, match="not whole"):
            stream.response()


def test_a_stream_of_a_caller_without_a_token_has_no_such_end() -> None:
    with Client(alone(ticking(b"text/event-stream"))) as client:
        stream = client.begin("GET", "/mine")
        client.advance(10_000)

        assert not stream.done
        stream.disconnect()


def test_value_of_a_typed_dict_is_its_checkers_matter() -> None:
    def handler(call: Call) -> dict[str, int]:
        return {"a": 1}

    answer, _ = answer_of(handler, result=dict[str, int])

    assert json.loads(answer.body) == {"a": 1}


def test_whole_of_it_in_one_file() -> None:
    """A platform with a database of its own, two callers, and a route that refuses."""

    def find(call: Call) -> NotFound:
        return NotFound("Not here")

    route = CustomRoute(
        "GET", "/mine", Scoped("agents", ("read",)), find, operation="mine", summary="Mine"
    )
    databases = [Database("main", "sqlite://"), Database("other", "sqlite://")]
    with Client(Platform(agents=[Agent(id="a")], databases=databases, routes=[route])) as client:
        assert client.get("/mine").json()["detail"] == "Not here"
