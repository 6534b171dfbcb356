"""Databases: where each stands, what a migration would do, and doing it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, TypeAlias

from ...access.decide import AllowOnly
from ...effects import Log, Program, RandomBytes, ThisNode, Transact
from ...http.bodies import JsonObject, Reader
from ...http.messages import Answer, Response, json_response
from ...http.refusals import BadRequest, Fault, Internal, Invalid, NotFound, Refusal
from ...migrations.catalogue import Catalogue
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
from ...migrations.plan import Drift, Move, Plan, PlanRefusal, plan
from ...migrations.version import MalformedVersion, Version, parse_version
from ...store.failures import NotServed, StoreFailure
from ...store.health import REASONS
from ...store.units import Dialect
from ...values import frozen
from ..call import Call

__all__ = [
    "describe_database",
    "describe_last_look",
    "get_database",
    "get_migrations",
    "get_plan",
    "list_databases",
    "migrate_all",
    "migrate_one",
]

_PAGE: Final = 20
_MOST: Final = 100
_STATES: Final = {
    "Current": "current",
    "EmptyDatabase": "empty",
    "Behind": "behind",
    "AheadServed": "ahead",
    "AheadNotServed": "ahead",
    "Drifted": "drifted",
}
Target: TypeAlias = Version | None


def describe_database(call: Call, name: str) -> Program[dict[str, Any]]:
    """Return a database as clients see it, also one that does not answer."""
    try:
        reading = yield from Transact(name, ReadLedger())
    except StoreFailure:
        return {"id": name, "state": "unreachable", "serving": False}
    return _describe_reading(name, reading, call.registry.catalogue)


def describe_last_look(call: Call, name: str) -> dict[str, Any]:
    """Return a database as the last look at it found it, without asking it."""
    reading = call.surface.known.readings.get(name)
    condition = call.surface.known.conditions.get(name)
    if reading is None:
        told: dict[str, Any] = {"id": name, "state": "unreachable", "serving": False}
    else:
        told = _describe_reading(name, reading, call.registry.catalogue)
    if condition is not None:
        told |= {"state": condition.value, "serving": False, "detail": REASONS[condition]}
    return told


def _describe_reading(name: str, reading: LedgerReading, catalogue: Catalogue) -> dict[str, Any]:
    stands = assess_state(reading.state, catalogue, reading.dialect, catalogue.latest)
    return {
        "id": name,
        "engine": reading.dialect.value,
        "version": _version(reading),
        "latest": str(catalogue.latest),
        "state": _STATES[type(stands).__name__],
        "serving": stands.may_serve,
        "detail": stands.detail,
    }


def _version(reading: LedgerReading) -> str | None:
    """Return the version that the ledger names, None where it contradicts itself."""
    return None if isinstance(reading.state, Corrupt) else str(reading.state.version)


def list_databases(call: Call) -> Program[Answer | Refusal]:
    """Return the databases that the caller may read."""
    names = call.registry.databases.keys()
    only = call.decision.ids if isinstance(call.decision, AllowOnly) else names
    shown: list[dict[str, Any]] = []
    for name in names:
        if name in only:
            shown.append((yield from describe_database(call, name)))
    return json_response(200, shown)


def get_database(call: Call) -> Program[Answer | Refusal]:
    """Return one database."""
    name = _find_database(call)
    if isinstance(name, NotFound):
        return name
    return json_response(200, (yield from describe_database(call, name)))


def get_migrations(call: Call) -> Program[Answer | Refusal]:
    """Return where a database stands and what was done to it, the newest first."""
    name = _find_database(call)
    if isinstance(name, NotFound):
        return name
    read = call.reader()
    if isinstance(read, Invalid):
        return read
    page = read.integer("page", default=1, minimum=1)
    limit = read.integer("limit", default=_PAGE, minimum=1, maximum=_MOST)
    if faults := read.faults():
        return Invalid(faults)
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


def get_plan(call: Call) -> Program[Answer | Refusal]:
    """Return what a migration would do, statement by statement, and why it would be refused.

    The moves of one that is refused for what it discards alone are told, too.
    """
    name = _find_database(call)
    if isinstance(name, NotFound):
        return name
    read = call.reader()
    if isinstance(read, Invalid):
        return read
    target = _parse("query.target_version", read.text("target_version"))
    allow = read.boolean("allow_data_loss", default=False)
    faults = (*read.faults(), *((target,) if isinstance(target, Fault) else ()))
    if isinstance(target, Fault) or faults:
        return Invalid(faults)
    reading = yield from Transact(name, ReadLedger())
    catalogue = call.registry.catalogue
    way = _make_plan(catalogue, reading, target, allow_data_loss=True)
    refusal = _make_plan(catalogue, reading, target, allow_data_loss=allow)
    told = {
        "from_version": _version(reading),
        "to_version": str(target or catalogue.latest),
        "moves": _moves(way, reading.dialect) if isinstance(way, Plan) else [],
        "loses": list(way.loses) if isinstance(way, Plan) else [],
        "refused_by": None if isinstance(refusal, Plan) else refusal.detail,
    }
    return json_response(200, told)


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
class _Wanted:
    """A request for a migration, checked."""

    target: Target
    dry_run: bool
    allow_data_loss: bool


_AS_USUAL: Final = _Wanted(None, dry_run=False, allow_data_loss=False)


def migrate_one(call: Call) -> Program[Answer | Refusal]:
    """Migrate a database and return the version it reached."""
    name = _find_database(call)
    if isinstance(name, NotFound):
        return name
    wanted = yield from _read_wanted(call)
    if not isinstance(wanted, _Wanted):
        return wanted
    outcome = yield from _migrate(call, name, wanted)
    if not isinstance(outcome, Migrated):
        return (yield from _refuse(name, outcome))
    return (
        json_response(200, _describe_outcome(outcome))
        if outcome.moves
        else _answer_unchanged(outcome)
    )


def migrate_all(call: Call) -> Program[Answer | Refusal]:
    """Migrate every database; 207 tells which of them failed, and why."""
    wanted = yield from _read_wanted(call)
    if not isinstance(wanted, _Wanted):
        return wanted
    migrated: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for name in call.registry.databases:
        outcome = yield from _migrate(call, name, wanted)
        if isinstance(outcome, Migrated):
            migrated[name] = _describe_outcome(outcome)
        else:
            failed[name] = (yield from _refuse(name, outcome)).detail
    version = wanted.target or call.registry.catalogue.latest
    done = "rehearsed" if wanted.dry_run else "migrated"
    told = {"message": "", "databases": migrated}
    if not failed:
        told["message"] = f"All databases {done} successfully to version {version}"
        return json_response(200, told)
    counts = f"{len(migrated)}/{len(call.registry.databases)}"
    told["message"] = f"{done.capitalize()} {counts} databases to version {version}"
    return json_response(207, {**told, "failed": failed})


def _read_wanted(call: Call) -> Program[_Wanted | Refusal]:
    """Read the query and a JSON body; the target of the query counts first."""
    read = call.reader()
    if isinstance(read, Invalid):
        return read
    body = yield from call.json_object()
    if isinstance(body, Refusal):
        return body
    return _check_fields(read, body) if call.query or body else _AS_USUAL


def _check_fields(read: Reader, body: JsonObject) -> _Wanted | Invalid:
    first = _parse("query.target_version", read.text("target_version"))
    dry_run = read.boolean("dry_run", default=False)
    allow_data_loss = read.boolean("allow_data_loss", default=False)
    faults = list(read.faults())
    told = Reader("body", {name: (value,) for name, value in body.items()})
    second = _parse("body.target_version", told.text("target_version"))
    faults += told.faults()
    faults += [target for target in (first, second) if isinstance(target, Fault)]
    if faults or isinstance(first, Fault) or isinstance(second, Fault):
        return Invalid(tuple(faults))
    target = first if read.has("target_version") else second
    return _Wanted(target, dry_run, allow_data_loss)


def _parse(path: str, text: str | None) -> Target | Fault:
    if text is None:
        return None
    version = parse_version(text)
    if isinstance(version, MalformedVersion):
        return Fault(path, version.detail)
    return version


def _migrate(call: Call, name: str, wanted: _Wanted) -> Program[MigrationOutcome]:
    """Migrate `name`; where there is nothing to do, or it is refused, without taking a lock."""
    known = yield from _without_a_lock(call.registry.catalogue, name, wanted)
    if known is not None:
        return known
    node = yield from ThisNode()
    return (
        yield from migrate(
            name,
            call.registry.catalogue,
            wanted.target,
            actor=call.principal.subject or "",
            request_id=call.request_id,
            node=node,
            allow_data_loss=wanted.allow_data_loss,
            rehearse=wanted.dry_run,
        )
    )


def _without_a_lock(
    catalogue: Catalogue, name: str, wanted: _Wanted
) -> Program[Migrated | PlanRefusal | None]:
    """Return what the ledger alone tells of the outcome, None where that is not enough."""
    try:
        reading = yield from _ledger(name)
    except StoreFailure:
        return None
    allow = wanted.allow_data_loss
    way = _make_plan(catalogue, reading, wanted.target, allow_data_loss=allow)
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


def _refuse(name: str, outcome: MigrationOutcome) -> Program[Refusal]:
    """Planned and refused is the caller's to mend (400); tried and failed is ours (500)."""
    if not isinstance(outcome, MigrationFailed | MigrationBusy | MigrationUnknown):
        return BadRequest(outcome.detail)
    incident = (yield from RandomBytes(8)).hex()
    fields = (("incident", incident), ("database", name), ("outcome", type(outcome).__name__))
    yield from Log("error", "migration_failed", fields)
    return Internal(f"Failed to migrate database: {outcome.detail} (incident {incident})")


def _find_database(call: Call) -> str | NotFound:
    name = call.params["db_id"]
    return name if name in call.registry.databases else NotFound("Database not found")
