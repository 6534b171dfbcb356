"""The sender of metrics: at an interval it hands an exporter what the meter of a platform counted.

It is a task of its own, so that an exporter that waits holds up no line of the log and no span.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import anyio
import anyio.to_thread
from attrs import field

from legation.incidents import where
from legation.observability.genai_metrics import Instrument, list_instruments
from legation.values import define

from .logs import Write, quiet
from .resources import Resources

if TYPE_CHECKING:
    from legation import Platform

__all__ = ["MetricsExporter", "MetricsSender"]


class MetricsExporter(Protocol):
    """The exporter of metrics, see `legation_host.otel_metrics`."""

    def export(self, instruments: Sequence[Instrument], since_us: int, now_us: int) -> None:
        """Take the numbers of the time from `since_us` to `now_us`; called from a thread."""
        ...

    def close(self) -> None:
        """Let go of what is open."""
        ...


@define(eq=False)
class MetricsSender:
    """Sends the metrics of one platform, from its start to its end.

    Attributes:
        exporter: Takes them.
        interval_seconds: The time between two exports.
        log: Is told of an exporter that raises something.
    """

    exporter: MetricsExporter
    interval_seconds: float = 60.0
    log: Write = quiet
    _since_us: int = field(default=0, init=False)

    async def serve(self, platform: Platform, host: Resources) -> None:
        """Go on until cancelled."""
        self._since_us = host.clock()
        while True:
            await anyio.sleep(self.interval_seconds)
            await self._send(platform, host)

    async def end(self, platform: Platform, host: Resources) -> None:
        """Send the last numbers; the caller shields it."""
        await self._send(platform, host)
        await anyio.to_thread.run_sync(self.exporter.close)

    async def _send(self, platform: Platform, host: Resources) -> None:
        """Send the numbers by now; they are read here, and given to a thread."""
        instruments = list_instruments(platform.context.meter)
        if not instruments:
            return
        export = partial(self.exporter.export, instruments, self._since_us, host.clock())
        try:
            await anyio.to_thread.run_sync(export, abandon_on_cancel=True)
        except Exception as error:  # noqa: BLE001 (no exporter ends the host)
            self.log("warning", "metrics_not_sent", {"reason": where(error)})
