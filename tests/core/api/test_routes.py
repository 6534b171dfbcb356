from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from legation.access.scopes import AnyToken, Open, Public, Scoped, Signed
from legation.api.handlers import system
from legation.api.routes import ROUTES, Route
from legation.config import DEFAULT_EXCLUDED_ROUTES


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


def test_operations_have_names_of_their_own() -> None:
    assert [name for name, n in Counter(r.operation for r in ROUTES).items() if n > 1] == []


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation)
def test_the_id_of_a_scope_is_the_first_parameter_of_the_path(route: Route) -> None:
    parameters = re.findall(r"{(\w+)}", route.template)

    assert len(parameters) == len(set(parameters))
    if route.parameter is not None:
        assert parameters[0] == route.parameter
        assert isinstance(route.need, Scoped)
        assert route.template.startswith(f"/{route.need.resource}/{{")


def test_a_list_is_filtered_and_so_has_no_id() -> None:
    for route in ROUTES:
        if isinstance(route.need, Scoped) and route.need.listing:
            assert route.method == "GET"
            assert route.template == f"/{route.need.resource}"


def test_what_changes_something_needs_more_than_any_token() -> None:
    changing = [route for route in ROUTES if route.method != "GET"]

    assert changing
    assert {r.template for r in changing if not isinstance(r.need, Scoped | Signed)} == {
        "/me/explain"  # tells, and changes nothing
    }


def test_what_is_public_is_what_the_interface_excludes() -> None:
    public = {route.template for route in ROUTES if isinstance(route.need, Public)}

    assert public <= {*DEFAULT_EXCLUDED_ROUTES, "/docs/assets/{name}"}


def test_only_readiness_is_open_to_all_and_tells_more_to_some() -> None:
    assert {r.template for r in ROUTES if isinstance(r.need, Open)} == {"/ready"}


def test_only_webhooks_are_signed() -> None:
    signed = {route.template for route in ROUTES if isinstance(route.need, Signed)}

    assert signed == {"/{channel}/webhook"}
