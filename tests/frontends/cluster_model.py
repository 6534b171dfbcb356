"""Two nodes of a cluster and the clock of their database, as the searches through protocols see it.

Every beat is the real one.  What is left out is how much of a lease has passed: a node that lives
beats in time, and one that does not is either still there, or was silent for a whole lease.  What
beats do in between is searched by `test_nodes_protocol`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from attrs import evolve, frozen

from legation.store.nodes import BEATS, Beat, Bury
from legation.store.units import Unit

__all__ = [
    "AWAY",
    "AWAY_US",
    "BACK",
    "BACK_US",
    "CLOCKS",
    "DEAD",
    "LEASE",
    "NODES",
    "NOW",
    "START",
    "STOPPED",
    "ClusterState",
    "Member",
    "Violation",
    "cluster_actions",
]

R = TypeVar("R")

NODES: Final = ("n1", "n2")
NOW: Final = 1_000_000_000
"""The database's own clock, in microseconds."""
CLOCKS: Final = {"n1": NOW + 90_000_000, "n2": NOW - 90_000_000}
"""The clocks of the nodes, which differ by six leases and more."""

_BEAT: Final = 5_000_000
_LEASE: Final = BEATS * _BEAT
_UP: Final = 500_000_000
AWAY_US: Final = 100 * _BEAT
BACK_US: Final = -50 * _BEAT

AWAY, BACK, LEASE = "the database is away", "its clock is set back", "a lease"
"""The actions that move the clock of the database."""
ALIVE, STOPPED, DEAD = "alive", "stopped", "dead"


class Violation(Exception):
    """A promise was broken."""


class Tables(Protocol):
    """A database on which units run."""

    def run(self, unit: Unit[R]) -> R:
        """Run `unit` as a host does."""
        ...

    def ask(self, text: str) -> list[Any]:
        """Run a statement of the test's own."""
        ...


@frozen
class Member:
    """A node: whether it lives, stands still or is gone.

    Attributes:
        there: The database has its row.
        renewed: It has beaten since the last gap.
    """

    state: str = ALIVE
    there: bool = True
    renewed: bool = True

    @property
    def works(self) -> bool:
        """Whether it takes up work."""
        return self.state == ALIVE


@frozen
class ClusterState:
    """The nodes, and by how much the database's clock differs from that of the last beat."""

    members: tuple[Member, ...] = (Member(), Member())
    passed: int = 0

    def member(self, node: str) -> Member:
        """Return the node of this name."""
        return self.members[NODES.index(node)]

    def put(self, node: str, **changes: Any) -> ClusterState:
        """Return the state with one node changed."""
        place = NODES.index(node)
        changed = evolve(self.members[place], **changes)
        members = (*self.members[:place], changed, *self.members[place + 1 :])
        return evolve(self, members=members)

    def load(self, tables: Tables) -> None:
        """Have the rows of this state."""
        tables.ask("delete from nodes")
        tables.ask(f"update database_clock set now_us = {NOW}")
        tables.ask(
            f"update cluster set up_us = {_UP}, seen_us = {NOW - self.passed}, gap_us = {_UP}"
        )
        for node, member in zip(NODES, self.members, strict=True):
            if member.there:
                beat_us = _UP if member.renewed else _UP - _BEAT
                tables.ask(
                    "insert into nodes (node_id, started_us, beat_us, until_us, code_version,"
                    f" schema_version) values ('{node}', 0, {beat_us}, {_UP + _LEASE}, '', '')"
                )

    def mirror(self) -> ClusterState:
        """Return the state with the names of the nodes exchanged."""
        return evolve(self, members=self.members[::-1])

    def beat(self, tables: Tables, node: str) -> ClusterState:
        """Have `node` beat, and read what became of all."""
        unit = Beat(node, _LEASE, CLOCKS[node], (), "", False, "", "")
        beaten = tables.run(unit)
        for name in beaten.buried:
            if self.member(name).state == ALIVE:
                raise Violation(f"{name} lives, and was taken for dead by {node}")
        return self.put(node, state=ALIVE)._read(tables)

    def _read(self, tables: Tables) -> ClusterState:
        text = "select node_id, beat_us >= gap_us from nodes cross join cluster"
        found = {name: bool(renewed) for name, renewed in tables.ask(text)}
        members = tuple(
            evolve(member, there=node in found, renewed=found.get(node, False))
            for node, member in zip(NODES, self.members, strict=True)
        )
        return ClusterState(members)

    def outlast(self, tables: Tables) -> ClusterState:
        """Let a lease of up-time pass: those who live beat, the others do not."""
        silent = [n for n in NODES if self.member(n).state != ALIVE]
        for node in silent:
            tables.ask(f"update nodes set until_us = {_UP - _BEAT} where node_id = '{node}'")
        after = self
        for node in NODES:
            if node not in silent:
                after = after.beat(tables, node)
        return after

    def bury(self, tables: Tables, node: str) -> ClusterState:
        """Take `node` for dead: the lock on its file is free."""
        tables.run(Bury((node,)))
        return self._read_as(tables)

    def _read_as(self, tables: Tables) -> ClusterState:
        return evolve(self._read(tables), passed=self.passed)


START: Final = ClusterState()
"""Both nodes have just beaten."""

Act: TypeAlias = Callable[[Tables], ClusterState]


def cluster_actions(
    cluster: ClusterState, leased: AbstractSet[str], *, stops: bool = True, aways: bool = True
) -> Iterator[tuple[str, Act]]:
    """Yield what may become of the nodes, which may stand still, and of the database.

    `leased` are those that leases of rows name.  A name is used again only where nothing is left
    of it, so that it stands for a new one.
    """
    steady = cluster.passed == 0
    living = [node for node in NODES if cluster.member(node).works]
    for node in NODES:
        yield from _member_actions(cluster, node, leased, stops=stops)
    if steady and living and any(m.there and not m.works for m in cluster.members):
        yield LEASE, cluster.outlast
    if aways and steady and all(cluster.member(node).renewed for node in living):
        yield AWAY, lambda _: evolve(cluster, passed=AWAY_US)
        yield BACK, lambda _: evolve(cluster, passed=BACK_US)


def _member_actions(
    cluster: ClusterState, node: str, leased: AbstractSet[str], *, stops: bool
) -> Iterator[tuple[str, Act]]:
    member = cluster.member(node)
    if member.state == DEAD:
        if member.there:
            yield f"burial of {node}", lambda tables: cluster.bury(tables, node)
        elif node not in leased:
            yield f"start of {node}", lambda tables: cluster.beat(tables, node)
        return
    if member.works and stops:
        yield f"stop of {node}", lambda _: cluster.put(node, state=STOPPED)
    if cluster.passed or not (member.works and member.renewed):
        yield f"beat of {node}", lambda tables: cluster.beat(tables, node)
    yield f"death of {node}", lambda _: cluster.put(node, state=DEAD)
