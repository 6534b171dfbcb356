"""Agents and teams, as lists and one by one."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from ...access.decide import Allow
from ...effects import Program
from ...hosted.registry import Component, Registry
from ...http.messages import Answer, Response, json_bytes_response
from ...http.refusals import NotFound, Refusal
from ..call import Call

__all__ = ["component", "get_agent", "get_team", "list_agents", "list_teams"]


def list_agents(call: Call) -> Program[Answer | Refusal]:
    """Return the agents that the caller may read or run."""
    return _list(call, "agent")


def list_teams(call: Call) -> Program[Answer | Refusal]:
    """Return the teams that the caller may read or run."""
    return _list(call, "team")


def get_agent(call: Call) -> Program[Answer | Refusal]:
    """Return one agent."""
    return _get(call, "agent")


def get_team(call: Call) -> Program[Answer | Refusal]:
    """Return one team with its members."""
    return _get(call, "team")


def component(call: Call, kind: str) -> Component | NotFound:
    """Return the agent or team that the path names."""
    found = call.registry.components(kind).get(call.params[f"{kind}_id"])
    return found or NotFound(f"{kind.capitalize()} not found")


def _list(call: Call, kind: str) -> Program[Answer | Refusal]:
    everything = call.principal.sees_all
    if isinstance(call.decision, Allow):
        return _whole(call.registry, kind, everything)
    ids = call.decision.ids
    hosted = call.registry.components(kind).values()
    return _list_components([item for item in hosted if item.id in ids], everything)
    yield  # a program without effects


@lru_cache(maxsize=4)
def _whole(registry: Registry, kind: str, everything: bool) -> Response:
    """Return the list for those to whom no part of it is barred: it never differs."""
    return _list_components(registry.components(kind).values(), everything)


def _list_components(hosted: Iterable[Component], everything: bool) -> Response:
    shown = [item.admin_fragment if everything else item.fragment for item in hosted]
    return json_bytes_response(200, b"[" + b",".join(shown) + b"]")


def _get(call: Call, kind: str) -> Program[Answer | Refusal]:
    found = component(call, kind)
    if isinstance(found, NotFound):
        return found
    return json_bytes_response(200, _fragment(call, found))
    yield


def _fragment(call: Call, item: Component) -> bytes:
    """Return the description; instructions are shown to those who see everything."""
    return item.admin_fragment if call.principal.sees_all else item.fragment
