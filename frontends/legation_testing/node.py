"""A process of a simulation, and what it holds in memory: the same as a real one."""

from __future__ import annotations

from typing import Any

from attrs import define, field

from legation.node_state import NodeState

__all__ = ["Node"]


@define(eq=False)
class Node:
    """One process among those that share the databases.

    Its memory is hints.  A node that is killed loses them, and a program must not need them.
    """

    name: str
    alive: bool = True
    state: NodeState[Any] = field(factory=NodeState[Any], repr=False)  # the waiters are tasks
