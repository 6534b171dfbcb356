"""Following a run: to its end, or event by event from wherever a client stopped.

What this node hears is a hint; what counts is the database.  So the same program follows a run of
this node, of another one, and one that ended long ago.
"""

from __future__ import annotations

import json
from typing import Any, Final

from attrs import define

from ..effects import Emit, NextEvents, Now, Program, RunEvent
from ..messages import compact_json
from ..sse import EventId, encode, heartbeat
from ..store.run_reads import EventsPage, FetchEvents
from .journal import shown
from .patience import patiently
from .states import RunState

__all__ = ["join", "resume", "tail", "tail_of_member"]

# A run of another node tells nothing here: the database is asked soon after something happened,
# and less and less often while nothing does.
_SOON_SECONDS: Final = 0.05
_POLL_SECONDS: Final = 1.0
_HEARTBEAT_SECONDS: Final = 15.0
_HEARTBEAT_US: Final = round(_HEARTBEAT_SECONDS * 1_000_000)
_ENDS: Final = frozenset({"RunCompleted", "RunError", "RunCancelled"})
_OVER: Final = {state.value for state in RunState if state.final or state is RunState.PAUSED}


@define
class _Follower:
    """Who follows a run: how far it has come, and for how long there has been nothing new."""

    database: str
    owner: str
    run_id: str
    after: int
    indexed: bool = False
    over: bool = False
    poll: float = _SOON_SECONDS
    quiet: float = 0.0

    def listen(self) -> Program[tuple[RunEvent, ...]]:
        """Return the next events; none after a while in which there were none, or at the end."""
        events = yield from NextEvents(self.run_id, self.after, self.poll)
        if not events:
            page = yield from self.look()
            events = shown(page.events, final=self.over)
        if events:
            self.after, self.poll, self.quiet = events[-1].seq, _SOON_SECONDS, 0.0
            if events[-1].final and not self.over:
                yield from self._end(events[-1])
        else:
            self.quiet += self.poll
            self.poll = min(2 * self.poll, _POLL_SECONDS)
        return events

    def _end(self, last: RunEvent) -> Program[None]:
        """Stop behind the event that ends the run; behind a pause, unless somebody continued it."""
        self.over = True
        if last.name.endswith("RunPaused"):
            page = yield from self.look()
            self.over = self.over and not page.events

    def look(self) -> Program[EventsPage]:
        """Ask the database for the next events, and whether there will be more.

        As patiently as the run itself: who waits for it is not to lose it over a broken connection.
        """
        fetch = FetchEvents(self.owner, self.run_id, self.after)
        page: EventsPage = yield from patiently(self.database, fetch)
        ended = page.status is None or page.status in _OVER
        self.over = ended and (not page.events or page.events[-1].seq == page.last)
        return page

    def show(self, events: tuple[RunEvent, ...]) -> Program[None]:
        for event in events:
            data = event.data
            if self.indexed:
                data = f'{data[:-1]},"event_index":{event.seq - 1}}}'
            yield from Emit(encode(event.name, data, EventId(self.run_id, event.seq)))

    def go_on(self) -> Program[None]:
        """Emit what comes until the run is over; a comment now and then while nothing does."""
        while not self.over:
            yield from self.show((yield from self.listen()))
            yield from self.beat()

    def beat(self) -> Program[None]:
        """Emit a comment where nothing was heard for long."""
        if self.quiet >= _HEARTBEAT_SECONDS:
            self.quiet = 0.0
            yield from Emit(heartbeat())


def join(database: str, owner: str, run_id: str, after: int = 0) -> Program[None]:
    """Wait until the run is over, or waits for a person, for a reason behind the event `after`."""
    follower = _Follower(database, owner, run_id, after)
    while not follower.over:
        yield from follower.listen()


def tail(database: str, owner: str, run_id: str, after: int) -> Program[None]:
    """Emit the events behind `after` as they come, until the run is over.

    A comment every 15 s keeps proxies from closing a quiet stream.
    """
    yield from _Follower(database, owner, run_id, after).go_on()


def tail_of_member(
    database: str, owner: str, run_id: str, root_id: str, after: int
) -> Program[None]:
    """Emit what is a member's of the events of the run at the top, until the member's run is over.

    The numbers are those of the run at the top, so there are gaps.  What stands before `after` is
    read too, as the end of the member's run may be there: the team goes on without it.  Comments
    go by the clock, for this stream is quiet while others speak.
    """
    follower = _Follower(database, owner, root_id, 0)
    emitted_us = yield from Now()
    while not follower.over:
        events = yield from follower.listen()
        now_us = yield from Now()
        for event in events:
            if json.loads(event.data).get("run_id") != run_id:
                continue
            if event.seq > after:
                yield from Emit(encode(event.name, event.data, EventId(run_id, event.seq)))
                emitted_us = now_us
            if event.name.removeprefix("Team") in _ENDS:
                return
        if not 0 <= now_us - emitted_us < _HEARTBEAT_US:
            yield from Emit(heartbeat())
            emitted_us = now_us


def resume(database: str, owner: str, run_id: str, after: int) -> Program[None]:
    """Emit the events behind `after` as `tail` does, with words on what they are between them.

    Later versions of AgentOS answer so: `replay` of a run that is over; or `catch_up`
    with what was missed, and `subscribed` before what is live.  Each event of the run has its place
    in `event_index`, from 0.
    """
    follower = _Follower(database, owner, run_id, after, indexed=True)
    page = yield from follower.look()
    missed = max(0, page.last - after)
    status = page.status or "ERROR"
    if page.status is None or page.status in _OVER:
        yield from _word("replay", run_id, status=status, total_events=missed)
        follower.over = not missed
        yield from follower.go_on()
        return
    if missed:
        counts = {"missed_events": missed, "current_event_count": page.last}
        yield from _word("catch_up", run_id, status="running", **counts)
        while follower.after < page.last and not follower.over:
            yield from follower.show((yield from follower.listen()))
    yield from _word("subscribed", run_id, status="running", current_event_count=page.last)
    yield from follower.go_on()


def _word(event: str, run_id: str, **told: Any) -> Program[None]:
    yield from Emit(encode(event, compact_json({"event": event, "run_id": run_id, **told})))
