"""The membership of this node in the clusters of its databases: its beats, and what they showed.

Each database has a cluster of its own, whose rules stand in `store.nodes`.  Whoever claims work
asks for the node's name by `enter`: it stands among the nodes before it stands on a lease.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from attrs import field

from ..effects import NOW, THIS_NODE, HoldName, Log, Now, Nudge, Program, ThisNode, Transact
from ..shares.shares import Shares
from ..store.audit import ChainEnd
from ..store.audit_pages import NO_KEYS, KeyRing
from ..store.failures import StoreFailure
from ..store.nodes import BEATS, Beat, Beaten, Bury, OtherNode
from ..store.once import BEFORE_MARKS
from ..store.run_keeping import ExpireRuns, LeasedRuns
from ..store.unhosted import Unhosted
from ..values import define, frozen
from ..version import VERSION
from .incident_book import IncidentBook
from .register import Registers, SharedWork
from .topics import cancel_topic
from .watched_runs import WatchedRuns

__all__ = ["Cluster", "Membership", "NodeTerms", "compare_leases", "enter", "leave"]

RunAttempt: TypeAlias = tuple[str, int]
"""A run under execution: its id and the number of the attempt."""

# Asked for by every run, and made once.  `yield` is quicker than the `yield from` that knows the
# type of the answer.

_LATE_BEATS: Final = 2
"""After so many beats' time without one, whoever claims work beats before."""

_SKEW_PARTS: Final = 3
"""A clock that differs by more than this part of a lease is written to the log."""

_LOOKS: Final = 2
"""How often within a lease the leases of this node are compared with what it executes."""

RESTORED: Final = (
    "The database is an older one than this node knew, as where a backup was restored; the leases"
    " of this node are being compared with what it executes"
)
RETURNED: Final = (
    "This node had been taken for dead; its leases are being compared with what it executes"
)


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


@frozen
class _Known:
    """The facts known when a beat was sent: answers to beats side by side may overtake each other.

    Attributes:
        beaten: Whether this node was there.
        beats: How many beats the database had seen.
        up_us: Its up-time.
    """

    beaten: bool
    beats: int
    up_us: int


@define(eq=False)
class Membership:
    """This node among those of one database.

    Attributes:
        beaten_us: When it beat last, by its own clock; 0 while it is not known to be there.
        late_us: When whoever claims or stores something has to beat before.
        skew_us: How far its clock is ahead of the database's own, as far as that can be known.
        skewed: Whether the log says so.
        beats: How many beats the database had seen then, of all nodes.
        up_us: The up-time of the database then.
        place: Where its name is held.
        others: The nodes that lived then, but for itself.
        unhosted: What waited for nobody when it looked last.
        buried: How many nodes it has taken for dead.
        started_us: When it entered, by its own clock.
        doubt: Why it cannot be known which runs are its own; empty where it is known.
        compared_us: When its leases were last compared with what it executes.
        orphans: The leases of that time that no program stood for: run and attempt; None before.
        letters: The messages and replies that this process works on.
        defined: The digests of the definitions that this process has stored.
        shares: Those of the process, of which each node has its part.
        once: All nodes know texts that are stored once (`store/once`); not before the first beat.
        watched: The runs that are followed in this process.
    """

    database: str
    terms: NodeTerms
    beaten_us: int = 0
    late_us: int = 0
    skew_us: int = 0
    skewed: bool = False
    beats: int = 0
    up_us: int = 0
    place: str = ""
    others: tuple[OtherNode, ...] = ()
    unhosted: tuple[Unhosted, ...] = ()
    buried: int = 0
    started_us: int = 0
    doubt: str = ""
    compared_us: int = 0
    orphans: frozenset[RunAttempt] | None = None
    letters: SharedWork[Any] = field(factory=SharedWork[Any], repr=False)
    defined: set[str] = field(factory=set[str], repr=False)
    shares: Shares = field(factory=Shares, repr=False)
    once: bool = False
    _turn: int = field(default=0, init=False, repr=False)
    watched: WatchedRuns = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self.watched = WatchedRuns(self.database)

    def next_other(self, hosted: tuple[str, ...] | None = None) -> str | None:
        """Return another node, each in its turn, to be told of work; None where none is known.

        With `hosted` the work is not for what is among that: then it is one that hosts more.
        """
        others = self.others
        if hosted is not None:
            others = tuple(one for one in others if not {*one.hosts} <= {*hosted}) or others
        if not others:
            return None
        self._turn += 1
        # Each node begins elsewhere, or all of them would begin with the same.
        return others[(self.started_us + self._turn) % len(others)].name

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
        before_us, known = (yield from Now()), _Known(self.late_us > 0, self.beats, self.up_us)
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
        measured = self._measure(before_us, beaten.database_us, after_us)
        logs = (*self._look_back(known, beaten), *measured)
        self.beaten_us, self.beats, self.up_us = before_us, beaten.beats, beaten.up_us
        self.late_us = before_us + _LATE_BEATS * self.terms.beat_us
        self.place, self.others = name_held.place, beaten.others
        self.once = all(other.schema_version not in BEFORE_MARKS for other in beaten.others)
        self.started_us = self.started_us or before_us
        for log in (*self.bury(beaten.buried), *logs):
            yield from log
        return beaten

    def bury(self, names: tuple[str, ...]) -> tuple[Log, ...]:
        """Count the nodes that were taken for dead; return the lines for them."""
        self.buried += len(names)
        self.others = tuple(other for other in self.others if other.name not in names)
        self.shares.note_others(self.database, len(self.others))
        database = ("database", self.database)
        return tuple(Log("warning", "node_lost", (database, ("node", name))) for name in names)

    def _look_back(self, known: _Known, beaten: Beaten) -> tuple[Log, ...]:
        """Return the line for what became of this node, or of all, since it was `known`.

        Nothing of a database ever goes back: neither the count of its beats, nor its up-time, nor
        the beat of this node that it has stored last.
        """
        if not known.beaten:
            return ()
        database = ("database", self.database)
        last_us = known.up_us if beaten.last_us is None else beaten.last_us
        if beaten.beats <= known.beats or min(beaten.up_us, last_us) < known.up_us:
            self._begin_to_doubt(RESTORED)
            return (Log("error", "database_restored", (database,)),)
        if beaten.last_us is None:
            self._begin_to_doubt(RETURNED)
            return (Log("warning", "node_returned", (database,)),)
        return (Log("info", "cluster_paused", (database,)),) if beaten.gap else ()

    def _begin_to_doubt(self, reason: str) -> None:
        self.doubt, self.compared_us, self.orphans = reason, 0, None
        self.defined.clear()

    def _measure(self, before_us: int, database_us: int, after_us: int) -> tuple[Log, ...]:
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

    def is_to_compare(self, now_us: int) -> bool:
        """Return whether it is time to compare leases; in doubt, at every beat."""
        pause_us = self.terms.beat_us if self.doubt else self.terms.lease_us // _LOOKS
        return not 0 <= now_us - self.compared_us < pause_us


def _trust_nobody(_now_us: int) -> bytes:
    """Return that no tokens are judged."""
    return b""


@define(eq=False)
class Cluster:
    """The memberships of this process, by database, and all that it works on.

    Attributes:
        left: This process ends, and no longer beats.
        executing: The registers of runs, of the process and of its rounds: run and attempt.
        shares: Those of this process.
        incidents: Those of this process that are not written yet.
        trail_keys: Those that sign and verify the audit trail.
        chain_ends: The ends of the chains that this process writes, by database.
        trust: Returns, at a time, what differs whenever tokens are judged by something else.
    """

    terms: NodeTerms
    left: bool = False
    executing: Registers[int] = field(factory=Registers[int], repr=False)
    shares: Shares = field(factory=Shares, repr=False)
    incidents: IncidentBook = field(factory=IncidentBook, repr=False)
    trail_keys: KeyRing = NO_KEYS
    chain_ends: defaultdict[str, ChainEnd] = field(
        factory=lambda: defaultdict(ChainEnd), init=False, repr=False
    )
    trust: Callable[[int], bytes] = _trust_nobody
    _members: dict[str, Membership] = field(factory=dict[str, Membership], init=False)

    @property
    def members(self) -> Mapping[str, Membership]:
        """The memberships, by database."""
        return self._members

    def member(self, database: str) -> Membership:
        """Return the membership in `database`."""
        if database not in self._members:
            member = Membership(database, self.terms, shares=self.shares)
            member.watched.executing = self.executing
            self._members[database] = member
        return self._members[database]

    def executes(self, database: str, run_id: str, attempt: int) -> bool:
        """Return whether a program of this process executes the run."""
        key = (database, run_id)
        for register in self.executing:  # noqa: SIM110  `any` costs each run two calls
            if register.holds(key, attempt):
                return True
        return False

    def attempts_in(self, database: str) -> frozenset[RunAttempt]:
        """Return the runs of `database` that programs of this process execute."""
        return frozenset(
            (run_id, attempt)
            for register in self.executing
            for (_, run_id), attempt in register.at(database).items()
        )


def enter(cluster: Cluster, database: str) -> Program[tuple[str, int]]:
    """Return the name of this node, which stands among those of `database`, and its time.

    A node whose jobs run has beaten lately, so that nothing is asked.

    Raises:
        StoreFailure: The database did not take the beat that was due.
    """
    node: str = yield THIS_NODE
    now_us: int = yield NOW
    member = cluster.member(database)
    if not member.beaten_us <= now_us < member.late_us:
        yield from member.beat(node)
    if member.doubt:
        yield from compare_leases(cluster, member, node, now_us)
    return node, now_us


def compare_leases(cluster: Cluster, member: Membership, node: str, now_us: int) -> Program[None]:
    """Let the leases lapse that no program stands for, and stop programs without a lease.

    A lease counts as such at the second look: between the commit of a claim and its program lies a
    moment.  Programs are listed before the leases are read, since each begins after its claim: one
    whose lease is not read then has lost it.
    """
    if not member.is_to_compare(now_us):
        return
    database, before = member.database, member.orphans
    member.compared_us = now_us
    executed = cluster.attempts_in(database)
    leased = frozenset((yield from Transact(database, LeasedRuns(node))))
    own = {run_id for run_id, _ in leased}
    for run_id in sorted({run_id for run_id, _ in executed - leased} - own):
        yield from Nudge(cancel_topic(database, run_id))
    left = frozenset(run for run in leased if not cluster.executes(database, *run))
    if orphans := left & (before or frozenset()):
        yield from Transact(database, ExpireRuns(node, tuple(sorted(orphans))))
        fields = (("database", database), ("runs", len(orphans)))
        yield from Log("warning", "runs_orphaned", fields)
    if member.compared_us == now_us:  # else there is a new doubt
        member.orphans = left - orphans
        member.doubt = member.doubt if before is None and left else ""


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
