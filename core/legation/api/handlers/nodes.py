"""The nodes of the platform's databases, in one list, and what is unsafe in the configuration.

Nothing is asked of a database: all of it is what the last beat of this process showed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...access.posture import posture
from ...effects import Program, ThisNode
from ...http.messages import Response, json_response
from ...runs.membership import Membership
from ...runs.output import iso_time
from ...version import VERSION
from ..call import Call
from .cluster import find_member

__all__ = ["get_posture", "list_nodes"]


def list_nodes(call: Call) -> Program[Response]:
    """Return the living nodes of each database, by database and name.

    A node that hosts two databases is in the list twice, for it beats in each.  Of the others it is
    not known whether they are about to end.  `absent` names the databases in which this process
    has not beaten yet.
    """
    this = yield from ThisNode()
    data: list[dict[str, Any]] = []
    absent: list[str] = []
    for name in call.registry.databases:
        member = find_member(call, name)
        if member is None:
            absent.append(name)
        else:
            data += sorted(_describe_nodes(call, member, this), key=lambda node: node["node"])
    return json_response(200, {"data": data, "meta": {"absent": absent}})


def _describe_nodes(call: Call, member: Membership, this: str) -> Iterator[dict[str, Any]]:
    silent_us = max(0, call.now_us - member.beaten_us)
    yield {
        "db_id": member.database,
        "node": this,
        "this": True,
        "release": VERSION,
        "schema": member.terms.schema_version,
        "since": iso_time(member.started_us),
        "beat_seconds": _seconds(silent_us),
        "draining": call.context.draining,
        "hosts": list(member.terms.hosts),
    }
    for node in member.others:
        yield {
            "db_id": member.database,
            "node": node.name,
            "this": False,
            "release": node.code_version,
            "schema": node.schema_version,
            "since": iso_time(node.started_us),
            "beat_seconds": _seconds(max(0, member.up_us - node.beat_us) + silent_us),
            "draining": None,
            "hosts": list(node.hosts),
        }


def _seconds(passed_us: int) -> float:
    return round(passed_us / 1_000_000, 3)


def get_posture(call: Call) -> Response:
    """Return every setting that is unsafe, as `legation check` finds it."""
    registry = call.registry
    findings = posture(registry.config, call.surface.settings.door, registry.weak)
    return json_response(200, {"data": [found.as_json() for found in findings]})
