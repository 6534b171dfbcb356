"""What stands for a function whose module is late: a call of it returns the function."""

from __future__ import annotations

import pytest
from attrs import fields

from legation.api import handlers
from legation.api.late_functions import LateFunction, LateModule
from legation.api.route import Route
from legation.api.routes import ROUTES


def test_a_call_returns_the_function_of_that_name() -> None:
    stand_in = LateModule(handlers, "audit").list_audit

    assert stand_in == LateFunction(handlers, "audit", "list_audit")
    assert stand_in() is handlers.audit.list_audit


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation)
def test_nothing_of_a_row_is_late_but_what_the_row_imports(route: Route) -> None:
    for attribute in fields(Route):
        assert not isinstance(getattr(route, attribute.name), LateFunction | LateModule)
