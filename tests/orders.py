"""An application with routes of its own: orders that it keeps for itself, in a dictionary."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from attrs import frozen

from legation import CustomRoute, Response, Streamed
from legation.access.scopes import AnyToken, Open, Scoped
from legation.api.call import Call
from legation.api.fields import choice, integer, text
from legation.effects import CallFunction, Emit, Program, Returned
from legation.http.messages import empty_response, text_response
from legation.http.refusals import Conflict, NotFound

__all__ = ["READ", "WRITE", "ListOrders", "NewOrder", "Order", "Orders", "Shop", "routes_of"]

READ: Final = Scoped("orders", ("read",))
WRITE: Final = Scoped("orders", ("write",))

_SOLD_OUT: Final = "There is none left"
SoldOut: TypeAlias = Annotated[Conflict, _SOLD_OUT]


@frozen
class Order:
    """An order, as it is answered."""

    id: str
    room: str
    nights: int


@frozen
class Orders:
    """Several orders."""

    orders: tuple[Order, ...]


@frozen
class ListOrders:
    """The query of the list."""

    room: str = choice(("any", "blue", "green"), default="any")


@frozen
class NewOrder:
    """The body of a new order."""

    room: str = text("Which room", required=True, max_length=20)
    nights: int = integer("For how long", default=1, minimum=1, maximum=30)


class Shop:
    """What the application knows of orders, by their id."""

    def __init__(self) -> None:
        self.orders: dict[str, Order] = {}

    def find(self, order_id: str) -> Order | None:
        """Return the order."""
        return self.orders.get(order_id)

    def add(self, order: Order) -> None:
        """Take the order."""
        self.orders[order.id] = order

    def list_orders(self, call: Call, query: ListOrders) -> Orders:
        """List the orders of a room, or of any."""
        found = [o for o in self.orders.values() if query.room in ("any", o.room)]
        return Orders(tuple(found))

    def get_order(self, call: Call) -> Program[Order | NotFound]:
        """Ask the application for one order."""
        found = yield from CallFunction(self.find, {"order_id": call.params["order_id"]}, 5.0)
        order = found.value if isinstance(found, Returned) else None
        return order if isinstance(order, Order) else NotFound("There is no such order")

    def create_order(self, call: Call, body: NewOrder) -> Program[Order | SoldOut]:
        """Take an order, unless there is one of the room."""
        if body.room in {order.room for order in self.orders.values()}:
            return Conflict(_SOLD_OUT)
        order = Order((yield from call.new_id("order")), body.room, body.nights)
        yield from CallFunction(self.add, {"order": order}, 5.0)
        return order

    def delete_order(self, call: Call) -> Response:
        """Forget an order."""
        self.orders.pop(call.params["order_id"], None)
        return empty_response(204)


def export(call: Call) -> Streamed:
    """Stream three lines."""

    def lines() -> Program[None]:
        for number in range(3):
            yield from Emit(b"order %d\n" % number)

    return Streamed(200, ((b"content-type", b"text/csv"),), lines())


def opening_hours(call: Call) -> Response:
    """Return when the shop is open."""
    return text_response(200, "always")


def routes_of(shop: Shop) -> tuple[CustomRoute, ...]:
    """Return the routes of `shop`."""
    one = Scoped("orders", ("read",), parameter="order_id")
    return (
        CustomRoute(
            "GET",
            "/orders",
            READ,
            shop.list_orders,
            operation="list_orders",
            summary="List orders",
            tag="Orders",
            query=ListOrders,
            result=Orders,
        ),
        CustomRoute(
            "POST",
            "/orders",
            WRITE,
            shop.create_order,
            operation="create_order",
            summary="Create order",
            description="One for each room.",
            tag="Orders",
            body=NewOrder,
            result=Order,
            success=201,
        ),
        CustomRoute(
            "GET",
            "/orders/{order_id}",
            one,
            shop.get_order,
            operation="get_order",
            summary="Get order",
            tag="Orders",
            result=Order,
        ),
        CustomRoute(
            "DELETE",
            "/orders/{order_id}",
            Scoped("orders", ("delete",), parameter="order_id"),
            shop.delete_order,
            operation="delete_order",
            summary="Delete order",
            tag="Orders",
            success=204,
        ),
        CustomRoute(
            "GET", "/export", AnyToken(), export, operation="export", summary="Export orders"
        ),
        CustomRoute(
            "GET", "/hours", Open(), opening_hours, operation="hours", summary="Opening hours"
        ),
    )
