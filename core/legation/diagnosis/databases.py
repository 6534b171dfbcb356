"""The reading of a database beside whoever serves it, and the judgement of what was read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from attrs import evolve, field

from ..effects import Now, Program, Transact
from ..findings import Finding, Severity, find
from ..hosted.registry import Registry
from ..migrations.ledger import Assessment, Fit, LedgerReading, ReadLedger, assess_state
from ..store.channel_states import HeldChannel, ListHeld
from ..store.failures import StoreFailure, WrongSchema
from ..store.inbox import INBOX
from ..store.leased_queue import CountItems, QueueDepth
from ..store.outbox import OUTBOX
from ..store.retention import FetchSweep
from ..store.run_rows import DAY_US
from ..store.surveys import MOST_ORPHANS, NodeSurvey, ReadServer, ServerReading, SurveyNodes
from ..values import frozen
from ..version import VERSION
from .clocks import judge_clock

__all__ = [
    "DatabaseFacts",
    "judge_database",
    "judge_failure",
    "read_database",
]

MOST_NAMED: Final = 5
"""So many nodes are named; of more, their number is told."""

RETENTION_DAYS: Final = 2
"""A sweep is done each day; after so many without one it is behind."""


@frozen
class DatabaseFacts:
    """The answers of a database about itself, as far as it was asked.

    Attributes:
        now_us: The clock of this machine, when the server said its own.
        spread_us: Half the time between the question and the answer.
        swept_us: When the last sweep began that came to its end; None where there was none.
    """

    ledger: LedgerReading | None = None
    server: ServerReading | None = None
    now_us: int = 0
    spread_us: int = 0
    nodes: NodeSurvey = NodeSurvey()
    inbox: tuple[QueueDepth, ...] = ()
    outbox: tuple[QueueDepth, ...] = ()
    held: tuple[HeldChannel, ...] = ()
    swept_us: int | None = None
    failure: StoreFailure | None = field(default=None, eq=False)


def read_database(registry: Registry, name: str) -> Program[DatabaseFacts]:
    """Return what the database `name` says; what came before a failure stays."""
    facts = DatabaseFacts()
    try:
        ledger = yield from Transact(name, ReadLedger())
        facts = evolve(facts, ledger=ledger)
        asked_us = yield from Now()
        server = yield from Transact(name, ReadServer())
        now_us = yield from Now()
        half_us = (now_us - asked_us) // 2
        facts = evolve(facts, server=server, now_us=asked_us + half_us, spread_us=half_us)
        if not _assess(registry, ledger).may_serve:
            return facts
        facts = evolve(facts, nodes=(yield from Transact(name, SurveyNodes())))
        facts = evolve(facts, inbox=(yield from Transact(name, CountItems(INBOX))))
        facts = evolve(facts, outbox=(yield from Transact(name, CountItems(OUTBOX))))
        facts = evolve(facts, held=(yield from Transact(name, ListHeld())))
        sweep = yield from Transact(name, FetchSweep())
        return evolve(facts, swept_us=sweep.swept_us)
    except StoreFailure as failure:
        return evolve(facts, failure=failure)


def judge_database(
    registry: Registry, name: str, facts: DatabaseFacts, connections: int = 0
) -> Iterator[Finding]:
    """Yield what is wrong with the database `name`.

    Args:
        registry: Of the platform.
        name: The id of the database.
        facts: What it said; that it failed is for whoever asked it to tell.
        connections: How many a node may open; 0 where they are not counted.
    """
    where = f"databases.{name}"
    if facts.ledger is not None:
        yield from _judge_schema(registry, name, facts.ledger)
    if facts.server is not None:
        yield from _judge_server(where, facts, facts.server, connections)
    yield from _judge_nodes(where, facts.nodes, round(registry.config.lease_seconds * 1_000_000))
    yield from _judge_letters(facts)
    for held in facts.held:
        message = f"is held, since its provider refuses the credentials ({held.reason})"
        yield find("channel_held", f"channels.{held.channel}", message)
    swept_us = facts.swept_us
    if swept_us is not None and registry.periods[name].kinds:
        days = (facts.now_us - swept_us) // DAY_US
        if days >= RETENTION_DAYS:
            message = f"was last swept {days} days ago, and [retention] asks for it each day"
            yield find("retention_behind", where, message)


def judge_failure(name: str, failure: StoreFailure, reason: str) -> Finding:
    """Return what a `failure` says of the database `name`; `reason` has it in words."""
    code = "schema_unknown" if isinstance(failure, WrongSchema) else "database_unreachable"
    return find(code, f"databases.{name}", f"cannot be read: {reason}")


def _assess(registry: Registry, ledger: LedgerReading) -> Assessment:
    catalogue = registry.catalogue
    return assess_state(ledger.state, catalogue, ledger.dialect, catalogue.latest)


def _judge_schema(registry: Registry, name: str, ledger: LedgerReading) -> Iterator[Finding]:
    stands = _assess(registry, ledger)
    if stands.may_serve:
        return
    message = f"is not served: {stands.detail[0].lower()}{stands.detail[1:]}"
    if stands.fit in (Fit.BEHIND, Fit.EMPTY):
        database = registry.databases[name]
        automatic = database.auto_migrate
        if automatic is None:
            automatic = database.url.startswith("sqlite:")
        severity: Severity = "medium" if automatic else "high"
        yield find("schema_behind", f"databases.{name}", message, severity)
    else:
        yield find("schema_unknown", f"databases.{name}", message)


def _judge_server(
    where: str, facts: DatabaseFacts, server: ServerReading, connections: int
) -> Iterator[Finding]:
    yield from judge_clock(where, facts.now_us, server.database_us, facts.spread_us)
    if not server.durable:
        message = "has fsync or full_page_writes off: a power cut can undo what it acknowledged"
        yield find("postgresql_not_durable", where, message)
    if server.connections is not None and server.connections < connections:
        message = (
            f"has {max(0, server.connections)} connections left, and a node may open {connections}"
        )
        yield find("connections_scarce", where, message)


def _judge_nodes(where: str, survey: NodeSurvey, lease_us: int) -> Iterator[Finding]:
    silent = [node for node in survey.nodes if survey.silent_us(node) > lease_us]
    for node in silent[:MOST_NAMED]:
        seconds = survey.silent_us(node) // 1_000_000
        message = f"has a node, {node.name}, that was last heard {seconds} seconds ago"
        yield find("node_silent", where, message)
    if (more := len(silent) - MOST_NAMED) > 0:
        yield find("node_silent", where, f"has {more} more nodes that are silent")
    if survey.orphans:
        count = f"{survey.orphans} or more" if survey.orphans == MOST_ORPHANS else survey.orphans
        yield find("runs_orphaned", where, f"has runs in progress whose node is dead: {count}")
    others = sorted({node.code_version for node in survey.nodes} - {VERSION})
    if others:
        named = ", ".join(others[:MOST_NAMED])
        message = f"has nodes of release {named}, and this is {VERSION}"
        yield find("releases_differ", where, message)


def _judge_letters(facts: DatabaseFacts) -> Iterator[Finding]:
    for depths, what in ((facts.inbox, "messages"), (facts.outbox, "replies")):
        for depth in depths:
            if depth.dead:
                message = f"has dead letters: {what} that were given up: {depth.dead}"
                yield find("dead_letters", f"channels.{depth.channel}", message)
