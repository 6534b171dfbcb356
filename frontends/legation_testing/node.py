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

    Attributes:
        name: Its name, as the databases have it.
        alive: False once it was killed or has ended.
        parked: The programs that wait until it runs again.
        state: Its memory of runs and waiters.
        place: Where its name is held: nodes of one place know at once that one of them was killed.
            A node whose place is empty is known by its silence alone.
        names: What it holds: a database, and a name in it.
        skew_us: How far its wall clock is ahead of that of the databases, in microseconds.
        stalled: Its programs get no turn; `parked` are those that would have had one.
    """

    name: str
    alive: bool = True
    place: str = "here"
    skew_us: int = 0
    names: set[tuple[str, str]] = field(factory=set[tuple[str, str]], repr=False)
    stalled: bool = False
    parked: list[Any] = field(factory=list[Any], repr=False)
    state: NodeState[Any] = field(factory=NodeState[Any], repr=False)  # the waiters are tasks
