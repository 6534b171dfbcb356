"""The terms of a run: the limits that its input takes along, what is counted, and a fork's origin.

Whoever executes the run may be another node, at another time: it goes on under the limits that its
caller had when it was asked for.  A limit that is nobody's in particular is not written down.
"""

from __future__ import annotations

from typing import Final

from ..shares.limits import Limits, find_cost_limit
from ..store.session_state import MAX_STATE

__all__ = [
    "COST_PER_DAY",
    "COUNTED",
    "FORKED_FROM",
    "FORK_START",
    "HISTORY_RUNS",
    "MODEL_CALLS",
    "OF_HISTORY",
    "OF_TURN",
    "PAID",
    "SCOPES",
    "STATE_BYTES",
    "TOKENS_PER_DAY",
    "list_terms",
]

TOKENS_PER_DAY: Final = "tokens_per_day"
COST_PER_DAY: Final = "cost_per_day"
"""In nano-USD."""

STATE_BYTES: Final = "state_bytes"
MODEL_CALLS: Final = "model_calls"

SCOPES: Final = "scopes"
"""The member of the input of a run with the scopes of its caller, where a guard reads them."""
HISTORY_RUNS: Final = "history_runs"
"""The member of the input of a run that is told fewer runs of its session than its agent says."""

OF_HISTORY: Final = ("history", "summary", "summary_usage", "summary_cost")
"""The members of the start of a run that say what it was told of its session."""

COUNTED: Final = "counted"
"""The member of the input of a run that paused: the bytes of that and of its output, which are
counted already, and give way to those of its end."""

PAID: Final = "paid"
"""The member of the input of a run that paused: what it has cost by then, in nano-USD, with those
of its members."""

FORKED_FROM: Final = "forked_from"
"""The member of the input of a fork: the run that it is one of, and at which place, if at one."""

FORK_START: Final = "fork_start"
"""The member of the input of a fork that is told another history than the run that it is a fork of:
the start of that one, which goes into its own."""

OF_TURN: Final = ("turn", "answered", COUNTED, PAID)
"""The members of the input of a run that go when it is over."""


def list_terms(limits: Limits, *, scoped: bool) -> dict[str, int]:
    """Return the members of the input of a run that is asked for under `limits`.

    `scoped`: these may be of a scope that the caller held, and which its name does not lead to.
    """
    terms: dict[str, int] = {}
    if limits.tokens_per_day is not None:
        terms[TOKENS_PER_DAY] = limits.tokens_per_day
    if limits.cost_per_day is not None:
        terms[COST_PER_DAY] = find_cost_limit(limits) or 0
    if limits.state_bytes != MAX_STATE:
        terms[STATE_BYTES] = limits.state_bytes
    if scoped:
        terms[MODEL_CALLS] = limits.model_calls
    return terms
