"""Changes of the states of runs as they happen, for badges and lists that stay up to date.

A stream looks again once a second, in each database, at what is active, what waits for a person,
and what is new: at most 1,000 of each.  It is no log: a run that goes through several states
between two looks is told by the last of them.  Nothing is asked while nobody listens.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Final

from attrs import evolve, field

from ...effects import Emit, Now, Program, Sleep, Transact
from ...http.messages import Streamed, Unfinished, compact_json, event_stream
from ...http.refusals import Fault, TooManyRequests
from ...http.sse import encode, encode_token_end, heartbeat
from ...store.failures import StoreFailure
from ...store.listed_runs import CountListed, FindListed, ListedRun, ListRuns
from ...store.run_states import RunState
from ...values import define, frozen
from ..call import Call
from ..fields import integer, text
from ..visible_runs import narrow_to_visible
from .all_runs import describe_run, find_databases

__all__ = ["RunChangesQuery", "find_watched", "watch_runs"]

_LOOK_SECONDS: Final = 1.0
_LONGEST_SECONDS: Final = 86_400
_MOST: Final = 1_000
_PATH: Final = "/runs/events"
_HEARTBEAT_US: Final = 15_000_000
_OVERLAP_US: Final = 60_000_000  # clocks of nodes differ, and commits come late
_OPEN: Final = (RunState.PENDING.value, RunState.RUNNING.value, RunState.PAUSED.value)


@frozen
class RunChangesQuery:
    """The choice of the runs to watch."""

    db_id: str | None = text("In this database; in all of them, unless given", or_none=True)
    seconds: int | None = integer(
        "The stream ends after so many seconds; it goes on and on, unless given",
        minimum=1,
        maximum=_LONGEST_SECONDS,
    )


def find_watched(call: Call, query: RunChangesQuery) -> tuple[str, ...] | Fault:
    """Return the databases whose runs are watched."""
    return find_databases(call, query.db_id)


@define
class _Watch:
    """One database as a stream saw it last.

    Attributes:
        visible: What the caller may see.
        states: The states of the runs that were seen and may be seen again, by their ids.
        mark_us: When the newest run that was seen began.
    """

    database: str
    visible: ListRuns
    states: dict[str, str] = field(factory=dict[str, str])
    mark_us: int = 0

    def look(self) -> Program[list[ListedRun]]:
        """Return the runs that are new, or in another state than before, in their order."""
        found: dict[str, ListedRun] = {}
        still = evolve(self.visible, statuses=_OPEN)
        since_us = max(self.mark_us - _OVERLAP_US, 0)
        for asked in (still, evolve(self.visible, since_us=since_us)):
            page = yield from Transact(self.database, asked)
            found |= {run.run_id: run for run in page.runs}
        missing = [one for one, state in self.states.items() if state in _OPEN]
        missing = [one for one in missing if one not in found][:_MOST]
        if missing:
            ended = yield from Transact(self.database, FindListed(tuple(missing)))
            found |= {run.run_id: run for run in ended}
        changed = [run for one, run in found.items() if self.states.get(one) != run.status]
        self.states = {one: run.status for one, run in found.items()}
        self.mark_us = max((run.created_us for run in found.values()), default=self.mark_us)
        return sorted(changed, key=_order)


def _order(run: ListedRun) -> tuple[int, str]:
    return run.ended_us or run.started_us or run.created_us, run.run_id


def watch_runs(
    call: Call, databases: tuple[str, ...], query: RunChangesQuery
) -> Program[Streamed | TooManyRequests]:
    """Stream the changes of the states of runs that the caller may see.

    The first event, `snapshot`, has how many runs there are in each state, as far as 1,000.  Each
    that follows, `run`, has one run as `GET /runs` has it, but for its requirements, as soon as it
    is new or in another state.  A comment every 15 s keeps proxies from closing a quiet stream.
    The end of the process ends the stream; a client that comes back begins with a snapshot.
    """
    if refusal := call.hold_place(stream=True, follows=False):
        return refusal
    visible = narrow_to_visible(call, ListRuns(size=_MOST), None)
    watches = [_Watch(name, visible) for name in databases] if visible else []
    snapshot = yield from _begin(watches)
    body = _watch(call, watches, snapshot, query.seconds)
    return event_stream(_count(call, body))


def _count(call: Call, body: Program[Unfinished | None]) -> Program[Unfinished | None]:
    """Run `body`, as one stream that the end of the process waits for."""
    call.context.followers += 1
    try:
        return (yield from body)
    finally:
        call.context.followers -= 1


def _watch(
    call: Call, watches: list[_Watch], snapshot: bytes, seconds: int | None
) -> Program[Unfinished | None]:
    yield from Emit(snapshot)
    token = call.watch_token()
    emitted_us = yield from Now()
    looks = count() if seconds is None else range(int(seconds / _LOOK_SECONDS))
    for _ in looks:
        if call.context.leaving:
            return None
        left = _LOOK_SECONDS if token is None else min(_LOOK_SECONDS, token.left)
        yield from Sleep(left)
        text = "".join((yield from _look(call, watches)))
        now_us = yield from Now()
        if text:
            yield from Emit(text.encode())
            emitted_us = now_us
        refused = None if token is None else token.find_refusal(now_us)
        if refused is not None:
            refusal = refused.refusal
            yield from Emit(encode_token_end(refusal.detail, refusal.error_code, _PATH))
            return Unfinished()
        if not text and not 0 <= now_us - emitted_us < _HEARTBEAT_US:
            yield from Emit(heartbeat())
            emitted_us = now_us
    return None


def _begin(watches: Iterable[_Watch]) -> Program[bytes]:
    """Look for the first time; return the event that says how many there are."""
    counts = dict.fromkeys((state.value for state in RunState), 0)
    for watch in watches:
        visible = watch.visible
        counted = yield from Transact(
            watch.database,
            CountListed(
                owner=visible.owner,
                alias=visible.alias,
                session_id=visible.session_id,
                allowed=visible.allowed,
                most=_MOST,
            ),
        )
        counts = {state: counts[state] + counted[state] for state in counts}
        yield from watch.look()
    return encode("snapshot", compact_json({"counts": counts}))


def _look(call: Call, watches: Iterable[_Watch]) -> Program[list[str]]:
    """Return what changed as events; of a database that is away, later."""
    events: list[str] = []
    for watch in watches:
        try:
            changed = yield from watch.look()
        except StoreFailure:
            continue
        for run in changed:
            shown = describe_run(call.registry, watch.database, run)
            shown.pop("requirements", None)
            events.append(encode("run", compact_json(shown)).decode())
    return events
