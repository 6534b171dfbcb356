"""The followers of a run: to its end, or event by event from wherever a client stopped.

The hub of this node tells them what is stored here.  What counts is the database: a follower asks
it at first, unless the run begins here, and when `runs.watched_runs` has something to look at;
every second where no watcher goes round.  So the same program follows a run of this node, of
another one, and one that ended long ago.

A run may come to no end: it is deleted with its session, or nobody can store its end.  Its
followers get an answer that says so, and do not wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from attrs import field

from ..access.token_watch import TokenWatch
from ..effects import Emit, Log, NextEvents, Now, Nudge, Program
from ..http.messages import Unfinished, compact_json
from ..http.sse import (
    EventId,
    encode,
    encode_departure,
    encode_stored,
    encode_token_end,
    heartbeat,
)
from ..store.failures import StoreFailure
from ..store.run_reads import EventsPage, FetchEvents
from ..store.run_rows import ClaimedRun, StoredEvent
from ..values import define, frozen
from .events import ENDS, EventOrigin, RunCancelled, RunPaused, class_of, mark_final, run_id_of
from .executor import ExecutorContext
from .retry import never, persist
from .watched_runs import (
    LEFT_SECONDS,
    OVER,
    POLL_SECONDS,
    SOON_SECONDS,
    WatchedRun,
    WatchedRuns,
    watch_topic,
)

__all__ = ["Followed", "RunLeft", "RunStalled", "join", "resume", "tail", "tail_of_member"]

_HEARTBEAT_SECONDS: Final = 15.0
_LEAST_SECONDS: Final = 0.01
_TIMES: Final = 20
"""Who is told of events waits so many times as long as who has to ask: from a second on, as what
tells it may be lost, and no longer than a stream is quiet."""
_TOGETHER: Final = 64
"""How many events are encoded together: what is more is sent meanwhile."""
_DELETED: Final = "Run {} was deleted with its session"
# Asked for whenever something was emitted, and made once.
_NOW: Final = Now()


class RunStalled(StoreFailure):
    """Nobody executes the run or ends it: a database that takes no writes is the likely reason."""


class RunLeft(Exception):
    """The process ends, and the run goes on elsewhere."""


@frozen
class Followed:
    """A run that a stream follows.

    Attributes:
        context: Of this process.
        run: Whose events the stream has.
        name: Of its agent or team.
        top_id: The run in whose journal its events stand: itself, or the one it is part of.
        path: Of its events, for a client that is sent elsewhere.
        token: Of the client; None where it needs none.
        holder: The node that executes the run, as far as that is known.
        parent_run_id: That of which the run is a part, if it is one.
    """

    context: ExecutorContext
    database: str
    run: ClaimedRun
    name: str
    top_id: str
    path: str
    token: TokenWatch | None = None
    holder: str | None = None
    parent_run_id: str | None = None

    @property
    def run_id(self) -> str:
        """The run whose events the stream has."""
        return self.run.run_id

    def make_origin(self) -> EventOrigin:
        """Return the origin of an event that is stored nowhere."""
        return EventOrigin(self.run, self.name, self.parent_run_id)

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

    @property
    def watched(self) -> WatchedRuns:
        """The runs of its database that are followed."""
        return self.context.cluster.member(self.database).watched

    def count(
        self, follower: _Follower, body: Program[Unfinished | None]
    ) -> Program[Unfinished | None]:
        """Run `body` of `follower`, as one stream that the end of the process waits for.

        The stream of a run that does not go on is not whole.
        """
        self.context.followers += 1
        follower.enter()
        try:
            return (yield from body)
        except RunStalled:
            return Unfinished()
        finally:
            follower.watched.leave(follower.run)
            self.context.followers -= 1


@define(eq=False)
class _Follower:
    """A follower of a run: how far it has come, and what it knows of it.

    Attributes:
        after: The number of the last event that it has.
        make_origin: Makes the origin of the stream's events; None where there is no stream.
        over: Nothing more comes.
        ended: Nothing more is stored.
        is_over: Whether the process ends.
        poll: How long it waits until it asks, where it has to ask by itself: longer and longer.
        left: For how long nobody has held the lease then.
        in_step: It has all that was stored when it looked, and hears of the rest.
        behind: There is more in the database than it has read.
        looked: The newest event that was known when it looked last.
        changes: Those that were known then.
        waited: For how long it has waited at last, at most.
        by_clock: Whether its stream may be quiet while the run is not.
        holder: The node that executes the run, as far as that is known; where that is another one,
            it tells of its events.
    """

    database: str
    owner: str
    run_id: str
    after: int
    watched: WatchedRuns
    make_origin: Callable[[], EventOrigin] | None = None
    indexed: bool = False
    over: bool = False
    ended: bool = False
    is_over: Callable[[], bool] = never
    holder: str | None = None
    poll: float = SOON_SECONDS
    left: float = 0.0
    in_step: bool = False
    behind: bool = False
    looked: int = 0
    changes: int = 0
    waited: float = 0.0
    by_clock: ClassVar[bool] = False
    run: WatchedRun = field(init=False)

    def enter(self) -> None:
        """Be one of those who follow the run here."""
        self.run = self.watched.enter(self.run_id)
        self.changes = self.run.changes

    @property
    def shown(self) -> int:
        """The number of the event behind which a client goes on."""
        return self.after

    @property
    def shown_id(self) -> str:
        """The run whose events are shown."""
        return self.run_id

    def listen(self, seconds: float, *, last: bool = False) -> Program[tuple[StoredEvent, ...]]:
        """Return the next events; none within `seconds`, or some less, or at the end.

        What ends while it is listened to is heard to its end: so the database is asked for the
        `last` time.

        Raises:
            RunStalled: Nobody has held the run for a while.
        """
        polls, run = not self.watched.live, self.run
        # Written out twice: each event of a run comes by here.
        if (
            last
            or self.behind
            or run.last > max(self.after, self.looked)
            or run.changes != self.changes
        ):
            seconds = 0.0
        else:
            seconds = min(seconds, self.poll if polls or not self.in_step else _TIMES * self.poll)
        self.waited, wakes = seconds, run.wakes  # who is woken from here on has heard of no event
        where = () if self.holder is None else (self.database, self.holder)
        heard: tuple[StoredEvent, ...] | None = yield NextEvents(
            self.run_id, self.after, seconds, *where
        )
        told, events = wakes != run.wakes, heard or ()
        if heard:
            self.behind, self.in_step = False, True
        elif (
            last
            or polls
            or not self.in_step
            or (heard == () and not told)
            or run.last > max(self.after, self.looked)
            or run.changes != self.changes
        ):
            events = yield from self._ask(polls=polls)
        if events:
            self.after, self.poll, self.left = events[-1].seq, SOON_SECONDS, 0.0
            if events[-1].final and not self.over:
                yield from self._end(events[-1])
        else:
            self.poll = min(2 * self.poll, POLL_SECONDS)
        return events

    def _ask(self, *, polls: bool) -> Program[tuple[StoredEvent, ...]]:
        """Return what the database has behind the last event."""
        if self.run.stalled and self.watched.away_us:
            yield from self._give_up()
        page = yield from self.look()
        if page.status is None:
            return (yield from self.part())
        events = mark_final(page.events) if self.over else page.events
        if events:
            self.behind = not self.over and events[-1].seq < page.last
            self.in_step = not self.behind
        elif not self.over:
            yield from self._mind(page, polls=polls)
        return events

    def part(self) -> Program[tuple[StoredEvent, ...]]:
        """Return the last event of a run that was deleted, which is stored nowhere."""
        if self.make_origin is None:
            return ()
        origin = self.make_origin()
        now_us = yield from Now()
        sentence = _DELETED.format(origin.run.run_id)
        deleted = RunCancelled(sentence, sentence)
        return mark_final((origin.encode(deleted, self.after + 1, now_us),))

    def _mind(self, page: EventsPage, *, polls: bool) -> Program[None]:
        """Give the run up where nobody has held it for long; else see to it that it is watched."""
        self.left = 0.0 if page.held else self.left + self.poll
        if self.left > LEFT_SECONDS if polls else self.run.stalled and not page.held:
            yield from self._give_up()
        watched = self.watched
        if not (polls or watched.awake or watched.executes(self.run_id)):
            watched.awake, watched.pause = True, SOON_SECONDS
            yield from Nudge(watch_topic(self.database))

    def _give_up(self) -> Program[None]:
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
        self.looked, self.changes = self.run.last, self.run.changes
        fetch = FetchEvents(self.owner, self.run_id, self.after)
        page = yield from persist(self.database, fetch, self.is_over)
        self.looked = max(self.looked, page.last)
        self.ended = page.status is None or page.status in OVER
        self.holder = None if self.ended else page.holder
        self.over = self.ended and (not page.events or page.events[-1].seq == page.last)
        self.behind = bool(page.events)
        self.in_step = not self.behind
        return page

    def show(self, events: tuple[StoredEvent, ...]) -> Program[bool]:
        """Emit what comes; return whether that was something."""
        chosen, run_id = self.choose(events), self.shown_id
        for first in range(0, len(chosen), _TOGETHER):
            yield Emit(encode_stored(run_id, chosen[first : first + _TOGETHER]))
        return bool(chosen)

    def choose(self, events: tuple[StoredEvent, ...]) -> Sequence[tuple[int, str, str]]:
        """Return those of `events` that are shown: the number, the name and the data of each."""
        if self.indexed:
            return [(event.seq, event.name, _with_index(event)) for event in events]
        return [(event.seq, event.name, event.data) for event in events]

    def go_on(
        self, followed: Followed, first: StoredEvent | None = None
    ) -> Program[Unfinished | None]:
        """Emit `first` and what comes until the run is over, a comment while nothing does."""
        if first is not None:
            self.after = first.seq
            yield Emit(encode_stored(self.run_id, ((first.seq, first.name, first.data),)))
        token, quiet, now_us, emitted_us = followed.token, 0.0, 0, 0
        timed = token is not None or self.by_clock  # else what was waited says it, at no cost
        if timed:
            now_us = emitted_us = yield _NOW
        while not self.over:
            stays = followed.stays
            seconds = max(_HEARTBEAT_SECONDS - quiet, _LEAST_SECONDS)
            if followed.context.draining:
                seconds = min(seconds, POLL_SECONDS)
            if token is not None:
                seconds = min(seconds, max(0.0, token.seconds_left(now_us)))
            emitted = yield from self.show((yield from self.listen(seconds, last=not stays)))
            if not (stays or self.ended or self.over):
                return (yield from followed.depart(self.shown))
            if self.over:
                return None
            if timed:
                now_us = yield _NOW
            emitted_us = now_us if emitted else emitted_us
            quiet = (now_us - emitted_us) / 1_000_000 if timed else quiet + self.waited
            quiet = 0.0 if emitted else quiet
            if token is not None and (
                yield from followed.end_with_token(token, self.shown, now_us)
            ):
                return Unfinished()
            if not 0 <= quiet < _HEARTBEAT_SECONDS:
                yield from Emit(heartbeat())
                quiet, emitted_us = 0.0, now_us
        return None


@define(eq=False)
class _MemberFollower(_Follower):
    """A follower of a run in whose journal a member's events stand, which alone are shown.

    Attributes:
        member_id: The member's run.
        last_shown: The number of its last event that the client has.
    """

    by_clock: ClassVar[bool] = True
    member_id: str = ""
    last_shown: int = 0

    @property
    def shown(self) -> int:
        """The number of the event behind which a client goes on."""
        return self.last_shown

    @property
    def shown_id(self) -> str:
        """The run whose events are shown."""
        return self.member_id

    def choose(self, events: tuple[StoredEvent, ...]) -> Sequence[tuple[int, str, str]]:
        """Return what is the member's, until its run is over."""
        chosen: list[tuple[int, str, str]] = []
        for event in events:
            if run_id_of(event) != self.member_id:
                continue
            if event.seq > self.last_shown or event.final:
                chosen.append((event.seq, event.name, event.data))
                self.last_shown = event.seq
            if class_of(event.name) in ENDS:
                self.over = True
                break
        return chosen


def join(
    database: str,
    owner: str,
    run_id: str,
    after: int = 0,
    is_over: Callable[[], bool] = never,
    context: ExecutorContext | None = None,
    hear: Callable[[Sequence[StoredEvent]], None] | None = None,
    watched: WatchedRuns | None = None,
) -> Program[None]:
    """Wait until the run is over, or waits for a person, for a reason behind the event `after`.

    `hear` is called with the events as they come.
    `is_over` says whether the process ends.  With `context` nobody waits beyond that for a run that
    is not executed there.
    `watched` is what is followed of the database; that of `context` unless given.

    Raises:
        RunLeft: It is not.
        RunStalled: Nobody executes it or ends it.
    """
    if watched is None:
        watched = (
            WatchedRuns(database) if context is None else context.cluster.member(database).watched
        )
    follower = _Follower(database, owner, run_id, after, watched, is_over=is_over)
    follower.enter()
    try:
        while not follower.over:
            stays = context is None or not context.ending or (database, run_id) in context.executing
            seconds = (
                POLL_SECONDS if context is not None and context.draining else _HEARTBEAT_SECONDS
            )
            events = yield from follower.listen(seconds, last=not stays)
            if hear is not None:
                hear(events)
            if not (stays or follower.ended or follower.over):
                raise RunLeft(run_id)
    finally:
        watched.leave(follower.run)


def tail(
    followed: Followed, after: int, *, in_step: bool = False, first: StoredEvent | None = None
) -> Program[Unfinished | None]:
    """Emit the events behind `after` as they come, until the run is over.

    A comment every 15 s keeps proxies from closing a quiet stream.  `in_step`: nothing behind
    `after` was stored before this process began to execute the run, so that it hears of it all.
    `first` is the event behind `after`, where it is known: it is emitted before anything is asked.
    """
    follower = _follow(followed, after)
    follower.in_step = in_step
    return followed.count(follower, follower.go_on(followed, first))


def _follow(followed: Followed, after: int, *, indexed: bool = False) -> _Follower:
    return _Follower(
        followed.database,
        followed.run.owner,
        followed.run.run_id,
        after,
        followed.watched,
        followed.make_origin,
        indexed=indexed,
        is_over=followed.is_over,
        holder=followed.holder,
    )


def tail_of_member(followed: Followed, after: int) -> Program[Unfinished | None]:
    """Emit what is a member's of the events of the run at the top, until the member's run is over.

    The numbers are those of the run at the top, so there are gaps.  What stands before `after` is
    read too, as the end of the member's run may be there: the team goes on without it.
    """
    follower = _MemberFollower(
        followed.database,
        followed.run.owner,
        followed.top_id,
        0,
        followed.watched,
        followed.make_origin,
        is_over=followed.is_over,
        holder=followed.holder,
        member_id=followed.run_id,
        last_shown=after,
    )
    return followed.count(follower, follower.go_on(followed))


def resume(followed: Followed, after: int) -> Program[Unfinished | None]:
    """Emit the events behind `after` as `tail` does, with words on what they are between them.

    Later versions of AgentOS answer so: `replay` of a run that is over; or `catch_up`
    with what was missed, and `subscribed` before what is live.  Each event of the run has its place
    in `event_index`, from 0.
    """
    follower = _follow(followed, after, indexed=True)
    return followed.count(follower, _resume(followed, follower))


def _resume(followed: Followed, follower: _Follower) -> Program[Unfinished | None]:
    run_id, after = followed.run_id, follower.after
    page = yield from follower.look()
    missed = max(0, page.last - after)
    if page.status is None:
        yield from follower.show((yield from follower.part()))
        return None
    if page.status in OVER:
        missed = missed if page.events else 0  # they may not be kept any more
        yield from _word("replay", run_id, status=page.status, total_events=missed)
        follower.over = not missed
        return (yield from follower.go_on(followed))
    if missed:
        counts = {"missed_events": missed, "current_event_count": page.last}
        yield from _word("catch_up", run_id, status="running", **counts)
        while follower.after < page.last and not follower.over:
            yield from follower.show((yield from follower.listen(POLL_SECONDS)))
    yield from _word("subscribed", run_id, status="running", current_event_count=page.last)
    return (yield from follower.go_on(followed))


def _with_index(event: StoredEvent) -> str:
    """Return the data of `event` with its place in the run."""
    return f'{event.data[:-1]},"event_index":{event.seq - 1}}}'


def _word(event: str, run_id: str, **fields: Any) -> Program[None]:
    yield from Emit(encode(event, compact_json({"event": event, "run_id": run_id, **fields})))
