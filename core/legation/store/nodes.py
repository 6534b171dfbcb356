"""The nodes of a database, and the clock by which they are taken for dead.

A node is a row that beats.  Deleting the row is the death of the node: from then on its leases have
lapsed, and whoever hosts the work takes it up.  A node that was taken for dead and is not enters
again; what it holds is still its own where nobody has taken it, as the fence on each row says.

**The clock is the database's up-time**, which only beats advance.  Between two beats it advances as
the database's own clock does, unless more time passed than there can be between two beats, or less
than none: then the database was away, or everybody was, or a clock was set.  Such a *gap* counts as
the time between two beats, and every node that beat since the gap before it has a whole new lease.
So an outage, however long, is nobody's death, and no clock that is set is.
"""

from __future__ import annotations

import json
from typing import Any, Final

from attrs import evolve

from ..values import frozen
from .leases import fill_clock
from .units import Dialect, Sql, Statements, Unit, text_array

__all__ = [
    "BEATS",
    "SESSION_LOCKS",
    "Beat",
    "Beaten",
    "Bury",
    "ClusterClock",
    "OtherNode",
    "advance",
    "list_nodes",
]

BEATS: Final = 6
"""How often a node beats within a lease."""

_GAP_BEATS: Final = 2
"""So many beats apart, the database was away in between."""

_SUSPECT_BEATS: Final = 2
"""After so many beats without one, a node whose session has ended is taken for dead.

Not where it has yet to beat since a gap: the sessions of all may have ended in an outage.
"""

SESSION_LOCKS: Final = 1_279_608_391
"""The first key of the advisory locks by which sessions of PostgreSQL hold names of nodes."""


@frozen
class ClusterClock:
    """The up-time of a database, in microseconds.

    Attributes:
        up_us: The up-time at the last beat.
        seen_us: The database's own clock at the last beat.
        gap_us: The up-time at the last gap.
    """

    up_us: int = 0
    seen_us: int = 0
    gap_us: int = 0


def advance(clock: ClusterClock, database_us: int, lease_us: int) -> ClusterClock:
    """Return the clock at a beat of a node with leases of `lease_us`; a gap shows in `gap_us`.

    A clock that differs by less than a beat from one connection to the other makes no gap.
    """
    passed, beat_us = database_us - clock.seen_us, lease_us // BEATS
    if -beat_us <= passed <= _GAP_BEATS * beat_us:
        return evolve(clock, up_us=clock.up_us + max(0, passed), seen_us=database_us)
    up_us = clock.up_us + beat_us
    return ClusterClock(up_us, database_us, up_us)


_BEAT: Final = fill_clock(
    """insert into cluster (one, up_us, seen_us, gap_us, beats) values (1, 0, 0, 0, 1)
    on conflict (one) do update set beats = cluster.beats + 1
    returning up_us, seen_us, gap_us, beats, $CLOCK"""
)
_SET: Final = Sql(
    "update cluster set up_us = :up_us, seen_us = :seen_us, gap_us = :gap_us where one = 1"
)
_RENEW: Final = Sql(
    """update nodes set until_us = :until_us
    where beat_us >= :before_us and until_us < :until_us"""
)
_SILENT: Final = "node_id <> :node and (until_us < :up_us"
_SUSPECT: Final = "session_lock = 1 and beat_us < :suspect_us and beat_us >= :gap_us"
_DELETE: Final = Sql(
    f"delete from nodes where {_SILENT} or ({_SUSPECT})) returning node_id",
    f"""delete from nodes where {_SILENT} or (
        {_SUSPECT} and not exists (
            select 1 from pg_locks where locktype = 'advisory' and objsubid = 2
            and database = (select oid from pg_database where datname = current_database())
            and classid = {SESSION_LOCKS}
            and cast(objid as bigint) = (cast(hashtext(node_id) as bigint) & 4294967295)
        ))) returning node_id""",
)
_LIST: Final = Sql(
    """select node_id, place, hosts, started_us, beat_us, code_version,
        schema_version from nodes
    order by node_id"""
)
_ENTER: Final = Sql(
    """insert into nodes (node_id, started_us, beat_us, until_us, place, session_lock, hosts,
        code_version, schema_version)
    values (:node, :now_us, :up_us, :until_us, :place, :session_lock, :hosts,
        :code_version, :schema_version)
    on conflict (node_id) do update set beat_us = excluded.beat_us, until_us = excluded.until_us,
        place = excluded.place, session_lock = excluded.session_lock, hosts = excluded.hosts"""
)
_BURY: Final = Sql(
    "delete from nodes where node_id in (select value from json_each(:names)) returning node_id",
    "delete from nodes where node_id = any (:names) returning node_id",
)


@frozen
class OtherNode:
    """A node as the others see it.

    Attributes:
        place: Where its name is held.
        hosts: What it hosts, as `hosted` of its claims has it.
        started_us: When it entered, by its own clock.
        beat_us: When it beat last, by the up-time.
        code_version: The release that it runs.
        schema_version: The latest version of the schema that it knows.
    """

    name: str
    place: str
    hosts: tuple[str, ...]
    started_us: int
    beat_us: int
    code_version: str
    schema_version: str


@frozen
class Beaten:
    """The cluster as a beat left it.

    Attributes:
        database_us: The database's own clock, in microseconds since the epoch.
        up_us: The up-time of this beat.
        beats: How many beats the database has seen, of all nodes, with this one.
        last_us: The up-time of this node's beat before, as the database has it; None where this
            node was not there: it is new, or had been taken for dead.
        gap: The database, or everybody, was away before this beat.
        others: The nodes that live, but for this one.
        buried: The nodes that this beat took for dead.
    """

    database_us: int
    up_us: int
    beats: int
    last_us: int | None
    gap: bool
    others: tuple[OtherNode, ...]
    buried: tuple[str, ...]


@frozen
class Beat(Unit[Beaten]):
    """Say that `node` lives, and find who does not.  Done twice, it beats twice.

    `hosts` is what the node hosts, `now_us` its own clock, which nothing is compared with.
    """

    node: str
    lease_us: int
    now_us: int
    hosts: tuple[str, ...]
    place: str
    session_lock: bool
    code_version: str
    schema_version: str

    def statements(self, dialect: Dialect) -> Statements[Beaten]:
        """Yield the clock, which is the lock of those who beat, the burials, and the beat."""
        ((*read, beats, database_us),) = yield _BEAT()
        before = ClusterClock(*read)
        clock = advance(before, database_us, self.lease_us)
        yield _SET.of(clock)
        until_us, gap = clock.up_us + self.lease_us, clock.gap_us != before.gap_us
        if gap:
            yield _RENEW(until_us=until_us, before_us=before.gap_us)
        suspect_us = clock.up_us - _SUSPECT_BEATS * self.lease_us // BEATS
        times = {"up_us": clock.up_us, "gap_us": clock.gap_us, "suspect_us": suspect_us}
        dead = yield _DELETE(node=self.node, **times)
        nodes = yield from list_nodes()
        yield _ENTER.of(
            self,
            up_us=clock.up_us,
            until_us=until_us,
            session_lock=int(self.session_lock),
            hosts=json.dumps(self.hosts),
        )
        return Beaten(
            database_us=database_us,
            up_us=clock.up_us,
            beats=beats,
            last_us=next((node.beat_us for node in nodes if node.name == self.node), None),
            gap=gap,
            others=tuple(node for node in nodes if node.name != self.node),
            buried=tuple(name for (name,) in dead),
        )


def list_nodes() -> Statements[tuple[OtherNode, ...]]:
    """Return every node that nobody has taken for dead, by name."""
    return tuple(_make_node(*row) for row in (yield _LIST()))


def _make_node(name: str, place: str, hosts: str, *rest: Any) -> OtherNode:
    return OtherNode(name, place, tuple(json.loads(hosts)), *rest)


@frozen
class Bury(Unit[tuple[str, ...]]):
    """Take nodes for dead that are known to be; the names of those that were still there.

    A node that ends buries itself: what it could not give back is taken up at once.
    """

    names: tuple[str, ...]

    def statements(self, dialect: Dialect) -> Statements[tuple[str, ...]]:
        """Yield one deletion."""
        rows = yield _BURY(names=text_array(dialect, self.names))
        return tuple(name for (name,) in rows)
