"""Databases: where each stands, what a migration would do, and doing it."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Final, TypeAlias

from attrs import evolve

from ...access.decide import AllowOnly, Deny, decide
from ...access.needs import DESTROY_DATABASE
from ...effects import Log, Program, RandomBytes, ThisNode, Transact
from ...http.bodies.reader import Reader
from ...http.messages import Response, json_response
from ...http.refusals import BadRequest, Forbidden, Internal, NotFound
from ...migrations.catalogue import CATALOGUE, Catalogue
from ...migrations.ledger import (
    Corrupt,
    LedgerReading,
    ReadLedger,
    ReadServedLedger,
    assess_state,
    history,
)
from ...migrations.migrate import (
    Migrated,
    MigrationBusy,
    MigrationFailed,
    MigrationOutcome,
    MigrationUnknown,
    migrate,
)
from ...migrations.plan import Drift, Move, Plan, PlanRefusal, UnknownVersion, plan
from ...migrations.schema_version import MalformedVersion, Version, parse_version
from ...store.audit import AppendAudit
from ...store.failures import NotServed, StoreFailure
from ...store.health import REASONS
from ...store.sizes import MeasureDatabase
from ...store.units import Dialect
from ...values import frozen
from ..call import Call, resource_of
from ..fields import boolean, declare, integer
from .cluster import describe_cluster, describe_nodes

__all__ = [
    "MigrateBody",
    "MigrateQuery",
    "MigrationsQuery",
    "PlanQuery",
    "describe_database",
    "describe_last_look",
    "find_database",
    "get_database",
    "get_migrations",
    "get_plan",
    "get_size",
    "list_databases",
    "migrate_all",
    "migrate_one",
]

Target: TypeAlias = Version | None

"""What a migration needs that may discard data."""


def describe_database(call: Call, name: str) -> Program[dict[str, Any]]:
    """Return a database as clients see it, also one that does not answer."""
    try:
        reading = yield from Transact(name, ReadLedger())
    except StoreFailure:
        return {"id": name, "state": "unreachable", "serving": False}
    description = _describe_reading(name, reading, call.registry.catalogue)
    return description | (yield from describe_nodes(call, name))


def describe_last_look(call: Call, name: str) -> dict[str, Any]:
    """Return a database as the last look at it found it, without asking it."""
    reading = call.surface.known.readings.get(name)
    condition = call.surface.known.conditions.get(name)
    if reading is None:
        description: dict[str, Any] = {"id": name, "state": "unreachable", "serving": False}
    else:
        description = _describe_reading(name, reading, call.registry.catalogue)
        description |= describe_cluster(call, name)
    member = call.context.cluster.members.get(name)
    if member is not None and member.doubt:
        description |= {"serving": False, "detail": member.doubt}
    if condition is not None:
        description |= {"state": condition.value, "serving": False, "detail": REASONS[condition]}
    return description


def _describe_reading(name: str, reading: LedgerReading, catalogue: Catalogue) -> dict[str, Any]:
    stands = assess_state(reading.state, catalogue, reading.dialect, catalogue.latest)
    return {
        "id": name,
        "engine": reading.dialect.value,
        "version": _version(reading),
        "latest": str(catalogue.latest),
        "state": stands.fit.value,
        "serving": stands.may_serve,
        "detail": stands.detail,
    }


def _version(reading: LedgerReading) -> str | None:
    """Return the version that the ledger names, None where it contradicts itself."""
    return None if isinstance(reading.state, Corrupt) else str(reading.state.version)


def list_databases(call: Call) -> Program[Response]:
    """Return the databases that the caller may read."""
    names = call.registry.databases.keys()
    only = call.decision.ids if isinstance(call.decision, AllowOnly) else names
    shown: list[dict[str, Any]] = []
    for name in names:
        if name in only:
            shown.append((yield from describe_database(call, name)))
    return json_response(200, shown)


def get_database(call: Call, name: str) -> Program[Response]:
    """Return one database."""
    return json_response(200, (yield from describe_database(call, name)))


@frozen
class MigrationsQuery:
    """A page of the history of a database."""

    page: int = integer("Which page, from 1", default=1, minimum=1)
    limit: int = integer("Migrations on a page", default=20, minimum=1, maximum=100)


def get_migrations(call: Call, name: str, query: MigrationsQuery) -> Program[Response]:
    """Return where a database stands and what was done to it, the newest first."""
    page, limit = query.page, query.limit
    reading = yield from Transact(name, ReadLedger())
    entries = [
        {
            "seq": entry.seq,
            "from_version": str(entry.from_version),
            "to_version": str(entry.to_version),
            "actor": entry.actor,
            "node": entry.node,
            "request_id": entry.request_id,
            "at_us": entry.at_us,
        }
        for entry in history(reading.entries, page=page, limit=limit)
    ]
    total = len(reading.entries)
    meta = {"page": page, "limit": limit, "total_count": total, "total_pages": -(-total // limit)}
    stands = _describe_reading(name, reading, call.registry.catalogue)
    return json_response(200, {**stands, "data": entries, "meta": meta})


def get_size(call: Call, name: str) -> Program[Response]:
    """Return how many bytes a database has, and of which tables; rows are estimated.

    Of a file of SQLite that has more than 256 MiB, `tables` is null: nobody counts them.
    """
    size = yield from Transact(name, MeasureDatabase())
    tables: list[dict[str, Any]] | None = None
    if size.tables is not None:
        tables = [{"name": t.name, "rows": t.rows, "bytes": t.size} for t in size.tables]
    return json_response(200, {"id": name, "bytes": size.size, "tables": tables})


def _read_version(read: Reader, name: str) -> Target:
    text = read.text(name)
    if text is None:
        return None
    version = parse_version(text)
    if isinstance(version, MalformedVersion):
        read.fault(name, version.detail)
        return None
    return version


_TARGET: Final = {
    "type": "string",
    "pattern": r"^v?[0-9]{1,9}(\.[0-9]{1,9}){0,2}$",
    "description": "A version of the schema; omitted means the latest",
    "examples": [str(CATALOGUE.latest)],
}


@frozen
class PlanQuery:
    """A migration that is thought of."""

    target_version: Target = declare(_TARGET, _read_version, nullable=True)
    allow_data_loss: bool = boolean("Go back although data is discarded", default=False)


def get_plan(call: Call, name: str, query: PlanQuery) -> Program[Response]:
    """Return what a migration would do, statement by statement, and why it would be refused.

    The answer has the moves also where only the loss of data is refused.
    """
    target, allow = query.target_version, query.allow_data_loss
    reading = yield from Transact(name, ReadLedger())
    catalogue = call.registry.catalogue
    way = _make_plan(catalogue, reading, target, allow_data_loss=True)
    refusal = _make_plan(catalogue, reading, target, allow_data_loss=allow)
    description = {
        "from_version": _version(reading),
        "to_version": str(target or catalogue.latest),
        "moves": _moves(way, reading.dialect) if isinstance(way, Plan) else [],
        "loses": list(way.loses) if isinstance(way, Plan) else [],
        "refused_by": None if isinstance(refusal, Plan) else refusal.detail,
    }
    return json_response(200, description)


def _make_plan(
    catalogue: Catalogue, reading: LedgerReading, target: Target, *, allow_data_loss: bool
) -> Plan | PlanRefusal:
    if isinstance(reading.state, Corrupt):
        return Drift(reading.state.detail)
    return plan(catalogue, reading.state, target, reading.dialect, allow_data_loss=allow_data_loss)


def _moves(way: Plan, dialect: Dialect) -> list[dict[str, Any]]:
    return [{**_move(move), "statements": _texts(move, dialect)} for move in way.moves]


def _move(move: Move) -> dict[str, Any]:
    return {
        "direction": move.direction.value,
        "version": str(move.migration.version),
        "title": move.migration.title,
        "loses": list(move.loses),
    }


def _texts(move: Move, dialect: Dialect) -> list[str]:
    """Return the statements of `move` with one space where they have any."""
    statements = (step.statement(dialect) for step in move.steps)
    return [" ".join(s.text(dialect).split()) for s in statements if s is not None]


# --- Migrating ---------------------------------------------------------------------------------


@frozen
class MigrateQuery:
    """A request for a migration."""

    target_version: Target = declare(
        _TARGET, _read_version, nullable=True, fault=MalformedVersion("latest").detail
    )
    dry_run: bool = boolean("Do it, and undo it", default=False)
    allow_data_loss: bool = boolean("Go back although data is discarded", default=False)


@frozen
class MigrateBody:
    """The target of a migration, as some clients send it; that of the query counts first."""

    target_version: Target = declare(_TARGET, _read_version)


def _with_target(query: MigrateQuery, body: MigrateBody) -> MigrateQuery:
    return query if query.target_version else evolve(query, target_version=body.target_version)


MayNotDestroy: TypeAlias = Annotated[Forbidden, "databases:destroy"]
NotPlanned: TypeAlias = Annotated[
    BadRequest, UnknownVersion(Version(99), CATALOGUE.versions).detail
]
NotMigrated: TypeAlias = Annotated[
    Internal,
    "Failed to migrate database: The migration failed (StatementFailed): the old version stands"
    " (incident 0f6d1c2b3a495867)",
]


def migrate_one(
    call: Call, name: str, query: MigrateQuery, body: MigrateBody
) -> Program[Response | NotPlanned | NotMigrated | MayNotDestroy]:
    """Migrate a database and return the version it reached.

    With `allow_data_loss` the scope `databases:destroy` is needed as well.
    """
    wanted = _with_target(query, body)
    if refused := _begin(call, name, wanted):
        return refused
    outcome = yield from _migrate(call, name, wanted)
    if not isinstance(outcome, Migrated):
        return (yield from _refuse(call, name, outcome))
    if outcome.moves and not outcome.rehearsed:
        call.audit.stored = call.success
    return (
        json_response(200, _describe_outcome(outcome))
        if outcome.moves
        else _answer_unchanged(outcome)
    )


def migrate_all(
    call: Call, query: MigrateQuery, body: MigrateBody
) -> Program[Response | MayNotDestroy]:
    """Migrate every database; 207 tells which of them failed, and why.

    With `allow_data_loss` the scope `databases:destroy` is needed as well.
    """
    wanted = _with_target(query, body)
    if refused := _begin(call, None, wanted):
        return refused
    migrated: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for name in call.registry.databases:
        outcome = yield from _migrate(call, name, wanted)
        if isinstance(outcome, Migrated):
            migrated[name] = _describe_outcome(outcome)
        else:
            failed[name] = (yield from _refuse(call, name, outcome)).detail
    version = wanted.target_version or call.registry.catalogue.latest
    done = "rehearsed" if wanted.dry_run else "migrated"
    description = {"message": "", "databases": migrated}
    if not failed:
        description["message"] = f"All databases {done} successfully to version {version}"
        return json_response(200, description)
    counts = f"{len(migrated)}/{len(call.registry.databases)}"
    description["message"] = f"{done.capitalize()} {counts} databases to version {version}"
    return json_response(207, {**description, "failed": failed})


def _begin(call: Call, name: str | None, wanted: MigrateQuery) -> MayNotDestroy | None:
    """Name target and flags in the trail; refuse who may not discard data.  None is all of them."""
    flags = {"allow_data_loss": wanted.allow_data_loss, "dry_run": wanted.dry_run}
    target = wanted.target_version or call.registry.catalogue.latest
    named = [] if name else ["all"]
    call.audit.detail = (*named, str(target), *(flag for flag, on in flags.items() if on))
    if not wanted.allow_data_loss:
        return None
    decision = decide(DESTROY_DATABASE, call.principal, name)
    if not isinstance(decision, Deny):
        return None
    call.audit.decision = decision
    return Forbidden(decision.scope)


def _migrate(call: Call, name: str, wanted: MigrateQuery) -> Program[MigrationOutcome]:
    """Migrate `name`; where there is nothing to do, or it is refused, without taking a lock.

    What is done stands in the audit trail of the database, in the same transaction.
    """
    known = yield from _without_a_lock(call.registry.catalogue, name, wanted)
    if known is not None:
        return known
    node = yield from ThisNode()
    named = call.audit.detail if call.params else call.audit.detail[1:]
    entry = call.audit.entry(call.success, resource_of((name, *named)))
    record = AppendAudit(node, (entry,), call.context.cluster.trail_keys.signing)
    return (
        yield from migrate(
            name,
            call.registry.catalogue,
            wanted.target_version,
            actor=call.principal.subject or "",
            request_id=call.request_id,
            node=node,
            allow_data_loss=wanted.allow_data_loss,
            rehearse=wanted.dry_run,
            record=record,
        )
    )


def _without_a_lock(
    catalogue: Catalogue, name: str, wanted: MigrateQuery
) -> Program[Migrated | PlanRefusal | None]:
    """Return what the ledger alone tells of the outcome, None where that is not enough."""
    try:
        reading = yield from _ledger(name)
    except StoreFailure:
        return None
    allow = wanted.allow_data_loss
    way = _make_plan(catalogue, reading, wanted.target_version, allow_data_loss=allow)
    if not isinstance(way, Plan):
        return way
    return None if way.moves else Migrated(way.from_version, way.to_version, (), wanted.dry_run)


def _ledger(name: str) -> Program[LedgerReading]:
    """Return the ledger of `name`, in one statement where the database is served."""
    try:
        return (yield from Transact(name, ReadServedLedger()))
    except NotServed:
        return (yield from Transact(name, ReadLedger()))


def _describe_outcome(outcome: Migrated) -> dict[str, Any]:
    return {
        "message": outcome.detail,
        "from_version": str(outcome.from_version),
        "to_version": str(outcome.to_version),
        "dry_run": outcome.rehearsed,
        "moves": [_move(move) for move in outcome.moves],
    }


@lru_cache(maxsize=8)
def _answer_unchanged(outcome: Migrated) -> Response:
    """Return the answer where there was nothing to do, as there mostly is."""
    return json_response(200, _describe_outcome(outcome))


def _refuse(call: Call, name: str, outcome: MigrationOutcome) -> Program[NotPlanned | NotMigrated]:
    """Planned and refused is the caller's to mend (400); tried and failed is ours (500)."""
    if not isinstance(outcome, MigrationFailed | MigrationBusy | MigrationUnknown):
        return BadRequest(outcome.detail)
    incident = (yield from RandomBytes(8)).hex()
    failed = type(outcome).__name__
    call.context.cluster.incidents.note(
        call.registry.default_database,
        incident,
        call.now_us,
        error_type=failed,
        operation=call.audit.arrival.operation,
        request_id=call.request_id,
    )
    fields = (("incident", incident), ("database", name), ("outcome", failed))
    yield from Log("error", "migration_failed", fields)
    return Internal(f"Failed to migrate database: {outcome.detail} (incident {incident})")


_NO_DATABASE: Final = "Database not found"
NoDatabase: TypeAlias = Annotated[NotFound, _NO_DATABASE]


def find_database(call: Call, _: object) -> str | NoDatabase:
    """Return the database that the path names."""
    name = call.params["db_id"]
    return name if name in call.registry.databases else NotFound(_NO_DATABASE)
