"""Every fault of custom routes is told at once, each with its path."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

import pytest
from attrs import evolve, field, frozen

from legation import Agent, ConfigurationError, CustomRoute, Platform, Response
from legation.access.scopes import AnyToken, Open, Public, Scoped, Signed
from legation.api.call import Call
from legation.http.messages import empty_response
from legation.http.refusals import Conflict, Refusal

from ...callers import demo
from ...orders import ListOrders, NewOrder, Shop, routes_of

EVERYBODY: Final = AnyToken()


@frozen
class Undeclared:
    """A class whose fields say nothing of requests."""

    room: str = field(default="")


@frozen
class Teapot(Refusal):
    """A refusal that is not ours."""

    status: ClassVar[int] = 418
    error_code: ClassVar[str] = "TEAPOT"

    detail: str = "Short and stout"


def answer(call: Call) -> Response:
    """Return nothing."""
    return empty_response(204)


def untyped(call):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Say nothing of what it returns."""
    return empty_response(204)


def elsewhere(call: Call) -> "Nowhere":  # type: ignore[name-defined]  # noqa: F821, UP037
    """Return what is not known."""
    return empty_response(204)


def wordless(call: Call) -> Conflict:
    """Refuse, and give no example of the sentence."""
    return Conflict("why")


def worded(call: Call) -> Annotated[Conflict, "why"]:
    """Refuse with an example."""
    return Conflict("why")


def teapot(call: Call) -> Teapot:
    """Refuse by a status of its own."""
    return Teapot()


def faults(*routes: Any, **configuration: Any) -> list[tuple[str, str]]:
    """Return the faults of a platform with `routes`."""
    with pytest.raises(ConfigurationError) as caught:
        demo(None, routes=routes, **configuration)
    return [(fault.path, fault.message) for fault in caught.value.faults]


def route(
    template: str = "/mine", method: str = "GET", need: Any = EVERYBODY, **more: Any
) -> CustomRoute:
    """Return a route that has no fault but those given."""
    settings: dict[str, Any] = {"operation": "mine", "summary": "Mine", **more}
    return CustomRoute(method, template, need, settings.pop("handler", answer), **settings)


BODY: Final[dict[str, Any]] = {"body": NewOrder, "handler": lambda call, body: None}

ONE: Final[dict[str, tuple[CustomRoute, str, str]]] = {
    "method": (route(method="HEAD"), "method", "'HEAD' is none of: DELETE, GET, PATCH, POST, PUT"),
    "lower case": (route(method="get"), "method", "'get' is none of"),
    "relative": (route("mine"), "template", "'mine' is no path"),
    "root": (route("/"), "template", "'/' is no path"),
    "empty": (route(""), "template", "'' is no path"),
    "slash": (route("/mine/"), "template", "'/mine/' is no path"),
    "dots": (route("/mine/../x"), "template", "is no path"),
    "query": (route("/mine?x=1"), "template", "is no path"),
    "half": (route("/mine/{id"), "template", "is no path"),
    "within": (route("/mine/a{id}"), "template", "is no path"),
    "parameter": (route("/{mine}"), "template", "begins with a parameter"),
    "ours": (route("/agents/new"), "template", "/agents is ours"),
    "document": (route("/openapi.json"), "template", "/openapi.json is ours"),
    "channel": (route("/chat/history"), "template", "'chat' is a channel"),
    "twice": (route("/mine/{a}/{a}"), "template", "two parameters of one name"),
    "operation": (route(operation="My Op"), "operation", "'My Op' is not an id"),
    "our operation": (route(operation="get_agents"), "operation", "is the id of one of our routes"),
    "summary": (route(summary=""), "summary", "missing"),
    "tag": (route(tag=""), "tag", "missing"),
    "success": (route(success=404), "success", "must be a status from 200 to 299"),
    "body_limit": (
        route(body_limit=(10 << 20) + 1),
        "body_limit",
        "must be from 0 to 10485760 bytes",
    ),
    "public": (route(need=Public()), "need", "expected Scoped(…), AnyToken() or Open()"),
    "signed": (route(need=Signed()), "need", "expected Scoped(…), AnyToken() or Open()"),
    "nothing": (route(need=None), "need", "expected Scoped(…), AnyToken() or Open()"),
    "no action": (route(need=Scoped("orders", ())), "need", "a scope is made of a resource"),
    "no word": (route(need=Scoped("orders", ("a:b",))), "need", "a scope is made of a resource"),
    "unknown scope": (
        route(need=Scoped("agents", ("read", "fly"))),
        "need",
        "no scope agents:fly; there are: agents:read, agents:run",
    ),
    "of no parameter": (
        route(need=Scoped("orders", ("read",), parameter="order_id")),
        "need",
        "'order_id' is no parameter of /mine",
    ),
    "listing": (route(need=Scoped("orders", ("read",), listing=True)), "need", "`listing` is for"),
    "query class": (route(query=dict, handler=print), "query", "expected a class of attrs"),
    "query fields": (route(query=Undeclared, handler=print), "query", "expected a class of attrs"),
    "body class": (route(method="PUT", body=3, handler=print), "body", "expected a class of attrs"),
    "body of GET": (route(**BODY), "body", "is not allowed together with the method GET"),
    "result": (route(result=object()), "result", "the type "),
    "handler": (route(handler=3), "handler", "expected a function"),
    "takes": (route(query=ListOrders), "handler", "has to take (call, query)"),
    "takes both": (
        route(method="PUT", query=ListOrders, body=NewOrder),
        "handler",
        "has to take (call, query, body)",
    ),
    "untyped": (route(handler=untyped), "handler", "its return type has to be declared"),
    "elsewhere": (route(handler=elsewhere), "handler", "its return type has to be declared"),
    "wordless": (
        route(handler=wordless),
        "handler",
        "needs an example: Annotated[Conflict,",
    ),
    "teapot": (route(handler=teapot), "handler", "a refusal of status 418 is not one of ours"),
}


@pytest.mark.parametrize("name", ONE)
def test_one_fault_is_told_with_its_path(name: str) -> None:
    wrong, path, sentence = ONE[name]

    told = faults(wrong)

    assert [where for where, _ in told] == [f"routes[0].{path}"]
    assert sentence in told[0][1]


def test_what_has_no_fault_is_served() -> None:
    for right in (
        route(),
        route("/mine/{a}/b/{c}"),
        route(need=Open()),
        route(need=Scoped("agents", ("read",))),
        route(need=Scoped("agents", ("run", "read"))),
        route(handler=worded),
        route(method="PUT"),
    ):
        assert any(r.custom for r in demo(None, routes=[right]).routes)


def test_everything_is_told_at_once_with_the_faults_of_the_configuration() -> None:
    told = faults(
        route("x", method="FLY", need=None),
        "no route",
        route("/agents", operation="mine", success=1),
        agents=[Agent(id="not an id", model="none")],
    )

    assert [path for path, _ in told] == [
        "agents[0].id",
        "agents[0].model",
        "teams[0].members[0]",
        "teams[0].members[1]",
        "channels.chat.agent",
        "routes[0].method",
        "routes[0].template",
        "routes[0].need",
        "routes[1]",
        "routes[2].success",
        "routes[2].template",
        "routes[2].operation",
    ]


def test_two_routes_may_not_be_one() -> None:
    told = faults(
        route("/mine/{a}"),
        route("/mine/{a}", operation="again"),
        route("/mine/{b}", operation="other"),
        route("/mine/{b}/c", operation="deeper"),
        route("/mine/{a}", method="PUT", operation="fine"),
    )

    assert told == [
        ("routes[1].template", "GET /mine/{a} is that of routes[0]"),
        ("routes[2].template", "GET /mine/{b} is that of routes[0]"),
        ("routes[2].template", "{b} is called {a} in another route: one place has one name"),
        ("routes[3].template", "{b} is called {a} in another route: one place has one name"),
    ]


def test_excluded_route_that_is_none_is_still_a_fault() -> None:
    shop = Shop()
    config = evolve(demo(None).config.authorization_config, excluded_routes=["/orders", "/odours"])
    with pytest.raises(ConfigurationError) as caught:
        Platform(routes=routes_of(shop), authorization_config=config)

    assert [f.message for f in caught.value.faults] == ["'/odours' is no route"]
