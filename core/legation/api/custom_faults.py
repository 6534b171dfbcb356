"""The faults of custom routes: all of them at once, before the platform serves anything."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from attrs.exceptions import NotAnAttrsClassError

from ..access.scopes import AnyToken, Open, Scoped
from ..config import PlatformConfig
from ..http.refusals import Fault
from ..http.routing import is_segment
from ..tools.shapes import Unfit, shape_of
from .call import BODY_LIMIT
from .custom_routes import CustomRoute
from .fields import fields_of
from .routes import ROUTES

__all__ = ["route_faults"]

_METHODS: Final = ("DELETE", "GET", "PATCH", "POST", "PUT")
_SEGMENT: Final = re.compile(r"[A-Za-z0-9._~-]+|\{[a-z][a-z0-9_]*\}", re.ASCII)
_OPERATION: Final = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)
_WORD: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}", re.ASCII)

_OURS: Final = frozenset(route.template.split("/")[1] for route in ROUTES)
"""The first segments of our own routes."""

_GRANTED: Final = frozenset(
    (route.need.resource, action)
    for route in ROUTES
    if isinstance(route.need, Scoped)
    for action in route.need.actions
)
"""The scopes on our own resources; a custom route may ask for one of them, or for its own."""

_Found: TypeAlias = Iterator[tuple[str, str]]


def route_faults(routes: Sequence[Any], config: PlatformConfig) -> tuple[Fault, ...]:
    """Return every fault of `routes`, each with its path, as `routes[0].template`."""
    faults: list[Fault] = []
    channels = {channel.id for channel in config.channels}
    for index, route in enumerate(routes):
        if not isinstance(route, CustomRoute):
            faults.append(Fault(f"routes[{index}]", "expected a CustomRoute"))
            continue
        for check in (_words, _place, _needs, _shapes):
            faults += [Fault(f"routes[{index}].{name}", why) for name, why in check(route)]
        first = route.template.split("/")[1:2]
        if channels.intersection(first):
            sentence = f"{first[0]!r} is a channel, whose paths begin with it"
            faults.append(Fault(f"routes[{index}].template", sentence))
    return (*faults, *_collisions(routes))


def _words(route: CustomRoute) -> _Found:
    if route.method not in _METHODS:
        yield "method", f"{route.method!r} is none of: {', '.join(_METHODS)}"
    if not _OPERATION.fullmatch(route.operation):
        yield "operation", f"{route.operation!r} is not an id: [a-z][a-z0-9_]{{0,63}}"
    for name in ("summary", "tag"):
        if not getattr(route, name):
            yield name, "missing"
    if not 200 <= route.success <= 299:  # RFC 9110 section 15.3
        yield "success", "must be a status from 200 to 299"
    if not 0 <= route.body_limit <= BODY_LIMIT:
        yield "body_limit", f"must be from 0 to {BODY_LIMIT} bytes"


def _place(route: CustomRoute) -> _Found:
    slash, *segments = route.template.split("/")
    whole = all(_SEGMENT.fullmatch(segment) and is_segment(segment) for segment in segments)
    if slash or not segments or not whole:
        yield "template", f"{route.template!r} is no path, as /orders/{{order_id}} is one"
        return
    if segments[0].startswith("{"):
        yield "template", "begins with a parameter; its first segment has to be a name of its own"
    elif segments[0] in _OURS:
        yield "template", f"/{segments[0]} is ours; its first segment has to be a name of its own"
    names = _parameters(route.template)
    if len(set(names)) < len(names):
        yield "template", "has two parameters of one name"


def _parameters(template: str) -> list[str]:
    return [part[1:-1] for part in template.split("/") if part.startswith("{")]


def _needs(route: CustomRoute) -> _Found:
    need: Any = route.need
    if isinstance(need, AnyToken | Open):
        return
    if not isinstance(need, Scoped):
        yield "need", "expected Scoped(…), AnyToken() or Open()"
        return
    words = (need.resource, *need.actions)
    if not need.actions or not all(_WORD.fullmatch(word) for word in words):
        yield "need", "a scope is made of a resource and actions, as Scoped('orders', ('read',))"
    elif known := sorted(action for resource, action in _GRANTED if resource == need.resource):
        for action in need.actions:
            if action not in known:
                scopes = ", ".join(f"{need.resource}:{one}" for one in known)
                yield "need", f"no scope {need.resource}:{action}; there are: {scopes}"
    if need.parameter is not None and need.parameter not in _parameters(route.template):
        yield "need", f"{need.parameter!r} is no parameter of {route.template}"
    if need.listing:
        yield "need", "`listing` is for lists of ours, which are filtered by the ids of scopes"


def _shapes(route: CustomRoute) -> _Found:
    for name in ("query", "body"):
        shape = getattr(route, name)
        if shape is not None and not _declares(shape):
            yield name, "expected a class of attrs with fields of legation.api.fields"
    if route.body is not None and route.method == "GET":
        yield "body", "is not allowed together with the method GET"
    if route.result is not None:
        try:
            shape_of(route.result)
        except Unfit as error:
            yield "result", f"the type {error}"
    if not callable(route.handler):
        yield "handler", "expected a function"
    elif not _takes(route.handler, 1 + (route.query is not None) + (route.body is not None)):
        given = ["call", *(name for name in ("query", "body") if getattr(route, name) is not None)]
        yield "handler", f"has to take ({', '.join(given)})"


def _declares(shape: Any) -> bool:
    try:
        fields_of(shape)
    except (NotAnAttrsClassError, TypeError, KeyError):
        return False
    return True


def _takes(handler: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(handler).bind(*range(count))
    except (TypeError, ValueError):
        return False
    return True


def _collisions(routes: Sequence[Any]) -> Iterator[Fault]:
    """Yield what two routes have in common that only one may have."""
    operations = {route.operation: "one of our routes" for route in ROUTES}
    places: dict[tuple[str, tuple[str, ...]], str] = {}
    names: dict[tuple[str, ...], str] = {}
    for index, route in enumerate(routes):
        if not isinstance(route, CustomRoute):
            continue
        here = f"routes[{index}]"
        if (first := operations.setdefault(route.operation, here)) != here:
            yield Fault(f"{here}.operation", f"{route.operation!r} is the id of {first}")
        parts = route.template.split("/")
        open_parts = tuple("{}" if part.startswith("{") else part for part in parts)
        if (first := places.setdefault((route.method, open_parts), here)) != here:
            yield Fault(f"{here}.template", f"{route.method} {route.template} is that of {first}")
        for at, part in enumerate(parts):
            if part.startswith("{") and names.setdefault(open_parts[:at], part) != part:
                other = names[open_parts[:at]]
                sentence = f"{part} is called {other} in another route: one place has one name"
                yield Fault(f"{here}.template", sentence)
