"""Agents and teams, as lists and one by one."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache, partial

from ...access.decide import Allow
from ...hosted.registry import Component, Registry
from ...http.messages import Response, json_bytes_response
from ...http.refusals import NotFound
from ..call import Call
from ..route import Handler

__all__ = ["find_component", "get_component", "list_components"]


def find_component(kind: str, call: Call, _: object = None) -> Component | NotFound:
    """Return the agent or team that the path names."""
    found = call.registry.components(kind).get(call.params[f"{kind}_id"])
    return found or NotFound(f"{kind.capitalize()} not found")


def list_components(kind: str) -> Handler:
    """Return the handler that lists the agents or teams that the caller may read or run."""
    return partial(_list, kind)


def _list(kind: str, call: Call) -> Response:
    everything = call.principal.sees_all
    if isinstance(call.decision, Allow):
        return _whole(call.registry, kind, everything)
    ids = call.decision.ids
    hosted = call.registry.components(kind).values()
    return _list_components([item for item in hosted if item.id in ids], everything)


@lru_cache(maxsize=4)
def _whole(registry: Registry, kind: str, everything: bool) -> Response:
    """Return the list for those to whom no part of it is barred: it never differs."""
    return _list_components(registry.components(kind).values(), everything)


def _list_components(hosted: Iterable[Component], everything: bool) -> Response:
    shown = [item.admin_fragment if everything else item.fragment for item in hosted]
    return json_bytes_response(200, b"[" + b",".join(shown) + b"]")


def get_component(call: Call, found: Component) -> Response:
    """Return one agent, or one team with its members."""
    return json_bytes_response(200, _fragment(call, found))


def _fragment(call: Call, item: Component) -> bytes:
    """Return the description; instructions are shown to those who see everything."""
    return item.admin_fragment if call.principal.sees_all else item.fragment
