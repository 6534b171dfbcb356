"""The membership of this node in the clusters of its databases: its beats, and what they showed.

Each database has a cluster of its own, whose rules stand in `store.nodes`.  Whoever claims work
asks for the node's name by `enter`: it stands among the nodes before it stands on a lease.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from weakref import WeakSet

from attrs import define, field

from ..effects import HoldName, Log, Now, Program, ThisNode, Transact
from ..store.failures import StoreFailure
from ..store.nodes import BEATS, Beat, Beaten, Bury, OtherNode
from ..values import frozen
from ..version import VERSION
from .register import InFlight, Key

__all__ = ["Cluster", "Membership", "NodeTerms", "enter", "leave"]

_LATE_BEATS: Final = 2
"""After so many beats' time without one, whoever claims work beats before."""

_SKEW_PARTS: Final = 3
"""A clock that differs by more than this part of a lease is written to the log."""


@frozen
class NodeTerms:
    """The terms on which this node lives: how long it may be silent, and what it hosts."""

    lease_us: int
    hosts: tuple[str, ...]
    schema_version: str

    @property
    def beat_us(self) -> int:
        """The time between two beats, in microseconds."""
        return self.lease_us // BEATS


@define(eq=False)
class Membership:
    """This node among those of one database.

    Attributes:
        beaten_us: When it beat last, by its own clock; 0 while it is not known to be there.
        late_us: When whoever claims or stores something has to beat before.
        skew_us: How far its clock is ahead of the database's own, as far as that can be known.
        skewed: Whether the log says so.
        beats: How many beats the database had seen then, of all nodes.
        place: Where its name is held.
        others: The nodes that lived then, but for itself.
        restored: The database was found to be an older one than it was.
        reconciled_us: When its leases were last compared with what it executes.
        orphans: The leases of that time that no program stood for: run and attempt.
    """

    database: str
    terms: NodeTerms
    beaten_us: int = 0
    late_us: int = 0
    skew_us: int = 0
    skewed: bool = False
    beats: int = 0
    place: str = ""
    others: tuple[OtherNode, ...] = ()
    restored: bool = False
    reconciled_us: int = 0
    orphans: frozenset[tuple[str, int]] = frozenset()

    def is_due(self, now_us: int) -> bool:
        """Return whether it is time for a beat; a clock that was set back says so."""
        return not 0 <= now_us - self.beaten_us < self.terms.beat_us

    def try_to_beat(self, node: str) -> Program[None]:
        """Beat where no job does; a database that does not answer shows soon enough."""
        try:
            yield from self.beat(node)
        except StoreFailure:
            return

    def beat(self, node: str) -> Program[Beaten]:
        """Beat, and keep what that shows.

        Raises:
            StoreFailure: The database did not take it.
        """
        name_held = yield from HoldName(self.database, node)
        before_us = yield from Now()
        beat = Beat(
            node=node,
            lease_us=self.terms.lease_us,
            now_us=before_us,
            hosts=self.terms.hosts,
            place=name_held.place,
            session_lock=name_held.session,
            code_version=VERSION,
            schema_version=self.terms.schema_version,
        )
        beaten = yield from Transact(self.database, beat)
        after_us = yield from Now()
        logs = (*self._look_back(beaten), *self._compare(before_us, beaten.database_us, after_us))
        self.beaten_us, self.beats = before_us, beaten.beats
        self.late_us = before_us + _LATE_BEATS * self.terms.beat_us
        self.place, self.others = name_held.place, beaten.others
        for log in logs:
            yield from log
        return beaten

    def _look_back(self, beaten: Beaten) -> tuple[Log, ...]:
        """Return the lines for what became of the cluster since the last beat."""
        database = ("database", self.database)
        buried = tuple(
            Log("warning", "node_buried", (database, ("node", name))) for name in beaten.buried
        )
        if not self.late_us:
            return buried
        if beaten.beats <= self.beats:
            self.restored, self.reconciled_us, self.orphans = True, 0, frozenset()
            return (Log("error", "database_restored", (database,)), *buried)
        if beaten.entered:
            return (Log("warning", "node_entered_again", (database,)), *buried)
        if beaten.gap:
            return (Log("info", "cluster_gap", (database,)), *buried)
        return buried

    def _compare(self, before_us: int, database_us: int, after_us: int) -> tuple[Log, ...]:
        """Keep how far the clocks differ, which is nothing where the answer fits in between."""
        self.skew_us = max(before_us - database_us, 0) or min(after_us - database_us, 0)
        skewed = abs(self.skew_us) > self.terms.lease_us // _SKEW_PARTS
        before, self.skewed = self.skewed, skewed
        if skewed == before:
            return ()
        fields = (("database", self.database), ("seconds", self.skew_us / 1_000_000))
        return (
            Log("warning", "clock_differs", fields)
            if skewed
            else Log("info", "clock_agrees", fields),
        )

    def find_orphans(self, leased: frozenset[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
        """Return what no program stood for at two looks; `leased` are the leases without one now.

        One look is not enough: between the commit of a claim and its program lies a moment.
        """
        twice = self.orphans & leased
        self.orphans = leased - twice
        return tuple(sorted(twice))


@define(eq=False)
class Cluster:
    """The memberships of this process, by database, and all that it works on.

    Attributes:
        left: This process ends, and no longer beats.
        executing: The registers of runs, of the process and of its rounds: run and attempt.
        working: Those of messages and replies.
    """

    terms: NodeTerms
    left: bool = False
    executing: WeakSet[InFlight[int]] = field(factory=WeakSet[InFlight[int]])
    working: WeakSet[InFlight[Any]] = field(factory=WeakSet[InFlight[Any]])
    _members: dict[str, Membership] = field(factory=dict[str, Membership], init=False)

    @property
    def members(self) -> Mapping[str, Membership]:
        """The memberships, by database."""
        return self._members

    def member(self, database: str) -> Membership:
        """Return the membership in `database`."""
        if database not in self._members:
            self._members[database] = Membership(database, self.terms)
        return self._members[database]

    def executes(self, database: str, run_id: str, attempt: int) -> bool:
        """Return whether a program of this process executes the run."""
        key = (database, run_id)
        return any(register.holds(key, attempt) for register in self.executing)

    def works_on(self, key: Key, lease: object) -> bool:
        """Return whether a program of this process works under `lease`."""
        return any(register.holds(key, lease) for register in self.working)


def enter(cluster: Cluster, database: str) -> Program[tuple[str, int]]:
    """Return the name of this node, which stands among those of `database`, and its time.

    A node whose jobs run has beaten lately, so that nothing is asked.

    Raises:
        StoreFailure: The database did not take the beat that was due.
    """
    node = yield from ThisNode()
    now_us = yield from Now()
    member = cluster.member(database)
    if not member.beaten_us <= now_us < member.late_us:
        yield from member.beat(node)
    return node, now_us


def leave(cluster: Cluster) -> Program[None]:
    """Take this node for dead, as its process ends: what it could not give back is taken up."""
    node = yield from ThisNode()
    cluster.left = True
    for member in cluster.members.values():
        if not member.late_us:
            continue
        member.late_us = 0
        try:
            yield from Transact(member.database, Bury((node,)))
        except StoreFailure:
            continue  # its lease runs out
