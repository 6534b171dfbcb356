"""Agents and teams, as lists and one by one."""

from __future__ import annotations

from collections.abc import Iterable

from ..access.decide import AllowOnly
from ..effects import Program
from ..messages import Answer, encoded_json_response
from ..refusals import NotFound, Refusal
from ..registry import Component
from .call import Call

__all__ = ["component", "get_agent", "get_team", "list_agents", "list_teams"]


def list_agents(call: Call) -> Program[Answer | Refusal]:
    """Return the agents that the caller may read or run."""
    return (yield from _list(call, "agent"))


def list_teams(call: Call) -> Program[Answer | Refusal]:
    """Return the teams that the caller may read or run."""
    return (yield from _list(call, "team"))


def get_agent(call: Call) -> Program[Answer | Refusal]:
    """Return one agent."""
    return (yield from _get(call, "agent"))


def get_team(call: Call) -> Program[Answer | Refusal]:
    """Return one team with its members."""
    return (yield from _get(call, "team"))


def component(call: Call, kind: str) -> Component | NotFound:
    """Return the agent or team that the path names."""
    found = call.registry.components(kind).get(call.params[f"{kind}_id"])
    return found or NotFound(f"{kind.capitalize()} not found")


def _list(call: Call, kind: str) -> Program[Answer | Refusal]:
    hosted: Iterable[Component] = call.registry.components(kind).values()
    if isinstance(call.decision, AllowOnly):
        ids = call.decision.ids
        hosted = [item for item in hosted if item.id in ids]
    everything = call.principal.sees_all
    shown = [item.admin_fragment if everything else item.fragment for item in hosted]
    return encoded_json_response(200, b"[" + b",".join(shown) + b"]")
    yield  # a program without effects


def _get(call: Call, kind: str) -> Program[Answer | Refusal]:
    found = component(call, kind)
    if isinstance(found, NotFound):
        return found
    return encoded_json_response(200, _fragment(call, found))
    yield


def _fragment(call: Call, item: Component) -> bytes:
    """Return the description; instructions are shown to those who see everything."""
    return item.admin_fragment if call.principal.sees_all else item.fragment
