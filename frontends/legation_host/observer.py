"""The observer of a platform: it takes lines to the request log, and spans to an exporter.

The platform keeps both for a moment; here they are taken away a batch at a time, off the event
loop, so that a request costs no writing.  The numbers that the host alone knows go the other way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import anyio
import anyio.to_thread
from attrs import field

from legation.observability.prometheus import Labels
from legation.observability.request_log import Gauge, Gauges
from legation.observability.spans import Recorder, Span
from legation.values import define

from .databases import Database
from .hub import Hub
from .logs import WriteLines
from .resources import Resources

if TYPE_CHECKING:
    from legation import Platform

__all__ = ["Exporter", "Observer", "database_gauges", "hub_gauges", "process_gauges"]

PAUSE: Final = 0.25
"""Seconds between two batches; what was kept for so long is lost when the process is killed."""

QUIET_PAUSE: Final = 1.0
"""Seconds between two looks at the gauges, where there is nothing else to do."""


class Exporter(Protocol):
    """The exporter of spans, see `legation_host.otel`."""

    def export(self, spans: Sequence[Span]) -> None:
        """Take `spans`; called from a thread."""
        ...

    def close(self) -> None:
        """Send what is left."""
        ...


@define(eq=False)
class Observer:
    """The observer of one platform, from its start to its end.

    Attributes:
        write_lines: Takes the request log, a line for each request; without it none is kept.
        exporter: Takes spans; without one none are recorded.
        labels: On every measurement of this process, where several answer at one address.
        sources: Asked for their gauges now and then, on the event loop.
    """

    write_lines: WriteLines | None = None
    exporter: Exporter | None = None
    labels: Labels = ()
    sources: list[Callable[[], Gauges]] = field(factory=list[Callable[[], Gauges]])
    _recorder: Recorder | None = field(default=None, init=False)

    def begin(self, platform: Platform) -> None:
        """Choose what `platform` records; call it before the platform starts."""
        platform.telemetry.labels = self.labels
        if self.write_lines is not None:
            platform.telemetry.keep_lines()
        if self.exporter is not None:
            self._recorder = platform.record_spans()

    async def serve(self, platform: Platform, host: Resources) -> None:
        """Go on until cancelled."""
        busy = self.write_lines is not None or self.exporter is not None
        pause = PAUSE if busy else QUIET_PAUSE
        looked = -QUIET_PAUSE
        while True:
            if anyio.current_time() - looked >= QUIET_PAUSE:
                looked = anyio.current_time()
                self.look(platform, host)
            with anyio.CancelScope(shield=True):  # what was taken is written
                await self._take(platform, host)
            await anyio.sleep(pause)

    def look(self, platform: Platform, host: Resources) -> None:
        """Give `platform` the gauges as they are now."""
        platform.telemetry.gauges = self._gauges(host)

    async def end(self, platform: Platform, host: Resources) -> None:
        """Write what is left, also while being cancelled."""
        self.look(platform, host)
        with anyio.CancelScope(shield=True):
            await self._take(platform, host)
            if self.exporter is not None:
                await anyio.to_thread.run_sync(self.exporter.close)

    def _gauges(self, host: Resources) -> Gauges:
        gauges = {**process_gauges(), **database_gauges(host.databases), **hub_gauges(host.hub)}
        if self._recorder is not None:
            text = "Spans that were not taken in time."
            dropped = Gauge("counter", text, {(): self._recorder.dropped})
            gauges["legation_spans_dropped_total"] = dropped
        for source in self.sources:
            gauges.update(source())
        return gauges

    async def _take(self, platform: Platform, host: Resources) -> None:
        now_us = host.clock()
        lines = platform.telemetry.take_lines()
        if lines and self.write_lines is not None:
            for line in lines:
                if line.end_us is None:
                    line.end_us = now_us
            await anyio.to_thread.run_sync(self.write_lines, lines)
        if self._recorder is None or self.exporter is None:
            return
        if spans := self._recorder.take(now_us):
            await anyio.to_thread.run_sync(self.exporter.export, spans)


# --- What a host knows -------------------------------------------------------------------------

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def process_gauges() -> Gauges:
    """Return what Prometheus' own clients say of a process, as far as the system tells."""
    used = Gauge("counter", "CPU time used, in seconds.", {(): time.process_time()})
    gauges = {"process_cpu_seconds_total": used}
    try:
        with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123  a file that is no file
            resident = int(statm.read().split()[1]) * _PAGE
        descriptors = len(os.listdir("/proc/self/fd")) - 1  # noqa: PTH208  as many as it is
    except OSError:
        return gauges
    text = "Resident memory, in bytes."
    gauges["process_resident_memory_bytes"] = Gauge("gauge", text, {(): resident})
    gauges["process_open_fds"] = Gauge("gauge", "Open file descriptors.", {(): descriptors})
    return gauges


def database_gauges(databases: Mapping[str, Database]) -> Gauges:
    """Return what is known of each database: how its connections or its writer are used."""
    found: dict[str, dict[Labels, float]] = {}
    for name, database in databases.items():
        for what, value in database.usage().items():
            found.setdefault(what, {})[(("database", name),)] = value
    return {
        f"legation_database_{what}": Gauge(_kind(what), _DATABASE[what], values)
        for what, values in found.items()
    }


_DATABASE: Final = {
    "connections_limit": "Connections that may be open to PostgreSQL.",
    "connections_used": "Connections to PostgreSQL that are in use.",
    "connections_waiting": "Units of work that wait for a connection.",
    "units_waiting": "Units of work that wait for the writer of SQLite.",
    "units_total": "Units of work that the writer of SQLite was given.",
    "commits_total": "Transactions that carried them: fewer, where several shared one.",
}


def _kind(name: str) -> str:
    return "counter" if name.endswith("_total") else "gauge"


def hub_gauges(hub: Hub) -> Gauges:
    """Return what is held and awaited of the events of runs."""
    text = "Runs whose latest events are held in memory."
    waiting = "Programs that wait for the next event of a run."
    return {
        "legation_hub_runs": Gauge("gauge", text, {(): hub.state.runs_held}),
        "legation_hub_followers": Gauge("gauge", waiting, {(): hub.state.followers}),
    }
