"""Storms: seeded swarms of faults, the decisions they consist of, and the oracles over them."""

from __future__ import annotations

from .decisions import (
    Ask,
    Away,
    Cancel,
    Chance,
    Continue,
    Decision,
    Delete,
    Deliver,
    Drain,
    Fail,
    Follow,
    Hints,
    Kill,
    Misbehave,
    Notify,
    PowerCut,
    SetClock,
    SetDatabaseClock,
    Settle,
    Stall,
    Start,
)
from .draw import FAULTS, WORKLOADS
from .oracles import ORACLES, Aftermath, Oracle, Run
from .promises import Broken
from .shrink import shrink
from .sometimes import SOMETIMES
from .storm import PromiseBroken, Storm, StormReport
from .sweep import Sweep, sweep

__all__ = [
    "FAULTS",
    "ORACLES",
    "SOMETIMES",
    "WORKLOADS",
    "Aftermath",
    "Ask",
    "Away",
    "Broken",
    "Cancel",
    "Chance",
    "Continue",
    "Decision",
    "Delete",
    "Deliver",
    "Drain",
    "Fail",
    "Follow",
    "Hints",
    "Kill",
    "Misbehave",
    "Notify",
    "Oracle",
    "PowerCut",
    "PromiseBroken",
    "Run",
    "SetClock",
    "SetDatabaseClock",
    "Settle",
    "Stall",
    "Start",
    "Storm",
    "StormReport",
    "Sweep",
    "shrink",
    "sweep",
]
