"""The journal of a run: what happened, in the order and words that clients know.

Events are stored before they are shown, a batch at a time: what is noted while nothing waits goes
into the database in one transaction when the run is about to wait, or ends.  So a client that has
seen an event can always be given what came after it.

Several runs may write to one journal, each with an `EventWriter`: a team and those of its members
that work for it.  Events of runs side by side stand in the order in which they happened.  One batch
is stored after the other, so that no event can be read before one that has a lower number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from attrs import evolve, field

from ..effects import NOW, AwaitNudge, Log, Nudge, Program, Publish
from ..hosted.notify import NotifyRule
from ..models.conversation import Usage, storable
from ..models.prices import Priced, PriceList
from ..money import MOST_NANO
from ..shares.budgets import Spending
from ..store.member_runs import CheckLease, MemberMove, Root
from ..store.run_rows import ClaimedRun, RunLease, StoredEvent
from ..store.runs import AppendEvents
from ..store.session_state import FetchState, StateChange, encode_change
from ..store.steps import NO_RECORDS, Definition, Records, Step, StepKind
from ..store.usage import count_octets
from ..values import define
from .channel_replies import ChannelReplies
from .events import Event, EventOrigin, ModelRequestStarted, RunContent
from .given import Given
from .incident_book import IncidentBook
from .membership import Membership
from .meter import Meter
from .retry import never, persist
from .state_writer import StateRead, StateWriter
from .step_outcomes import START, encode_outcome

__all__ = [
    "CancelAsked",
    "EventWriter",
    "Journal",
    "LeaseLost",
    "list_texts",
]

_WAIT_SECONDS: Final = 1.0


def list_texts(events: Sequence[StoredEvent], records: Records) -> list[str | None]:
    """Return the texts that are counted of a batch; of a member's run those of its end."""
    texts: list[str | None] = [event.data for event in events]
    if records is not NO_RECORDS:
        texts += [step.outcome for step in records.steps]
        texts += [move.output for move in records.moves if move.is_end]
    return texts


class CancelAsked(Exception):
    """Somebody wants the run to end: go no further."""


class LeaseLost(Exception):
    """Another node has taken the run for dead: stop, and write nothing more."""


@define
class Journal:
    """Keeps the events of `run`, a run that is asked for, and stores them under its lease.

    Attributes:
        now_us: The time as it was last asked for.
        seq: The number of the newest event, stored or not.
        pending: What is not known to be stored, in order.
        begun: The event that is stored with the run, until it is published with the next ones:
            who waits for it has it already.
        hosted: What the node hosts: of that it claims the next run of the session.
        is_over: Whether the process ends.
        member: This node in the cluster of the database: it beats where no job does.
        in_doubt: What becomes of a call in doubt whose agent does not say: `ask` or `tell`.
        resumed: The run goes on after a crash, from its steps.
        steps: The steps that are not known to be stored, by their places.
        moves: The states of runs of members that are not known to be stored.
        stored_us: When a batch was last sent to the database under the lease.
        answers: The calls that people answered, as the run goes on; None where that is not known.
        state: What calls write to the state of the session.
        given: What came with the run, for the functions that it calls.
        message: The message of the run, where it is worth a mark, as `FinishRun` has it.
        tokens: What the models took in and gave out since that was last counted.
        spending: The same against what its subject may use a day; None where that has no limit.
        prices: The prices of models; None where none are asked for.
        cost: What the models cost since that was last counted, in nano-USD; None where no price
            was known.
        paid: What they cost before that, since the run began; None as well.
        expense: The cost against what its subject may spend a day, beside a `spending`; None where
            that has no limit.
        meter: Counts what models and tools are asked in this process.
        bytes: What was stored of events and steps since that was last counted.
        counted: What is counted already of the input and the output, since the run paused.
        model_calls: How many calls of models its subject may have at once, as the run was asked
            for; None where that is as for anybody.
        incidents: Where errors are noted; nowhere, where there is none.
        notify: Who hears of runs that pause or fail.
        asker: Writes to whoever asked for the run in a channel; there is none where its message
            still waits for it.
        played: Returns what is recorded of a place, where a recording is taken once more: guards
            decide as they did.
    """

    database: str
    run: ClaimedRun
    node: str
    now_us: int
    seq: int = field(default=0, init=False)
    pending: list[StoredEvent] = field(factory=list[StoredEvent])
    begun: tuple[StoredEvent, ...] = field(default=(), init=False)
    hosted: tuple[str, ...] = ()
    is_over: Callable[[], bool] = never
    member: Membership | None = None
    in_doubt: str = "ask"
    resumed: bool = False
    steps: dict[str, Step] = field(factory=dict[str, Step])
    moves: list[MemberMove] = field(factory=list[MemberMove])
    stored_us: int = field(default=0, init=False)
    _definitions: dict[str, Definition] = field(factory=dict[str, Definition], init=False)
    answers: Sequence[Mapping[str, Any]] | None = None
    state: StateWriter = field(factory=StateWriter)
    given: Given = field(factory=Given)
    message: str | None = None
    tokens: int = 0
    spending: Spending | None = None
    prices: PriceList | None = None
    cost: int | None = None
    paid: int | None = None
    expense: Spending | None = None
    meter: Meter = field(factory=Meter)
    bytes: int = 0
    counted: int = 0
    model_calls: int | None = None
    incidents: IncidentBook | None = None
    notify: NotifyRule | None = None
    asker: ChannelReplies | None = None
    played: Callable[[str], Mapping[str, Any]] | None = None
    _storing: bool = field(default=False, init=False)
    _waiting: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.seq, self.stored_us = self.run.events, self.now_us

    def begin_behind(self, first: StoredEvent) -> None:
        """Go on behind the event that is stored with the run; it is counted with what follows."""
        self.begun, self.seq = (first,), first.seq
        self.bytes += count_octets((first.data,))

    def put_behind_begun(self, events: tuple[StoredEvent, ...]) -> tuple[StoredEvent, ...]:
        """Return `events` as they are published: behind the one that is stored with the run."""
        begun, self.begun = self.begun, ()
        return (*begun, *events)

    def forget(self, last: int) -> None:
        """Take back the events behind the number `last`, none of which is stored."""
        self.pending = [event for event in self.pending if event.seq <= last]
        self.seq = last
        self.state.forget(self.run.run_id)

    def define(self, definition: Definition) -> None:
        """Store `definition` with the next batch, unless this process knows that it is stored."""
        if self.member is None or definition.digest not in self.member.defined:
            self._definitions[definition.digest] = definition

    def records(self) -> Records:
        """Return what is stored with the next batch of events."""
        run, state = self.run, self.state
        if not (self.steps or self.moves or state.pending):
            return NO_RECORDS
        definitions = tuple(self._definitions.values())
        changes = state.changes(run.owner, run.session_id) if state.pending else None
        return Records(tuple(self.steps.values()), definitions, tuple(self.moves), changes)

    def resume_counts(self, usage: Usage, size: int) -> None:
        """Add what attempts before this one used and stored, and did not count."""
        self.bytes += size
        self.count(usage)

    def count(self, usage: Usage) -> None:
        """Count what models used, and what that cost."""
        self.tokens += usage.total_tokens
        if self.spending is not None:
            self.spending.spend(usage.total_tokens)
        if usage.cost_nano is not None:
            self.pay(usage.cost_nano)

    def pay(self, cost: int) -> None:
        """Count what models cost, in nano-USD."""
        self.cost = (self.cost or 0) + cost
        if self.expense is not None:
            self.expense.spend(cost)

    def price(self, model: Priced, usage: Usage) -> Usage:
        """Return what a request to `model` used, with what it cost.

        A cost that the model knows itself comes first.

        Raises:
            ValueError: The source of the prices gave what is no amount.
        """
        cost = usage.cost_nano
        if type(cost) is not int or not 0 <= cost <= MOST_NANO:
            prices, now_us = self.prices, self.now_us
            cost = None if prices is None else prices.price(model, usage, now_us)
        return evolve(usage, cost_nano=cost)

    @property
    def whole_cost(self) -> int | None:
        """The cost of the run by now, with its members; None where that is not known."""
        if self.cost is None:
            return self.paid
        return min(self.cost + (self.paid or 0), MOST_NANO)

    def note_incident(
        self, incident_id: str, run: ClaimedRun, error_type: str, place: str, operation: str
    ) -> None:
        """Keep an incident of `run`, which is that of the journal or a member's."""
        if self.incidents is not None:
            self.incidents.note(
                self.database,
                incident_id,
                self.now_us,
                error_type=error_type,
                place=place,
                operation=operation,
                component=f"{run.kind}:{run.component_id}",
                run_id=run.run_id,
            )

    def lease(self) -> RunLease:
        """Return the lease under which the run is executed."""
        return RunLease(self.node, self.run.attempt)

    def read_state(self) -> Program[StateRead]:
        """Return the state of the session as it is stored, for a call that is about to be made."""
        run, seen = self.run, self.state.seen
        fetch = FetchState(run.owner, run.session_id)
        text = yield from persist(self.database, fetch, self.is_over)
        return self.state.read(text, seen)

    def change_state(self, place: str, read: StateRead, change: StateChange) -> None:
        """Store `change` with the outcome of the call at `place`, which has read `read`.

        Raises:
            StateTooLarge: The state would be.  The call is to fail.
        """
        self.state.ask(place, read, change)

    def log_overwritten(self) -> Program[None]:
        """Write to the log which keys two calls have written that did not see each other."""
        while self.state.overwritten:
            key, place, by = self.state.overwritten.pop(0)
            which = (("key", key), ("place", place), ("by", by))
            yield from Log("warning", "state_overwritten", (("run_id", self.run.run_id), *which))

    def settle(self) -> Program[None]:
        """Store what is pending and show it; what others have pending goes with it.

        Whoever closes the program meanwhile may find the events stored and still pending: they
        are stored again with the end of the run, which changes nothing.

        Raises:
            LeaseLost: The run is no longer ours.
            CancelAsked: Somebody wants it to end.
        """
        self.now_us = yield NOW
        member = self.member
        if member is not None and not member.beaten_us <= self.now_us < member.late_us:
            yield from member.try_to_beat(self.node)
        if self.state.overwritten:
            yield from self.log_overwritten()
        last, steps = self.seq, tuple(self.steps.values())
        while self._has_pending(last, steps):
            if self._storing:
                yield from self._wait()
            else:
                yield from self._store()

    def _has_pending(self, last: int, steps: tuple[Step, ...]) -> bool:
        """Return whether an event up to the number `last`, or one of `steps`, is not stored."""
        if self.pending and self.pending[0].seq <= last:
            return True
        for step in steps:  # noqa: SIM110  `any` costs a call, and one for each step
            if self.steps.get(step.place) is step:
                return True
        return False

    def check_lease(self, now_us: int) -> Program[None]:
        """Look whether the run is still ours, where this node was silent for a lease.

        Raises:
            LeaseLost: It is not.
            CancelAsked: Somebody wants it to end.
        """
        if self.member is not None and now_us - self.stored_us >= self.member.terms.lease_us:
            yield from self.confirm_lease()
            self.stored_us = now_us

    def confirm_lease(self) -> Program[None]:
        """Look whether the run is still ours.

        Raises:
            LeaseLost: It is not.
            CancelAsked: Somebody wants it to end.
        """
        run = self.run
        root = Root(run.owner, run.session_id, run.run_id, self.lease())
        self._heed((yield from persist(self.database, CheckLease(root), self.is_over)))

    def _wait(self) -> Program[None]:
        """Wait until the batch of another is stored, or was not to be."""
        self._waiting += 1
        try:
            yield from AwaitNudge(self._topic, _WAIT_SECONDS)
        finally:
            self._waiting -= 1

    @property
    def _topic(self) -> str:
        return f"settled:{self.run.run_id}"

    def _store(self) -> Program[None]:
        events, records = tuple(self.pending), self.records()
        append = AppendEvents(
            self.run.owner,
            self.run.run_id,
            self.lease(),
            self.now_us,
            events,
            events[-1].seq if events else self.seq,
            records,
            self.message,
        )
        self._storing, self.stored_us = True, self.now_us
        try:
            asked = yield from persist(self.database, append, self.is_over)
        finally:
            self._storing = False
        if asked is not None:
            self.bytes += count_octets(list_texts(events, records))
            self._note_stored(len(events), records)
            if events:
                if self.member is not None and (
                    followed := self.member.watched.runs.get(self.run.run_id)
                ):
                    followed.last = events[-1].seq
                if self.begun:
                    events = self.put_behind_begun(events)
                yield Publish(self.run.run_id, events, self.database)
        if self._waiting:
            yield from Nudge(self._topic)
        self._heed(asked)

    def _note_stored(self, events: int, records: Records) -> None:
        del self.pending[:events]
        del self.moves[: len(records.moves)]
        for step in records.steps:
            if self.steps.get(step.place) is step:
                del self.steps[step.place]
        if records.state is not None:
            for place, _ in records.state.changes:
                self.state.forget(place)
        for definition in records.definitions:
            del self._definitions[definition.digest]
            if self.member is not None:
                self.member.defined.add(definition.digest)

    def _heed(self, asked: bool | None) -> None:
        if asked is None:
            raise LeaseLost(self.run.run_id)
        if asked:
            raise CancelAsked(self.run.run_id)


@define
class EventWriter:
    """The event writer of one run in a journal; a `Listener` for its model.

    Attributes:
        streamed: Whether the pieces of its answers are events.
        prefix: What stands before the places of its steps: `3.2/` for a member of a team.
        resumed: Its start is in the journal already, from an attempt before.
        start: The definition with which it began, and what its start is stored with; None once
            that is noted.
        request: The request to the model that was noted last; None before.
        heard: The pieces of its last answer.
        first_us: When the first piece of the last answer was there; None before.
        held: No piece of an answer is kept or shown before guards have judged the whole.
    """

    journal: Journal
    origin: EventOrigin
    streamed: bool
    prefix: str = ""
    resumed: bool = False
    start: tuple[Definition, Mapping[str, Any]] | None = None
    request: ModelRequestStarted | None = None
    heard: list[str] = field(factory=list[str])
    first_us: int | None = None
    held: bool = False
    _listening: bool = field(default=False, init=False)

    @property
    def shows(self) -> bool:
        """Whether those who follow the run read an answer piece by piece."""
        return self.streamed and not self.held

    def note(self, event: Event) -> None:
        """Add an event to the next batch."""
        journal = self.journal
        journal.seq += 1
        journal.pending.append(self.origin.encode(event, journal.seq, journal.now_us))

    def note_step(
        self,
        place: str,
        kind: StepKind,
        asked: str,
        begun_us: int,
        outcome: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a step that begins, or one that ended with `outcome`, to the next batch.

        Raises:
            StepTooLarge: The outcome is too long to be stored.
        """
        self.note_start()
        where, ended_us, text = self.prefix + place, None, None
        if outcome is not None:
            ended_us = self.journal.now_us
            if where in self.journal.state.asked:
                outcome = self._with_state(where, outcome)
            text = encode_outcome(where, asked, outcome)
        self.journal.steps[where] = Step(where, kind, asked, begun_us, ended_us, text)

    def _with_state(self, where: str, outcome: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the outcome of a step with what its call writes to the state of the session."""
        change = self.journal.state.note(where, where)
        return {**outcome, "state": encode_change(change)} if change.keys else outcome

    def change_state(self, read: StateRead, change: StateChange) -> None:
        """Store `change` with the end of this very run, if it completes: it is that of a function.

        Raises:
            StateTooLarge: The state would be.  The run is to fail.
        """
        self.journal.change_state(self.prefix.rstrip("/"), read, change)

    def note_end(self) -> None:
        """Add what the function of this run writes to the batch that has the end of the run."""
        state, place = self.journal.state, self.prefix.rstrip("/")
        if place in state.asked:
            state.note(place, self.origin.run.run_id)

    def note_start(self) -> None:
        """Add the start of the run to the next batch, unless that has been done."""
        if self.start is None:
            return
        (definition, members), self.start = self.start, None
        self.journal.define(definition)
        outcome = {**members, "definition": definition.digest}
        at_us = self.origin.run.created_us
        self.note_step(START, StepKind.START, definition.component_id, at_us, outcome)

    def note_request(self, request: ModelRequestStarted) -> None:
        """Begin with the answer to `request`."""
        self.heard.clear()
        self.first_us, self._listening, self.request = None, False, request
        self.note(request)

    def listen(self) -> None:
        """Begin anew with the answer; those who follow it live are told."""
        self.heard.clear()
        self.first_us, self._listening = None, False
        if self.streamed and self.request is not None:
            self.note(evolve(self.request, again=True))

    def hear(self, piece: str) -> None:
        """Keep a piece of the answer, and note it for the sake of those who follow it live."""
        if not piece:
            return
        self._listening = True
        if self.held:
            return
        if not piece.isascii() or "\0" in piece:  # `storable` looks so first
            piece = storable(piece)
        self.heard.append(piece)
        if self.streamed:
            self.note(RunContent(piece))

    def think(self, piece: str) -> None:
        """Note a piece of what the model thinks, for the sake of those who follow it live."""
        if piece and self.streamed and not self.held:
            self.note(RunContent(reasoning_content=storable(piece)))

    def release(self, answer: str) -> None:
        """Note an answer that was held back, now that it is judged."""
        self.held = False
        self.hear(answer)
        self.held = True

    def settle(self) -> Program[None]:
        """Store and show what is pending, of whoever spoke."""
        yield from self.journal.settle()
        self.look()

    def look(self) -> None:
        """Keep the time at which the first piece of the answer was there."""
        if self._listening and self.first_us is None:
            self.first_us = self.journal.now_us
