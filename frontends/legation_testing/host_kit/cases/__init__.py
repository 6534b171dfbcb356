"""The cases: every rule that a host is held to."""

from __future__ import annotations

from typing import Final

from ..bench import Case
from . import (
    functions,
    hints,
    interruptions,
    jobs,
    names,
    network,
    outcomes,
    programs,
    records,
    requests,
    side_by_side,
    streams,
    transactions,
    values,
)

__all__ = ["CASES"]

CASES: Final[tuple[Case, ...]] = (
    *programs.CASES,
    *values.CASES,
    *requests.CASES,
    *transactions.CASES,
    *names.CASES,
    *network.CASES,
    *streams.CASES,
    *functions.CASES,
    *jobs.CASES,
    *hints.CASES,
    *outcomes.CASES,
    *interruptions.CASES,
    *side_by_side.CASES,
    *records.CASES,
)
"""The order is that of the table of effects, after the rules about all programs."""
