"""The configuration of a platform in one answer: its components and its models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...hosted.registry import Component, Registry
from ...http.messages import Response, json_response
from ..call import Call

__all__ = ["get_config", "get_effective_config", "get_models"]


def get_config(call: Call) -> Response:
    """Return the platform's databases, agents, teams and channels."""
    registry = call.registry
    config = registry.config
    payload: dict[str, Any] = {
        "os_id": config.id,
        "name": config.name,
        "description": config.description,
        "available_models": [],
        "os_database": registry.default_database,
        "databases": list(registry.databases),
        **{name: _section(registry, tables) for name, tables in _SECTIONS.items()},
        "knowledge": {"dbs": [], "knowledge_instances": []},
        "agents": [_summary(agent) for agent in registry.agents.values()],
        "teams": [_summary(team) for team in registry.teams.values()],
        "workflows": [],
        "interfaces": _interfaces(registry),
    }
    return json_response(200, _present(payload))


def get_effective_config(call: Call) -> Response:
    """Return every setting with its value and where that comes from, without secrets.

    A key that is given its default value is shown as one that was not given.
    """
    return json_response(200, {"data": list(call.surface.settings.listed)})


def get_models(call: Call) -> Response:
    """Return each model once that an agent or a team uses, in the order of these."""
    registry = call.registry
    hosted = (*registry.agents.values(), *registry.teams.values())
    asked = (model for item in hosted if item.run is None for model in (item.model, *item.fallback))
    pairs = dict.fromkeys((model.id, model.provider) for model in asked)
    return json_response(200, [{"id": name, "provider": provider} for name, provider in pairs])


# What clients look up by section.  A gateway of AgentOS takes the first table of each of these
# sections, traces apart, and fails without one, also where nothing is kept.
_SECTIONS: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "session": {"tables": ("sessions",)},
    "metrics": {"tables": ("metrics",)},
    "memory": {"tables": ("memories",)},
    "evals": {"tables": ("eval_runs",)},
    "traces": {},
}


def _section(registry: Registry, tables: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return a section of the configuration: each database, and its tables there."""
    return {
        "dbs": [
            {"db_id": name, "domain_config": {"display_name": name}, **tables}
            for name in registry.databases
        ]
    }


def _summary(item: Component) -> dict[str, Any]:
    return _present(
        {
            "id": item.id,
            "name": item.name,
            "description": item.description,
            "db_id": item.database,
            "mode": item.mode,
        }
    )


def _interfaces(registry: Registry) -> list[dict[str, str]]:
    return [
        {"type": channel.codec.kind, "version": "1.0", "route": f"/{name}"}
        for name, channel in registry.channels.items()
        if channel.codec.receives
    ]


def _present(payload: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in payload.items() if value is not None}
