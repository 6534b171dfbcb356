"""Following a run: to its end, or event by event from wherever a client stopped.

What this node hears is a hint; what counts is the database.  So the same program follows a run of
this node, of another one, and one that ended long ago.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from ..effects import Effect, Emit, NextEvents, Program, RunEvent, Transact
from ..sse import EventId, encode, heartbeat
from ..store.runs import EventsPage, FetchEvents
from .journal import shown
from .states import RunState

__all__ = ["join", "tail"]

_POLL_SECONDS: Final = 1.0
_HEARTBEAT_POLLS: Final = 15
_OVER: Final = {state.value for state in RunState if state.final or state is RunState.PAUSED}


def _following(
    database: str, owner: str, run_id: str, after: int
) -> Generator[Effect, Any, tuple[RunEvent, ...]]:
    """Return the next events behind `after`; none after a while in which there were none."""
    events = yield from NextEvents(run_id, after, _POLL_SECONDS)
    if events:
        return events
    page: EventsPage = yield from Transact(database, FetchEvents(owner, run_id, after))
    over = page.status is None or page.status in _OVER
    ends = over and (not page.events or page.events[-1].seq == page.last)
    return shown(page.events, final=ends) or _nothing(ends, after)


def _nothing(ends: bool, after: int) -> tuple[RunEvent, ...]:
    """Return the mark that a run is over with all its events seen, or nothing."""
    return (RunEvent(after, "", "", final=True),) if ends else ()


def join(database: str, owner: str, run_id: str) -> Program[None]:
    """Wait until the run is over, or waits for a person."""
    after = 0
    while True:
        events = yield from _following(database, owner, run_id, after)
        if events and events[-1].final:
            return
        after = events[-1].seq if events else after


def tail(database: str, owner: str, run_id: str, after: int) -> Program[None]:
    """Emit the events behind `after` as they come, until the run is over.

    A comment every 15 s keeps proxies from closing a quiet stream.
    """
    quiet = 0
    while True:
        events = yield from _following(database, owner, run_id, after)
        for event in events:
            if event.name:
                yield from Emit(encode(event.name, event.data, EventId(run_id, event.seq)))
        if events and events[-1].final:
            return
        quiet = 0 if events else quiet + 1
        if quiet == _HEARTBEAT_POLLS:
            quiet = 0
            yield from Emit(heartbeat())
        after = events[-1].seq if events else after
