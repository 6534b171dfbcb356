"""Measurements for Prometheus: what processes have counted, and what waits in the databases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from ...effects import CallFunction, Program, Returned, Transact
from ...http.messages import Response, text_response
from ...http.refusals import Unavailable
from ...money import number_of
from ...observability.merging import Snapshot, Survey
from ...observability.prometheus import MEDIA_TYPE, Family, Labels, Sample, exposition
from ...store.channel_states import HeldChannel, ListHeld
from ...store.counts import CountRuns
from ...store.failures import StoreFailure
from ...store.inbox import INBOX
from ...store.leased_queue import CountItems, QueueDepth
from ...store.outbox import OUTBOX
from ...store.retention import FetchSweep, Sweep
from ...store.run_rows import DAY_US
from ...store.run_states import RunState
from ...values import frozen
from ...version import INTERFACE_VERSION, VERSION
from ..call import Call, Process
from .cluster import cluster_families
from .databases import describe_database

__all__ = ["measure", "show"]

_FRESH_US: Final = 5_000_000
"""How long what the databases said is good for: several scrapers cost them no more than one."""

_GATHER_SECONDS: Final = 8.0
"""For the other processes; Prometheus waits for ten seconds."""

_UNGATHERED: Final = "The other processes of this server do not answer"

_RUN_STATES: Final = (RunState.PENDING.value, RunState.RUNNING.value)
_LETTER_STATES: Final = ("ready", "leased", "dead")


@frozen
class _DatabaseCounts:
    """The counts of one database; `inbox` and `outbox` have a depth for each channel."""

    description: dict[str, Any]
    runs: dict[str, int] | None = None
    inbox: tuple[QueueDepth, ...] = ()
    outbox: tuple[QueueDepth, ...] = ()
    held: tuple[HeldChannel, ...] = ()
    sweep: Sweep | None = None

    @property
    def name(self) -> str:
        """The id of the database."""
        return str(self.description["id"])


def show(call: Call) -> Program[Response | Unavailable]:
    """Return every measurement, as text that Prometheus reads.

    Where several processes serve at this address, it is what all of them have counted; without an
    answer of theirs there is none, for counters of one alone would look like a restart.
    """
    telemetry = call.surface.telemetry
    if telemetry.gather is None:
        surveyed = yield from _renew(call, telemetry.surveyed)
        process = Process(call.context, call.surface, call.started_us, call.now_us)
        families = measure(process).families
    else:
        outcome = yield from CallFunction(telemetry.gather, {}, _GATHER_SECONDS)
        if not isinstance(outcome, Returned):
            return Unavailable(_UNGATHERED)
        whole: Snapshot = outcome.value
        surveyed = yield from _renew(call, whole.surveyed)
        families = whole.families
    text = exposition((*families, *surveyed[1]), telemetry.labels)
    no_store = ((b"cache-control", b"no-store"),)
    return text_response(200, text, MEDIA_TYPE, no_store)


def _renew(call: Call, surveyed: Survey | None) -> Program[Survey]:
    """Return what the databases said, `surveyed` if that is new enough."""
    if surveyed is None or call.now_us - surveyed[0] >= _FRESH_US:
        surveyed = (call.now_us, (yield from _survey(call)))
        call.surface.telemetry.surveyed = surveyed
    return surveyed


def measure(process: Process) -> Snapshot:
    """Return what `process` has counted, and the survey that it made last."""
    telemetry = process.surface.telemetry
    families = (
        *_process_families(process),
        *telemetry.families(),
        _build_ended_family(process),
        *_cost_families(process),
        _build_turned_away_family(process),
        *_share_families(process),
        *_file_families(process),
        *cluster_families(process),
    )
    return Snapshot(families, telemetry.surveyed)


def _process_families(process: Process) -> Iterator[Family]:
    names = (("version", VERSION), ("interface", INTERFACE_VERSION))
    yield Family("legation_build_info", "gauge", "What is running.", (Sample(1, names),), "max")
    started = Sample(process.started_us / 1e6)
    text = "When the newest process began to serve, in seconds since the epoch."
    yield Family("legation_start_time_seconds", "gauge", text, (started,), "max")


def _build_ended_family(process: Process) -> Family:
    names = ("kind", "component", "status")
    return Family(
        "legation_runs_ended_total",
        "counter",
        "Runs that ended, or paused.",
        tuple(
            Sample(count, tuple(zip(names, key, strict=True)))
            for key, count in sorted(process.context.ended.items())
        ),
    )


def _cost_families(process: Process) -> Iterator[Family]:
    """Yield what models have cost, where their prices are asked for."""
    if process.registry.prices is not None:
        yield Family(
            "legation_cost_usd_total",
            "counter",
            "What requests to models have cost, in US dollars.",
            tuple(
                Sample(number_of(cost), (("model", model),))
                for model, cost in sorted(process.context.costs.items())
            ),
        )


def _build_turned_away_family(process: Process) -> Family:
    names = ("channel", "reason")
    return Family(
        "legation_channel_turned_away_total",
        "counter",
        "Messages that were not answered: their sender is not allowed, or sent too many.",
        tuple(
            Sample(count, tuple(zip(names, key, strict=True)))
            for key, count in sorted(process.context.turned_away.items())
        ),
    )


def _share_families(process: Process) -> Iterator[Family]:
    shares = process.context.shares
    refused = sorted(shares.refused.items())
    yield Family(
        "legation_share_refusals_total",
        "counter",
        "Requests that were refused because a share was used up.",
        tuple(Sample(count, (("share", share),)) for share, count in refused),
    )
    places = shares.places()
    yield Family(
        "legation_share_used",
        "gauge",
        "How much of what callers share is used: places, and bytes of bodies.",
        tuple(Sample(slots.total, (("share", share),)) for share, slots in places.items()),
    )
    yield Family(
        "legation_share_capacity",
        "gauge",
        "How much there is of it.",
        tuple(Sample(slots.capacity, (("share", share),)) for share, slots in places.items()),
    )


_STALE: Final = {
    "keys": "For how long the JWKS file cannot be read; 0 where it can.",
    "revocations": "For how long the file with revocations cannot be read; 0 where it can.",
}


def _file_families(process: Process) -> Iterator[Family]:
    authenticator = process.surface.authenticator
    for name, file in authenticator.files if authenticator else ():
        seconds = Sample(file.stale_seconds(process.now_us))
        yield Family(f"legation_{name}_stale_seconds", "gauge", _STALE[name], (seconds,), "max")


# --- The databases -----------------------------------------------------------------------------


def _survey(call: Call) -> Program[tuple[Family, ...]]:
    found: list[_DatabaseCounts] = []
    for name in call.registry.databases:
        found.append((yield from _look(call, name)))
    return (*_families(found), *_sweep_families(call, found))


def _look(call: Call, name: str) -> Program[_DatabaseCounts]:
    description = yield from describe_database(call, name)
    if not description["serving"]:
        return _DatabaseCounts(description)
    try:
        runs = dict((yield from Transact(name, CountRuns())))
        inbox = yield from Transact(name, CountItems(INBOX))
        outbox = yield from Transact(name, CountItems(OUTBOX))
        held = yield from Transact(name, ListHeld())
        sweep: Sweep | None = None
        if call.registry.periods[name].kinds:
            sweep = yield from Transact(name, FetchSweep())
    except StoreFailure:
        return _DatabaseCounts(description)
    return _DatabaseCounts(description, runs, inbox, outbox, held, sweep)


def _families(found: Iterable[_DatabaseCounts]) -> Iterator[Family]:
    yield Family(
        "legation_database_serving",
        "gauge",
        "Whether the schema of a database is one that this process may serve.",
        tuple(Sample(int(f.description["serving"]), (("database", f.name),)) for f in found),
    )
    yield Family(
        "legation_schema_info",
        "gauge",
        "Where the schema of a database stands.",
        tuple(Sample(1, tuple(_schema(f.description))) for f in found),
    )
    yield Family(
        "legation_runs",
        "gauge",
        "Runs that wait for their turn or go on, on every node of the database.",
        tuple(
            Sample(f.runs.get(state, 0), (("database", f.name), ("status", state)))
            for f in found
            if f.runs is not None
            for state in _RUN_STATES
        ),
    )
    yield Family(
        "legation_inbox_messages",
        "gauge",
        "Messages of channels that were received and are not done with.",
        tuple(sample for f in found for sample in _depths(f.name, f.inbox)),
    )
    yield Family(
        "legation_outbox_replies",
        "gauge",
        "Replies of channels that are not sent.",
        tuple(sample for f in found for sample in _depths(f.name, f.outbox)),
    )
    yield Family(
        "legation_channel_held",
        "gauge",
        "Channels whose provider takes nothing with their credentials; their replies wait.",
        tuple(
            Sample(1, (("database", f.name), ("channel", held.channel)))
            for f in found
            for held in f.held
        ),
    )


def _sweep_families(call: Call, found: Iterable[_DatabaseCounts]) -> Iterator[Family]:
    """Yield what the sweeps of databases that have a retention have done."""
    swept = [((("database", f.name),), f.sweep) for f in found if f.sweep is not None]
    counts = [(labels, kind, one.count(kind)) for labels, one in swept for kind in one.kinds]
    yield Family(
        "legation_retention_pruned_total",
        "counter",
        "How much the retention has deleted in a database, on every node.",
        tuple(Sample(count, (*labels, ("kind", kind))) for labels, kind, count in counts),
    )
    yield Family(
        "legation_retention_last_sweep_timestamp_seconds",
        "gauge",
        "When the last sweep of a database began that came to its end.",
        tuple(
            Sample(one.swept_us / 1e6, labels) for labels, one in swept if one.swept_us is not None
        ),
    )
    yield Family(
        "legation_retention_behind_seconds",
        "gauge",
        "For how long the next sweep of a database is due; 0 where it is not.",
        tuple(Sample(_find_behind(call, one), labels) for labels, one in swept),
    )


def _find_behind(call: Call, sweep: Sweep) -> float:
    last_us = call.started_us if sweep.swept_us is None else sweep.swept_us
    return max(0, call.now_us - last_us - DAY_US) / 1e6


def _schema(description: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "database", description["id"]
    for name in ("engine", "version", "latest", "state"):
        yield name, str(description.get(name) or "")


def _depths(database: str, depths: Iterable[QueueDepth]) -> Iterator[Sample]:
    for depth in depths:
        place: Labels = (("database", database), ("channel", depth.channel))
        counts = (depth.ready, depth.leased, depth.dead)
        for state, count in zip(_LETTER_STATES, counts, strict=True):
            yield Sample(count, (*place, ("state", state)))
