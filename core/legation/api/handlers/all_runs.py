"""The runs of every database in one list, for who looks after them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve

from ...access.decide import name_of
from ...effects import Program, Transact
from ...hosted.registry import Registry
from ...http.bodies.reader import Reader
from ...http.messages import Headers, Response, json_response
from ...http.refusals import Fault
from ...runs.output import iso_time
from ...store.failures import StoreFailure
from ...store.listed_runs import ListedPage, ListedRun, ListRuns, RunPlace
from ...store.run_states import RunState
from ...values import frozen
from ..call import Call
from ..fields import choice, declare, integer, text
from ..listing import Cursor, cursor, encode_cursor, link_next
from ..visible_runs import narrow_to_visible

__all__ = [
    "LAST_SECOND",
    "SECOND",
    "ListAllRunsQuery",
    "MergedRuns",
    "component_field",
    "describe_run",
    "find_databases",
    "find_runs",
    "list_all_runs",
    "merge_runs",
]

SECOND: Final = 1_000_000
LAST_SECOND: Final = 1 << 40
"""The latest time that a query takes, in seconds: tens of thousands of years from now."""

_COMPONENT: Final = re.compile(r"(agent|team):[A-Za-z0-9._~-]{1,128}")
_LONGEST: Final = 1024  # characters of a filter


def _read_component(read: Reader, name: str) -> str | None:
    component = read.text(name) or None
    if component is not None and not _COMPONENT.fullmatch(component):
        read.fault(name, "must be agent:ID or team:ID")
    return component


def component_field() -> Any:
    """Declare an agent or a team as a filter: `agent:ID`, `team:ID`."""
    return declare(
        {"type": "string", "pattern": f"^({_COMPONENT.pattern})?$", "examples": ["agent:desk"]},
        _read_component,
        "Of this agent or team, as `agent:ID` or `team:ID`",
    )


@frozen
class ListAllRunsQuery:
    """A page of the runs."""

    db_id: str | None = text("In this database; in all of them, unless given", or_none=True)
    status: str | None = choice(tuple(state.value for state in RunState), "In this state")
    component: str | None = component_field()
    agent_id: str | None = text("Of this agent", max_length=_LONGEST, or_none=True)
    team_id: str | None = text("Of this team", max_length=_LONGEST, or_none=True)
    session_id: str | None = text("Of this session", max_length=_LONGEST, or_none=True)
    user_id: str | None = text(
        "Of this user; counts for those alone who see the runs of every user",
        max_length=_LONGEST,
        or_none=True,
    )
    error_type: str | None = text("Failed for this reason", max_length=_LONGEST, or_none=True)
    since: int | None = integer(
        "Begun then or later, in seconds since the epoch", minimum=0, maximum=LAST_SECOND
    )
    until: int | None = integer(
        "Begun before, in seconds since the epoch", minimum=0, maximum=LAST_SECOND
    )
    order: str = choice(("desc", "asc"), "The newest first, or the oldest", default="desc")
    limit: int = integer("Runs on a page", default=50, minimum=1, maximum=200)
    cursor: Cursor | None = cursor(int, str, str)

    def list_runs(self) -> ListRuns:
        """Return what is asked of each database."""
        components = [self.component, self.agent_id and f"agent:{self.agent_id}"]
        components.append(self.team_id and f"team:{self.team_id}")
        states = tuple(RunState) if self.status is None else (RunState(self.status),)
        if self.error_type is not None:
            states = tuple(state for state in states if state is RunState.ERROR)
        return ListRuns(
            session_id=self.session_id,
            since_us=(self.since or 0) * SECOND,
            until_us=LAST_SECOND * SECOND if self.until is None else self.until * SECOND,
            component=next(filter(None, components), None),
            error_type=self.error_type,
            size=self.limit,
            newest_first=self.order == "desc",
            statuses=tuple(state.value for state in states),
            pauses=True,
        )


def find_databases(call: Call, db_id: str | None) -> tuple[str, ...] | Fault:
    """Return the databases whose runs are asked for."""
    names = tuple(call.registry.databases)
    if db_id is None:
        return names
    return (db_id,) if db_id in names else Fault("query.db_id", "names no database")


def find_runs(call: Call, query: ListAllRunsQuery) -> tuple[str, ...] | Fault:
    """Return the databases whose runs are asked for, where one component is named at most."""
    named = [
        name for name in ("component", "agent_id", "team_id") if getattr(query, name) is not None
    ]
    if named[1:]:
        return Fault(f"query.{named[1]}", f"is not allowed together with `{named[0]}`")
    return find_databases(call, query.db_id)


def list_all_runs(
    call: Call, databases: tuple[str, ...], query: ListAllRunsQuery
) -> Program[Response]:
    """Return a page of the runs that clients asked for, without those of members of teams.

    With the scope `runs:read` the runs of every user, without it one's own, of the agents and teams
    whose runs one may follow.  `meta.next_cursor`, sent back as `cursor` with the same filters,
    gives the next page, as `Link` does.  At most 10,000 runs of each database are looked at for a
    page: with filters it may be short, or empty, while there is more.  `meta.absent` names
    databases that did not answer, of several.

    A run that waits for a person has its `requirements`, unless they are long, and `approval_id`,
    which leads to them.
    """
    listed = narrow_to_visible(call, query.list_runs(), query.user_id)
    if listed is None or not listed.statuses:
        merged = MergedRuns((), None, ())
    else:
        merged = yield from merge_runs(databases, listed, query.cursor)
    more: Headers = ()
    following: str | None = None
    if merged.end is not None:
        following = encode_cursor(merged.end)
        more = link_next(call.query, "cursor", following)
    meta: dict[str, Any] = {"limit": query.limit, "next_cursor": following}
    if merged.absent:
        meta["absent"] = list(merged.absent)
    data = [describe_run(call.registry, name, run) for name, run in merged.runs]
    return json_response(200, {"data": data, "meta": meta}, more)


# --- Several databases --------------------------------------------------------------------------

_Key = tuple[int, str, str]
"""The place of a run in the order of all databases: by time, then database, then id."""


@frozen
class MergedRuns:
    """Runs of several databases in one order, each with its database.

    Attributes:
        end: Where the page ends; None where nothing is behind it.
        absent: The databases that did not answer.
    """

    runs: tuple[tuple[str, ListedRun], ...]
    end: _Key | None
    absent: tuple[str, ...]


def merge_runs(
    databases: tuple[str, ...], listed: ListRuns, cursor: Cursor | None
) -> Program[MergedRuns]:
    """Return the page of `listed` that begins behind `cursor`, of all `databases` together.

    Raises:
        StoreFailure: None of them answers.
    """
    found: list[tuple[_Key, ListedRun]] = []
    ends: list[_Key] = []
    absent: list[str] = []
    for name in databases:
        place = None if cursor is None else _place_in(name, cursor, newest=listed.newest_first)
        try:
            page: ListedPage = yield from Transact(name, evolve(listed, place=place))
        except StoreFailure:
            absent.append(name)
            if len(absent) == len(databases):
                raise
            continue
        found += [((run.created_us, name, run.run_id), run) for run in page.runs]
        if page.end is not None:
            ends.append((page.end.at_us, name, page.end.run_id))
    found.sort(key=lambda one: one[0], reverse=listed.newest_first)
    end = None
    if ends:  # behind the first end, what another database has may not be next
        end = max(ends) if listed.newest_first else min(ends)
        found = [one for one in found if (one[0] >= end if listed.newest_first else one[0] <= end)]
    if len(found) > listed.size:
        found = found[: listed.size]
        end = found[-1][0]
    return MergedRuns(tuple((key[1], run) for key, run in found), end, tuple(absent))


def _place_in(name: str, cursor: Cursor, *, newest: bool) -> RunPlace:
    """Return where to go on in the database `name`."""
    at_us, database, run_id = cursor
    if name == database:
        return RunPlace(at_us, run_id)
    # What began at the same time is behind the cursor where its database comes later in the order.
    behind = (name < database) == newest
    return RunPlace(at_us + (behind if newest else not behind), "")


# --- A run in a list ----------------------------------------------------------------------------


def _time(at_us: int | None) -> str | None:
    return None if at_us is None else iso_time(at_us)


def describe_run(registry: Registry, database: str, run: ListedRun) -> dict[str, Any]:
    """Return a run as it stands in a list."""
    hosted = registry.components(run.kind).get(run.component_id)
    failed = run.status == RunState.ERROR
    shown = {
        "run_id": run.run_id,
        "session_id": run.session_id,
        "db_id": database,
        "component": {
            "kind": run.kind,
            "id": run.component_id,
            "name": None if hosted is None else hosted.name,
        },
        "user_id": name_of(run.owner),
        "status": run.status,
        "created_at": iso_time(run.created_us),
        "started_at": _time(run.started_us),
        "ended_at": _time(run.ended_us),
        "model": run.model,
        "tokens": _tokens(run),
        "error_type": run.reason if failed else None,
        "incident": run.incident if failed else None,
        "resolution": _resolution(run),
    }
    if run.status != RunState.PAUSED:
        return shown
    pause: Mapping[str, Any] = json.loads(run.pause or "{}")
    asked = pause.get("requirements")
    return {**shown, "approval_id": f"{run.run_id}.{run.events}", "requirements": asked}


def _resolution(run: ListedRun) -> dict[str, Any] | None:
    """Return how the last pause was answered; None where there was none, or nobody knows."""
    if run.resolved_us is None:
        return None
    return {
        "approval_id": f"{run.run_id}.{run.resolved_events}",
        "status": run.resolution,
        "resolved_by": run.resolved_by,
        "resolved_at": iso_time(run.resolved_us),
    }


def _tokens(run: ListedRun) -> dict[str, int] | None:
    if run.usage is None:
        return None
    usage = json.loads(run.usage)
    return {name: usage[name] for name in ("input_tokens", "output_tokens", "total_tokens")}
