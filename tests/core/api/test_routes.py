from __future__ import annotations

import re
from collections import Counter
from inspect import signature
from typing import Any, get_type_hints

import pytest

from legation.access.scopes import Open, Public, Scoped, Signed
from legation.api.route import Route
from legation.api.routes import ROUTES
from legation.config import DEFAULT_EXCLUDED_ROUTES, AuthorizationConfig


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


def test_a_row_has_no_other_attributes() -> None:
    with pytest.raises(AttributeError, match=r"^'Route' object has no attribute 'handlers'$"):
        _ = getattr(ROUTES[0], "handlers")  # noqa: B009 (a checker refuses it otherwise)


def test_a_list_is_filtered_and_so_has_no_id() -> None:
    for route in ROUTES:
        if isinstance(route.need, Scoped) and route.need.listing:
            assert route.method == "GET"
            assert route.template == f"/{route.need.resource}"


def test_what_changes_something_needs_more_than_any_token() -> None:
    changing = [route for route in ROUTES if route.method != "GET"]

    assert changing
    assert {r.template for r in changing if not isinstance(r.need, Scoped | Signed)} == {
        "/me/explain",  # tells, and changes nothing
        "/approvals/{approval_id}/resolve",  # of one's own run, what one may run as well
    }


def test_what_is_public_is_what_the_interface_excludes() -> None:
    public = {route.template for route in ROUTES if isinstance(route.need, Public)}

    parts = {template for template in public if "/assets/" in template}
    assert public - parts == {*DEFAULT_EXCLUDED_ROUTES}
    assert all(AuthorizationConfig().excludes(template) for template in parts)


def test_only_readiness_is_open_to_all_and_tells_more_to_some() -> None:
    assert {r.template for r in ROUTES if isinstance(r.need, Open)} == {"/ready"}


def test_only_what_providers_send_is_signed() -> None:
    signed = {route.template for route in ROUTES if isinstance(route.need, Signed)}

    assert signed == {"/{channel}/webhook", "/{channel}/interactions"}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation)
def test_a_handler_takes_what_its_row_declares(route: Route) -> None:
    given = ["call", *(["found"] if route.find else [])]
    declared = {"query": route.query, "body": route.body, "form": route.form}
    given += [name for name, shape in declared.items() if shape is not None]

    parameters = list(signature(route.handler).parameters)

    assert len(parameters) == len(given)
    hints = get_type_hints(getattr(route.handler, "func", route.handler))
    for name, taken in zip(given, parameters, strict=True):
        if name in declared and hints[taken] is not Any:
            assert hints[taken] is declared[name]
