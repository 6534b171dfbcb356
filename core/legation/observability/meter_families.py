"""The counts of a meter, as Prometheus reads them: models, tools, queues and leases.

The labels are names of what is hosted, and few fixed words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ..money import number_of
from ..runs.meter import DURATIONS_US, Distribution, Meter, ModelTally, Tally
from .prometheus import Family, Labels, Sample, histogram

__all__ = ["add_up", "meter_families"]

_BOUNDS: Final = tuple(bound / 1e6 for bound in DURATIONS_US)


def meter_families(meter: Meter, databases: Iterable[str]) -> Iterator[Family]:
    """Yield what `meter` has counted; of `databases` also that nothing was lost or waited."""
    models: dict[Labels, list[ModelTally]] = {}
    for (component, _, model), tally in sorted(meter.models.items(), key=lambda item: item[0]):
        models.setdefault((("model", model), ("component", component)), []).append(tally)
    yield from _model_families(models)
    yield from _tool_families(
        {
            (("tool", tool), ("component", component)): tally
            for (component, tool), tally in sorted(meter.tools.items(), key=lambda item: item[0])
        }
    )
    names = sorted({*databases, *meter.queues, *meter.lost})
    yield Family(
        "legation_run_queue_seconds",
        "histogram",
        "Time from the storing of a run until this process began it.",
        tuple(
            sample
            for name in names
            for sample in _histogram(
                (("database", name),), meter.queues.get(name) or Distribution()
            )
        ),
    )
    yield Family(
        "legation_leases_lost_total",
        "counter",
        "Leases on runs and messages that were lost while this process worked under them.",
        tuple(Sample(meter.lost.get(name, 0), (("database", name),)) for name in names),
    )


def _model_families(models: Mapping[Labels, list[ModelTally]]) -> Iterator[Family]:
    yield Family(
        "legation_model_requests_total",
        "counter",
        "Requests of agents and teams to models, by their outcome; retries are part of them.",
        tuple(_outcomes(models)),
    )
    yield Family(
        "legation_model_request_duration_seconds",
        "histogram",
        "Time until a model had answered, or had failed to.",
        tuple(_durations(models)),
    )
    yield Family(
        "legation_model_first_token_seconds",
        "histogram",
        "Time until the first piece of an answer of a model was there.",
        tuple(
            sample
            for labels, tallies in models.items()
            for sample in _histogram(labels, add_up(tally.first for tally in tallies))
        ),
    )
    yield Family(
        "legation_model_tokens_total",
        "counter",
        "Tokens as providers count them; of the input some are cached or cache_write, and of the"
        " output some are reasoning.",
        tuple(_tokens(models)),
    )
    yield Family(
        "legation_model_cost_usd_total",
        "counter",
        "What requests to models have cost, in US dollars, where their price is known.",
        tuple(_costs(models)),
    )


def _tool_families(tools: Mapping[Labels, Tally]) -> Iterator[Family]:
    found = {labels: [tally] for labels, tally in tools.items()}
    yield Family(
        "legation_tool_calls_total",
        "counter",
        "Calls of tools by agents and teams, by their outcome.",
        tuple(_outcomes(found)),
    )
    yield Family(
        "legation_tool_duration_seconds",
        "histogram",
        "Time that calls of tools took.",
        tuple(_durations(found)),
    )


def _outcomes(found: Mapping[Labels, Iterable[Tally]]) -> Iterator[Sample]:
    for labels, tallies in found.items():
        counts: dict[str, int] = {}
        for tally in tallies:
            for outcome, count in tally.counts.items():
                counts[outcome] = counts.get(outcome, 0) + count
        for outcome, count in sorted(counts.items()):
            yield Sample(count, (*labels, ("outcome", outcome)))


def _durations(found: Mapping[Labels, Iterable[Tally]]) -> Iterator[Sample]:
    for labels, tallies in found.items():
        durations = [one for tally in tallies for one in tally.durations.values()]
        yield from _histogram(labels, add_up(durations))


def _tokens(models: Mapping[Labels, list[ModelTally]]) -> Iterator[Sample]:
    for labels, tallies in models.items():
        kinds = {
            "input": sum(tally.input.total for tally in tallies),
            "output": sum(tally.output.total for tally in tallies),
            "cached": sum(tally.cached for tally in tallies),
            "cache_write": sum(tally.cache_write for tally in tallies),
            "reasoning": sum(tally.reasoning for tally in tallies),
        }
        for kind, count in kinds.items():
            yield Sample(count, (*labels, ("kind", kind)))


def _costs(models: Mapping[Labels, list[ModelTally]]) -> Iterator[Sample]:
    for labels, tallies in models.items():
        known = [tally.cost for tally in tallies if tally.cost is not None]
        if known:
            yield Sample(number_of(sum(known)), labels)


def _histogram(labels: Labels, found: Distribution) -> tuple[Sample, ...]:
    return histogram(labels, _BOUNDS, found.counts, found.total / 1e6)


def add_up(found: Iterable[Distribution]) -> Distribution:
    """Return several distributions over the same bounds as one."""
    counts, total = Distribution().counts, 0
    for one in found:
        counts = [a + b for a, b in zip(counts, one.counts, strict=True)]
        total += one.total
    return Distribution(counts, total)
