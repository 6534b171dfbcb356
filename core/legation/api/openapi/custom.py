"""The description of custom routes: their words, and the shapes of what they take and answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ...http.refusals import Fault
from ...tools.schema import schema_of
from ...tools.shapes import shape_of
from ..custom_routes import CustomRoute, row_of
from ..fields import describe_body, fields_of
from .errors import MEANINGS, errors_of
from .operations import JSON, Body, Operation, Reply

__all__ = ["description_faults", "operation_of"]

_ANYTHING: Final = "*/*"
_NO_CONTENT: Final = 204


def operation_of(route: CustomRoute) -> Operation:
    """Return what the document says of `route` beyond its row in the table."""
    body = None
    if route.body is not None:
        required = any(field.required for field in fields_of(route.body))
        body = Body({JSON: describe_body(route.body)}, required=required)
    return Operation(
        route.summary,
        {route.success: Reply("Successful Response", _content(route))},
        route.description,
        body=body,
    )


def _content(route: CustomRoute) -> dict[str, Any]:
    if route.result is not None:
        return {JSON: schema_of(shape_of(route.result))}
    return {} if route.success == _NO_CONTENT else {_ANYTHING: {}}


def description_faults(routes: Sequence[CustomRoute]) -> Iterator[Fault]:
    """Yield what the return types of handlers do not say of their refusals.

    They have no other fault: `route_faults` found none.
    """
    for index, route in enumerate(routes):
        here = f"routes[{index}].handler"
        try:
            errors = errors_of(row_of(route), operation_of(route), needs_token=True, keyed=False)
        except (KeyError, NameError):
            yield Fault(here, "its return type has to be declared, of names of its module")
        except TypeError:
            sentence = "a refusal made of a sentence needs an example: Annotated[Conflict, 'why']"
            yield Fault(here, sentence)
        else:
            for status in sorted(errors.keys() - MEANINGS.keys()):
                yield Fault(here, f"a refusal of status {status} is not one of ours")
