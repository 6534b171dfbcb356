"""The telemetry of a platform: counters, the lines of the request log, the gauges of a host.

One for each process, changed by its event loop alone: counting takes no lock and asks for nothing.
What is to be written somewhere is only kept here; a host takes it away, a batch at a time.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final, TypeAlias

from attrs import field

from ..access.decide import Principal
from ..http.messages import Request
from ..shares.held import Held
from ..shares.refusal_counter import RefusalCounter
from ..store.refusals import NOWHERE
from ..values import define, frozen
from .merging import Snapshot, Survey
from .prometheus import Family, Labels, Merge, Sample, histogram
from .tracing import Trace

__all__ = [
    "Arrival",
    "Gauge",
    "Gauges",
    "RequestLine",
    "Telemetry",
    "method_label",
    "read_request_id",
]

_BUCKETS_US: Final = (1_000, 5_000, 25_000, 100_000, 500_000, 2_500_000, 10_000_000, 60_000_000)
_BUCKETS: Final = tuple(bound / 1e6 for bound in _BUCKETS_US)

_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._~-]{1,64}")
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_KEPT: Final = 100_000  # lines; the oldest give way where nobody takes them


# Made for every request: `frozen` would triple what making them costs.
@define
class Arrival:
    """A request, when it came, and the name it goes by; then, where it led.

    Attributes:
        template: The route's; no text of a caller stands here.
        operation: The route's; empty where there is none.
        trace: Where it belongs; None where nobody said so, and nobody records it.
        parent_id: The span that asked, where the request has one of its own.
        recorded: Whether it has a span of its own.
        caller: For whom an outer application vouches; None where the token says who asks.
        known: Whether a token that verifies, or an outer application, says who asks.
        reading: The bytes that it holds for its body.
        place: The places that it holds as a stream, or while it waits for a run.
    """

    request: Request
    now_us: int
    request_id: str
    template: str = NOWHERE
    operation: str = ""
    trace: Trace | None = None
    parent_id: str | None = None
    recorded: bool = False
    caller: Principal | None = None
    known: bool = False
    reading: Held | None = None
    place: Held | None = None


@define
class RequestLine:
    """One line of the request log.

    `status` is None where there was no answer yet, `end_us` where nobody could ask for the time;
    `cut` says that the request was given up before the end of its answer.
    """

    at_us: int
    end_us: int | None
    request_id: str
    method: str
    template: str
    operation: str
    status: int | None
    trace_id: str
    cut: bool = False


@frozen
class Gauge:
    """A number that a host knows; `kind` and `merge` as in `prometheus.Family`."""

    kind: str
    help: str
    values: Mapping[Labels, float]
    merge: Merge = "sum"


Gauges: TypeAlias = Mapping[str, Gauge]
"""By the name of the family."""


@define(eq=False)
class _Tally:
    """The durations of the requests of one kind."""

    counts: list[int] = field(factory=lambda: [0] * (len(_BUCKETS_US) + 1))
    total_us: int = 0


@define(eq=False)
class Telemetry:
    """The counters, gauges and lines of one process.

    Attributes:
        lines: The request log, from the oldest; None where nobody keeps one.
        after_all: Told of a request that was cut and then answered: its status, and when.
        gauges: What the host says of itself; it brings new ones now and then.
        labels: On every sample, where several processes answer at one address and do not know of
            each other.
        gather: Returns the measurements of all processes at this address as one, where they do.
        active: Requests that are being answered, streams included.
        streams: Streamed answers that are being sent.
        surveyed: What the databases said last, and when.
        refusals: The refusals that nobody is known for.
    """

    lines: deque[RequestLine] | None = None
    after_all: Callable[[Arrival, int, int], object] = lambda _, __, ___: None
    gauges: Gauges = field(factory=dict[str, Gauge])
    labels: Labels = ()
    gather: Callable[[], Awaitable[Snapshot]] | None = None
    active: int = 0
    streams: int = 0
    surveyed: Survey | None = None
    refusals: RefusalCounter = field(factory=RefusalCounter)
    _tallies: dict[tuple[str, str, int], _Tally] = field(
        factory=dict[tuple[str, str, int], _Tally], init=False
    )
    _cut: dict[tuple[str, str], int] = field(factory=dict[tuple[str, str], int], init=False)
    _given_up: tuple[Arrival, RequestLine | None] | None = field(default=None, init=False)

    def keep_lines(self) -> None:
        """Begin to keep a line for each request, for whoever calls `take_lines`."""
        self.lines = deque(maxlen=_KEPT)

    def take_lines(self) -> tuple[RequestLine, ...]:
        """Return the lines since this was called last."""
        if not self.lines:
            return ()
        taken = tuple(self.lines)
        self.lines.clear()
        return taken

    def count_answer(self, arrival: Arrival, status: int, end_us: int) -> None:
        """Count a request that was answered, or whose stream has come to its end, at `end_us`.

        One that is refused and nobody is known for has no line where there are too many of them.
        """
        took_us = end_us - arrival.now_us
        key = (arrival.template, arrival.request.method, status // 100)
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tally(key)
        tally.counts[bisect_left(_BUCKETS_US, took_us)] += 1
        tally.total_us += took_us
        logged = self.lines is not None
        if not arrival.known and 400 <= status < 500:
            refusals = self.refusals
            refusals.count(arrival.now_us, arrival.request.client, arrival.template, status)
            logged = logged and refusals.may_log(arrival.now_us)
        if logged and self.lines is not None:
            self.lines.append(_line(arrival, status, end_us))

    def count_cut(self, arrival: Arrival, status: int | None = None) -> None:
        """Count a request that was given up: its client has gone, or it took too long.

        A frontend that can still tell the client why says so by `instead`, at once.

        Nobody may ask for the time any more, so that whoever writes the line says when.
        """
        key = (arrival.template, method_label(arrival.request.method))
        self._cut[key] = self._cut.get(key, 0) + 1
        line = None
        if self.lines is not None:
            line = _line(arrival, status, None, cut=True)
            self.lines.append(line)
        if status is None:
            self._given_up = arrival, line

    def instead(self, arrival: Arrival, status: int, end_us: int) -> str:
        """Count an answer that a frontend gives by itself; return the request id it is to bear.

        Mostly the platform has heard nothing of the request, and `arrival` is what is known of it.
        Where the platform was asked, and has given up just now, the answer is to what it knows:
        then the request was not cut, but answered.
        """
        given_up, self._given_up = self._given_up, None
        if given_up is not None and given_up[0].request is arrival.request:
            arrival = self._take_back(*given_up)
            self.after_all(arrival, status, end_us)
        self.count_answer(arrival, status, end_us)
        return arrival.request_id

    def _take_back(self, arrival: Arrival, line: RequestLine | None) -> Arrival:
        """Unsay that a request was cut."""
        self._cut[arrival.template, method_label(arrival.request.method)] -= 1
        if self.lines and self.lines[-1] is line:
            self.lines.pop()
        return arrival

    def _tally(self, key: tuple[str, str, int]) -> _Tally:
        """Return the tally of a kind of request; methods that nobody has heard of are one kind."""
        template, method, status_class = key
        return self._tallies.setdefault((template, method_label(method), status_class), _Tally())

    def families(self) -> Iterator[Family]:
        """Return what was counted, and the gauges of the host."""
        yield Family(
            "legation_http_request_duration_seconds",
            "histogram",
            "Requests answered, by route, method and class of status; streams to their end.",
            tuple(sample for key in sorted(self._tallies) for sample in self._samples(key)),
        )
        yield Family(
            "legation_http_requests_cut_total",
            "counter",
            "Requests not answered to their end: the client left, or the process ended.",
            tuple(
                Sample(count, (("route", route), ("method", method)))
                for (route, method), count in sorted(self._cut.items())
            ),
        )
        yield Family(
            "legation_anonymous_refusals_total",
            "counter",
            "Requests refused of which nobody knows who asked, by status.",
            tuple(
                Sample(count, (("status", str(status)),))
                for status, count in sorted(self.refusals.totals.items())
            ),
        )
        yield Family(
            "legation_anonymous_refusals_unlogged_total",
            "counter",
            "Lines that the log does not have, because there were too many such requests.",
            (Sample(self.refusals.unlogged),) if self.refusals.unlogged else (),
        )
        yield _gauge("legation_http_requests_active", "Requests being answered.", self.active)
        yield _gauge("legation_http_streams_active", "Streamed answers being sent.", self.streams)
        for name, gauge in sorted(self.gauges.items()):
            samples = tuple(Sample(value, labels) for labels, value in gauge.values.items())
            yield Family(name, gauge.kind, gauge.help, samples, gauge.merge)

    def _samples(self, key: tuple[str, str, int]) -> tuple[Sample, ...]:
        template, method, status_class = key
        tally = self._tallies[key]
        labels = (("route", template), ("method", method), ("status", f"{status_class}xx"))
        return histogram(labels, _BUCKETS, tally.counts, tally.total_us / 1e6)


def _line(
    arrival: Arrival, status: int | None, end_us: int | None, *, cut: bool = False
) -> RequestLine:
    return RequestLine(
        arrival.now_us,
        end_us,
        arrival.request_id,
        method_label(arrival.request.method),
        arrival.template,
        arrival.operation,
        status,
        arrival.trace.trace_id if arrival.trace else "",
        cut,
    )


def read_request_id(request: Request) -> str:
    """Return the caller's request id if it has a sober one, else nothing."""
    sent = request.header(b"x-request-id")
    return sent.decode("ascii") if sent is not None and _REQUEST_ID.fullmatch(sent) else ""


def method_label(method: str) -> str:
    """Return `method`, or `other`: no text of a caller is a label."""
    return method if method in _METHODS else "other"


def _gauge(name: str, text: str, value: float) -> Family:
    return Family(name, "gauge", text, (Sample(value),))
