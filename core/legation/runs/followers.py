"""The followers of a run: to its end, or event by event from wherever a client stopped.

What this node hears is a hint; what counts is the database.  So the same program follows a run of
this node, of another one, and one that ended long ago.

A run may come to no end: it is deleted with its session, or nobody can store its end.  Its
followers get an answer that says so, and do not wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ..access.token_watch import TokenWatch
from ..effects import Emit, Log, NextEvents, Now, Program
from ..http.messages import Unfinished, compact_json
from ..http.sse import EventId, encode, encode_departure, encode_token_end, heartbeat
from ..store.failures import StoreFailure
from ..store.run_reads import EventsPage, FetchEvents
from ..store.run_rows import StoredEvent
from ..store.run_states import RunState
from ..values import define, frozen
from .events import ENDS, EventOrigin, RunCancelled, RunPaused, class_of, mark_final, run_id_of
from .executor import ExecutorContext
from .retry import never, persist

__all__ = ["Followed", "RunLeft", "RunStalled", "join", "resume", "tail", "tail_of_member"]

# A run of another node tells nothing here: the database is asked soon after something happened,
# and less and less often while nothing does.
_SOON_SECONDS: Final = 0.05
_POLL_SECONDS: Final = 1.0
_HEARTBEAT_SECONDS: Final = 15.0
_HEARTBEAT_US: Final = round(_HEARTBEAT_SECONDS * 1_000_000)
_OVER: Final = {state.value for state in RunState if state.final or state is RunState.PAUSED}
_DELETED: Final = "Run {} was deleted with its session"
# Whoever finds a lease that has passed takes the run up within a second or two.
_LEFT_SECONDS: Final = 15.0


class RunStalled(StoreFailure):
    """Nobody executes the run or ends it: a database that takes no writes is the likely reason."""


class RunLeft(Exception):
    """The process ends, and the run goes on elsewhere."""


@frozen
class Followed:
    """A run that a stream follows.

    Attributes:
        context: Of this process.
        origin: Whose events the stream has.
        top_id: The run in whose journal its events stand: itself, or the one it is part of.
        path: Of its events, for a client that is sent elsewhere.
        token: Of the client; None where it needs none.
    """

    context: ExecutorContext
    database: str
    origin: EventOrigin
    top_id: str
    path: str
    token: TokenWatch | None = None

    @property
    def owner(self) -> str:
        """Whose run it is."""
        return self.origin.run.owner

    @property
    def run_id(self) -> str:
        """The run whose events the stream has."""
        return self.origin.run.run_id

    @property
    def stays(self) -> bool:
        """Whether the stream comes to its end here.

        The process leaves streams of runs that others execute, or nobody by now, as it ends.
        """
        context = self.context
        return not context.leaving or (self.database, self.top_id) in context.executing

    def is_over(self) -> bool:
        """Return whether the process ends, and its streams are to leave it."""
        return self.context.leaving

    def depart(self, seq: int) -> Program[Unfinished]:
        """Say where to go on behind the event `seq`, and end."""
        yield from Emit(encode_departure(self.path, EventId(self.run_id, seq)))
        return Unfinished()

    def end_with_token(self, token: TokenWatch, seq: int, now_us: int) -> Program[bool]:
        """Say so where the token is not accepted any more, and where to go on behind `seq`.

        The run goes on: it was begun with the token, and does not need it.
        """
        refused = token.find_refusal(now_us)
        if refused is None:
            return False
        refusal, event_id = refused.refusal, EventId(self.run_id, seq)
        last = encode_token_end(refusal.detail, refusal.error_code, self.path, event_id)
        yield from Emit(last)
        return True

    def count(self, body: Program[Unfinished | None]) -> Program[Unfinished | None]:
        """Run `body`, as one stream that the end of the process waits for.

        The stream of a run that does not go on is not whole.
        """
        self.context.followers += 1
        try:
            return (yield from body)
        except RunStalled:
            return Unfinished()
        finally:
            self.context.followers -= 1


@define
class _Follower:
    """A follower of a run: how far it has come, and for how long there has been nothing new.

    `origin` is whose stream it is; `left` is for how long nobody has held the run's lease;
    `is_over` says whether the process ends.
    """

    database: str
    owner: str
    run_id: str
    after: int
    origin: EventOrigin | None = None
    indexed: bool = False
    over: bool = False
    ended: bool = False
    is_over: Callable[[], bool] = never
    poll: float = _SOON_SECONDS
    quiet: float = 0.0
    left: float = 0.0

    def listen(self) -> Program[tuple[StoredEvent, ...]]:
        """Return the next events; none after a while in which there were none, or at the end.

        Raises:
            RunStalled: Nobody has held the run for a while.
        """
        events = yield from NextEvents(self.run_id, self.after, self.poll)
        if not events:
            page = yield from self.look()
            events = mark_final(page.events) if self.over else page.events
            if page.status is None:
                events = yield from self.part()
            elif not events and not self.over:
                yield from self._mind(page)
        if events:
            self.after, self.poll, self.quiet = events[-1].seq, _SOON_SECONDS, 0.0
            self.left = 0.0
            if events[-1].final and not self.over:
                yield from self._end(events[-1])
        else:
            self.quiet += self.poll
            self.poll = min(2 * self.poll, _POLL_SECONDS)
        return events

    def part(self) -> Program[tuple[StoredEvent, ...]]:
        """Return the last event of a run that was deleted, which is stored nowhere."""
        if self.origin is None:
            return ()
        now_us = yield from Now()
        sentence = _DELETED.format(self.origin.run.run_id)
        deleted = RunCancelled(sentence, sentence)
        return mark_final((self.origin.encode(deleted, self.after + 1, now_us),))

    def _mind(self, page: EventsPage) -> Program[None]:
        """Count for how long nobody has held the run, and give it up in the end."""
        self.left = 0.0 if page.held else self.left + self.poll
        if self.left > _LEFT_SECONDS:
            fields = (("run_id", self.run_id), ("database", self.database))
            yield from Log("warning", "run_stalled", fields)
            raise RunStalled(self.run_id)

    def _end(self, last: StoredEvent) -> Program[None]:
        """Stop behind the event that ends the run; behind a pause, unless somebody continued it."""
        self.over = True
        if class_of(last.name) is RunPaused:
            page = yield from self.look()
            self.over = self.over and not page.events

    def look(self) -> Program[EventsPage]:
        """Ask the database for the next events, and whether there will be more.

        It is retried like the run itself: a broken connection does not end the stream.
        """
        fetch = FetchEvents(self.owner, self.run_id, self.after)
        page = yield from persist(self.database, fetch, self.is_over)
        self.ended = page.status is None or page.status in _OVER
        self.over = self.ended and (not page.events or page.events[-1].seq == page.last)
        return page

    def show(self, events: tuple[StoredEvent, ...]) -> Program[None]:
        for event in events:
            data = event.data
            if self.indexed:
                data = f'{data[:-1]},"event_index":{event.seq - 1}}}'
            yield from Emit(encode(event.name, data, EventId(self.run_id, event.seq)))

    def go_on(self, followed: Followed) -> Program[Unfinished | None]:
        """Emit what comes until the run is over, a comment now and then while nothing does.

        What ends while it is listened to is heard to its end, so that is asked before.
        """
        token = followed.token
        while not self.over:
            stays = followed.stays
            self.poll = self.poll if stays else 0.0
            if token is not None:
                self.poll = min(self.poll, token.left)
            yield from self.show((yield from self.listen()))
            if not (stays or self.ended or self.over):
                return (yield from followed.depart(self.after))
            if token is not None and not self.over:
                now_us = yield from Now()
                if (yield from followed.end_with_token(token, self.after, now_us)):
                    return Unfinished()
            yield from self.beat()
        return None

    def beat(self) -> Program[None]:
        """Emit a comment where nothing was heard for long."""
        if self.quiet >= _HEARTBEAT_SECONDS:
            self.quiet = 0.0
            yield from Emit(heartbeat())


def join(
    database: str,
    owner: str,
    run_id: str,
    after: int = 0,
    is_over: Callable[[], bool] = never,
    context: ExecutorContext | None = None,
    hear: Callable[[Sequence[StoredEvent]], None] | None = None,
) -> Program[None]:
    """Wait until the run is over, or waits for a person, for a reason behind the event `after`.

    `hear` is called with the events as they come.
    `is_over` says whether the process ends.  With `context` nobody waits beyond that for a run that
    is not executed there.

    Raises:
        RunLeft: It is not.
        RunStalled: Nobody executes it or ends it.
    """
    follower = _Follower(database, owner, run_id, after, is_over=is_over)
    while not follower.over:
        stays = context is None or not context.ending or (database, run_id) in context.executing
        follower.poll = follower.poll if stays else 0.0
        events = yield from follower.listen()
        if hear is not None:
            hear(events)
        if not (stays or follower.ended or follower.over):
            raise RunLeft(run_id)


def tail(followed: Followed, after: int) -> Program[Unfinished | None]:
    """Emit the events behind `after` as they come, until the run is over.

    A comment every 15 s keeps proxies from closing a quiet stream.
    """
    follower = _Follower(
        followed.database,
        followed.owner,
        followed.run_id,
        after,
        followed.origin,
        is_over=followed.is_over,
    )
    return followed.count(follower.go_on(followed))


def tail_of_member(followed: Followed, after: int) -> Program[Unfinished | None]:
    """Emit what is a member's of the events of the run at the top, until the member's run is over.

    The numbers are those of the run at the top, so there are gaps.  What stands before `after` is
    read too, as the end of the member's run may be there: the team goes on without it.  Comments
    go by the clock, for this stream is quiet while others speak.
    """
    return followed.count(_tail_of_member(followed, after))


def _tail_of_member(followed: Followed, after: int) -> Program[Unfinished | None]:
    owner, top_id = followed.owner, followed.top_id
    is_over = followed.is_over
    follower = _Follower(followed.database, owner, top_id, 0, followed.origin, is_over=is_over)
    emitted_us = yield from Now()
    token = followed.token
    while not follower.over:
        stays = followed.stays
        if token is not None:
            follower.poll = min(follower.poll, token.left)
        events = yield from follower.listen()
        now_us = yield from Now()
        for event in events:
            if run_id_of(event) != followed.run_id:
                continue
            if event.seq > after or event.final:
                yield from Emit(encode(event.name, event.data, EventId(followed.run_id, event.seq)))
                emitted_us, after = now_us, event.seq
            if class_of(event.name) in ENDS:
                return None
        if not (stays or follower.ended or follower.over):
            return (yield from followed.depart(after))
        if token is not None and (yield from followed.end_with_token(token, after, now_us)):
            return Unfinished()
        if not 0 <= now_us - emitted_us < _HEARTBEAT_US:
            yield from Emit(heartbeat())
            emitted_us = now_us
    return None


def resume(followed: Followed, after: int) -> Program[Unfinished | None]:
    """Emit the events behind `after` as `tail` does, with words on what they are between them.

    Later versions of AgentOS answer so: `replay` of a run that is over; or `catch_up`
    with what was missed, and `subscribed` before what is live.  Each event of the run has its place
    in `event_index`, from 0.
    """
    return followed.count(_resume(followed, after))


def _resume(followed: Followed, after: int) -> Program[Unfinished | None]:
    run_id = followed.run_id
    follower = _Follower(
        followed.database,
        followed.owner,
        run_id,
        after,
        followed.origin,
        indexed=True,
        is_over=followed.is_over,
    )
    page = yield from follower.look()
    missed = max(0, page.last - after)
    if page.status is None:
        yield from follower.show((yield from follower.part()))
        return None
    if page.status in _OVER:
        missed = missed if page.events else 0  # they may not be kept any more
        yield from _word("replay", run_id, status=page.status, total_events=missed)
        follower.over = not missed
        return (yield from follower.go_on(followed))
    if missed:
        counts = {"missed_events": missed, "current_event_count": page.last}
        yield from _word("catch_up", run_id, status="running", **counts)
        while follower.after < page.last and not follower.over:
            yield from follower.show((yield from follower.listen()))
    yield from _word("subscribed", run_id, status="running", current_event_count=page.last)
    return (yield from follower.go_on(followed))


def _word(event: str, run_id: str, **fields: Any) -> Program[None]:
    yield from Emit(encode(event, compact_json({"event": event, "run_id": run_id, **fields})))
