from __future__ import annotations

from typing import Any, Final

import pytest

from legation import CustomRoute, Response
from legation.access.scopes import AnyToken, Public, Scoped, Signed
from legation.api.call import Call
from legation.api.fields import json_object
from legation.api.handlers import system
from legation.api.route import Route, parse_alone
from legation.api.routes import ROUTES
from legation.effects import Sleep
from legation.http.messages import json_response
from legation.shares.shares import Shares
from legation.values import frozen
from legation_testing import Client

from ...callers import demo


def made(**more: Any) -> Route:
    told: dict[str, Any] = {
        "method": "GET",
        "template": "/x",
        "need": AnyToken(),
        "handler": system.me,
        "operation": "get_x",
        "tag": "X",
    }
    return Route(**{**told, **more})


def test_there_is_no_route_without_a_need() -> None:
    with pytest.raises(TypeError):
        Route("GET", "/x", handler=system.me, operation="get_x", tag="X")  # type: ignore[call-arg]
    for need in (None, "agents:read", (), Scoped):
        with pytest.raises(TypeError):
            made(need=need)


def test_nor_one_without_a_handler_or_a_name() -> None:
    with pytest.raises(TypeError):
        made(handler=None)
    with pytest.raises(ValueError, match="operation"):
        made(operation="")


@pytest.mark.parametrize("need", [Public(), Signed(), AnyToken(), Scoped("x", ("read",))])
def test_only_a_scope_on_an_id_has_a_parameter(need: Any) -> None:
    assert made(need=need).parameter is None
    assert made(need=Scoped("x", ("read",), parameter="x_id")).parameter == "x_id"


@pytest.mark.parametrize(
    ("more", "takes_key"),
    [
        ({"method": "GET"}, False),
        ({"method": "POST"}, True),
        ({"method": "POST", "need": Signed()}, False),
        ({"method": "POST", "repeatable": True}, False),
        ({"method": "PATCH"}, False),
    ],
    ids=["reads", "changes", "is signed", "repeatable", "is idempotent"],
)
def test_what_is_posted_takes_a_key(more: dict[str, Any], *, takes_key: bool) -> None:
    assert made(**more).takes_key is takes_key


# --- how much of a body is read -----------------------------------------------------------------

SMALL, STATE, IDS, RUN, DELIVERY = 16 << 10, 2 << 20, 1 << 20, 10 << 20, 4 << 20
FORM = 256 << 10
TAKES = {
    "explain_request": SMALL,
    "explain_access": SMALL,
    "resolve_approval_approvals__approval_id__resolve_post": RUN,
    **{f"create_{kind}_run": RUN for kind in ("agent", "team")},
    **{f"continue_{kind}_run": RUN for kind in ("agent", "team")},
    **{f"fork_{kind}_run": RUN for kind in ("agent", "team")},
    **{f"cancel_{kind}_run": SMALL for kind in ("agent", "team")},
    **{f"resume_{kind}_run": SMALL for kind in ("agent", "team")},
    "create_session": STATE,
    "update_session": STATE,
    "rename_session": SMALL,
    "fork_session": SMALL,
    "delete_sessions": IDS,
    "retry_channel_message": SMALL,
    "retry_channel_letters": IDS,
    "discard_channel_letters": IDS,
    "retry_channel_reply": SMALL,
    "send_channel_test": SMALL,
    "send_channel_message": IDS,
    "migrate_database": SMALL,
    "migrate_all_databases": SMALL,
    "receive_webhook": DELIVERY,
    "receive_interaction": FORM,
}


def test_each_operation_that_reads_a_body_has_a_limit_that_was_chosen_for_it() -> None:
    reads = [route for route in ROUTES if route.body or route.form or route.takes_key]
    signed = [
        route for route in ROUTES if isinstance(route.need, Signed) and route.method == "POST"
    ]

    assert {route.operation: route.body_limit for route in (*reads, *signed)} == TAKES


@frozen
class Order:
    """A body of a custom route."""

    items: dict[str, Any] | None = json_object()


def take_order(call: Call, body: Order) -> Response:
    return json_response(200, len(body.items or {}))


ORDERS: Final = CustomRoute(
    "POST",
    "/orders",
    Scoped("orders", ("write",)),
    take_order,
    operation="take_order",
    summary="Take an order",
    body=Order,
    body_limit=2_000_000,
)
BODIES: Final = {
    "a long string": (b'{"items":{"a":"' + b"[,{" * 400_000 + b'"}}', 200),
    "many values": (b'{"items":{"a":[' + b"1," * 50_000 + b"1]}}", 413),
    "deep": (b'{"items":' * 60_000, 400),
    "long": (b'{"items":{"a":"' + b"x" * 2_000_000 + b'"}}', 413),
    "many members": (b"{" + b",".join(b'"a%d":1' % i for i in range(300)) + b"}", 400),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_is_measured_before_it_is_parsed(name: str) -> None:
    body, status = BODIES[name]
    with Client(demo(None, routes=[ORDERS])) as client:
        answer = client.post("/orders", body=body)

    assert answer.status == status


def test_long_bodies_are_parsed_one_after_the_other() -> None:
    shares, parsed = Shares(), list[str]()
    first = parse_alone(shares, lambda: parsed.append("first"))
    second = parse_alone(shares, lambda: parsed.append("second"))

    assert next(first) == next(second) == next(second) == Sleep(0.0)
    assert parsed == ["first"]
    with pytest.raises(StopIteration):
        next(first)
    assert next(second) == Sleep(0.0)
    assert parsed == ["first", "second"]


def test_who_is_gone_holds_up_no_long_body() -> None:
    shares = Shares()
    program = parse_alone(shares, lambda: None)
    next(program)
    program.close()

    assert not shares.parsing
