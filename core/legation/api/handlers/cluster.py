"""The cluster of a database as an operator sees it: who lives, and by how much clocks differ.

Nothing is asked of a database: all of it is what the last beat of this process showed.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ...effects import Program, ThisNode
from ...observability.prometheus import Family, Labels, Sample
from ...runs.membership import Membership
from ...version import VERSION
from ..call import Call, Process

__all__ = ["cluster_families", "describe_cluster", "describe_nodes", "find_member"]

_AHEAD = "The clock of this machine is {:.1f} seconds ahead of the database's: set it right"
_BEHIND = "The clock of this machine is {:.1f} seconds behind the database's: set it right"


def describe_cluster(call: Call, name: str) -> dict[str, Any]:
    """Return the cluster of the database `name`; nothing before the first beat there."""
    member = find_member(call, name)
    if member is None:
        return {}
    seconds = member.skew_us / 1_000_000
    description: dict[str, Any] = {
        "nodes": len(member.others) + 1,
        "clock_skew_seconds": round(seconds, 3),
    }
    if member.skewed:
        sentence = _AHEAD if seconds > 0 else _BEHIND
        description["warning"] = sentence.format(abs(seconds))
    if member.unhosted:
        description["unhosted"] = [
            {
                "component": each.component,
                "runs": each.runs,
                "oldest": _format_time(each.oldest_us),
                "run_id": each.run_id,
            }
            for each in member.unhosted
        ]
    return {"cluster": description}


def describe_nodes(call: Call, name: str) -> Program[dict[str, Any]]:
    """Return the cluster of the database `name`, for administrators with the nodes by name."""
    description = describe_cluster(call, name)
    member = find_member(call, name)
    principal = call.principal
    if member is not None and (principal.admin or principal.trusted):
        node = yield from ThisNode()
        nodes = [(node, VERSION, member.started_us)]
        nodes += [(each.name, each.code_version, each.started_us) for each in member.others]
        description["cluster"]["members"] = [
            {"node": name, "release": release, "since": _format_time(since_us)}
            for name, release, since_us in sorted(nodes)
        ]
    return description


def cluster_families(process: Process) -> Iterator[Family]:
    """Yield what this process knows of the nodes of its databases."""
    found: list[tuple[Labels, Membership]] = [
        ((("database", member.database),), member)
        for member in (find_member(process, name) for name in process.registry.databases)
        if member is not None
    ]
    yield Family(
        "legation_nodes",
        "gauge",
        "Nodes of a database that live, this one among them, as its last beat showed.",
        tuple(Sample(len(member.others) + 1, labels) for labels, member in found),
        "max",
    )
    yield Family(
        "legation_clock_skew_seconds",
        "gauge",
        "How far the clock of this machine is ahead of that of a database.",
        tuple(Sample(round(member.skew_us / 1e6, 3), labels) for labels, member in found),
        "max",
    )
    yield Family(
        "legation_nodes_lost_total",
        "counter",
        "Nodes of a database that this process has taken for dead.",
        tuple(Sample(member.buried, labels) for labels, member in found),
    )
    yield Family(
        "legation_unhosted_runs",
        "gauge",
        "Sessions that wait for a run of what no living node hosts, by that.",
        tuple(_count_unhosted(found)),
        "max",
    )


def _count_unhosted(
    found: list[tuple[Labels, Membership]],
) -> Iterator[Sample]:
    for labels, member in found:
        for each in member.unhosted:
            yield Sample(each.runs, (*labels, ("component", each.component)))


def find_member(process: Process | Call, name: str) -> Membership | None:
    """Return this node's part in the database `name`; None before its first beat there."""
    member = process.context.cluster.members.get(name)
    return member if member is not None and member.late_us else None


def _format_time(at_us: int) -> str:
    at = datetime.fromtimestamp(at_us / 1_000_000, UTC)
    return at.isoformat().replace("+00:00", "Z")
