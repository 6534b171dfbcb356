"""Rows of runs for the tests of lists, and the list as it should be, from the rows themselves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from attrs import evolve

from legation.store.listed_runs import ListedPage, ListedRun, ListRuns
from legation.store.run_states import RunState

__all__ = ["INSERT", "expect", "follow", "make_rows", "row"]

STATES: Final = tuple(state.value for state in RunState)
_COLUMNS: Final = (
    *("owner", "session_id", "run_no", "run_id", "parent_run_id", "kind", "component_id"),
    *("status", "input", "output", "reason", "created_us", "started_us", "ended_us", "events"),
    *("usage", "model", "incident", "resolved_us", "resolution"),
)
INSERT: Final = (
    f"insert into runs ({', '.join(_COLUMNS)})"
    f" values ({', '.join(f':{name}' for name in _COLUMNS)})"
)


def row(number: int, **columns: Any) -> dict[str, Any]:
    """Return the columns of a run."""
    one = {
        **dict.fromkeys(_COLUMNS),
        "owner": "ada",
        "session_id": "s",
        "run_no": number,
        "run_id": f"r{number:05}",
        "kind": "agent",
        "component_id": "desk",
        "status": "COMPLETED",
        "input": "{}",
        "created_us": number,
        "events": 0,
    }
    return {**one, **columns}


def make_rows(count: int) -> list[dict[str, Any]]:
    """Return runs of every state, of three owners, of agents and teams, some at the same time."""
    rows: list[dict[str, Any]] = []
    for number in range(count):
        status = STATES[number * 7 % len(STATES)]
        usage = {"input_tokens": number, "output_tokens": 1, "total_tokens": number + 1}
        rows.append(
            row(
                number,
                owner=("ada", "bob", "~~eve")[number % 3],
                session_id=f"s{number % 5}",
                kind=("agent", "team")[number % 4 == 0],
                component_id=("desk", "shop")[number % 2],
                status=status,
                parent_run_id="r00001" if number % 11 == 5 else None,
                reason="timeout" if status == "ERROR" and number % 2 else None,
                created_us=number // 3,
                usage=json.dumps(usage),
                resolved_us=number if number % 9 == 0 else None,
                resolution="approved" if number % 9 == 0 else None,
            )
        )
    return rows


def expect(rows: Sequence[dict[str, Any]], asked: ListRuns) -> list[str]:
    """Return the ids that `asked` lists, however it finds them."""

    def belongs(one: dict[str, Any]) -> bool:
        component = f"{one['kind']}:{one['component_id']}"
        allowed = asked.allowed
        return (
            one["parent_run_id"] is None
            and one["status"] in asked.statuses
            and asked.since_us <= one["created_us"] < asked.until_us
            and (asked.owner is None or one["owner"] in (asked.owner, asked.alias))
            and asked.session_id in (None, one["session_id"])
            and asked.component in (None, component)
            and asked.error_type in (None, one["reason"])
            and (not asked.resolved or one["resolved_us"] is not None)
            and (allowed is None or component in allowed or f"{one['kind']}:*" in allowed)
        )

    found = sorted((one["created_us"], one["run_id"]) for one in rows if belongs(one))
    return [run_id for _, run_id in (found[::-1] if asked.newest_first else found)]


def follow(run: Callable[[ListRuns], ListedPage], asked: ListRuns) -> Iterator[list[ListedRun]]:
    """Yield the runs of each page of a list."""
    while True:
        page = run(asked)
        assert len(page.runs) <= asked.size
        yield list(page.runs)
        if page.end is None:
            return
        asked = evolve(asked, place=page.end)
