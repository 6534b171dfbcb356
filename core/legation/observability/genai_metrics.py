"""The counts of a meter, as OpenTelemetry's conventions for generative AI name them.

These are the numbers that Prometheus is shown, with the attributes of the spans.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ..money import number_of
from ..runs.meter import DURATIONS_US, OK, TOKENS, Distribution, Meter, ModelKey, ModelTally
from ..values import frozen
from . import genai

__all__ = ["Instrument", "Point", "list_instruments"]

_SECONDS: Final = tuple(bound / 1e6 for bound in DURATIONS_US)
_US: Final = 1e6


@frozen
class Point:
    """The numbers for one set of attributes since the process began.

    Attributes:
        total: The sum of what was measured, or the value of a counter.
        counts: How many fell into each bucket of a histogram; empty for a counter.
    """

    attributes: Mapping[str, str]
    total: float
    counts: tuple[int, ...] = ()


@frozen
class Instrument:
    """One metric; with `bounds` it is a histogram, without them a counter that only grows."""

    name: str
    unit: str
    description: str
    points: tuple[Point, ...]
    bounds: tuple[float, ...] = ()


def list_instruments(meter: Meter) -> tuple[Instrument, ...]:
    """Return all that `meter` has counted, without what has no numbers yet."""
    models = sorted(meter.models.items(), key=lambda item: item[0])
    found = (
        Instrument(
            genai.OPERATION_SECONDS,
            "s",
            "GenAI operation duration.",
            tuple(_durations(models)),
            _SECONDS,
        ),
        Instrument(
            genai.FIRST_CHUNK_SECONDS,
            "s",
            "Time to receive the first chunk.",
            tuple(_first_chunks(models)),
            _SECONDS,
        ),
        Instrument(
            genai.TOKEN_USAGE,
            "{token}",
            "Number of input and output tokens used.",
            tuple(_tokens(models)),
            TOKENS,
        ),
        Instrument(genai.COST, "USD", "Cost of requests to models.", tuple(_costs(models))),
        Instrument(
            genai.TOOL_SECONDS,
            "s",
            "Duration of tool executions.",
            tuple(_tools(meter)),
            _SECONDS,
        ),
    )
    return tuple(one for one in found if one.points)


def _describe(key: ModelKey) -> dict[str, str]:
    component, provider, model = key
    return {
        genai.OPERATION: genai.CHAT,
        genai.PROVIDER: provider,
        genai.MODEL: model,
        genai.AGENT_ID: component,
    }


def _make_point(attributes: Mapping[str, str], found: Distribution, per: float = _US) -> Point:
    return Point(attributes, found.total / per, tuple(found.counts))


def _with_error(attributes: Mapping[str, str], outcome: str) -> Mapping[str, str]:
    return attributes if outcome == OK else {**attributes, genai.ERROR_TYPE: outcome}


def _durations(models: Iterable[tuple[ModelKey, ModelTally]]) -> Iterator[Point]:
    for key, tally in models:
        for outcome, found in sorted(tally.durations.items()):
            yield _make_point(_with_error(_describe(key), outcome), found)


def _first_chunks(models: Iterable[tuple[ModelKey, ModelTally]]) -> Iterator[Point]:
    for key, tally in models:
        if any(tally.first.counts):
            yield _make_point(_describe(key), tally.first)


def _tokens(models: Iterable[tuple[ModelKey, ModelTally]]) -> Iterator[Point]:
    for key, tally in models:
        for kind, found in (("input", tally.input), ("output", tally.output)):
            if any(found.counts):
                yield _make_point({**_describe(key), genai.TOKEN_TYPE: kind}, found, 1)


def _costs(models: Iterable[tuple[ModelKey, ModelTally]]) -> Iterator[Point]:
    for key, tally in models:
        if tally.cost is not None:
            yield Point(_describe(key), number_of(tally.cost))


def _tools(meter: Meter) -> Iterator[Point]:
    for (component, tool), tally in sorted(meter.tools.items(), key=lambda item: item[0]):
        attributes = {
            genai.OPERATION: genai.EXECUTE_TOOL,
            genai.TOOL_NAME: tool,
            genai.AGENT_ID: component,
        }
        for outcome, found in sorted(tally.durations.items()):
            yield _make_point(_with_error(attributes, outcome), found)
