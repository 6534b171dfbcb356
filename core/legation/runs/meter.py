"""The meter of a process: what its runs asked of models and tools, and what that took and cost.

Counting adds numbers, takes no lock and asks for nothing.  Whoever shows the numbers, to Prometheus
or to OpenTelemetry, reads them here.

Whoever asks is an agent or a team that is hosted.  Each may ask so many models and so many tools
that are told apart: the names that a function reports are its author's, and may be anybody's.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, TypeAlias

from attrs import field

from ..models.conversation import ModelFailed, Usage
from ..models.prices import Priced
from ..models.trouble import SENTENCES
from ..values import define

__all__ = [
    "CANCELLED",
    "DURATIONS_US",
    "ERROR",
    "MOST_NAMES",
    "OK",
    "OTHER",
    "REJECTED",
    "TOKENS",
    "Distribution",
    "Meter",
    "ModelKey",
    "ModelTally",
    "Tally",
    "ToolKey",
    "find_outcome",
]

OK: Final = "ok"
ERROR: Final = "error"
"""The outcome of a tool that failed, and of a model whose error has no better name."""

CANCELLED: Final = "cancelled"
"""The outcome of what was given up here: the run was cancelled, took too long, or was moved."""

REJECTED: Final = "rejected"
"""The outcome of a call that was not made: no such tool, arguments that do not fit, a guard."""

OTHER: Final = "other"
"""The name of what is beyond `MOST_NAMES`, and of a tool that does not exist."""

MOST_NAMES: Final = 100
"""How many models, and how many tools, of one agent or team are told apart."""

_LONGEST: Final = 100  # characters of a name

DURATIONS_US: Final = tuple(10_000 << power for power in range(14))
"""The bounds of durations, in microseconds: OpenTelemetry's for generative AI, 0.01 to 81.92 s."""

TOKENS: Final = tuple(4**power for power in range(14))
"""The bounds of the tokens of one request: OpenTelemetry's for generative AI."""

ModelKey: TypeAlias = tuple[str, str, str]
"""Who asked, the provider, and the model."""

ToolKey: TypeAlias = tuple[str, str]
"""Who asked, and the tool."""


# Added to by every run: what is added stands where it is counted, as a call would cost more.


@define(eq=False)
class Distribution:
    """Whole numbers by their size: one count more than there are bounds, and their sum."""

    counts: list[int] = field(factory=lambda: [0] * (len(DURATIONS_US) + 1))
    total: int = 0


@define(eq=False)
class Tally:
    """The requests of one agent or team to one model or tool.

    Attributes:
        counts: How often, by the outcome.
        durations: How long it took, by the outcome, where that is known.
    """

    counts: dict[str, int] = field(factory=dict[str, int])
    durations: dict[str, Distribution] = field(factory=dict[str, Distribution])

    def add_outcome(self, outcome: str) -> Distribution:
        """Return how long what has this outcome took, from now on."""
        return self.durations.setdefault(outcome, Distribution())


@define(eq=False)
class ModelTally(Tally):
    """The requests of one agent or team to one model.

    Attributes:
        first: How long it took to the first piece of an answer, where there was one.
        input: The tokens that went in, of each request that used any.
        output: Those that came out.
        cached: How many of the input the provider's cache knew.
        cache_write: How many went into it.
        reasoning: How many of the output were thought and not said.
        cost: In nano-USD; None where no price was known.
    """

    first: Distribution = field(factory=Distribution)
    input: Distribution = field(factory=Distribution)
    output: Distribution = field(factory=Distribution)
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: int | None = None


@define(eq=False)
class Meter:
    """The numbers of one process since its start.

    Attributes:
        models: Requests to models.
        tools: Calls of tools.
        queues: How long runs waited until they began, by their database.
        lost: How many leases were lost, on runs and messages, by their database.
    """

    models: dict[ModelKey, ModelTally] = field(factory=dict[ModelKey, ModelTally])
    tools: dict[ToolKey, Tally] = field(factory=dict[ToolKey, Tally])
    queues: dict[str, Distribution] = field(factory=dict[str, Distribution])
    lost: dict[str, int] = field(factory=dict[str, int])
    _names: dict[tuple[str, str], int] = field(factory=dict[tuple[str, str], int], init=False)

    def count_request(
        self,
        component: str,
        model: Priced,
        outcome: str,
        took_us: int | None,
        usage: Usage,
        first_us: int | None = None,
    ) -> None:
        """Count a request to `model`, its retries among it.

        A duration below zero, as of a clock that was set back, is zero.

        Args:
            component: The id of the agent or team that asked.
            model: It, or its name.
            outcome: `ok`, or one word for why there is no answer.
            took_us: How long it took, in microseconds; None where it was given up.
            usage: With its cost, where that is known.
            first_us: How long it took to the first piece of the answer, if it had any.
        """
        tally = self.models.get((component, model.provider, model.id))
        if tally is None:
            tally = self._find_model(component, model)
        tally.counts[outcome] = tally.counts.get(outcome, 0) + 1
        if took_us is not None:
            found = tally.durations.get(outcome) or tally.add_outcome(outcome)
            took_us = max(took_us, 0)
            found.counts[bisect_left(DURATIONS_US, took_us)] += 1
            found.total += took_us
        if first_us is not None:
            first_us, found = max(first_us, 0), tally.first
            found.counts[bisect_left(DURATIONS_US, first_us)] += 1
            found.total += first_us
        came_in, went_out = max(usage.input_tokens, 0), max(usage.output_tokens, 0)
        if came_in or went_out:
            tally.input.counts[bisect_left(TOKENS, came_in)] += 1
            tally.input.total += came_in
            tally.output.counts[bisect_left(TOKENS, went_out)] += 1
            tally.output.total += went_out
            tally.cached += max(usage.cache_read_tokens, 0)
            tally.cache_write += max(usage.cache_write_tokens, 0)
            tally.reasoning += max(usage.reasoning_tokens, 0)
        if usage.cost_nano is not None:
            tally.cost = (tally.cost or 0) + usage.cost_nano

    def count_call(self, component: str, tool: str, outcome: str, took_us: int | None) -> None:
        """Count a call of `tool` by the agent or team `component`; `took_us` as of a request."""
        tally = self.tools.get((component, tool))
        if tally is None:
            tally = self._find_tool(component, tool)
        tally.counts[outcome] = tally.counts.get(outcome, 0) + 1
        if took_us is not None:
            found = tally.durations.get(outcome) or tally.add_outcome(outcome)
            took_us = max(took_us, 0)
            found.counts[bisect_left(DURATIONS_US, took_us)] += 1
            found.total += took_us

    def count_begun(self, database: str, waited_us: int) -> None:
        """Count a run that begins, so many microseconds after it was stored."""
        found = self.queues.get(database)
        if found is None:
            found = self.queues[database] = Distribution()
        waited_us = max(waited_us, 0)
        found.counts[bisect_left(DURATIONS_US, waited_us)] += 1
        found.total += waited_us

    def count_lost(self, database: str) -> None:
        """Count a lease that another node has, or nobody, while work went on under it here."""
        self.lost[database] = self.lost.get(database, 0) + 1

    def _find_model(self, component: str, model: Priced) -> ModelTally:
        key = component, model.provider[:_LONGEST], model.id[:_LONGEST]
        if key not in self.models and not self._admit("model", component):
            key = component, "", OTHER
        return self.models.setdefault(key, ModelTally())

    def _find_tool(self, component: str, tool: str) -> Tally:
        key = component, tool[:_LONGEST]
        if key not in self.tools and not self._admit("tool", component):
            key = component, OTHER
        return self.tools.setdefault(key, Tally())

    def _admit(self, kind: str, component: str) -> bool:
        """Return whether one more name of `component` is told apart."""
        count = self._names.get((kind, component), 0)
        if count >= MOST_NAMES:
            return False
        self._names[kind, component] = count + 1
        return True


def find_outcome(error: Exception) -> str:
    """Return the outcome of a request that ended in `error`: one of few words."""
    reason = error.reason if isinstance(error, ModelFailed) else ERROR
    return reason if reason in SENTENCES else ERROR
