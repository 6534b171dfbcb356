"""The facts about a database and its server for an operator, in few reads beside whoever serves.

None of them changes anything, and what they read is bounded.
"""

from __future__ import annotations

from typing import ClassVar, Final

from ..values import frozen
from .leases import fill_clock, has_lapsed
from .nodes import ClusterClock, OtherNode, list_nodes
from .run_rows import ACTIVE_RUN, EXECUTED_RUN
from .units import Dialect, ReadUnit, Statements

__all__ = ["MOST_ORPHANS", "NodeSurvey", "ReadServer", "ServerReading", "SurveyNodes"]

MOST_ORPHANS: Final = 1_000
"""So many runs are counted at most."""

_CLUSTER: Final = fill_clock("select up_us, seen_us, gap_us, $CLOCK from cluster where one = 1")
ANY_ORPHANS: Final = fill_clock(
    f"""select count(*) from (
        select 1 from runs where {ACTIVE_RUN} and {EXECUTED_RUN} and lease_us >= 0
        and {has_lapsed("runs")} limit {MOST_ORPHANS}) as orphans"""
)
# It asks the engine: none of it is prepared against the schema.
_SERVER: Final = fill_clock(
    "select sqlite_version(), $CLOCK, 1, null",
    """select current_setting('server_version'), $CLOCK,
        case when current_setting('fsync') = 'on' and current_setting('full_page_writes') = 'on'
            then 1 else 0 end,
        cast(current_setting('max_connections') as bigint)
            - cast(current_setting('superuser_reserved_connections') as bigint)
            - (select count(*) from pg_stat_activity where backend_type = 'client backend')""",
    registered=False,
)


@frozen
class NodeSurvey:
    """The nodes of a database as somebody sees them who is none of them.

    Attributes:
        clock: The up-time of the database at the last beat of any node.
        database_us: The database's own clock, now.
        nodes: Every node that nobody has taken for dead.
        orphans: The runs in progress whose node is gone, `MOST_ORPHANS` at most.
    """

    clock: ClusterClock = ClusterClock()
    database_us: int = 0
    nodes: tuple[OtherNode, ...] = ()
    orphans: int = 0

    def silent_us(self, node: OtherNode) -> int:
        """Return for how long `node` has not been heard, in microseconds."""
        passed = max(0, self.database_us - self.clock.seen_us)
        return max(0, self.clock.up_us + passed - node.beat_us)


@frozen
class SurveyNodes(ReadUnit[NodeSurvey]):
    """The nodes of the database, and what the dead ones have left."""

    def statements(self, dialect: Dialect) -> Statements[NodeSurvey]:
        """Yield three reads."""
        ((*clock, database_us),) = yield _CLUSTER()
        nodes = yield from list_nodes()
        ((orphans,),) = yield ANY_ORPHANS()
        return NodeSurvey(ClusterClock(*clock), database_us, nodes, orphans)


@frozen
class ServerReading:
    """The engine of a database.

    Attributes:
        version: As the engine itself says it.
        database_us: Its clock, in microseconds since the epoch.
        durable: Whether what it has acknowledged outlives a power cut, by its settings.
        connections: How many more it takes; None where there is no such limit.
    """

    version: str
    database_us: int
    durable: bool = True
    connections: int | None = None


@frozen
class ReadServer(ReadUnit[ServerReading]):
    """The engine of the database, whatever its schema."""

    needs_schema: ClassVar[bool] = False

    def statements(self, dialect: Dialect) -> Statements[ServerReading]:
        """Yield one read."""
        ((version, database_us, durable, connections),) = yield _SERVER()
        return ServerReading(version, database_us, bool(durable), connections)
