"""The table of a platform: our rows first, then the application's."""

from __future__ import annotations

import sys

from legation import Database, Platform
from legation.api import handlers
from legation.api.route_table import TABLE, make_table
from legation.api.routes import ROUTES

from ...orders import Shop, routes_of


def test_platform_without_custom_routes_has_ours() -> None:
    assert TABLE.routes == ROUTES
    assert TABLE.custom == {}


def test_what_requests_would_import_can_be_there_before() -> None:
    Platform(databases=[Database("main", "sqlite://")]).import_handlers()

    assert {f"{handlers.__name__}.{name}" for name in handlers.LATE} <= sys.modules.keys()


def test_rows_of_an_application_are_behind_ours() -> None:
    table = make_table(routes_of(Shop()))

    assert table.routes[: len(ROUTES)] == ROUTES
    assert [row.operation for row in table.routes[len(ROUTES) :]] == list(table.custom)
    assert all(row.custom for row in table.routes[len(ROUTES) :])
    found, _ = table.router.lead("/orders/7?x=1")
    assert found is not None
    assert found.params == {"order_id": "7"}
    assert sorted(found.methods) == ["DELETE", "GET"]
    assert TABLE.router.lead("/orders/7") == (None, "")
