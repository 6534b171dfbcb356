"""The table of routes of one platform: our own rows, and those of the application behind them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ..http.routing import Router
from ..values import frozen
from .custom_routes import CustomRoute, row_of
from .route import Route
from .routes import ROUTES

__all__ = ["TABLE", "RouteTable", "import_handlers", "make_table"]


@frozen(eq=False)
class RouteTable:
    """The routes of a platform; `custom` are those of the application, by their operation."""

    routes: tuple[Route, ...]
    router: Router[Route]
    custom: Mapping[str, CustomRoute]


def make_table(custom: Iterable[CustomRoute] = ()) -> RouteTable:
    """Return the table with the rows of `custom`, which have been checked."""
    mine = tuple(custom)
    routes = (*ROUTES, *map(row_of, mine))
    router = Router((route.method, route.template, route) for route in routes)
    return RouteTable(routes, router, {route.operation: route for route in mine})


def import_handlers(table: RouteTable) -> None:
    """Import all that the rows of `table` need."""
    for route in table.routes:
        _ = (route.handler, route.find, route.query, route.body, route.form)


TABLE: Final = make_table()
"""The table of a platform without custom routes."""
