"""Sums of runs: how many, how they ended, what they took, by agent, model, user or hour.

Columns alone are read, a part at a time beside the event loop, at most 100,000 runs: the newest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from attrs import evolve, field

from ...access.decide import name_of
from ...effects import Program, Sleep, Transact
from ...http.messages import Response, json_response
from ...http.refusals import Fault
from ...money import number_of
from ...runs.output import iso_time
from ...store.failures import StoreFailure
from ...store.listed_runs import WINDOW, ListedRun, ListRuns
from ...store.run_states import RunState
from ...values import define, frozen
from ..call import Call
from ..fields import choice, integer, text
from ..visible_runs import narrow_to_visible
from .all_runs import LAST_SECOND, SECOND, find_databases

__all__ = ["RunSummaryQuery", "find_summarized", "summarize_runs"]

MOST: Final = 100_000
"""How many runs are read at most."""

GROUPS: Final = 1_000
"""How many groups an answer has at most."""

_BATCH: Final = 2_000
_HOUR_US: Final = 3_600_000_000
_FACETS: Final = ("agent", "model", "user", "hour")


@frozen
class RunSummaryQuery:
    """The choice of the runs to sum up, and by what."""

    by: str = choice(_FACETS, "What makes a group; teams stand among agents", default="agent")
    db_id: str | None = text("In this database; in all of them, unless given", or_none=True)
    since: int | None = integer(
        "Begun then or later, in seconds since the epoch", minimum=0, maximum=LAST_SECOND
    )
    until: int | None = integer(
        "Begun before, in seconds since the epoch", minimum=0, maximum=LAST_SECOND
    )

    def list_runs(self) -> ListRuns:
        """Return what is asked of each database, a part of it."""
        return ListRuns(
            since_us=(self.since or 0) * SECOND,
            until_us=LAST_SECOND * SECOND if self.until is None else self.until * SECOND,
            size=_BATCH,
        )


def find_summarized(call: Call, query: RunSummaryQuery) -> tuple[str, ...] | Fault:
    """Return the databases whose runs are summed up."""
    return find_databases(call, query.db_id)


def _key(run: ListedRun, by: str) -> str | None:
    """Return the group of a run; None where nothing is known of it."""
    match by:
        case "agent":
            return f"{run.kind}:{run.component_id}"
        case "model":
            return run.model
        case "user":
            return name_of(run.owner)
        case _:
            return iso_time(run.created_us // _HOUR_US * _HOUR_US)


@define
class _Sum:
    """The sum of a group; `took_us` is how long each run took that came to an end."""

    states: dict[str, int] = field(factory=dict[str, int])
    input_tokens: int = 0
    output_tokens: int = 0
    cost_nano: int | None = None
    took_us: list[int] = field(factory=list[int])

    @property
    def runs(self) -> int:
        """The number of runs."""
        return sum(self.states.values())

    def add(self, run: ListedRun, usage: Mapping[str, int]) -> None:
        """Add one run, with its tokens."""
        self.states[run.status] = self.states.get(run.status, 0) + 1
        self.input_tokens += usage.get("input_tokens", 0)
        self.output_tokens += usage.get("output_tokens", 0)
        if "cost_nano" in usage:
            self.cost_nano = (self.cost_nano or 0) + usage["cost_nano"]
        if run.started_us is not None and run.ended_us is not None:
            self.took_us.append(run.ended_us - run.started_us)

    def describe(self) -> dict[str, Any]:
        """Return the members that a group and the total have."""
        took_us = sorted(self.took_us)
        return {
            "runs": self.runs,
            "states": {state.value: self.states.get(state.value, 0) for state in RunState},
            "errors": self.states.get(RunState.ERROR.value, 0),
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            **({} if self.cost_nano is None else {"cost": number_of(self.cost_nano)}),
            "seconds_p50": _percentile(took_us, 50),
            "seconds_p95": _percentile(took_us, 95),
        }


def _percentile(ordered_us: list[int], percent: int) -> float | None:
    """Return the value that `percent` of all do not exceed, in seconds (nearest rank)."""
    if not ordered_us:
        return None
    return ordered_us[-(-len(ordered_us) * percent // 100) - 1] / SECOND


@define
class _Reading:
    """The sums of the runs that were read so far, and their number."""

    by: str
    total: _Sum = field(factory=_Sum)
    groups: dict[str | None, _Sum] = field(factory=dict[str | None, _Sum])
    truncated: bool = False

    def add(self, runs: Iterable[ListedRun]) -> None:
        """Add runs to the total and to their groups."""
        for run in runs:
            usage: Mapping[str, int] = json.loads(run.usage) if run.usage else {}
            self.total.add(run, usage)
            self.groups.setdefault(_key(run, self.by), _Sum()).add(run, usage)

    def read(self, database: str, asked: ListRuns, most: int) -> Program[None]:
        """Read the runs of one database, and add them; `most` are looked at."""
        looked_at = 0
        while True:
            page = yield from Transact(database, asked)
            self.add(page.runs)
            if page.end is None:
                return
            looked_at += asked.size if len(page.runs) == asked.size else WINDOW
            if looked_at >= most:
                self.truncated = True
                return
            asked = evolve(asked, place=page.end)
            yield from Sleep(0.0)  # others have their turn


def _by_key(group: tuple[str | None, _Sum]) -> str:
    return group[0] or ""


def _by_size(group: tuple[str | None, _Sum]) -> tuple[int, str]:
    return -group[1].runs, group[0] or ""


def summarize_runs(
    call: Call, databases: tuple[str, ...], query: RunSummaryQuery
) -> Program[Response]:
    """Return sums of the runs that clients asked for, the largest group first; hours in order.

    With the scope `runs:read` of every user, else of one's own.  At most 100,000 runs are read, of
    each database its share of them, the newest: `meta.truncated` says that there are more.
    """
    listed = narrow_to_visible(call, query.list_runs(), None)
    reading, absent = _Reading(query.by), list[str]()
    for name in databases:
        if listed is None:
            break
        try:
            yield from reading.read(name, listed, MOST // len(databases))
        except StoreFailure:
            absent.append(name)
            if len(absent) == len(databases):
                raise
    groups = sorted(reading.groups.items(), key=_by_key if query.by == "hour" else _by_size)
    meta: dict[str, Any] = {
        "by": query.by,
        "truncated": reading.truncated,
        "groups": len(groups),
    }
    if absent:
        meta["absent"] = absent
    data = [{"key": key, **one.describe()} for key, one in groups[:GROUPS]]
    return json_response(200, {"data": data, "total": reading.total.describe(), "meta": meta})
